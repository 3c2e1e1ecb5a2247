"""The sandbox asks admission webhooks what the real server asks them, and makes the same of their answers."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import JsonObject
from support.asking import JSON_PATCH, MERGE_PATCH
from support.certificates import Authority
from support.definitions import STRING, a_definition, an_object
from support.eventually import eventually
from support.sides import MAPS, REGISTRATIONS, Side, both, differences, in_force
from support.webhooks import Behaviour, a_configuration, a_hook, denies, labels, patches, rule

PODS = "/api/v1/namespaces/shop/pods"
BUDGETS = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
APPLY = "application/apply-patch+yaml"


@pytest.fixture(scope="module")
def own_control_plane() -> Iterator[ControlPlane]:
    """Webhooks that want to know everything are for nobody else's cluster."""
    with ControlPlane() as cluster:
        yield cluster


def _pod(name: str, **spec: Any) -> JsonObject:
    containers = [{"name": "c", "image": "registry.example/c:1"}]
    # The control plane runs without the plugin that names the account.
    spec = {"containers": containers, "serviceAccountName": "default"} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _map(name: str = "", **meta: Any) -> JsonObject:
    named = {"name": name} if name else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named | meta, "data": {"a": "1"}}


def _eviction(name: str, **options: Any) -> JsonObject:
    deletes = {"deleteOptions": options} if options else {}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}} | deletes


Step = tuple[str, str, Any, dict[str, str]]
STORY: tuple[Step, ...] = (
    ("POST", MAPS, _map(generateName="gen-"), {}),
    ("POST", MAPS, _map("c"), {"fieldManager": "me", "fieldValidation": "Strict"}),
    ("POST", MAPS, _map("c"), {}),
    ("POST", MAPS, _map("d"), {"dryRun": "All"}),
    ("PUT", f"{MAPS}/c", _map("c", labels={"x": "y"}), {"dryRun": "All", "fieldManager": "me"}),
    ("PUT", f"{MAPS}/c", _map("c", resourceVersion="1"), {}),
    ("PUT", f"{MAPS}/absent", _map("absent"), {}),
    ("PATCH", f"{MAPS}/c", {"data": {"b": "2"}}, {"kind": MERGE_PATCH}),
    ("PATCH", f"{MAPS}/c", {"data": {"b": "2"}}, {"kind": MERGE_PATCH}),  # changes nothing
    ("PATCH", f"{MAPS}/c", [{"op": "remove", "path": "/data/b"}], {"kind": JSON_PATCH, "fieldManager": "me"}),
    ("PATCH", f"{MAPS}/applied", _map("applied"), {"kind": APPLY, "fieldManager": "me", "force": "true"}),
    ("DELETE", f"{MAPS}/c", None, {"dryRun": "All"}),
    ("DELETE", f"{MAPS}/c", {"preconditions": {"uid": "wrong"}}, {}),
    ("DELETE", f"{MAPS}/c", {"propagationPolicy": "Background"}, {}),
    ("DELETE", MAPS, None, {}),
    ("POST", PODS, _pod("p"), {}),
    ("POST", PODS, _pod("bad", priorityClassName="absent"), {}),
    ("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}, {}),
    ("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, {"kind": MERGE_PATCH}),
    ("PATCH", f"{PODS}/p", {"metadata": {"finalizers": ["a.example/b"]}}, {"kind": MERGE_PATCH}),
    ("POST", f"{PODS}/p/eviction", _eviction("p"), {"dryRun": "All"}),
    ("POST", f"{PODS}/p/eviction", _eviction("p", gracePeriodSeconds=5), {}),
    ("DELETE", f"{PODS}/p", None, {}),  # it is going already
    ("PATCH", f"{PODS}/p", {"metadata": {"finalizers": None}}, {"kind": MERGE_PATCH}),
    ("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0}, {}),
    ("POST", PODS, _pod("q", nodeName="n1", terminationGracePeriodSeconds=7), {}),
    ("DELETE", f"{PODS}/q", None, {}),
    ("POST", PODS, _pod("unscheduled"), {}),
    ("DELETE", f"{PODS}/unscheduled", None, {}),
    ("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}, {}),
    ("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}, {"kind": MERGE_PATCH}),
    ("PATCH", "/api/v1/nodes/n1/status", {"status": {"phase": "Running"}}, {"kind": MERGE_PATCH}),
    ("DELETE", "/api/v1/nodes/n1", None, {}),
    ("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}}, {}),
    ("PATCH", "/api/v1/namespaces/other", {"metadata": {"labels": {"x": "y"}}}, {"kind": MERGE_PATCH}),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/shop/leases/l", {"metadata": {"name": "l"}}, {}),
    ("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1}}, {}),
    ("PATCH", f"{BUDGETS}/b/status", {"status": {"expectedPods": 1}}, {"kind": MERGE_PATCH}),
)


@pytest.mark.real_time
async def test_webhooks_are_asked_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    everything = rule("*/*")
    elsewhere = {"name": "elsewhere", "expression": "!has(request.namespace) || request.namespace != 'kube-system'"}
    async with both(own_control_plane, tmp_path) as sides:
        for side in sides:
            for mutating, path in ((True, "/changes"), (False, "/checks")):
                hook = side.hook(path, everything, matchConditions=[elsewhere])
                await side.register("all", hook, mutating=mutating)
            await in_force(side, 2)
        found: list[str] = []
        for method, path, body, more in STORY:
            told = []
            for side in sides:
                side.webhook.asked.clear()
                answer = await side.ask(method, path, body, **more)
                told.append([answer, side.asked()])
            real, sandbox = told
            found += differences(real, sandbox, f"{method} {path}: ")
        assert not found, "\n".join(found)


def _raw(text: str, code: int = 200) -> Behaviour:
    return lambda _: {"raw": text, "code": code}


def _review(version: str, **response: Any) -> Behaviour:
    def behave(request: JsonObject) -> JsonObject:
        answered = {"uid": request["uid"], "allowed": True} | response
        review = {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "response": answered}
        return {"raw": msgspec.json.encode(review).decode()}

    return behave


_BUSY = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "busy", "code": 503}
_NO_PATCH = {"allowed": True, "patchType": "JSONPatch"}
BEHAVIOURS: dict[str, Behaviour] = {
    "deny": denies(),
    "deny-message": denies("not today"),
    "deny-reason": denies(reason="Because"),
    "deny-later": denies("later", code=429, reason="TooManyRequests", details={"retryAfterSeconds": 7}),
    "deny-success": denies("odd", code=200, status="Success"),
    "deny-details": denies("m", code=422, reason="Invalid", details={"causes": [{"message": "x", "field": "y"}]}),
    "http-404": _raw("not here", 404),
    "http-500": _raw("boom", 500),
    "http-400": _raw("bad", 400),
    "http-503": _raw(msgspec.json.encode(_BUSY).decode(), 503),
    "garbage": _raw("no json at all"),
    "list": _raw("[]"),
    "empty": _raw(""),
    "nothing": _raw("{}"),
    "other-kind": _raw('{"kind":"Pod","apiVersion":"v1"}'),
    "no-response": _raw('{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}'),
    "old-version": _review("v1beta1"),
    "new-version": _review("v2"),
    "wrong-uid": _review("v1", uid="x"),
    "label": labels("team", "a"),
    "rename": patches({"op": "replace", "path": "/metadata/name", "value": "renamed"}),
    "failed-test": patches({"op": "test", "path": "/metadata/name", "value": "zz"}),
    "no-patch": lambda _: _NO_PATCH,
    "no-patch-type": lambda _: {"allowed": True, "patch": "W10="},
    "empty-patch": lambda _: _NO_PATCH | {"patch": "W10="},
    "no-list": lambda _: _NO_PATCH | {"patch": "e30="},
    "other-patch-type": lambda request: patches({"op": "remove", "path": "/data"})(request) | {"patchType": "X"},
    "warning": lambda _: {"allowed": True, "warnings": ["mind the gap"]},
}


@pytest.mark.real_time
async def test_answers_of_webhooks_are_taken_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    about_maps = rule("configmaps", operations=("CREATE",), group="")
    async with both(own_control_plane, tmp_path) as sides:
        for side in sides:
            for name, behaviour in BEHAVIOURS.items():
                side.webhook.does(f"/{side.name}/{name}", behaviour)
            for mutating in (False, True):
                hooks = [
                    side.hook(f"/{name}", about_maps, objectSelector={"matchLabels": {"do": f"{name}-{mutating}"}})
                    for name in BEHAVIOURS
                ]
                hooks += _broken(side, about_maps, mutating=mutating)
                await side.register(
                    "some", side.hook(f"/seen-{mutating}".lower(), about_maps), *hooks, mutating=mutating
                )
            await in_force(side, 2)
        cases = [*BEHAVIOURS, "distrusted", "down", "no-service", "down-ignored"]
        found: list[str] = []
        for wanted in [f"{name}-{mutating}" for name in cases for mutating in (False, True)]:
            answers = [await side.ask("POST", MAPS, _map(wanted.lower(), labels={"do": wanted})) for side in sides]
            found += differences(answers[0], answers[1], f"{wanted}: ")
        assert not found, "\n".join(found)


def _broken(side: Side, about: JsonObject, *, mutating: bool) -> Iterator[JsonObject]:
    """Yield webhooks that cannot be reached."""
    down = {"url": "https://127.0.0.1:1/x"}
    for name, more in (
        ("distrusted", {"authority": Authority("another")}),
        ("down", {"clientConfig": down}),
        ("no-service", {"clientConfig": {"service": {"namespace": "shop", "name": "absent", "path": "/x"}}}),
        ("down-ignored", {"clientConfig": down, "failurePolicy": "Ignore"}),
    ):
        selector = {"matchLabels": {"do": f"{name}-{mutating}"}}
        yield side.hook(f"/{name}", about, objectSelector=selector, **more)


@pytest.mark.real_time
async def test_webhooks_want_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Which of many webhooks are asked, and in what order the mutating ones are."""
    wanted: tuple[tuple[str, list[JsonObject], JsonObject], ...] = (
        ("all-plain", [rule("*")], {}),
        ("all-subresources", [rule("*/status", "*/eviction")], {}),
        ("of-pods", [rule("pods/*")], {}),
        ("namespaced", [rule("*/*", scope="Namespaced")], {}),
        ("cluster", [rule("*/*", scope="Cluster")], {}),
        ("updates", [rule("configmaps", "nodes", operations=("UPDATE", "DELETE"))], {}),
        ("core-v1", [rule("*/*", group="", apiVersions=["v1"])], {}),
        ("other-version", [rule("*/*", apiVersions=["v7"])], {}),
        ("in-shops", [rule("*")], {"namespaceSelector": {"matchLabels": {"a": "b"}}}),
        ("not-in-shops", [rule("*")], {"namespaceSelector": {"matchLabels": {"a": "c"}}}),
        ("labelled", [rule("*")], {"objectSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}),
        ("by-me", [rule("*/*")], {"matchConditions": [_condition("request.userInfo.username == 'admin'")]}),
        ("by-nobody", [rule("*/*")], {"matchConditions": [_condition("request.userInfo.username == 'nobody'")]}),
        ("of-data", [rule("*/*")], {"matchConditions": [_condition("has(object.data) && object.data.a == '1'")]}),
        ("relaxed", [rule("*/*")], {"matchConditions": [_condition("object.no.such > 1")], "failurePolicy": "Ignore"}),
    )
    steps: tuple[Step, ...] = (
        ("POST", MAPS, _map("m", labels={"x": "y"}), {}),
        ("PATCH", f"{MAPS}/m", {"metadata": {"labels": None}}, {"kind": MERGE_PATCH}),
        ("PATCH", f"{MAPS}/m", {"data": {"a": "2"}}, {"kind": MERGE_PATCH}),
        ("DELETE", f"{MAPS}/m", None, {}),
        ("POST", PODS, _pod("w", nodeName="n1"), {}),
        ("PATCH", f"{PODS}/w/status", {"status": {"phase": "Running"}}, {"kind": MERGE_PATCH}),
        ("POST", f"{PODS}/w/eviction", _eviction("w"), {}),
        ("DELETE", f"{PODS}/w", {"gracePeriodSeconds": 0}, {}),
        ("POST", "/api/v1/nodes", {"metadata": {"name": "w"}}, {}),
        ("DELETE", "/api/v1/nodes/w", None, {}),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "mall", "labels": {"a": "b"}}}, {}),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "yard"}}, {}),
        ("POST", f"{REGISTRATIONS}/validatingwebhookconfigurations", a_configuration("exempt"), {}),
    )
    async with both(own_control_plane, tmp_path) as sides:
        for side in sides:
            for mutating in (False, True):
                hooks = [side.hook(f"/{name}-{mutating}".lower(), *rules, **more) for name, rules, more in wanted]
                await side.register("wants", *reversed(hooks), mutating=mutating)
            await in_force(side, 10)
        found: list[str] = []
        for method, path, body, more in steps:
            told = []
            for side in sides:
                side.webhook.asked.clear()
                answer = await side.ask(method, path, body, **more)
                asked = [it for it, _ in side.asked()]
                in_order, at_once = ([it for it in asked if word in it] for word in ("true", "false"))
                told.append([answer, in_order, sorted(at_once)])
            real, sandbox = told
            found += differences(real, sandbox, f"{method} {path}: ")
        assert not found, "\n".join(found)


@pytest.mark.real_time
async def test_custom_resources_are_asked_about_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Through one version of two, to webhooks that know either the one or the other."""
    spec = an_object(sails={"type": "integer", "default": 1}, name=STRING)
    definition = a_definition("boats", "Boat", spec, group="example.com", status=an_object(at=STRING))
    definition["spec"]["versions"].append(definition["spec"]["versions"][0] | {"name": "v2", "storage": False})
    definitions, boats = (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/example.com/v1/namespaces/shop/boats",
    )
    boat = {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "b"}, "spec": {"name": "x"}}
    steps: tuple[Step, ...] = (
        ("POST", boats, boat | {"status": {"at": "sea"}}, {}),
        ("PATCH", f"{boats}/b", {"spec": {"name": "y"}}, {"kind": MERGE_PATCH}),
        ("PATCH", f"{boats}/b/status", {"status": {"at": "sea"}}, {"kind": MERGE_PATCH}),
        ("PUT", f"{boats}/b", boat, {}),
        ("DELETE", f"{boats}/b", None, {}),
        ("DELETE", f"{definitions}/boats.example.com", None, {}),
    )
    async with both(own_control_plane, tmp_path) as sides:
        for side in sides:
            await side.ask("POST", definitions, definition)
            for mutating in (True, False):
                hooks = [
                    side.hook(f"/{version}-{mutating}".lower(), rule("boats", "boats/status", apiVersions=[version]))
                    for version in ("v1", "v2")
                ]
                anything = side.hook(f"/any-{mutating}".lower(), rule("configmaps", "customresourcedefinitions"))
                await side.register("boats", anything, *hooks, mutating=mutating)
            await in_force(side, 2)
            await eventually(RealClock(), partial(_can_create, side, boats, boat), within=timedelta(seconds=15))
        found: list[str] = []
        for method, path, body, more in steps:
            told = []
            for side in sides:
                side.webhook.asked.clear()
                code, _ = await side.ask(method, path, body, **more)
                told.append([code, sorted(side.asked(), key=str)])
            real, sandbox = told
            found += differences(real, sandbox, f"{method} {path}: ")
        assert not found, "\n".join(found)


async def _can_create(side: Side, path: str, body: JsonObject) -> bool:
    return (await side.ask("POST", path, body, dryRun="All"))[0] == 201


def _condition(expression: str) -> JsonObject:
    return {"name": "only", "expression": expression}


@pytest.mark.real_time
async def test_wrong_configurations_are_refused_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    url, good = {"url": "https://guard.example/x"}, rule("pods")
    wrong: tuple[JsonObject, ...] = (
        a_hook(url, good, name="short"),
        a_hook(url, good, name=""),
        a_hook(url, good, sideEffects=None),
        a_hook(url, good, sideEffects="Some"),
        a_hook(url, good, timeoutSeconds=31),
        a_hook(url, good, failurePolicy="Maybe", matchPolicy="Some"),
        a_hook(url, good, admissionReviewVersions=[]),
        a_hook(url, good, admissionReviewVersions=["v7", "v7"]),
        a_hook({}, good),
        a_hook(url | {"service": {"name": "a", "namespace": "b"}}, good),
        a_hook({"url": "http://u:p@guard.example/x?a=b#c"}, good),
        a_hook({"service": {"name": "", "namespace": "b", "port": 70000, "path": "x//Y"}}, good),
        a_hook(url, rule(operations=())),
        a_hook(url, rule("pods", operations=("*", "READ"), scope="Some")),
        a_hook(url, rule("*/*", "pods", "pods/*", "pods/status", "*/status", "", "*")),
        a_hook(url, rule("pods", apiVersions=["*", ""], apiGroups=["*", "a"])),
        a_hook(url, good, namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]}),
        a_hook(url, good, objectSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        a_hook(url, good, matchConditions=[_condition(""), _condition("true"), {"name": "", "expression": "1 +"}]),
        a_hook(url, good, matchConditions=[_condition("request.nothing == ''"), _condition("some.thing")]),
        a_hook(url, good, matchConditions=[_condition("object.spec.paused")]),
    )
    async with both(own_control_plane, tmp_path) as sides:
        found: list[str] = []
        for hook in wrong:
            for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
                body = a_configuration("wrong", hook, mutating=kind.startswith("m"))
                answers = [await side.ask("POST", f"{REGISTRATIONS}/{kind}", body) for side in sides]
                found += differences(answers[0], answers[1])
        assert not found, "\n".join(found)
