"""What is made from the catalogue of metrics: it is up to date, names nothing that is not there, and can be loaded."""

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
from haulout.core.metering import Kind
from haulout.web import process
from support.alert_cases import FIRE
from support.promql import Expression
from tools.docsite import targets
from tools.metrics import catalogue, grafana
from tools.metrics import files as written
from tools.metrics.alerts import ALERTS, Alert

ROOT = Path(__file__).parents[3]
PANELS: list[dict[str, Any]] = [it for it in grafana.dashboard()["panels"] if it["type"] != "row"]
WORDS = re.compile(r"`(haulout|kubectl) ([a-z-]+)")


def queried(panel: dict[str, Any]) -> list[str]:
    """Return the expressions of a panel, as Prometheus gets them."""
    return [it["expr"].replace("$__rate_interval", "5m") for it in panel["targets"]]


def unknown(expression: str) -> list[str]:
    """Return what an expression names that there is not: metrics, and labels of them."""
    known = catalogue.series()
    return [
        f"{name}{{{label}}}"
        for name, labels in Expression(expression).names.items()
        for label in ("", *labels - {"job"})
        if name not in known or (label and label not in known[name])
    ]


@pytest.mark.parametrize("path", [written.REFERENCE, written.ALERTS, written.DASHBOARD], ids=str)
def test_what_is_made_from_the_catalogue_is_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text() == written.files(ROOT)[path], "run `make docs`"


def test_the_page_has_a_table_of_each_group() -> None:
    page = (ROOT / written.REFERENCE).read_text()
    assert [it.name for it in catalogue.GROUPS if f"<!-- begin {it.name} -->" not in page] == []
    assert [it.name for it in catalogue.metrics() if f"| `{it.name}` |" not in page] == []


def test_each_metric_is_declared_once_and_listed() -> None:
    """A metric that somebody declares and nobody lists would be missing in the reference."""
    names = [it.name for it in catalogue.metrics()]
    declared = [name for file in Path(haulout.__file__).parent.rglob("*.py") for name in declarations(file)]
    assert sorted(names) == sorted(declared)
    assert len(set(names)) == len(names)


def declarations(file: Path) -> list[str]:
    """Return the names of metrics that a module declares."""
    text = file.read_text()
    if "Metric(" not in text:
        return []
    calls = [it for it in ast.walk(ast.parse(text)) if isinstance(it, ast.Call)]
    made = [it.args[0] for it in calls if isinstance(it.func, ast.Name) and it.func.id == "Metric" and it.args]
    return [str(it.value) for it in made if isinstance(it, ast.Constant)]


def test_names_say_what_is_counted() -> None:
    ours = [it for it in catalogue.metrics() if it.name.startswith("haulout_")]
    assert [it.name for it in ours if it.name.endswith("_total") != (it.kind is Kind.COUNTER)] == []
    assert [it.name for it in ours if "_seconds" in it.name and it.unit != "seconds"] == []
    assert [it.name for it in catalogue.metrics() if not it.help.endswith(".")] == []


# Alerts


@pytest.mark.parametrize("alert", ALERTS, ids=lambda it: it.name)
def test_an_alert_names_what_there_is(alert: Alert) -> None:
    assert unknown(alert.expr) == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda it: it.name)
def test_an_alert_tells_what_to_type(alert: Alert) -> None:
    commands = {name for who, name in WORDS.findall(alert.description) if who == "haulout"}
    assert commands <= set(program.commands)
    by = re.findall(r"by \(([^)]*)\)", alert.expr)
    labels = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
    assert labels <= {label.strip() for group in by for label in group.split(",")}
    assert re.fullmatch(r"(\d+[smhd])?", alert.lasts)
    assert not alert.summary.endswith(".")


def test_rules_are_as_prometheus_reads_them() -> None:
    [group] = yaml.safe_load((ROOT / written.ALERTS).read_text())["groups"]
    assert [it["alert"] for it in group["rules"]] == [it.name for it in ALERTS]
    for rule in group["rules"]:
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


# The runbook


RUNBOOK = ROOT / "docs" / "operations" / "alerts.md"


def section(alert: Alert) -> str:
    """Return what the runbook says of an alert."""
    page = RUNBOOK.read_text()
    assert f"\n## {alert.name}\n" in page, f"{alert.name} has no section in {RUNBOOK.name}"
    return page.partition(f"\n## {alert.name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda it: it.name)
def test_the_runbook_of_an_alert_says_what_it_means_what_to_look_at_and_what_to_do(alert: Alert) -> None:
    says = section(alert)
    meaning, look, do = (says.find(it) for it in ("**Means.** ", "**Look.**\n\n    ", "**Do.**"))
    assert 0 <= meaning < look < do
    assert not set(re.findall(r"haulout ([a-z-]+)", " ".join(re.findall(r"`(haulout .*?)`", says)))) - set(
        program.commands
    )


def test_the_link_of_each_alert_leads_to_its_section() -> None:
    [group] = yaml.safe_load((ROOT / written.ALERTS).read_text())["groups"]
    headings = {targets.anchor(it) for it in re.findall(r"^## (.+)$", RUNBOOK.read_text(), re.MULTILINE)}
    page = targets.address(RUNBOOK.relative_to(ROOT).as_posix())
    for rule in group["rules"]:
        address, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert address.endswith(f"/{page}")
        assert anchor in headings


def test_the_runbook_has_no_section_of_an_alert_that_is_no_more() -> None:
    told = re.findall(r"^## (Haulout\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert told == [it.name for it in ALERTS], "in the order of the alerts"


def test_promtool_tries_each_alert() -> None:
    """tests/cluster/test_alerts.py does."""
    assert {it.name for it in FIRE} == {it.name for it in ALERTS}


# The dashboard


@pytest.mark.parametrize("panel", PANELS, ids=lambda it: str(it["title"]))
def test_a_panel_names_what_there_is(panel: dict[str, Any]) -> None:
    assert [name for it in queried(panel) for name in unknown(it)] == []


@pytest.mark.parametrize("panel", PANELS, ids=lambda it: str(it["title"]))
def test_legends_name_labels_that_are_left(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        kept = {it.strip() for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for it in group.split(",")}
        wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert wanted <= kept or " by " not in target["expr"]


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = grafana.dashboard()["panels"]
    assert len({it["id"] for it in panels}) == len(panels)
    squares = [
        {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        for at in (it["gridPos"] for it in panels)
    ]
    assert all(not one & other for one, other in combinations(squares, 2))
    assert all(x < 24 for square in squares for x, _ in square)


def test_the_dashboard_can_be_imported() -> None:
    made = json.loads((ROOT / written.DASHBOARD).read_text())
    assert made["schemaVersion"] >= 36
    assert [it["title"] for it in made["panels"] if it["type"] == "row"] == [
        *("Fleet", "Drains", "Budgets", "Notices", "Hub", "Kubernikus and ESX", "Health")
    ]
    source, job = made["templating"]["list"]
    assert (source["name"], source["type"]) == ("datasource", "datasource")
    assert {str(it["datasource"]["uid"]) for it in (job, *made["panels"]) if "datasource" in it} == {"${datasource}"}
    refs = [[it["refId"] for it in panel["targets"]] for panel in made["panels"] if "targets" in panel]
    assert all(len(set(it)) == len(it) for it in refs)


def test_almost_every_metric_is_shown() -> None:
    """What is not shown is told by another number that is."""
    shown = {name for panel in PANELS for it in queried(panel) for name in Expression(it).names}
    shown |= {name for it in ALERTS for name in Expression(it.expr).names}
    endings = ("", "_bucket", "_count", "_sum")
    ours = [it for it in catalogue.metrics() if it not in process.METRICS]
    missing = {it.name for it in ours if not {it.name + end for end in endings} & shown}
    assert missing == {
        "maintenance_controller_pod_shuffle_count",
        "controller_runtime_reconcile_total",
        "controller_runtime_reconcile_errors_total",
        "workqueue_depth",
        "haulout_profiles_waited_seconds_total",
        "haulout_profiles_worked_seconds_total",
        "haulout_drain_pods_left",
        # of each node, where somebody has agents scraped; haulout_agent_up tells whether to look at them
        "haulout_agent_silent_seconds",
        "haulout_agent_requests_total",
        "haulout_agent_notices_written_total",
        "haulout_agent_quarantined_total",
    }
