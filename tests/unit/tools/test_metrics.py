"""Files generated from the metrics catalogue: up to date, with existing names only, and loadable."""

import ast
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

import haulout
from haulout.cli.entry import haulout as program
from haulout.core.metrics import MetricKind, counter, gauge, histogram
from haulout.httpserver import metrics
from haulout.runtime.package_files import Alert
from support.metrics.alert_cases import FIRING_CASES
from support.metrics.promql import Expression
from tools.docsite import urls
from tools.metrics import catalogue, grafana
from tools.metrics import files as written
from tools.metrics.alerts import ALERTS

ROOT = Path(__file__).parents[3]
PANELS: list[dict[str, Any]] = [it for it in grafana.dashboard()["panels"] if it["type"] != "row"]
WORDS = re.compile(r"`(haulout|kubectl) ([a-z-]+)")


def panel_expressions(panel: dict[str, Any]) -> list[str]:
    """Return the expressions of a panel, as Prometheus receives them."""
    return [target["expr"].replace("$__rate_interval", "5m") for target in panel["targets"]]


def unknown_names(expression: str) -> list[str]:
    """Return the unknown metrics and labels of an expression."""
    known = catalogue.series()
    return [
        f"{name}{{{label}}}"
        for name, labels in Expression(expression).names.items()
        for label in ("", *labels - {"job"})
        if name not in known or (label and label not in known[name])
    ]


@pytest.mark.parametrize("path", [written.REFERENCE, written.ALERTS, written.DASHBOARD], ids=str)
def test_files_generated_from_the_metrics_catalogue_are_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text() == written.files(ROOT)[path], "run `make docs`"


def test_reference_has_a_table_of_each_metric_group() -> None:
    page = (ROOT / written.REFERENCE).read_text()
    assert [item.name for item in catalogue.GROUPS if f"<!-- begin {item.name} -->" not in page] == []
    assert [item.name for item in catalogue.metrics() if f"| `{item.name}` |" not in page] == []


def test_each_metric_is_declared_once_and_listed() -> None:
    """A declared metric that is not listed would be missing in the reference."""
    names = [metric.name for metric in catalogue.metrics()]
    declared = [name for file in Path(haulout.__file__).parent.rglob("*.py") for name in declarations(file)]
    assert sorted(names) == sorted(declared)
    assert len(set(names)) == len(names)


_DECLARATIONS = (counter.__name__, gauge.__name__, histogram.__name__)


def declarations(file: Path) -> list[str]:
    """Return the names of metrics that a module declares."""
    text = file.read_text()
    if "core.metrics import" not in text:
        return []
    calls = [call for call in ast.walk(ast.parse(text)) if isinstance(call, ast.Call)]
    made = [
        call.args[0]
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in _DECLARATIONS and call.args
    ]
    return [str(call.value) for call in made if isinstance(call, ast.Constant)]


def test_names_of_counters_end_in_total() -> None:
    ours = [item for item in catalogue.metrics() if item.name.startswith("haulout_")]
    assert [item.name for item in ours if item.name.endswith("_total") != (item.kind is MetricKind.COUNTER)] == []
    assert [item.name for item in catalogue.metrics() if not item.help.endswith(".")] == []


# Alerts


@pytest.mark.parametrize("alert", ALERTS, ids=lambda it: it.name)
def test_alert_expressions_refer_to_existing_metrics(alert: Alert) -> None:
    assert unknown_names(alert.expr) == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda it: it.name)
def test_alert_descriptions_refer_to_existing_commands_and_labels(alert: Alert) -> None:
    commands = {name for tool, name in WORDS.findall(alert.description) if tool == "haulout"}
    assert commands <= set(program.commands)
    by = re.findall(r"by \(([^)]*)\)", alert.expr)
    labels = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
    assert labels <= {label.strip() for group in by for label in group.split(",")}
    assert re.fullmatch(r"(\d+[smhd])?", alert.for_)
    assert not alert.summary.endswith(".")


def test_alert_rules_have_the_format_of_prometheus() -> None:
    [group] = yaml.safe_load((ROOT / written.ALERTS).read_text())["groups"]
    assert [item["alert"] for item in group["rules"]] == [item.name for item in ALERTS]
    for rule in group["rules"]:
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


# The runbook


RUNBOOK = ROOT / "docs" / "operations" / "alerts.md"


def section(alert: Alert) -> str:
    """Return the section of the runbook about an alert."""
    page = RUNBOOK.read_text()
    assert f"\n## {alert.name}\n" in page, f"{alert.name} has no section in {RUNBOOK.name}"
    return page.partition(f"\n## {alert.name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda it: it.name)
def test_runbook_of_an_alert_has_meaning_diagnosis_and_remedy(alert: Alert) -> None:
    text = section(alert)
    meaning, diagnosis, remedy = (text.find(name) for name in ("**Means.** ", "**Look.**\n\n    ", "**Do.**"))
    assert 0 <= meaning < diagnosis < remedy
    assert not set(re.findall(r"haulout ([a-z-]+)", " ".join(re.findall(r"`(haulout .*?)`", text)))) - set(
        program.commands
    )


def test_runbook_url_of_each_alert_refers_to_its_section() -> None:
    [group] = yaml.safe_load((ROOT / written.ALERTS).read_text())["groups"]
    headings = {urls.anchor(item) for item in re.findall(r"^## (.+)$", RUNBOOK.read_text(), re.MULTILINE)}
    page = urls.address(RUNBOOK.relative_to(ROOT).as_posix())
    for rule in group["rules"]:
        address, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert address.endswith(f"/{page}")
        assert anchor in headings


def test_runbook_has_no_section_of_a_removed_alert() -> None:
    sections = re.findall(r"^## (Haulout\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sections == [alert.name for alert in ALERTS], "in the order of the alerts"


def test_promtool_tests_each_alert() -> None:
    """tests/cluster/test_alerts.py does."""
    assert {alert.name for alert in FIRING_CASES} == {alert.name for alert in ALERTS}


# The dashboard


@pytest.mark.parametrize("panel", PANELS, ids=lambda it: str(it["title"]))
def test_dashboard_panels_refer_to_existing_metrics(panel: dict[str, Any]) -> None:
    assert [name for item in panel_expressions(panel) for name in unknown_names(item)] == []


@pytest.mark.parametrize("panel", PANELS, ids=lambda it: str(it["title"]))
def test_panel_legends_use_labels_kept_by_aggregation(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        kept = {part.strip() for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for part in group.split(",")}
        wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert wanted <= kept or " by " not in target["expr"]


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    panels = grafana.dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    squares = [
        {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        for at in (panel["gridPos"] for panel in panels)
    ]
    assert all(not one & other for one, other in combinations(squares, 2))
    assert all(x < 24 for square in squares for x, _ in square)


def test_the_dashboard_can_be_imported() -> None:
    made = json.loads((ROOT / written.DASHBOARD).read_text())
    assert made["schemaVersion"] >= 36
    assert [item["title"] for item in made["panels"] if item["type"] == "row"] == [
        *("Fleet", "Drains", "Budgets", "Notices", "Hub", "Kubernikus and ESX", "Health")
    ]
    source, job = made["templating"]["list"]
    assert (source["name"], source["type"]) == ("datasource", "datasource")
    assert {str(item["datasource"]["uid"]) for item in (job, *made["panels"]) if "datasource" in item} == {
        "${datasource}"
    }
    refs = [[item["refId"] for item in panel["targets"]] for panel in made["panels"] if "targets" in panel]
    assert all(len(set(item)) == len(item) for item in refs)


def test_almost_every_metric_is_used_in_a_panel_or_alert() -> None:
    """Another metric that is shown covers each one that is not."""
    shown = {name for panel in PANELS for item in panel_expressions(panel) for name in Expression(item).names}
    shown |= {name for item in ALERTS for name in Expression(item.expr).names}
    endings = ("", "_bucket", "_count", "_sum")
    ours = [item for item in catalogue.metrics() if item not in metrics.PROCESS_METRICS]
    missing = {item.name for item in ours if not {item.name + end for end in endings} & shown}
    assert missing == {
        "maintenance_controller_pod_shuffle_count",
        "controller_runtime_reconcile_total",
        "controller_runtime_reconcile_errors_total",
        "workqueue_depth",
        "haulout_profiles_queue_seconds_total",
        "haulout_profiles_reconcile_seconds_total",
        "haulout_drain_pods_left",
        # per node, if agents are scraped; haulout_agent_up shows whether to look at them
        "haulout_agent_silent_seconds",
        "haulout_agent_requests_total",
        "haulout_agent_notices_written_total",
        "haulout_agent_quarantined_total",
    }
