"""The results of Go 1.26 for each template: the output, or the line of the parse or render error."""

import json
from pathlib import Path
from typing import Any

import pytest

from haulout.compat.gotemplate import Template, parse
from haulout.errors import TemplateError
from support.builders.go_values import decode_go_value

TABLE = json.loads((Path(__file__).parents[2] / "data" / "go_templates.json").read_text())
DATA = [decode_go_value(raw) for raw in TABLE["data"]]
RENDERED: list[dict[str, Any]] = [case for case in TABLE["cases"] if "output" in case]
NOT_PARSED = [case for case in TABLE["cases"] if case.get("error") == "parse"]
NOT_RENDERED = [case for case in TABLE["cases"] if case.get("error") == "render"]


def parsed(case: dict[str, Any]) -> Template:
    return parse(case["template"], name="t")


def test_templates_render_as_in_go() -> None:
    differing = [
        (case["template"], case["output"], rendered)
        for case in RENDERED
        if (rendered := parsed(case).render(DATA[case["data"]])) != case["output"]
    ]
    assert differing == []


def test_templates_that_go_cannot_parse_are_rejected_in_the_same_line() -> None:
    for case in NOT_PARSED:
        with pytest.raises(TemplateError) as error:
            parsed(case)
        assert error.value.line == case["line"], case


def test_templates_that_go_cannot_render_are_rejected_in_the_same_line() -> None:
    for case in NOT_RENDERED:
        template = parsed(case)
        with pytest.raises(TemplateError) as error:
            template.render(DATA[case["data"]])
        assert error.value.line == case["line"], case


def test_table_has_enough_cases_of_each_kind() -> None:
    assert (len(RENDERED) > 1400, len(NOT_PARSED) > 100, len(NOT_RENDERED) > 150) == (True, True, True)


@pytest.mark.parametrize(
    ("template", "output"),
    [
        ("{{ slice .list .from }}", "[b c]"),  # Go cannot slice by a number from a map
        ("{{ .boss }}", "{Bob 60 [] map[] {Eve 0 [] map[] <nil> 0 <nil> 0 0} 0 <nil> 0 0}"),  # Go: an address
        ('{{ printf "%d" .time }}', "%!d(time.Time=2024-01-02 03:04:05 +0000 UTC)"),  # Go: what a Time consists of
    ],
)
def test_deliberate_deviations_from_go_render_more(template: str, output: str) -> None:
    data = {
        "list": ["a", "b", "c"],
        "from": 1,
        "boss": decode_go_value({"$person": {"Name": "Bob", "Age": 60, "Boss": {"Name": "Eve"}}}),
        "time": decode_go_value({"$time": "2024-01-02T03:04:05Z"}),
    }
    assert parse(template).render(data) == output
