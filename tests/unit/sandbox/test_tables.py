"""What the sandbox's tables promise: what the real server prints. tests/cluster compares the two on more objects."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout_sandbox.apiserver.ages import human_duration
from haulout_sandbox.apiserver.kinds import CONFIG_MAP, LEASE, NAMESPACE, NEW_EVENT, NODE, POD, JsonObject, Kind
from haulout_sandbox.apiserver.status import Refused
from haulout_sandbox.apiserver.tables import PRINTERS, Column, asks_for_table, included, table, table_of

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)

GO_PRINTED = (  # milliseconds, and what HumanDuration of apimachinery v0.36.3 makes of them
    (-3000, "<invalid>"),
    (-2000, "<invalid>"),
    (-1999, "0s"),
    (-1, "0s"),
    (0, "0s"),
    (999, "0s"),
    (1500, "1s"),
    (60000, "60s"),
    (119999, "119s"),
    (120000, "2m"),
    (121000, "2m1s"),
    (599999, "9m59s"),
    (600000, "10m"),
    (659000, "10m"),
    (3600000, "60m"),
    (10799999, "179m"),
    (10800000, "3h"),
    (10859000, "3h"),
    (10860000, "3h1m"),
    (28799000, "7h59m"),
    (28801000, "8h"),
    (86400000, "24h"),
    (172799000, "47h"),
    (172800000, "2d"),
    (176399000, "2d"),
    (176400000, "2d1h"),
    (691199000, "7d23h"),
    (691200000, "8d"),
    (31536000000, "365d"),
    (63071999000, "729d"),
    (63072000000, "2y"),
    (63158399000, "2y"),
    (63158400000, "2y1d"),
    (97890123456, "3y37d"),
    (252287999000, "7y364d"),
    (252288000000, "8y"),
    (252374400000, "8y"),
    (3153600000000, "100y"),
)


@pytest.mark.parametrize(("milliseconds", "printed"), GO_PRINTED)
def test_a_duration_is_printed_as_go_prints_it(milliseconds: int, printed: str) -> None:
    assert human_duration(timedelta(milliseconds=milliseconds)) == printed


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36500)))
def test_a_printed_duration_is_never_longer_than_the_real_one_nor_shorter_by_much(elapsed: timedelta) -> None:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
    seconds, number = 0, ""
    for letter in human_duration(elapsed):
        if letter.isdecimal():
            number += letter
        else:
            seconds, number = seconds + int(number) * units[letter], ""
    assert seconds <= elapsed.total_seconds() < max(seconds * 1.15, seconds + 1)


def a_pod(status: JsonObject | None = None, *, meta: JsonObject | None = None, **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": "cart-0", "creationTimestamp": "2026-01-05T08:00:00Z", **(meta or {})},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], **spec},
        "status": {"phase": "Running", **(status or {})},
    }


def containers(*states: JsonObject, **more: Any) -> list[JsonObject]:
    return [{"name": name, "restartCount": 0, "state": it, **more} for name, it in zip("abc", states, strict=False)]


def cells(pod: JsonObject) -> list[Any]:
    row: list[Any] = table_of(POD, pod, now=NOW)["rows"][0]["cells"]
    return row


RUNNING: JsonObject = {"running": {"startedAt": "2026-01-05T08:00:00Z"}}
DONE: JsonObject = {"terminated": {"exitCode": 0, "reason": "Completed"}}
KILLED: JsonObject = {"terminated": {"exitCode": 137, "signal": 9}}
FAILED: JsonObject = {"terminated": {"exitCode": 3}}
CRASHING: JsonObject = {"waiting": {"reason": "CrashLoopBackOff"}}
STARTING: JsonObject = {"waiting": {"reason": "PodInitializing"}}
READY = [{"type": "Ready", "status": "True"}]
INITS: JsonObject = {"initContainers": [{"name": "a"}, {"name": "b"}]}
DELETED = {"deletionTimestamp": "2026-01-05T08:59:00Z"}


@pytest.mark.parametrize(
    ("pod", "shown"),
    [
        (a_pod({"phase": "Pending"}), "Pending"),
        (a_pod({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        (a_pod({"containerStatuses": containers(RUNNING, RUNNING)}), "Running"),
        (a_pod({"containerStatuses": containers(CRASHING, FAILED)}), "CrashLoopBackOff"),
        (a_pod({"containerStatuses": containers(RUNNING, FAILED)}), "ExitCode:3"),
        (a_pod({"containerStatuses": containers(KILLED)}), "Signal:9"),
        (a_pod({"phase": "Succeeded", "containerStatuses": containers(DONE, DONE)}), "Completed"),
        (a_pod({"containerStatuses": containers(DONE, RUNNING, ready=True), "conditions": READY}), "Running"),
        (a_pod({"containerStatuses": containers(DONE, RUNNING, ready=True)}), "NotReady"),
        (a_pod({"containerStatuses": containers(DONE, FAILED)}), "ExitCode:3"),
        (a_pod({"initContainerStatuses": containers(RUNNING, STARTING)}, **INITS), "Init:0/2"),
        (a_pod({"initContainerStatuses": containers(DONE, STARTING)}, **INITS), "Init:1/2"),
        (a_pod({"initContainerStatuses": containers(DONE, CRASHING)}, **INITS), "Init:CrashLoopBackOff"),
        (a_pod({"initContainerStatuses": containers(FAILED)}, **INITS), "Init:ExitCode:3"),
        (a_pod({"initContainerStatuses": containers(DONE, DONE)}, **INITS), "Running"),
        (a_pod({"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}), "SchedulingGated"),
        (a_pod(meta=DELETED), "Terminating"),
        (a_pod({"reason": "NodeLost"}, meta=DELETED), "Unknown"),
        (a_pod({"phase": "Succeeded", "containerStatuses": containers(DONE)}, meta=DELETED), "Completed"),
    ],
)
def test_a_pod_tells_in_one_word_how_it_is(pod: JsonObject, shown: str) -> None:
    assert cells(pod)[2] == shown


def test_ready_counts_containers_and_sidecars() -> None:
    status = {
        "containerStatuses": containers(RUNNING, RUNNING, ready=True),
        "initContainerStatuses": containers(RUNNING, started=True, ready=True),
    }
    assert cells(a_pod(status, initContainers=[{"name": "a", "restartPolicy": "Always"}]))[1] == "3/3"
    assert cells(a_pod({"containerStatuses": containers(RUNNING, CRASHING)}))[1] == "0/2"


def test_restarts_tell_when_the_last_one_was() -> None:
    def ended(instant: str) -> JsonObject:
        return {"lastState": {"terminated": {"finishedAt": instant}}, "restartCount": 2}

    statuses = containers(RUNNING, RUNNING)
    statuses[0] |= ended("2026-01-05T08:55:00Z")
    assert cells(a_pod({"containerStatuses": statuses}))[3] == "2 (5m ago)"
    statuses[1] |= ended("2026-01-05T08:59:59Z")
    assert cells(a_pod({"containerStatuses": statuses}))[3] == "4 (1s ago)"
    assert cells(a_pod({"containerStatuses": containers(RUNNING, restartCount=3)}))[3] == "3"
    assert cells(a_pod())[3] == "0"


def test_only_the_restarts_of_sidecars_and_containers_count_once_a_pod_is_initialized() -> None:
    status = {
        "initContainerStatuses": containers(DONE, restartCount=7),
        "containerStatuses": containers(RUNNING, restartCount=1),
    }
    assert cells(a_pod(status, **INITS))[3] == "1"
    status["initContainerStatuses"][0]["state"] = CRASHING
    assert cells(a_pod(status, **INITS))[3] == "7"


def test_wide_columns_of_a_pod() -> None:
    gates: JsonObject = {"readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]}
    status = {"podIP": "10.0.0.9", "conditions": [{"type": "y", "status": "True"}], "nominatedNodeName": "n2"}
    assert cells(a_pod(status, nodeName="n1", **gates))[5:] == ["10.0.0.9", "n1", "n2", "1/2"]
    assert cells(a_pod())[5:] == ["<none>"] * 4


def test_a_pod_that_is_over_is_marked_so_that_clients_can_hide_it() -> None:
    (row,) = table_of(POD, a_pod({"phase": "Failed"}), now=NOW)["rows"]
    assert row["conditions"] == [{"type": "Completed", "status": "True", "reason": "Failed"}]
    assert "conditions" not in table_of(POD, a_pod(), now=NOW)["rows"][0]


@pytest.mark.parametrize(
    ("conditions", "unschedulable", "shown"),
    [
        ([], False, "Unknown"),
        ([{"type": "Ready", "status": "True"}], False, "Ready"),
        ([{"type": "Ready", "status": "True"}], True, "Ready,SchedulingDisabled"),
        ([{"type": "Ready", "status": "Unknown"}], True, "NotReady,SchedulingDisabled"),
    ],
)
def test_a_node_tells_whether_it_is_ready_and_takes_pods(
    conditions: list[JsonObject], *, unschedulable: bool, shown: str
) -> None:
    node = {"metadata": {"name": "n1"}, "spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions}}
    assert table_of(NODE, node, now=NOW)["rows"][0]["cells"][:3] == ["n1", shown, "<none>"]


def test_a_node_tells_its_roles_sorted() -> None:
    labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "", "kubernetes.io/role": "edge"}
    node = {"metadata": {"name": "n1", "labels": labels}}
    assert table_of(NODE, node, now=NOW)["rows"][0]["cells"][2] == "edge,worker"


def test_a_new_event_is_shown_like_an_old_one() -> None:
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-05T08:58:00.000000Z",
        "regarding": {"kind": "Node", "name": "n1"},
        "note": "it moved\n",
        "reportingController": "mover",
        "reportingInstance": "m-0",
        "type": "Normal",
        "reason": "Moved",
    }
    (row,) = table_of(NEW_EVENT, event, now=NOW)["rows"]
    assert row["cells"] == ["2m", "Normal", "Moved", "node/n1", "", "mover, m-0", "it moved", "2m", 1, "e"]


BOOKMARKS = {  # as the real server shows the empty object of a bookmark
    ("", "Node"): ["", "Unknown", "<none>", "<unknown>", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"],
    ("apps", "Deployment"): ["", "0/0", 0, 0, "<unknown>", "", "", ""],
    ("apps", "ReplicaSet"): ["", 0, 0, 0, "<unknown>", "", "", "<none>"],
    ("", "ReplicationController"): ["", 0, 0, 0, "<unknown>", "", "", "<none>"],
    ("apps", "StatefulSet"): ["", "0/0", "<unknown>", "", ""],
    ("apps", "DaemonSet"): ["", 0, 0, 0, 0, 0, "<none>", "<unknown>", "", "", "<none>"],
    ("batch", "Job"): ["", "Running", "0/1", "", "<unknown>", "", "", "<none>"],
    ("batch", "CronJob"): ["", "", "<none>", "<unset>", 0, "<none>", "<unknown>", "", "", "<none>"],
    ("", "Service"): ["", "", "<none>", "<unknown>", "<none>", "<unknown>", "<none>"],
    ("", "Endpoints"): ["", "<none>", "<unknown>"],
    ("discovery.k8s.io", "EndpointSlice"): ["", "", "<unset>", "<unset>", "<unknown>"],
    ("", "Event"): ["<unknown>", "", "", "", "", "", "", "<unknown>", 1, ""],
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ["", "/", "<unknown>", "", "", ""],
    ("", "PersistentVolume"): ["", "0", "", "", "", "", "", "<unset>", "", "<unknown>", "<unset>"],
    ("", "PersistentVolumeClaim"): ["", "", "", "", "", "", "<unset>", "<unknown>", "<unset>"],
    ("storage.k8s.io", "StorageClass"): ["", "", "Delete", "Immediate", False, "<unknown>"],
}


@pytest.mark.parametrize("group_and_kind", PRINTERS)
def test_every_printer_survives_a_bookmark(group_and_kind: tuple[str, str]) -> None:
    group, kind = group_and_kind
    shown = table_of(Kind(group=group, version="v1", plural="x", kind=kind), {"metadata": {}}, now=NOW)
    assert len(shown["rows"][0]["cells"]) == len(shown["columnDefinitions"])
    assert shown["rows"][0]["cells"] == BOOKMARKS.get(group_and_kind, shown["rows"][0]["cells"])


LISTS = ("containers", "initContainers", "ports", "readinessGates", "conditions", "addresses")
EMPTY_LISTS: JsonObject = {name: [{}] for name in (*LISTS, "containerStatuses", "initContainerStatuses", "endpoints")}
SPARSE: JsonObject = {
    "metadata": {"name": "x", "ownerReferences": [{}]},
    "spec": EMPTY_LISTS | {"template": {"spec": EMPTY_LISTS}, "podSelector": {"matchExpressions": [{}]}},
    "status": EMPTY_LISTS | {"loadBalancer": {"ingress": [{}]}},
    "subsets": [{"addresses": [{}], "ports": [{}]}],
    "subjects": [{}],
    **EMPTY_LISTS,
}


@pytest.mark.parametrize("group_and_kind", PRINTERS)
def test_every_printer_survives_objects_that_say_next_to_nothing(group_and_kind: tuple[str, str]) -> None:
    group, kind = group_and_kind
    shown = table_of(Kind(group=group, version="v1", plural="x", kind=kind), SPARSE, now=NOW)
    assert "x" in shown["rows"][0]["cells"]


def a_kind(api_version: str, kind: str) -> Kind:
    group, _, version = api_version.rpartition("/")
    return Kind(group=group, version=version, plural="x", kind=kind)


TEMPLATE: JsonObject = {"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}}
SELECTOR: JsonObject = {
    "matchLabels": {"b": "c"},
    "matchExpressions": [
        {"key": "d", "operator": "NotIn", "values": ["y", "x"]},
        {"key": "a", "operator": "Exists"},
        {"key": "e", "operator": "DoesNotExist"},
    ],
}
OWNED = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}]}


@pytest.mark.parametrize(
    ("kind", "obj", "shown"),
    [
        (
            a_kind("apps/v1", "Deployment"),
            {
                "spec": {"selector": SELECTOR, "template": TEMPLATE},
                "status": {"readyReplicas": 1, "updatedReplicas": 2},
            },
            ["1/1", 2, 0, "<unknown>", "a,b", "i,j", "a,b=c,d notin (x,y),!e"],
        ),
        (a_kind("apps/v1", "ControllerRevision"), {"revision": 3}, ["<none>", 3, "<unknown>"]),
        (a_kind("apps/v1", "ControllerRevision"), {"metadata": OWNED}, ["daemonset.apps/d", 0, "<unknown>"]),
        (
            a_kind("batch/v1", "Job"),
            {
                "spec": {"completions": 3},
                "status": {
                    "succeeded": 3,
                    "startTime": "2026-01-05T08:00:00Z",
                    "completionTime": "2026-01-05T08:05:01Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            ["Complete", "3/3", "5m1s", "<unknown>", "", "", "<none>"],
        ),
        (
            a_kind("batch/v1", "Job"),
            {"metadata": {"deletionTimestamp": "x"}, "spec": {"parallelism": 2}},
            ["Terminating", "0/1 of 2", "", "<unknown>", "", "", "<none>"],
        ),
        (
            a_kind("policy/v1", "PodDisruptionBudget"),
            {"spec": {"maxUnavailable": 0}, "status": {"disruptionsAllowed": 2}},
            ["N/A", "0", 2, "<unknown>"],
        ),
        (
            a_kind("v1", "Service"),
            {"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.5", "ports": [{"port": 80, "nodePort": 30080}]}},
            ["LoadBalancer", "10.0.0.5", "<pending>", "80:30080/TCP", "<unknown>", "<none>"],
        ),
        (
            a_kind("v1", "Service"),
            {"spec": {"type": "ExternalName", "externalName": "example.org", "selector": {"b": "1", "a": "2"}}},
            ["ExternalName", "<none>", "example.org", "<none>", "<unknown>", "a=2,b=1"],
        ),
        (
            a_kind("v1", "Endpoints"),
            {
                "subsets": [
                    {"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}, {"port": 81}]}
                ]
            },
            ["10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 1 more...", "<unknown>"],
        ),
        (
            a_kind("v1", "PersistentVolumeClaim"),
            {
                "metadata": {"deletionTimestamp": "x"},
                "spec": {"volumeName": "v"},
                "status": {"phase": "Bound", "accessModes": ["ReadWriteMany", "ReadWriteOnce"]},
            },
            ["Terminating", "v", "0", "RWO,RWX", "", "<unset>", "<unknown>", "<unset>"],
        ),
    ],
)
def test_a_kind_shows_its_own_columns(kind: Kind, obj: JsonObject, shown: list[Any]) -> None:
    obj = {**obj, "metadata": {"name": "x", **obj.get("metadata", {})}}
    assert table_of(kind, obj, now=NOW)["rows"][0]["cells"] == ["x", *shown]


def test_a_watch_describes_columns_in_its_first_table_only() -> None:
    later = table_of(NAMESPACE, {"metadata": {"name": "shop", "resourceVersion": "7"}}, now=NOW, headers=False)
    assert later["columnDefinitions"] is None
    assert later["metadata"] == {"resourceVersion": "7"}


def test_a_list_keeps_its_metadata() -> None:
    metadata = {"resourceVersion": "9", "continue": "abc", "remainingItemCount": 3}
    assert table(CONFIG_MAP, [], now=NOW, list_metadata=metadata) == {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
            {"name": "Data", "type": "string", "format": "", "description": "", "priority": 0},
            {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
        ],
        "rows": [],
    }


def test_a_row_carries_as_much_of_its_object_as_was_asked_for() -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    rows = {
        it: table_of(LEASE, lease, now=NOW, include=included(it))["rows"][0]["object"]
        for it in ("", "Metadata", "Object", "None")
    }
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "l"}}
    whole = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", **lease}
    assert rows == {"": partial, "Metadata": partial, "Object": whole, "None": None}


def test_the_bookmark_that_ends_the_initial_events_is_shown_even_if_no_objects_are_wanted() -> None:
    bookmark = {"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}}
    assert table_of(LEASE, bookmark, now=NOW, include="None")["rows"][0]["object"]["metadata"] == bookmark["metadata"]


def test_an_unknown_part_of_the_object_is_refused() -> None:
    with pytest.raises(Refused, match=r"must be 'Metadata', 'Object', 'None', or empty"):
        included("x")


def test_a_kind_without_a_printer_shows_name_and_creation() -> None:
    kind = Kind(group="rbac.authorization.k8s.io", version="v1", plural="roles", kind="Role")
    role = {"metadata": {"name": "r", "creationTimestamp": "2026-01-05T08:00:00Z"}}
    shown = table_of(kind, role, now=NOW)
    assert [column["name"] for column in shown["columnDefinitions"]] == ["Name", "Created At"]
    assert shown["rows"][0]["cells"] == ["r", "2026-01-05T08:00:00Z"]
    assert table(kind, [], now=NOW, list_metadata={})["rows"] is None


SHIP = Kind(group="example.org", version="v1", plural="ships", kind="Ship", custom=True)


def test_a_custom_resource_without_columns_shows_name_and_age() -> None:
    ship = {"metadata": {"name": "s", "creationTimestamp": "2026-01-03T06:00:00Z"}}
    shown = table_of(SHIP, ship, now=NOW)
    assert [(it["name"], it["type"]) for it in shown["columnDefinitions"]] == [("Name", "string"), ("Age", "date")]
    assert shown["rows"][0]["cells"] == ["s", "2d3h"]


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("string", "a", "a"),
        ("string", 7, "7"),
        ("string", True, "true"),
        ("string", 0.25, "0.25"),
        ("string", 12345678.9, "1.23456789e+07"),
        ("string", 0.00000123, "1.23e-06"),
        ("string", {"b": [1], "a": "<"}, '{"a":"\\u003c","b":[1]}'),
        ("string", None, "<no value>"),
        ("integer", 3, 3),
        ("integer", 3.7, 3),
        ("integer", "3", None),
        ("integer", True, None),
        ("number", 2.5, 2.5),
        ("boolean", False, False),
        ("boolean", "false", None),
        ("date", "2026-01-05T08:59:00Z", "60s"),
        ("date", "2026-01-05T08:59:00", "<invalid>"),
        ("date", "yesterday", "<invalid>"),
        ("date", "", "<unknown>"),
        ("date", 5, None),
    ],
)
def test_a_custom_column_shows_what_its_type_allows(kind: str, value: object, shown: object) -> None:
    ship = {"metadata": {"name": "s"}, "spec": {"value": value}}
    columns = [Column("Value", kind, ".spec.value"), Column("Missing", kind, ".spec.missing")]
    assert table_of(SHIP, ship, now=NOW, columns=columns)["rows"][0]["cells"] == ["s", shown, None]


def test_a_custom_column_is_evaluated_by_whom_the_caller_says() -> None:
    column = Column.of({"name": "X", "type": "string", "jsonPath": "{.a[0]}", "priority": 1, "description": "of a"})
    shown = table_of(
        SHIP, {"metadata": {"name": "s"}}, now=NOW, columns=[column], evaluate=lambda path, _: [path, "no"]
    )
    assert shown["rows"][0]["cells"] == ["s", "{.a[0]}"]
    assert shown["columnDefinitions"][1] == {
        "name": "X",
        "type": "string",
        "format": "",
        "description": "of a",
        "priority": 1,
    }


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (KUBECTL, True),
        ("application/json", False),
        ("application/json, application/json;as=Table;v=v1;g=meta.k8s.io", False),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", False),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", False),
        ("application/json; as=Table; g=meta.k8s.io; v=v1", True),
        ("", False),
    ],
)
def test_a_table_is_what_the_first_served_media_type_says(accept: str, *, wanted: bool) -> None:
    assert asks_for_table(accept) is wanted
