"""The life of built-in objects goes as on the real server: each story is told to both, request by request."""

import copy
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer, JsonObject
from support.replay import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC, TABLE, RealServer, SandboxServer, Step, answered

pytestmark = pytest.mark.real_time

NAMESPACES = "/api/v1/namespaces"
NS = "lifecycle"
MAPS = f"{NAMESPACES}/{NS}/configmaps"
PODS = f"{NAMESPACES}/{NS}/pods"
EVENTS = f"{NAMESPACES}/{NS}/events"
NEW_EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NS}/events"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NS}/deployments"
JOBS = f"/apis/batch/v1/namespaces/{NS}/jobs"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NS}/endpointslices"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
NOT_HERE = {"ephemeralcontainers", "proxy", "resize"}  # subresources that the sandbox does not serve

CONTAINERS = [{"name": "c", "image": "example/c"}]
TEMPLATE: JsonObject = {"metadata": {"labels": {"app": "a", "tier": "1"}}, "spec": {"containers": CONTAINERS}}
SELECTOR = {
    "matchLabels": {"app": "a"},
    "matchExpressions": [
        {"key": "zone", "operator": "NotIn", "values": ["q", "b"]},
        {"key": "tier", "operator": "Exists"},
        {"key": "app", "operator": "In", "values": ["z", "a"]},
        {"key": "gone", "operator": "DoesNotExist"},
    ],
}


def post(path: str, body: Any, **more: Any) -> Step:
    return Step("POST", path, body, **more)


def put(path: str, body: Any) -> Step:
    return Step("PUT", path, body)


def get(path: str, **more: Any) -> Step:
    return Step("GET", path, **more)


def delete(path: str, body: Any = None) -> Step:
    return Step("DELETE", path, body)


def merge(path: str, **body: Any) -> Step:
    return Step("PATCH", path, body, content=MERGE_PATCH)


def applied(path: str, body: Any, *, manager: str = "me", force: bool = False) -> Step:
    query = f"?fieldManager={manager}" + ("&force=true" if force else "")
    return Step("PATCH", path + query, body, content=APPLY)


def named(name: str, **meta: Any) -> JsonObject:
    return {"metadata": {"name": name, **meta}}


def a_scale(replicas: Any, name: str = "d", **meta: Any) -> JsonObject:
    return named(name, **meta) | {"spec": {"replicas": replicas}}


def a_pod(name: str, **spec: Any) -> JsonObject:
    # The control plane runs without the plugin that names the account.
    return named(name) | {"spec": {"containers": CONTAINERS, "serviceAccountName": "default", **spec}}


def an_event(name: str, **more: Any) -> JsonObject:
    return named(name) | {"involvedObject": {"kind": "Pod", "namespace": NS, "name": "p"}, **more}


def a_new_event(name: str, **more: Any) -> JsonObject:
    return named(name) | {
        "eventTime": "2026-01-05T09:00:00.123456Z",
        "reportingController": "example.com/operator",
        "reportingInstance": "operator-0",
        "action": "Drain",
        "reason": "Drained",
        "type": "Normal",
        "note": "as new ones say",
        "regarding": {"kind": "Pod", "namespace": NS, "name": "p"},
        **more,
    }


SCALE = f"{DEPLOYMENTS}/d/scale"
WORKLOADS: dict[str, JsonObject] = {
    DEPLOYMENTS: {"selector": SELECTOR},
    DEPLOYMENTS.replace("deployments", "replicasets"): {"selector": SELECTOR},
    DEPLOYMENTS.replace("deployments", "statefulsets"): {"selector": SELECTOR, "serviceName": "s"},
    f"{NAMESPACES}/{NS}/replicationcontrollers": {"selector": {"tier": "1", "app": "a"}},
}
DAEMONS = DEPLOYMENTS.replace("deployments", "daemonsets")
A_DEPLOYMENT = post(DEPLOYMENTS, named("d") | {"spec": {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE}})
AS_SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
TAIL = f"{PODS}/one/log?tailLines"

STORIES: dict[str, list[Step]] = {
    "every kind of workload has a scale": [
        step
        for path, spec in WORKLOADS.items()
        for step in (
            post(path, named("d") | {"spec": {"replicas": 2, "template": TEMPLATE, **spec}}),
            get(f"{path}/d/scale"),
            put(f"{path}/d/scale", a_scale(3)),
            merge(f"{path}/d/scale", spec={"replicas": 4}, status={"replicas": 9}),
            get(f"{path}/d"),
        )
    ],
    "scales are written in every way": [
        A_DEPLOYMENT,
        put(SCALE, a_scale(1) | AS_SCALE),
        put(SCALE, named("d")),
        put(f"{SCALE}?dryRun=All", a_scale(7)),
        get(SCALE),
        Step("PATCH", SCALE, {"spec": {"replicas": 6}}, content=STRATEGIC),
        Step("PATCH", SCALE, [{"op": "replace", "path": "/spec/replicas", "value": 4}], content=JSON_PATCH),
        Step("PATCH", SCALE, [{"op": "test", "path": "/spec/replicas", "value": 5}], content=JSON_PATCH),
        Step("PUT", SCALE, change=lambda it: a_scale(5, resourceVersion=it["metadata"]["resourceVersion"])),
        get(f"{DEPLOYMENTS}/d"),
        get(SCALE, accept=TABLE),
    ],
    "scales that make no sense": [
        A_DEPLOYMENT,
        get(SCALE.replace("/d/", "/none/")),
        put(SCALE.replace("/d/", "/none/"), a_scale(1, "none")),
        merge(SCALE.replace("/d/", "/none/"), spec={"replicas": 1}),
        put(SCALE, a_scale(1, "other")),
        put(SCALE, a_scale(1, namespace="other")),
        put(SCALE, a_scale(1, uid="another")),
        put(SCALE, a_scale(1, resourceVersion="1")),
        put(SCALE, a_scale(-1)),
        put(SCALE, a_scale("many")),
        merge(SCALE, metadata={"resourceVersion": "1"}, spec={"replicas": 1}),
        merge(SCALE, spec={"replicas": -3}),
        post(SCALE, {}),
        delete(SCALE),
        get(SCALE),
        get(f"{DAEMONS}/d/scale"),
    ],
    "a scale is applied": [
        A_DEPLOYMENT,
        applied(SCALE, AS_SCALE | a_scale(3), force=True),
        applied(SCALE, AS_SCALE | a_scale(5)),
        applied(SCALE, AS_SCALE | a_scale(6), manager="other"),
        applied(SCALE, AS_SCALE | a_scale(6), manager="other", force=True),
        applied(SCALE, AS_SCALE | a_scale(7)),
        get(SCALE),
        applied(SCALE.replace("/d/", "/none/"), AS_SCALE | a_scale(3, "none")),
    ],
    "generations count what matters": [
        A_DEPLOYMENT,
        merge(f"{DEPLOYMENTS}/d", metadata={"annotations": {"a": "b"}}),
        merge(f"{DEPLOYMENTS}/d", metadata={"labels": {"a": "b"}}),
        merge(f"{DEPLOYMENTS}/d/status", metadata={"annotations": {"c": "d"}, "labels": {"c": "d"}}),
        merge(f"{DEPLOYMENTS}/d/status", status={"replicas": 1, "readyReplicas": 1}),
        post(DAEMONS, named("d") | {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}}),
        merge(f"{DAEMONS}/d", metadata={"annotations": {"a": "b"}, "labels": {"a": "b"}}),
        post(
            SLICES,
            named("s") | {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},
        ),
        merge(f"{SLICES}/s", metadata={"annotations": {"a": "b"}}),
        merge(f"{SLICES}/s", metadata={"labels": {"a": "b"}}),
    ],
    "options that contradict each other": [
        post(MAPS, named("a")),
        *(
            delete(f"{MAPS}/a", options)
            for options in (
                {"propagationPolicy": "Bad"},
                {"propagationPolicy": "Orphan", "orphanDependents": True},
                {"propagationPolicy": "Bad", "orphanDependents": False},
                {"dryRun": ["Bad"]},
                {"gracePeriodSeconds": "x"},
                {"kind": "Pod", "apiVersion": "v1"},
                {"preconditions": {"uid": "another"}},
            )
        ),
        delete(f"{MAPS}/a?propagationPolicy=Bad"),
        delete(f"{MAPS}/a?gracePeriodSeconds=x"),
        delete(f"{MAPS}/a?dryRun=Bad"),
        delete(MAPS, {"propagationPolicy": "Bad"}),
        get(f"{MAPS}/a"),
    ],
    "what belongs to it stays, goes first, or goes later": [
        *(post(MAPS, named(name)) for name in "abcdef"),
        post(MAPS, named("held", finalizers=["example.com/wait"])),
        delete(f"{MAPS}/a", {"propagationPolicy": "Foreground"}),
        delete(f"{MAPS}/a", {"propagationPolicy": "Orphan"}),
        delete(f"{MAPS}/a"),
        delete(f"{MAPS}/a", {"propagationPolicy": "Background"}),
        delete(f"{MAPS}/b?propagationPolicy=Foreground"),
        merge(f"{MAPS}/b", metadata={"finalizers": None}),
        get(f"{MAPS}/b"),
        delete(f"{MAPS}/c?orphanDependents=true"),
        delete(f"{MAPS}/d?orphanDependents=false"),
        delete(f"{MAPS}/e?dryRun=All"),
        delete(f"{MAPS}/e", {"dryRun": ["All"], "propagationPolicy": "Foreground"}),
        get(f"{MAPS}/e"),
        delete(f"{MAPS}/f?dryRun=All", {"propagationPolicy": "Background"}),
        get(f"{MAPS}/f"),
        delete(f"{MAPS}/held", {"orphanDependents": False}),
        delete(f"{MAPS}/held", {"orphanDependents": True}),
        delete(f"{MAPS}/held", {}),
        merge(f"{MAPS}/held", metadata={"finalizers": ["example.com/wait"]}),
        merge(f"{MAPS}/held", metadata={"finalizers": None}),
        get(f"{MAPS}/held"),
    ],
    "pods are deleted with policies and time": [
        post(PODS, a_pod("bare")),
        post(PODS, a_pod("bound", nodeName="n1")),
        delete(f"{PODS}/bare", {"propagationPolicy": "Foreground"}),
        delete(f"{PODS}/bound", {"propagationPolicy": "Orphan", "gracePeriodSeconds": 7}),
        delete(f"{PODS}/bound", {"propagationPolicy": "Background"}),
        delete(f"{PODS}/bound", {"gracePeriodSeconds": 0}),
        delete(f"{PODS}/bound", {"propagationPolicy": "Background"}),
        get(f"{PODS}/bound"),
    ],
    "jobs orphan their pods unless told otherwise": [
        *(
            post(JOBS, named(name) | {"spec": {"template": {"spec": {"restartPolicy": "Never", **TEMPLATE["spec"]}}}})
            for name in "ab"
        ),
        delete(f"{JOBS}/a?dryRun=All"),
        delete(f"{JOBS}/a", {"propagationPolicy": "Background"}),
        delete(JOBS),
        delete(f"{JOBS}/b"),
        delete(f"{JOBS}/b", {"propagationPolicy": "Background"}),
    ],
    "a collection is deleted": [
        *(post(MAPS, named(name, labels={"set": name})) for name in "xyz"),
        post(MAPS, named("held", finalizers=["example.com/wait"])),
        delete(f"{MAPS}?labelSelector=set&dryRun=All"),
        delete(f"{MAPS}?labelSelector=set%3Dx"),
        delete(f"{MAPS}?labelSelector=set&limit=1"),
        delete(f"{MAPS}?labelSelector=set", {"preconditions": {"uid": "another"}}),
        delete(MAPS, {"propagationPolicy": "Foreground"}),
        delete(f"{MAPS}?fieldSelector=metadata.name%3Dheld"),
        delete(MAPS, {"propagationPolicy": "Background"}),
        get(MAPS),
        delete("/api/v1/configmaps"),
        delete(NAMESPACES),
    ],
    "nothing is created where there is no namespace": [
        post(f"{NAMESPACES}/none/configmaps", named("a")),
        post(f"{NAMESPACES}/none/configmaps", named("Not_A_Name")),
        post(f"{NAMESPACES}/none/configmaps", named("a", namespace="other")),
        put(f"{NAMESPACES}/none/configmaps/a", named("a")),
        merge(f"{NAMESPACES}/none/configmaps/a", data={"a": "b"}),
        put("/apis/coordination.k8s.io/v1/namespaces/none/leases/a", named("a")),
        get(f"{NAMESPACES}/none/configmaps/a"),
        delete(f"{NAMESPACES}/none/configmaps/a"),
        delete(f"{NAMESPACES}/none/configmaps"),
        post(f"{NAMESPACES}/none/pods/a/eviction", named("a")),
        post(f"{NAMESPACES}/none/pods/a/binding", named("a") | {"target": {"name": "n"}}),
    ],
    "some namespaces are there for ever": [
        *(get(f"{NAMESPACES}/{name}") for name in ("default", "kube-node-lease", "kube-public", "kube-system")),
        *(delete(f"{NAMESPACES}/{name}?dryRun=All") for name in ("default", "kube-system", "kube-public")),
        delete(f"{NAMESPACES}/kube-node-lease?dryRun=All"),
        delete(f"{NAMESPACES}/default", {"preconditions": {"uid": "another"}}),
        delete(f"{NAMESPACES}/default", {"propagationPolicy": "Bad"}),
    ],
    "a namespace goes when nothing holds it": [
        post(NAMESPACES, named("lifecycle-ends", labels={"kubernetes.io/metadata.name": "wrong"})),
        post(f"{NAMESPACES}/lifecycle-ends/pods", a_pod("p")),
        merge(f"{NAMESPACES}/lifecycle-ends", spec={"finalizers": []}, metadata={"labels": None}),
        delete(f"{NAMESPACES}/lifecycle-ends?dryRun=All"),
        delete(f"{NAMESPACES}/lifecycle-ends", {"preconditions": {"resourceVersion": "1"}}),
        delete(f"{NAMESPACES}/lifecycle-ends", {"orphanDependents": False}),
        delete(f"{NAMESPACES}/lifecycle-ends"),
        post(f"{NAMESPACES}/lifecycle-ends/configmaps", named("n")),
        post(f"{NAMESPACES}/lifecycle-ends/configmaps", {"metadata": {"generateName": "n-"}}),
        post("/apis/apps/v1/namespaces/lifecycle-ends/deployments", named("n")),
        put("/apis/coordination.k8s.io/v1/namespaces/lifecycle-ends/leases/a", named("a")),
        post(f"{NAMESPACES}/lifecycle-ends/pods/p/eviction", named("p")),
        post(f"{NAMESPACES}/lifecycle-ends/pods/p/binding", named("p") | {"target": {"name": "n"}}),
        merge(f"{NAMESPACES}/lifecycle-ends/pods/p", metadata={"labels": {"still": "changed"}}),
        get(f"{NAMESPACES}/lifecycle-ends/finalize"),
        merge(f"{NAMESPACES}/lifecycle-ends/finalize", spec={}),
        put(f"{NAMESPACES}/lifecycle-ends/finalize", named("lifecycle-ends") | {"spec": {"finalizers": ["x.io/y"]}}),
        delete(f"{NAMESPACES}/lifecycle-ends"),
        put(f"{NAMESPACES}/lifecycle-ends/finalize", named("lifecycle-ends", finalizers=["a.io/b"]) | {"spec": {}}),
        put(f"{NAMESPACES}/lifecycle-ends/finalize", named("lifecycle-ends") | {"spec": {}}),
        get(f"{NAMESPACES}/lifecycle-ends"),
        put(f"{NAMESPACES}/none/finalize", named("none") | {"spec": {}}),
    ],
    "an event is one thing in two APIs": [
        post(EVENTS, an_event("old", message="as old ones say", reason="Started", type="Normal", count=3)),
        post(EVENTS, an_event("timed", firstTimestamp="2026-01-05T09:00:00Z", source={"component": "kubelet"})),
        post(NEW_EVENTS, a_new_event("new")),
        post(NEW_EVENTS, a_new_event("series", series={"count": 2, "lastObservedTime": "2026-01-05T09:00:00.000000Z"})),
        *(get(f"{path}/{name}") for path in (EVENTS, NEW_EVENTS) for name in ("old", "timed", "new", "series")),
        get(EVENTS),
        get(NEW_EVENTS),
        get(f"{EVENTS}?fieldSelector=source%3Dkubelet"),
        get(f"{EVENTS}?fieldSelector=source%3Dexample.com/operator,involvedObject.name%3Dp"),
        get(f"{NEW_EVENTS}?fieldSelector=regarding.name%3Dp,reportingController%3Dexample.com/operator"),
        get(f"{NEW_EVENTS}?fieldSelector=involvedObject.name%3Dp"),
        merge(f"{EVENTS}/new", count=5, lastTimestamp="2026-01-05T09:30:00Z"),
        get(f"{NEW_EVENTS}/new"),
        get(f"{NEW_EVENTS}?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dold"),
        delete(f"{NEW_EVENTS}/old", {"propagationPolicy": "Foreground"}),
        get(f"{EVENTS}/old"),
        delete(EVENTS),
        get(NEW_EVENTS),
    ],
    "logs of pods, and ways into them": [
        post(PODS, a_pod("one")),
        post(PODS, a_pod("two", containers=[*CONTAINERS, {"name": "d", "image": "example/d"}])),
        get(f"{PODS}/one/log"),
        get(f"{PODS}/one/log?container=none"),
        get(f"{PODS}/two/log"),
        get(f"{PODS}/two/log?container=d"),
        get(f"{PODS}/none/log"),
        *(get(f"{TAIL}={number}") for number in ("-1", "x")),
        get(f"{PODS}/one/log?limitBytes=0"),
        post(f"{PODS}/one/log", {}),
        *(post(f"{PODS}/{name}/exec?command=ls", None) for name in ("one", "two", "none")),
        put(f"{PODS}/one/exec", {}),
        post(f"{PODS}/one/portforward", None),
        post(f"{PODS}/one/attach", None),
    ],
}


@pytest_asyncio.fixture
async def servers(control_plane: ControlPlane) -> AsyncIterator[tuple[RealServer, SandboxServer]]:
    """Yield the real server and a sandbox, both with an empty namespace."""
    real = RealServer(control_plane)
    await real.ask(post(NAMESPACES, named(NS)), named(NS))
    yield real, SandboxServer(ApiServer(RealClock(), namespaces=[NS]).transport("me"))
    for path in (MAPS, PODS, EVENTS, JOBS, SLICES, DAEMONS, *WORKLOADS):
        await _empty(real, path)
    real.close()


async def _empty(real: RealServer, path: str) -> None:
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    await real.ask(delete(path), now)
    (left,) = (await real.ask(get(path), None)).documents
    for item in left["items"]:
        where = f"{path}/{item['metadata']['name']}"
        await real.ask(merge(where), {"metadata": {"finalizers": None}})
        await real.ask(delete(where), now)


@pytest.mark.parametrize("story", STORIES)
async def test_a_story_goes_alike(servers: tuple[RealServer, SandboxServer], story: str) -> None:
    for number, step in enumerate(STORIES[story], start=1):
        real, ours = [await answered(server, step) for server in servers]
        assert _shown(ours) == _shown(real), (number, step)


def _shown(answer: tuple[int, list[Any], list[str]]) -> tuple[int, list[Any], list[str]]:
    status, documents, warnings = answer
    return status, [_without_chance(it) for it in documents], warnings


def _without_chance(document: Any) -> Any:
    """Leave out the revisions that messages name."""
    if not isinstance(document, dict) or not isinstance(document.get("message"), str):
        return document
    return document | {"message": re.sub(r"(ResourceVersion in object meta:) \d+", r"\1 1", document["message"])}


async def test_discovery_tells_the_same_about_every_kind(servers: tuple[RealServer, SandboxServer]) -> None:
    real, ours = [
        {
            (group["metadata"].get("name", ""), version["version"], each["resource"]): _discovered(each)
            for root in ("/api", "/apis")
            for group in (await server.ask(get(root, accept=AGGREGATED), None)).documents[0]["items"]
            for version in group["versions"]
            for each in version["resources"]
        }
        for server in servers
    ]
    assert ours == {name: real[name] for name in ours}


async def test_plain_discovery_tells_the_same(servers: tuple[RealServer, SandboxServer]) -> None:
    for path in ("/api/v1", "/apis/apps/v1", "/apis/batch/v1", "/apis/events.k8s.io/v1", "/apis/policy/v1"):
        real, ours = [
            {it["name"]: it for it in (await server.ask(get(path), None)).documents[0]["resources"]}
            for server in servers
        ]
        known = {name: {k: v for k, v in real[name].items() if k != "storageVersionHash"} for name in ours}
        assert ours == known


def _discovered(resource: JsonObject) -> JsonObject:
    shown = copy.deepcopy(resource)
    shown["subresources"] = [it for it in shown.get("subresources", []) if it["subresource"] not in NOT_HERE]
    return shown
