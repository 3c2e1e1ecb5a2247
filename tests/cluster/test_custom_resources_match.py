"""Custom resources in the sandbox behave as on the real server: each story is told to both, request by request."""

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer, JsonObject
from support.definitions import INTEGER, STRING, a_definition, a_rule, an_object, with_rules
from support.replay import (
    APPLY,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC,
    TABLE,
    RealServer,
    SandboxServer,
    Server,
    Step,
    answered,
    comparable,
    settled,
)

pytestmark = pytest.mark.real_time
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "match.haulout.dev"
MAINTENANCES = f"/apis/{GROUP}/v1beta1/nodemaintenances"
NOTICES = f"/apis/{GROUP}/v1alpha1/maintenancenotices"
LATER = f"/apis/{GROUP}/v1beta1/maintenancenotices"
MACHINES = f"/apis/{GROUP}/v1alpha1/namespaces/default/machinemaintenances"

MAINTENANCE = a_definition(
    "nodemaintenances",
    "NodeMaintenance",
    an_object(required=["nodeName"], nodeName=STRING, reason=STRING),
    group=GROUP,
    name="v1beta1",
    status=an_object(phase=STRING, drainProgress=INTEGER, pendingPods={"type": "array", "items": STRING}),
)
MAINTENANCE["spec"] |= {"scope": "Cluster"}
MAINTENANCE["spec"]["names"] |= {"shortNames": ["nm"], "categories": ["all", "upkeep"]}

MACHINE = a_definition(
    "machinemaintenances",
    "MachineMaintenance",
    an_object(
        required=["machineid"],
        machineid=STRING,
        scheduled={"type": "boolean", "default": False},
        replicas=INTEGER,
        note=STRING | {"nullable": True},
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    ),
    group=GROUP,
    name="v1alpha1",
    additionalPrinterColumns=[
        {"name": "Machine", "type": "string", "jsonPath": ".spec.machineid"},
        {"name": "Scheduled", "type": "boolean", "jsonPath": ".spec.scheduled", "priority": 1},
    ],
    selectableFields=[{"jsonPath": ".spec.machineid"}],
)


def a_notice_version(name: str, *, storage: bool, **spec: Any) -> JsonObject:
    conditions = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": an_object(required=["type"], type=STRING, status=STRING),
    }
    schema = an_object(
        spec=with_rules(
            an_object(
                nodeName=with_rules({"type": "string", "maxLength": 63}, a_rule("self == oldSelf", message="is fixed")),
                start={"type": "string", "format": "date-time"},
                kind={"type": "string", "enum": ["Reboot", "Stop"], "default": "Reboot"},
                **spec,
            ),
            a_rule("has(self.nodeName)", message="nodeName is required", reason="FieldValueRequired"),
        ),
        status=an_object(phase=STRING, conditions=conditions),
    )
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }


NOTICE = a_definition("maintenancenotices", "MaintenanceNotice", STRING, group=GROUP)
NOTICE["spec"] |= {
    "scope": "Cluster",
    "versions": [
        a_notice_version("v1alpha1", storage=True, early=STRING | {"default": "e"}, both=STRING) | {"deprecated": True},
        a_notice_version("v1beta1", storage=False, late=STRING | {"default": "l"}, both=STRING),
    ],
}
NOTICE["spec"]["names"]["shortNames"] = ["mn"]
ALL = (MAINTENANCE, MACHINE, NOTICE)
VERSIONS = ("v1alpha1", "v1beta1")


def named(path: str, name: str) -> str:
    return f"{path}/{name}"


def a_maintenance(name: str, meta: Any = None, **spec: Any) -> JsonObject:
    meta = {"name": name, **(meta or {})}
    return {"apiVersion": f"{GROUP}/v1beta1", "kind": "NodeMaintenance", "metadata": meta, "spec": spec}


def a_notice(name: str, version: str = "v1alpha1", **spec: Any) -> JsonObject:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "MaintenanceNotice",
        "metadata": {"name": name},
        "spec": {"nodeName": "n1", **spec},
    }


def a_machine(name: str, **spec: Any) -> JsonObject:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "MachineMaintenance",
        "metadata": {"name": name},
        "spec": {"machineid": name, **spec},
    }


def post(path: str, body: Any, **more: Any) -> Step:
    return Step("POST", path, body, **more)


def get(path: str, **more: Any) -> Step:
    return Step("GET", path, **more)


def put(path: str, *, drop: tuple[str, ...] = (), **parts: Any) -> Step:
    """Replace parts of what is there."""

    def change(obj: JsonObject) -> JsonObject:
        meta = {name: it for name, it in (obj["metadata"] | parts.get("metadata", {})).items() if name not in drop}
        return obj | parts | {"metadata": meta}

    return Step("PUT", path, change=change)


def merge(path: str, body: Any) -> Step:
    return Step("PATCH", path, body, content=MERGE_PATCH)


def patch(path: str, *operations: JsonObject) -> Step:
    return Step("PATCH", path, list(operations), content=JSON_PATCH)


def apply(path: str, body: Any, manager: str = "me", query: str = "") -> Step:
    return Step("PATCH", f"{path}?fieldManager={manager}{query}", body, content=APPLY)


def delete(path: str, body: Any = None) -> Step:
    return Step("DELETE", path, body)


def with_condition(kind: str, status: str) -> JsonObject:
    notice = {name: it for name, it in a_notice("applied").items() if name != "spec"}
    return notice | {"status": {"conditions": [{"type": kind, "status": status}]}}


BAD_LABELS = {"labels": {"a b": "x", "ok": "-"}, "annotations": {"c d": "x"}, "finalizers": ["e f"]}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}
M = named(MAINTENANCES, "m")
STORIES: dict[str, list[Step]] = {
    "what is created": [
        post(MAINTENANCES, a_maintenance("a", nodeName="n")),
        post(MAINTENANCES, a_maintenance("a", nodeName="n")),
        post(MAINTENANCES, a_maintenance("a", nodeName=3)),
        post(MAINTENANCES, a_maintenance("b", nodeName="n") | {"status": {"phase": "Running"}}),
        post(MAINTENANCES, a_maintenance("c")),
        post(MAINTENANCES, a_maintenance("", nodeName="n")),
        post(MAINTENANCES, a_maintenance("", {"generateName": "gen-"}, nodeName="n")),
        post(MAINTENANCES, a_maintenance("", {"generateName": "Gen_"}, nodeName="n")),
        post(MAINTENANCES, a_maintenance("Bad_Name", nodeName=1)),
        post(MAINTENANCES, a_maintenance("x" * 254, nodeName="n")),
        post(MAINTENANCES, a_maintenance("d", BAD_LABELS, nodeName="n")),
        post(MAINTENANCES, a_maintenance("d", {"finalizers": ["fin", "a.b", "x/y", "orphan"]}, nodeName="n")),
        post(MAINTENANCES, a_maintenance("d2", {"finalizers": ["orphan", "foregroundDeletion"]}, nodeName="n")),
        post(MAINTENANCES, a_maintenance("e", {"labels": {"a" * 64: "b" * 64, "/x": "", "A_/x": ""}}, nodeName="n")),
        post(MAINTENANCES, a_maintenance("e", {"labels": {"a/b/c": "", "": ""}}, nodeName="n")),
        post(MAINTENANCES, a_maintenance("e", {"ownerReferences": [{"name": "x"}]}, nodeName="n")),
        post(MAINTENANCES, a_maintenance("e", {"ownerReferences": [OWNER | {"odd": 1}]}, nodeName="n")),
        post(
            MAINTENANCES,
            a_maintenance("f", {"ownerReferences": [OWNER | {"controller": True}] * 2}, nodeName="n"),
        ),
        post(MAINTENANCES, a_maintenance("f", {"namespace": "x", "generation": 7, "uid": "u"}, nodeName="n")),
        post(MAINTENANCES, a_maintenance("g", {"resourceVersion": "7"}, nodeName="n")),
        *(
            post(MAINTENANCES, a_maintenance("h", {name: value}, nodeName="n"))
            for name, value in (
                ("labels", {"a": 1}),
                ("labels", [1]),
                ("labels", "x"),
                ("finalizers", [1]),
                ("finalizers", {}),
                ("creationTimestamp", "x"),
                ("creationTimestamp", 3),
                ("ownerReferences", [{"name": 3}]),
                ("ownerReferences", [OWNER | {"controller": "x"}]),
                ("ownerReferences", ["x"]),
                ("generation", "x"),
                ("generation", 1.5),
                ("uid", True),
                ("name", {}),
            )
        ),
        post(MAINTENANCES, a_maintenance("i", {"labels": {"a": None}, "annotations": {}}, nodeName="n")),
        post(MAINTENANCES, {"metadata": {"name": "j"}}),
        post(MAINTENANCES, {"kind": "NodeMaintenance", "metadata": {"name": "j"}}),
        post(MAINTENANCES, a_maintenance("j") | {"kind": "Other"}),
        post(MAINTENANCES, {"apiVersion": f"{GROUP}/v1", "kind": "NodeMaintenance", "metadata": {"name": "j"}}),
        post(MAINTENANCES, a_maintenance("k") | {"metadata": None}),
        post(MAINTENANCES, a_maintenance("k") | {"metadata": []}),
        post(MAINTENANCES, a_maintenance("k") | {"metadata": "x"}),
        get(MAINTENANCES),
    ],
    "what nobody knows": [
        *(
            post(
                f"{MAINTENANCES}?dryRun=All&fieldValidation={it}", a_maintenance("a", {"z": 1}, nodeName="n", y=1, x=2)
            )
            for it in ("", "Ignore", "Warn", "Strict", "Loose")
        ),
        *(
            post(
                f"{MAINTENANCES}?dryRun=All&fieldValidation={it}",
                f'{{"apiVersion":"{GROUP}/v1beta1","kind":"NodeMaintenance","metadata":{{"name":"a"}},'
                '"spec":{"nodeName":"a","nodeName":"b","odd":1}}',
            )
            for it in ("Warn", "Strict")
        ),
        post(MACHINES, a_machine("u", free={"a": {"b": None}}, note=None, odd=1)),
        post(MACHINES, a_machine("v", scheduled=None, replicas=None)),
        get(MACHINES),
    ],
    "what is replaced": [
        post(MAINTENANCES, a_maintenance("m", {"labels": {"a": "b"}}, nodeName="n")),
        Step("PUT", M, a_maintenance("m", nodeName="o")),
        put(M, spec={"nodeName": "o", "odd": 1}, status={"phase": "Running"}),
        put(M, spec={"nodeName": "o"}),
        put(M, metadata={"labels": {"c": "d"}}),
        put(M, metadata={"resourceVersion": "1"}),
        put(M, metadata={"uid": "other"}),
        put(M, metadata={"name": "other"}),
        put(M, drop=("name",)),
        put(M, metadata=BAD_LABELS),
        put(M, metadata={"finalizers": ["fin"]}),
        put(M, spec={}),
        put(M, kind="Other"),
        put(f"{M}/status", status={"phase": "Running", "odd": 1}, spec={}, metadata={"labels": {"x": "y"}}),
        put(f"{M}/status", status={"phase": 1}),
        put(f"{M}/status", status={"pendingPods": ["a"]}, metadata={"finalizers": []}),
        put(f"{M}/status", metadata={"resourceVersion": "1"}),
        Step("PUT", named(MAINTENANCES, "none"), a_maintenance("none", nodeName="n")),
        get(f"{M}/status"),
        get(f"{M}/scale"),
        delete(M),
        put(M, metadata={"finalizers": ["fin", "new"]}),
        put(f"{M}/status", status={}),
        put(M, drop=("finalizers",)),
        get(M),
    ],
    "what is patched": [
        post(MAINTENANCES, a_maintenance("m", nodeName="n", reason="r")),
        merge(M, {"spec": {"nodeName": "o", "reason": None, "odd": 1}}),
        merge(f"{M}?fieldValidation=Loose", {"spec": {"nodeName": "p"}}),
        merge(M, {"spec": {"nodeName": 5}}),
        merge(M, {"spec": None}),
        merge(M, {"status": {"phase": "x"}}),
        merge(M, {"metadata": {"labels": {"a b": "c"}, "finalizers": ["d e"]}}),
        merge(M, {"kind": "X"}),
        merge(M, {"apiVersion": "v1"}),
        merge(M, {"metadata": None}),
        merge(M, {"metadata": {"resourceVersion": "1"}}),
        merge(f"{M}/status", {"status": {"phase": "Running", "drainProgress": 5}, "spec": {"nodeName": "q"}}),
        merge(f"{M}/status", {"status": {"phase": []}}),
        merge(named(MAINTENANCES, "none"), {}),
        patch(M, {"op": "replace", "path": "/spec/nodeName", "value": "r"}),
        patch(M, {"op": "remove", "path": "/spec/none"}),
        patch(M, {"op": "test", "path": "/spec/nodeName", "value": "z"}),
        patch(M, {"op": "add", "path": "/spec/odd", "value": 1}),
        patch(f"{M}/status", {"op": "remove", "path": "/status/phase"}),
        Step("PATCH", M, {"spec": {"nodeName": "q"}}, content=STRATEGIC),
        Step("PATCH", M, {"spec": {"nodeName": "q"}}, content="text/plain"),
        get(M),
    ],
    "what is applied": [
        apply(M, a_maintenance("m", nodeName="n", reason="r")),
        apply(M, a_maintenance("m", nodeName="n")),
        apply(M, a_maintenance("m", nodeName="o"), manager="other"),
        apply(M, a_maintenance("m", nodeName="o"), manager="other", query="&force=true"),
        apply(M, a_maintenance("m", nodeName="o", odd=1)),
        apply(M, a_maintenance("m", nodeName=1)),
        apply(M, a_maintenance("m", nodeName=None), manager="third"),
        apply(M, a_maintenance("m", nodeName="n") | {"apiVersion": "v1"}),
        Step("PATCH", M, a_maintenance("m"), content=APPLY),
        apply(f"{M}/status", a_maintenance("m") | {"status": {"phase": "Q"}}, manager="third"),
        apply(named(NOTICES, "applied"), a_notice("applied")),
        apply(f"{named(NOTICES, 'applied')}/status", with_condition("a", "True"), manager="one"),
        apply(f"{named(NOTICES, 'applied')}/status", with_condition("b", "True"), manager="two"),
        apply(f"{named(NOTICES, 'applied')}/status", with_condition("a", "False"), manager="two"),
        get(M),
    ],
    "what rules and versions say": [
        post(NOTICES, a_notice("one", both="b", late="x")),
        get(named(NOTICES, "one")),
        get(named(LATER, "one")),
        post(LATER, a_notice("two", "v1beta1", early="x", both="c", late="z")),
        get(named(NOTICES, "two")),
        get(named(LATER, "two")),
        post(LATER, a_notice("one", "v1beta1")),
        post(NOTICES, a_notice("three", "v1beta1")),
        post(NOTICES, a_notice("three", nodeName="x" * 64, kind="Other", start="soon")),
        post(NOTICES, a_notice("three") | {"spec": {}}),
        put(named(LATER, "one"), spec={"nodeName": "n2"}),
        put(named(LATER, "one"), spec={"nodeName": "n1", "both": "new"}),
        merge(named(LATER, "one"), {"spec": {"kind": "Stop"}}),
        merge(named(NOTICES, "one"), {"spec": {"kind": "Stop"}}),
        merge(f"{named(NOTICES, 'one')}/status", {"status": {"conditions": [{"type": "A"}, {"type": "A"}]}}),
        get(LATER),
        get(NOTICES),
        get(LATER, accept=TABLE),
        delete(named(LATER, "two"), {"preconditions": {"uid": "other"}}),
        delete(named(LATER, "two")),
        get(named(NOTICES, "two")),
    ],
    "what is listed": [
        *(post(MACHINES, a_machine(name, replicas=at)) for at, name in enumerate(("x", "y", "z"))),
        get(MACHINES),
        get(f"{MACHINES}?limit=1"),
        get(MACHINES, accept=TABLE),
        get(f"{MACHINES}?includeObject=Object&fieldSelector=spec.machineid%3Dy", accept=TABLE),
        get(named(MACHINES, "x"), accept=TABLE),
        get(f"{MACHINES}?fieldSelector=spec.machineid%3Dy"),
        get(f"{MACHINES}?fieldSelector=spec.machineid!%3Dy,metadata.name!%3Dz"),
        get(f"{MACHINES}?fieldSelector=spec.replicas%3D1"),
        get(f"{MAINTENANCES}?fieldSelector=metadata.namespace%3Dx"),
        get(f"/apis/{GROUP}/v1alpha1/machinemaintenances"),
        merge(named(MACHINES, "x"), {"status": {"a": 1}}),
        put(named(MACHINES, "x"), spec={"machineid": "x2"}),
        delete(f"{MACHINES}?fieldSelector=spec.machineid%3Dy"),
        get(named(MACHINES, "y")),
        get(f"{named(MACHINES, 'x')}/status"),
        delete(MACHINES),
        get(MACHINES),
    ],
    "what there is": [
        get(f"/apis/{GROUP}"),
        get(f"/apis/{GROUP}/v1alpha1"),
        get(f"/apis/{GROUP}/v1beta1"),
        get(f"/apis/{GROUP}/v1"),
        get(f"/apis/{GROUP}/v1/nodemaintenances"),
        get(f"/apis/{GROUP}/v1beta1/others"),
        get(f"/apis/{GROUP}/v1beta1/namespaces/default/nodemaintenances"),
        get(f"/apis/{GROUP}/v1alpha1/machinemaintenances/x"),
        get("/apis/none.haulout.dev/v1"),
    ],
}


@pytest.fixture(scope="module")
def defined(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Have the real server serve the definitions."""
    for definition in ALL:
        control_plane.request("POST", DEFINITIONS, definition)
    names = [f"crd/{definition['metadata']['name']}" for definition in ALL]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    yield control_plane
    for definition in ALL:
        control_plane.request("DELETE", f"{DEFINITIONS}/{definition['metadata']['name']}")


@pytest_asyncio.fixture
async def servers(defined: ControlPlane) -> AsyncIterator[tuple[Server, Server]]:
    """Return the real server and a sandbox, both with the definitions and without objects."""
    real = RealServer(defined)
    sandbox = SandboxServer(ApiServer(RealClock()).transport("me"))
    for definition in ALL:
        await sandbox.ask(post(DEFINITIONS, definition), definition)
    yield real, sandbox
    for path in (MAINTENANCES, NOTICES, MACHINES):
        await emptied(real, path)
    real.close()


async def emptied(server: Server, path: str) -> None:
    (found,) = (await server.ask(get(path), None)).documents
    free = {"metadata": {"finalizers": None}}
    for item in found["items"]:
        await server.ask(merge(named(path, item["metadata"]["name"]), free), free)
    await server.ask(delete(path), None)


@pytest.mark.parametrize("story", STORIES)
async def test_a_story_goes_alike(servers: tuple[Server, Server], story: str) -> None:
    real, sandbox = servers
    for at, step in enumerate(STORIES[story]):
        theirs, ours = await answered(real, step), await answered(sandbox, step)
        assert ours == theirs, f"step {at}: {step}"


async def test_watches_of_all_versions_see_the_same_objects(servers: tuple[Server, Server]) -> None:
    async def seen(server: Server) -> Any:
        (listed,) = (await server.ask(get(NOTICES), None)).documents
        since = f"watch=1&timeoutSeconds=1&resourceVersion={listed['metadata']['resourceVersion']}"
        for step in STORIES["what rules and versions say"]:
            await answered(server, step)
        return [
            await answered(server, get(f"{NOTICES}?{since}")),
            await answered(server, get(f"{LATER}?{since}", accept=TABLE)),
        ]

    theirs, ours = await asyncio.gather(*map(seen, servers))
    assert ours == theirs
    assert len(ours[0][1]) > 5


async def test_discovery_and_explanations_are_alike(servers: tuple[Server, Server]) -> None:
    real, sandbox = servers
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

    async def told(server: Server) -> Any:
        (groups,) = (await server.ask(get("/apis", accept=aggregated), None)).documents
        (group,) = [it for it in groups["items"] if it["metadata"]["name"] == GROUP]
        documents = [(await server.ask(get(f"/openapi/v3/apis/{GROUP}/{it}"), None)).documents for it in VERSIONS]
        schemas = [document["components"]["schemas"] for (document,) in documents]
        ours = [{name: undescribed(it) for name, it in found.items() if "haulout" in name} for found in schemas]
        return comparable(group["versions"]), ours

    wanted = await told(sandbox)
    for _ in range(1000):  # the real server's documents follow its definitions some moments later
        if (theirs := await told(real)) == wanted:
            break
    assert wanted == theirs


def undescribed(schema: Any) -> Any:
    if isinstance(schema, dict):
        kept = {name: it for name, it in schema.items() if name != "description" or not isinstance(it, str)}
        return {name: undescribed(it) for name, it in kept.items()}
    return [undescribed(it) for it in schema] if isinstance(schema, list) else schema


# Definitions that come, change and go

TRIALS = f"{DEFINITIONS}/trials.{GROUP}"
TRIAL = a_definition("trials", "Trial", an_object(a=STRING), group=GROUP)
T = f"/apis/{GROUP}/v1/namespaces/default/trials"


def a_trial(name: str, **meta: Any) -> JsonObject:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Trial",
        "metadata": {"name": name, **meta},
        "spec": {"a": "x", "b": "y"},
    }


def changed(spec: JsonObject) -> JsonObject:
    """Return the spec with a field that has a default, a column, and a second version that is stored."""
    spec = copy.deepcopy(spec)
    (first,) = spec["versions"]
    first["schema"]["openAPIV3Schema"]["properties"]["spec"] = an_object(a=STRING, b=STRING | {"default": "z"})
    first["additionalPrinterColumns"] = [{"name": "B", "type": "string", "jsonPath": ".spec.b"}]
    first["storage"] = False
    return spec | {"versions": [first, first | {"name": "v2", "storage": True}]}


async def test_a_definition_comes_changes_and_goes_alike(servers: tuple[Server, Server]) -> None:
    real, sandbox = servers

    async def alike(step: Step) -> None:
        """Compare what each says; the real server follows a definition some moments later."""
        ours = await answered(sandbox, step)
        assert ours == await settled(real, step, ours), step

    async def once(step: Step) -> None:
        """Compare what each says to what can be said only once."""
        assert await answered(sandbox, step) == await answered(real, step), step

    await once(post(f"{DEFINITIONS}?dryRun=All", TRIAL | {"spec": TRIAL["spec"] | {"scope": "Everywhere"}}))
    await alike(get(TRIALS))
    for server in servers:
        await server.ask(post(DEFINITIONS, TRIAL), TRIAL)
    await alike(get(TRIALS))
    await once(post(DEFINITIONS, TRIAL))
    await alike(get(T))
    await once(post(T, a_trial("one")))
    await once(Step("PUT", TRIALS, TRIAL))
    await once(Step("PUT", TRIALS, change=lambda crd: crd | {"spec": crd["spec"] | {"scope": "Cluster"}}))
    await once(Step("PUT", TRIALS, change=lambda crd: crd | {"spec": changed(crd["spec"])}))
    await alike(get(TRIALS))
    await alike(get(named(T, "one")))
    await alike(get(named(T.replace("/v1/", "/v2/"), "one"), accept=TABLE))
    await once(merge(TRIALS, {"metadata": {"labels": {"a": "b"}}}))
    await once(merge(TRIALS, {"spec": {"versions": []}}))
    await once(merge(f"{TRIALS}/status", {"status": {"storedVersions": []}}))
    rival = a_definition("trialists", "Trial", an_object(a=STRING), group=GROUP)
    for server in servers:
        await server.ask(post(DEFINITIONS, rival), rival)
    await alike(get(f"{DEFINITIONS}/trialists.{GROUP}"))
    await once(merge(named(T, "one"), {"metadata": {"finalizers": ["haulout.dev/keep"]}}))
    await once(post(T, a_trial("two")))
    await once(delete(TRIALS))
    await alike(get(TRIALS))
    await alike(get(T))
    await alike(get(f"/apis/{GROUP}/v1"))
    await once(post(T, a_trial("three")))
    await once(merge(named(T, "one"), {"metadata": {"finalizers": None}}))
    await alike(get(TRIALS))
    await alike(get(f"{DEFINITIONS}/trialists.{GROUP}"))
    for server in servers:
        await server.ask(delete(f"{DEFINITIONS}/trialists.{GROUP}"), None)
    await alike(get(f"/apis/{GROUP}/v1"))
