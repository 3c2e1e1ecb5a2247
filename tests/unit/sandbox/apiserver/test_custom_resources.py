"""Custom resources, from a definition to its end: what a client of the sandbox's API server sees of them."""

import asyncio
import copy
from typing import Any

import msgspec
import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from support.apiserver.requests import event_names, merge, request_json, send, watch
from support.builders.crds import (
    INTEGER,
    MACHINE_MAINTENANCE_CRD,
    NODE_MAINTENANCE_CRD,
    STRING,
    VALUE_CRD,
    a_crd,
    object_schema,
)

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MAINTENANCES = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances"
NAME = "nodemaintenances.nodemaintenance.medik8s.io"
GROUP = "haulout.dev"
APPLY = "application/apply-patch+yaml"

NOTICE = a_crd(
    "maintenancenotices",
    "MaintenanceNotice",
    object_schema(nodeName=STRING, tries=INTEGER),
    group=GROUP,
    name="v1alpha1",
    status=object_schema(phase=STRING),
)
NOTICE["spec"]["scope"] = "Cluster"
NOTICES = f"/apis/{GROUP}/v1alpha1/maintenancenotices"
LATER = f"/apis/{GROUP}/v1beta1/maintenancenotices"


def a_maintenance(name: str = "m", **meta: Any) -> JsonObject:
    return {
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
        "kind": "NodeMaintenance",
        "metadata": {"name": name, **meta},
        "spec": {"nodeName": "n1"},
    }


def a_notice(name: str = "x", version: str = "v1alpha1", **spec: Any) -> JsonObject:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "MaintenanceNotice",
        "metadata": {"name": name},
        "spec": {"nodeName": "n1", **spec},
    }


def with_versions(*, storage: str, default: JsonObject | None = None) -> JsonObject:
    """Return the notice's definition with two versions, perhaps with one more field that has a default."""
    crd = copy.deepcopy(NOTICE)
    (first,) = crd["spec"]["versions"]
    if default:
        first["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] |= default
    versions = [first | {"name": name, "storage": name == storage} for name in ("v1alpha1", "v1beta1")]
    crd["spec"]["versions"] = versions
    return crd


async def define(api: InProcessTransport, *definitions: JsonObject) -> None:
    for definition in definitions:
        code, status = await request_json(api, "POST", DEFINITIONS, definition)
        assert code == 201, status


async def redefine(api: InProcessTransport, definition: JsonObject) -> None:
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    code, status = await merge(api, path, spec=definition["spec"])
    assert code == 200, status


async def warnings(api: InProcessTransport, method: str, path: str, body: Any, **query: str) -> list[str]:
    answer = await send(api, method, path, body, **query)
    return [warning for warning in answer.headers.get("warning", "").split(", ") if warning]


# Definitions


async def test_a_watch_shows_a_definition_become_established(cluster: ApiServer, api: InProcessTransport) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    events = await watch(api, DEFINITIONS, resourceVersion="100")
    conditions = [
        {condition["type"]: condition["status"] for condition in crd["status"].get("conditions", [])}
        for _, crd in events
    ]
    assert conditions == [
        {},
        {"NamesAccepted": "True", "Established": "False"},
        {"NamesAccepted": "True", "Established": "True"},
    ]
    assert [write.username for write in cluster.history] == ["api", "apiserver", "apiserver"]


async def test_a_definition_that_is_wrong_is_refused_and_serves_nothing(api: InProcessTransport) -> None:
    wrong = NODE_MAINTENANCE_CRD | {"spec": NODE_MAINTENANCE_CRD["spec"] | {"scope": "Everywhere"}}
    code, status = await request_json(api, "POST", DEFINITIONS, wrong)
    assert (code, status["reason"]) == (422, "Invalid")
    assert (await send(api, "GET", MAINTENANCES)).status == 404


@pytest.mark.parametrize(
    "spec",
    [
        "x",
        {"names": "x"},
        {"versions": {}},
        {"versions": ["x"]},
        {"versions": [{"schema": 3}]},
    ],
)
async def test_a_definition_of_the_wrong_types_is_a_bad_request(api: InProcessTransport, spec: Any) -> None:
    code, status = await request_json(api, "POST", DEFINITIONS, NODE_MAINTENANCE_CRD | {"spec": spec})
    assert (code, status["reason"]) == (400, "BadRequest")


async def test_a_dry_run_defines_nothing(api: InProcessTransport) -> None:
    code, _ = await request_json(api, "POST", DEFINITIONS, NODE_MAINTENANCE_CRD, dryRun="All")
    assert code == 201
    assert (await send(api, "GET", MAINTENANCES)).status == 404


async def test_a_definition_is_compiled_once(cluster: ApiServer, api: InProcessTransport) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    served = cluster.put(a_maintenance()) and cluster.history[-1].kind
    await merge(api, f"{DEFINITIONS}/{NAME}", metadata={"labels": {"a": "b"}})
    cluster.put(a_maintenance("other"))
    assert cluster.history[-1].kind is served


# One storage for all versions


async def test_versions_show_one_object(cluster: ApiServer, api: InProcessTransport) -> None:
    await define(api, with_versions(storage="v1alpha1"))
    _, made = await request_json(api, "POST", LATER, a_notice(version="v1beta1"))
    _, read = await request_json(api, "GET", f"{NOTICES}/x")
    assert (made["apiVersion"], read["apiVersion"]) == (f"{GROUP}/v1beta1", f"{GROUP}/v1alpha1")
    assert made["metadata"] == read["metadata"]
    assert (cluster.history[-1].after or {})["apiVersion"] == f"{GROUP}/v1alpha1"
    for path in (NOTICES, LATER):
        events = await watch(api, path, resourceVersion="103")
        assert event_names(events) == [("ADDED", "x")]
        assert events[0][1]["metadata"]["uid"] == made["metadata"]["uid"]
    code, _ = await request_json(api, "POST", NOTICES, a_notice())
    assert code == 409


async def test_a_change_of_the_definition_keeps_objects_and_shows_new_defaults(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    await define(api, NOTICE)
    await request_json(api, "POST", NOTICES, a_notice())
    before = cluster.revision
    await redefine(api, with_versions(storage="v1beta1", default={"kind": STRING | {"default": "Reboot"}}))
    for path in (NOTICES, LATER):
        _, found = await request_json(api, "GET", f"{path}/x")
        assert found["spec"] == {"nodeName": "n1", "kind": "Reboot"}
        assert found["metadata"]["resourceVersion"] == str(before)
    crd = cluster.get("customresourcedefinitions", f"maintenancenotices.{GROUP}")
    assert crd["status"]["storedVersions"] == ["v1alpha1", "v1beta1"]


async def test_an_update_that_changes_nothing_moves_an_object_to_the_stored_version(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    await define(api, NOTICE)
    await request_json(api, "POST", NOTICES, a_notice())
    await redefine(api, with_versions(storage="v1beta1"))
    _, moved = await merge(api, f"{NOTICES}/x")
    stored = cluster.history[-1].after or {}
    assert (stored["apiVersion"], moved["metadata"]["generation"]) == (f"{GROUP}/v1beta1", 1)
    await merge(api, f"{NOTICES}/x")
    assert cluster.history[-1].after is stored


async def test_an_open_watch_follows_a_change_of_the_definition(clock: Clock, api: InProcessTransport) -> None:
    await define(api, NOTICE)
    request = Request(method="GET", path=NOTICES, query=(("watch", "1"), ("timeoutSeconds", "60")))
    lines: list[bytes] = []

    async def follow() -> None:
        async with api.stream(request) as stream:
            lines.extend([line async for line in stream.lines()])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await clock.sleep(api.latency * 3)
        await redefine(api, with_versions(storage="v1alpha1", default={"kind": STRING | {"default": "Reboot"}}))
        await request_json(api, "POST", LATER, a_notice(version="v1beta1"))
    (line,) = lines
    assert b'"kind":"Reboot"' in line
    assert f'"apiVersion":"{GROUP}/v1alpha1"'.encode() in line


async def test_a_version_that_is_not_served_any_more_ends_its_watches(clock: Clock, api: InProcessTransport) -> None:
    await define(api, with_versions(storage="v1beta1"))
    started_at = clock.now()

    async def follow() -> int:
        return (await send(api, "GET", NOTICES, watch="1", timeoutSeconds="20")).status

    async with asyncio.TaskGroup() as tasks:
        followed = tasks.create_task(follow())
        await clock.sleep(api.latency * 3)
        crd = with_versions(storage="v1beta1")
        crd["spec"]["versions"][0]["served"] = False
        await redefine(api, crd)
    assert followed.result() == 200
    assert (clock.now() - started_at).total_seconds() < 1
    assert (await send(api, "GET", NOTICES)).status == 404
    assert (await send(api, "GET", LATER)).status == 200


# Deletion of a definition


async def test_a_deleted_definition_deletes_its_objects(cluster: ApiServer, api: InProcessTransport) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    await request_json(api, "POST", MAINTENANCES, a_maintenance())
    before = str(cluster.revision)
    code, terminating = await request_json(api, "DELETE", f"{DEFINITIONS}/{NAME}")
    assert (code, terminating["metadata"]["finalizers"]) == (200, ["customresourcecleanup.apiextensions.k8s.io"])
    assert terminating["status"]["conditions"][-1]["reason"] == "InstanceDeletionPending"
    assert (await request_json(api, "GET", f"{DEFINITIONS}/{NAME}"))[0] == 404
    gone = await send(api, "GET", MAINTENANCES)
    assert (gone.status, gone.body) == (404, b"404 page not found\n")
    await define(api, NODE_MAINTENANCE_CRD)
    assert (await request_json(api, "GET", MAINTENANCES))[1]["items"] == []
    assert event_names(await watch(api, MAINTENANCES, resourceVersion=before)) == [("DELETED", "m")]


async def test_a_definition_waits_for_the_finalizers_of_its_objects(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    await request_json(api, "POST", MAINTENANCES, a_maintenance(finalizers=["haulout.dev/keep"]))
    await request_json(api, "POST", MAINTENANCES, a_maintenance("other"))
    await request_json(api, "DELETE", f"{DEFINITIONS}/{NAME}")
    (*_, terminating) = cluster.get("customresourcedefinitions", NAME)["status"]["conditions"]
    assert (terminating["status"], terminating["reason"]) == ("True", "InstanceDeletionInProgress")
    _, listed = await request_json(api, "GET", MAINTENANCES)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["m"]
    code, status = await request_json(api, "POST", MAINTENANCES, a_maintenance("late"))
    assert (code, status["reason"]) == (403, "Forbidden")
    _, resource_list = await request_json(api, "GET", "/apis/nodemaintenance.medik8s.io/v1beta1")
    assert "create" not in resource_list["resources"][0]["verbs"]
    await merge(api, f"{MAINTENANCES}/m", metadata={"finalizers": None})
    assert not cluster.has("customresourcedefinitions", NAME)
    assert (await send(api, "GET", MAINTENANCES)).status == 404


async def test_a_watch_ends_after_the_last_object_of_a_definition(clock: Clock, api: InProcessTransport) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    await request_json(api, "POST", MAINTENANCES, a_maintenance())
    started_at = clock.now()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch(api, MAINTENANCES, timeoutSeconds="30"))
        await clock.sleep(api.latency * 3)
        await request_json(api, "DELETE", f"{DEFINITIONS}/{NAME}")
    assert event_names(watching.result()) == [("ADDED", "m"), ("DELETED", "m")]
    assert (clock.now() - started_at).total_seconds() < 1


async def test_the_tests_own_hand_removes_a_definition_with_its_objects(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    cluster.put(a_maintenance(finalizers=["haulout.dev/keep"]))
    cluster.remove("customresourcedefinitions", NAME)
    with pytest.raises(KeyError):
        cluster.objects("nodemaintenances")
    await define(api, NODE_MAINTENANCE_CRD)
    assert cluster.objects("nodemaintenances") == []


# Objects


async def test_a_test_can_put_objects_of_defined_kinds(cluster: ApiServer) -> None:
    cluster.put(MACHINE_MAINTENANCE_CRD)
    machine = {
        "apiVersion": "machinemaintenance.managed.openshift.io/v1alpha1",
        "kind": "MachineMaintenance",
        "metadata": {"name": "m"},
        "spec": {"machineid": "i"},
        "status": {},
    }
    made = cluster.put(machine)
    assert made["metadata"]["namespace"] == "default"
    assert cluster.get("machinemaintenances", "m") == made
    assert cluster.objects("machinemaintenances.machinemaintenance.managed.openshift.io") == [made]
    cluster.put(MACHINE_MAINTENANCE_CRD)
    assert cluster.get("machinemaintenances", "m") == made
    cluster.remove("machinemaintenances", "m")
    assert not cluster.has("machinemaintenances", "m")


async def test_unknown_fields_of_custom_resources_are_dropped_with_a_warning(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    odd = a_maintenance() | {"spec": {"nodeName": "n1", "odd": 1, "more": 2}}
    assert await warnings(api, "POST", MAINTENANCES, odd) == [
        r'299 - "unknown field \"spec.more\""',
        r'299 - "unknown field \"spec.odd\""',
    ]
    assert cluster.get("nodemaintenances", "m")["spec"] == {"nodeName": "n1"}
    assert await warnings(api, "POST", MAINTENANCES, odd, fieldValidation="Ignore") == []
    code, status = await request_json(api, "POST", MAINTENANCES, odd, fieldValidation="Strict")
    assert (code, status["message"].partition(": ")[2]) == (
        400,
        'strict decoding error: unknown field "spec.more", unknown field "spec.odd"',
    )
    code, status = await request_json(api, "POST", MAINTENANCES, odd, fieldValidation="Loose")
    assert (code, status["details"]["kind"]) == (422, "CreateOptions")


async def test_a_refusal_warns_too(api: InProcessTransport) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    wrong = a_maintenance() | {"spec": {"nodeName": 1, "odd": 1}}
    answer = await send(api, "POST", MAINTENANCES, wrong)
    assert (answer.status, answer.headers["warning"]) == (422, r'299 - "unknown field \"spec.odd\""')


async def test_an_object_that_is_nested_too_deeply_is_a_bad_request(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    await define(api, VALUE_CRD)
    body = '{"apiVersion":"test.haulout.dev/v1","kind":"Value","metadata":{"name":"x"},"spec":{"free":%s1%s}}'
    deep = (body % ('{"a":' * 900, "}" * 900)).encode()
    path = "/apis/test.haulout.dev/v1/namespaces/default/values"
    assert (await api.send(Request(method="POST", path=path, body=deep))).status == 400
    assert not cluster.has("values", "x")


async def test_the_status_is_written_by_its_own_path_only(api: InProcessTransport) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    _, made = await request_json(api, "POST", MAINTENANCES, a_maintenance() | {"status": {"phase": "Running"}})
    assert "status" not in made
    _, same = await merge(api, f"{MAINTENANCES}/m", status={"phase": "Running"})
    assert same == made
    sent = made | {"status": {"phase": "Running"}, "spec": {"nodeName": "other"}}
    sent["metadata"] = made["metadata"] | {"labels": {"a": "b"}, "finalizers": ["haulout.dev/x"]}
    _, updated = await request_json(api, "PUT", f"{MAINTENANCES}/m/status", sent)
    assert (updated["spec"], updated["status"]) == ({"nodeName": "n1"}, {"phase": "Running"})
    assert "labels" not in updated["metadata"]
    assert "finalizers" not in updated["metadata"]
    assert updated["metadata"]["generation"] == 1
    _, changed = await merge(api, f"{MAINTENANCES}/m", spec={"reason": "r"})
    assert (changed["metadata"]["generation"], changed["status"]) == (2, {"phase": "Running"})


async def test_a_status_write_does_not_end_an_object_that_waits_for_its_finalizer(api: InProcessTransport) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    await request_json(api, "POST", MAINTENANCES, a_maintenance(finalizers=["haulout.dev/x"]))
    await request_json(api, "DELETE", f"{MAINTENANCES}/m")
    _, found = await request_json(api, "GET", f"{MAINTENANCES}/m")
    found["metadata"]["finalizers"] = []
    code, updated = await request_json(api, "PUT", f"{MAINTENANCES}/m/status", found | {"status": {"phase": "Running"}})
    assert (code, updated["metadata"]["finalizers"]) == (200, ["haulout.dev/x"])


async def test_without_a_status_path_the_status_counts_as_content(api: InProcessTransport) -> None:
    crd = copy.deepcopy(NODE_MAINTENANCE_CRD)
    del crd["spec"]["versions"][0]["subresources"]
    await define(api, crd)
    _, made = await request_json(api, "POST", MAINTENANCES, a_maintenance() | {"status": {"phase": "a"}})
    _, changed = await merge(api, f"{MAINTENANCES}/m", status={"phase": "b"})
    assert (made["status"], changed["metadata"]["generation"]) == ({"phase": "a"}, 2)
    code, status = await request_json(api, "GET", f"{MAINTENANCES}/m/status")
    assert (code, status["message"]) == (404, f'{NAME} "m" not found')


async def test_applies_merge_and_a_strategic_patch_is_not_understood(api: InProcessTransport) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    path = f"{MAINTENANCES}/m"
    code, _ = await request_json(api, "PATCH", path, a_maintenance(), kind=APPLY, fieldManager="me")
    assert code == 201
    other = a_maintenance() | {"spec": {"nodeName": "n2"}}
    code, status = await request_json(api, "PATCH", path, other, kind=APPLY, fieldManager="you")
    assert (code, status["reason"]) == (409, "Conflict")
    undated = a_maintenance(creationTimestamp="soon")
    code, status = await request_json(api, "PATCH", path, undated, kind=APPLY, fieldManager="me")
    assert (code, status["reason"]) == (400, "BadRequest")
    strategic = "application/strategic-merge-patch+json"
    code, status = await request_json(api, "PATCH", path, {"spec": {"reason": "r"}}, kind=strategic)
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


async def test_metadata_of_the_wrong_type_is_a_bad_request(api: InProcessTransport) -> None:
    await define(api, NODE_MAINTENANCE_CRD)
    code, status = await request_json(api, "POST", MAINTENANCES, a_maintenance(labels={"a": 1}))
    assert (code, status["reason"]) == (400, "BadRequest")


# What kubectl asks


async def test_tables_have_the_columns_of_the_definition(api: InProcessTransport) -> None:
    crd = copy.deepcopy(NOTICE)
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": "Node", "type": "string", "jsonPath": ".spec['nodeName']"},
        {"name": "Tries", "type": "integer", "jsonPath": ".spec.tries", "priority": 1},
    ]
    await define(api, crd)
    await request_json(api, "POST", NOTICES, a_notice(tries=2))
    request = Request(method="GET", path=NOTICES, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    table = msgspec.json.decode((await api.send(request)).body)
    assert [item["name"] for item in table["columnDefinitions"]] == ["Name", "Node", "Tries"]
    assert [row["cells"] for row in table["rows"]] == [["x", "n1", 2]]


async def test_fields_can_be_selected_that_the_definition_names(api: InProcessTransport) -> None:
    crd = copy.deepcopy(NOTICE)
    crd["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.nodeName"}]
    await define(api, crd)
    for name in ("a", "b"):
        await request_json(api, "POST", NOTICES, a_notice(name) | {"spec": {"nodeName": name}})
    _, listed = await request_json(api, "GET", NOTICES, fieldSelector="spec.nodeName=b")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["b"]
    code, status = await request_json(api, "GET", NOTICES, fieldSelector="spec.tries=1")
    assert (code, status["message"]) == (400, "field label not supported: spec.tries")


async def test_discovery_lists_all_versions_the_preferred_first(api: InProcessTransport) -> None:
    crd = with_versions(storage="v1alpha1")
    crd["spec"]["names"] |= {"shortNames": ["mn"], "categories": ["upkeep"], "singular": "notice"}
    await define(api, crd)
    _, group = await request_json(api, "GET", f"/apis/{GROUP}")
    assert [item["version"] for item in group["versions"]] == ["v1beta1", "v1alpha1"]
    _, listed = await request_json(api, "GET", f"/apis/{GROUP}/v1beta1")
    own, status = listed["resources"]
    assert (own["singularName"], own["shortNames"], own["categories"]) == ("notice", ["mn"], ["upkeep"])
    assert status["name"] == "maintenancenotices/status"
    assert (await send(api, "GET", f"/apis/{GROUP}/v1beta1/others")).body == b"404 page not found\n"


async def test_openapi_explains_what_is_defined_until_it_is_gone(api: InProcessTransport) -> None:
    path = f"/openapi/v3/apis/{GROUP}/v1alpha1"
    assert (await send(api, "GET", path)).status == 404
    await define(api, NOTICE)
    _, document = await request_json(api, "GET", path)
    schema = document["components"]["schemas"][f"dev.haulout.v1alpha1.{NOTICE['spec']['names']['kind']}"]
    assert set(schema["properties"]["spec"]["properties"]) == {"nodeName", "tries"}
    _, index = await request_json(api, "GET", "/openapi/v3")
    assert f"apis/{GROUP}/v1alpha1" in index["paths"]
    await request_json(api, "DELETE", f"{DEFINITIONS}/maintenancenotices.{GROUP}")
    assert (await send(api, "GET", path)).status == 404
