"""What `kubectl get` shows of objects in the sandbox."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.tables.printers import (
    AGE_COLUMN,
    PRINTERS,
    PrinterColumn,
    custom_printer,
    format_selector,
    human_duration,
    printer_of,
)
from haulout_sandbox.apiserver.tables.table_convertor import accepts_table
from support.apiserver.requests import a_node

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [(0, "0s"), (119, "119s"), (121, "2m1s"), (660, "11m"), (10860, "3h1m"), (172800, "2d"), (63158400, "2y1d")],
)
def test_an_age_has_two_or_three_figures(seconds: int, printed: str) -> None:
    assert human_duration(timedelta(seconds=seconds)) == printed


def cells(obj: JsonObject, group: str, kind: str) -> dict[str, Any]:
    printer = printer_of(group, kind)
    return dict(zip((item.name for item in printer.headers), printer.cells(obj, NOW), strict=True))


def a_pod(status: JsonObject, *, meta: JsonObject | None = None, **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": "cart-0", "creationTimestamp": "2026-01-05T08:00:00Z", **(meta or {})},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], **spec},
        "status": {"phase": "Running", **status},
    }


def containers(*states: JsonObject, **more: Any) -> list[JsonObject]:
    return [{"name": name, "restartCount": 1, "state": item, **more} for name, item in zip("abc", states, strict=False)]


RUNNING: JsonObject = {"running": {"startedAt": "2026-01-05T08:00:00Z"}}
DONE: JsonObject = {"terminated": {"exitCode": 0, "reason": "Completed"}}
FAILED: JsonObject = {"terminated": {"exitCode": 3}}
CRASHING: JsonObject = {"waiting": {"reason": "CrashLoopBackOff"}}
NOT_YET: JsonObject = {"conditions": [{"type": "Initialized", "status": "False"}]}
DELETED = {"deletionTimestamp": "2026-01-05T08:59:00Z"}


@pytest.mark.parametrize(
    ("pod", "shown"),
    [
        (a_pod({"phase": "Pending"}), "Pending"),
        (a_pod({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        (a_pod({"containerStatuses": containers(RUNNING, RUNNING)}), "Running"),
        (a_pod({"containerStatuses": containers(CRASHING, FAILED)}), "CrashLoopBackOff"),
        (a_pod({"phase": "Succeeded", "containerStatuses": containers(DONE, DONE)}), "Completed"),
        (a_pod({"containerStatuses": containers(DONE, RUNNING, ready=True)}), "Running"),
        (a_pod({"initContainerStatuses": containers(DONE, RUNNING), **NOT_YET}), "Init:1/2"),
        (a_pod({"initContainerStatuses": containers(FAILED), **NOT_YET}), "Init:ExitCode:3"),
        (a_pod({}, meta=DELETED), "Terminating"),
        (a_pod({"phase": "Succeeded"}, meta=DELETED), "Succeeded"),
    ],
)
def test_the_status_column_of_a_pod_has_its_most_specific_reason(pod: JsonObject, shown: str) -> None:
    assert cells(pod, "", "Pod")["Status"] == shown


def test_a_pod_shows_readiness_restarts_age_and_place() -> None:
    pod = a_pod({"containerStatuses": containers(RUNNING, RUNNING, ready=True), "podIP": "10.0.0.1"}, nodeName="n1")
    shown = cells(pod, "", "Pod")
    assert (shown["Ready"], shown["Restarts"], shown["Age"]) == ("2/2", "2", "60m")
    assert (shown["IP"], shown["Node"]) == ("10.0.0.1", "n1")


def test_a_node_shows_readiness_and_whether_it_is_cordoned() -> None:
    node = a_node() | {"spec": {"unschedulable": True}}
    node["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": ""}
    node["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    shown = cells(node, "", "Node")
    assert (shown["Status"], shown["Roles"]) == ("Ready,SchedulingDisabled", "control-plane")


def test_a_budget_shows_what_it_asks_for_and_allows() -> None:
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}
    shown = cells(budget, "policy", "PodDisruptionBudget")
    assert list(shown.values())[:4] == ["b", "50%", "N/A", 1]


@pytest.mark.parametrize("key", PRINTERS, ids=str)
def test_every_printer_survives_the_empty_object_of_a_bookmark(key: tuple[str, str]) -> None:
    printer = printer_of(*key)
    assert len(printer.cells({"metadata": {}}, NOW)) == len(printer.headers)


def test_a_kind_without_a_printer_shows_name_and_age() -> None:
    meta = {"name": "x", "creationTimestamp": "2026-01-05T08:00:00Z"}
    assert cells({"metadata": meta}, "example.com", "Thing") == {"Name": "x", "Age": "60m"}


def test_a_custom_resource_shows_the_columns_of_its_definition() -> None:
    columns = (PrinterColumn("Size", "integer", ".spec.size"), PrinterColumn("All", "string", ".spec"), AGE_COLUMN)
    printer = custom_printer((*columns, PrinterColumn("None", "string", ".status.x")))
    meta = {"name": "x", "creationTimestamp": "2026-01-05T08:00:00Z"}
    assert printer.cells({"metadata": meta, "spec": {"size": 3}}, NOW) == ["x", 3, '{"size":3}', "60m", None]


def test_a_selector_reads_as_on_a_command_line() -> None:
    expressions = [{"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "old", "operator": "DoesNotExist"}]
    assert format_selector({"matchLabels": {"app": "x"}, "matchExpressions": expressions}) == "app=x,tier in (a,b),!old"


@pytest.mark.parametrize(
    ("accept", "is_table"), [(KUBECTL, True), ("application/json", False), ("", False), (f"text/html,{KUBECTL}", True)]
)
def test_a_table_is_what_is_asked_for_first(accept: str, *, is_table: bool) -> None:
    assert accepts_table(accept) is is_table


async def test_a_list_and_one_object_are_shown_as_tables(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    for path in ("/api/v1/nodes", "/api/v1/nodes/n1"):
        answer = await api.send(Request(method="GET", path=path, accept=KUBECTL))
        table = msgspec.json.decode(answer.body)
        assert (table["kind"], table["rows"][0]["cells"][0]) == ("Table", "n1")
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        assert table["columnDefinitions"][1]["name"] == "Status"
