"""Data of notification templates, compared with Go's output for the types of k8s.io/api v0.36.3."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from haulout.compat.gotemplate import parse
from haulout.controllers.profiles.notify.template_data import check_template, template_value
from haulout.controllers.profiles.plugin import Message, State
from haulout.errors import TemplateError

TABLE = json.loads((Path(__file__).parents[3] / "data" / "go_node_templates.json").read_text())
RENDERED: list[dict[str, Any]] = [case for case in TABLE["cases"] if "output" in case]
REFUSED: list[dict[str, Any]] = [case for case in TABLE["cases"] if "error" in case]
NODE = TABLE["data"][0]
INSTEAD = ".Node, .State, .Profile, .InMaintenance, .LastTransition and .LogDetails can be used"


def a_message(raw: dict[str, Any] = NODE, **changes: Any) -> Message:
    fields: dict[str, Any] = {
        "raw_node": raw,
        "state": State.IN_MAINTENANCE,
        "profile": "os",
        "is_in_maintenance": True,
        "last_transition": datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC),
        "logs_details": False,
        "current_profile": "os",
        "last_profile": "kernel",
        "now": datetime(2026, 2, 3, 5, tzinfo=UTC),
        "client": None,
    }
    return Message(**fields | changes)


def rendered(text: str, message: Message | None = None) -> str:
    return parse(text).render(template_value(message or a_message()))


def test_templates_render_like_in_go() -> None:
    differing = [
        (case["template"], case["output"], text)
        for case in RENDERED
        if (text := rendered(case["template"], a_message(TABLE["data"][case["data"]]))) != case["output"]
    ]
    assert differing == []


def test_input_refused_by_go_is_refused() -> None:
    for case in REFUSED:
        with pytest.raises(TemplateError):
            rendered(case["template"], a_message(TABLE["data"][case["data"]]))


def test_check_template_accepts_what_go_renders() -> None:
    reported = {case["template"] for case in RENDERED if check_template(case["template"])}
    assert reported == {"{{ .Node.Labels.zone.x }}"}  # Go renders it as long as no node has the label


def test_check_template_refuses_what_go_refuses_for_every_node() -> None:
    refused = {case["template"] for case in REFUSED} - {case["template"] for case in RENDERED}
    of_nothing = {
        "{{ .Node.Status.Config.Error }}",
        '{{ .Node.DeletionTimestamp.Format "15" }}',
    }  # may be there one day
    assert {text for text in refused if not check_template(text)} == of_nothing


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ .Node.Nmae }}", "message:1:9: there is no .Nmae in v1.Node; did you mean Name?"),
        ("{{ .Node.name }}", "message:1:9: there is no .name in v1.Node; did you mean Name?"),
        (
            "{{ .Node.metadata.name }}",
            "message:1:9: there is no .metadata in v1.Node: use .Node.Name and the like",
        ),
        (
            "{{ .Node.Spec.ProviderId }}",
            "message:1:14: there is no .ProviderId in v1.NodeSpec; did you mean ProviderID?",
        ),
        ("{{ .Stat }}", "message:1:4: there is no .Stat in Message; did you mean State?"),
        ("{{ .Profile.Curent }}", "message:1:12: there is no .Curent in string; did you mean Current?"),
        (
            "{{ .Client.Status }}",
            f"message:1:4: .Client is a live object of the Go controller, which Haulout does not have; {INSTEAD}",
        ),
        ("{{ .Node.Name", "message:1:14: expected }}, found the end of the template: an action is not closed"),
    ],
)
def test_template_error_is_reported_when_the_configuration_is_loaded(text: str, problem: str) -> None:
    assert [str(each) for each in check_template(text)] == [problem]


@pytest.mark.parametrize("name", ["Client", "Clientset", "Ctx", "Log", "Recorder"])
def test_live_objects_are_refused_at_rendering(name: str) -> None:
    with pytest.raises(TemplateError, match=f".{name} is a live object of the Go controller"):
        rendered(f"{{{{ .{name} }}}}")


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("{{ .Profile }} {{ .Profile.Current }} {{ .Profile.Last }} {{ len .Profile }}", "os os kernel 2"),
        ('{{ if eq .Profile "os" }}{{ printf "%s %T" .Profile .Profile }}{{ end }}', "os string"),
        ("{{ .State }} {{ .InMaintenance }} {{ .LogDetails }}", "in-maintenance true false"),
        ('{{ .LastTransition.Format "2006-01-02 15:04" }}', "2026-02-03 04:05"),
        ("{{ .LastTransition }}", "2026-02-03 04:05:06.789 +0000 UTC"),
        ("{{ .Node.Status.Capacity.cpu }} {{ index .Node.Status.Capacity `memory` }}", "4 16Gi"),  # Go cannot
        ("{{ range $k, $v := .Node.Status.Allocatable }}{{ $k }}={{ $v }} {{ end }}", "cpu=3920m memory=15Gi "),
        ("{{ .Node.Spec.Taints }}", RENDERED[-2]["output"]),
    ],
)
def test_message_fields_are_rendered(text: str, output: str) -> None:
    assert rendered(text) == output
    assert check_template(text) == ()


def test_missing_transition_is_the_zero_time_of_go() -> None:
    message = a_message(last_transition=None)
    assert rendered("{{ .LastTransition.IsZero }} {{ .LastTransition.Year }}", message) == "true 1"


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": None, "spec": [], "status": "x"},
        {"metadata": {"name": 5, "labels": [], "creationTimestamp": "soon", "ownerReferences": {}}},
        {"status": {"capacity": {"cpu": "lots", "memory": None}, "conditions": [None, 7], "addresses": "none"}},
    ],
)
def test_malformed_node_renders_as_empty(raw: dict[str, Any]) -> None:
    text = "".join(sorted({case["template"] for case in RENDERED if case["data"] == 1}))
    assert (
        rendered("{{ .Node.Name }}|{{ .Node.Spec.Unschedulable }}|{{ .Node.Labels }}", a_message(raw)) == "|false|map[]"
    )
    assert rendered("{{ .Node.Status }}{{ .Node.ObjectMeta }}{{ .Node.Spec }}", a_message(raw))
    assert "worker-3" not in rendered(text.replace("{{slice .Node.Name 0 3}}", ""), a_message(raw))
