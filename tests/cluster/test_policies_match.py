"""ValidatingAdmissionPolicies decide in the sandbox as on the real server, and say it in the same words."""

import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import JsonObject
from support.asking import MERGE_PATCH, ask
from support.eventually import eventually
from support.sides import MAPS, REGISTRATIONS, Side, both, differences
from support.webhooks import rule

POLICIES = f"{REGISTRATIONS}/validatingadmissionpolicies"
BINDINGS = f"{REGISTRATIONS}/validatingadmissionpolicybindings"
ABOUT_MAPS = rule("configmaps", group="")


@pytest.fixture(scope="module")
def own_control_plane() -> Iterator[ControlPlane]:
    """Policies are about the whole cluster."""
    with ControlPlane() as cluster:
        yield cluster


def a_policy(name: str, *validations: JsonObject | str, rules: Any = (ABOUT_MAPS,), **spec: Any) -> JsonObject:
    told = [{"expression": it} if isinstance(it, str) else it for it in validations]
    # Each test object says which policies it is for.
    chosen = {"matchLabels": {"for": name}}
    constraints = {"resourceRules": list(rules), "objectSelector": chosen}
    spec = {"matchConstraints": constraints, "validations": told} | spec
    return {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}


def a_binding(policy: str, *actions: str, name: str = "", **spec: Any) -> JsonObject:
    spec = {"policyName": policy, "validationActions": list(actions or ("Deny",))} | spec
    meta = {"name": name or f"{policy}-bound"}
    return {"kind": "ValidatingAdmissionPolicyBinding", "metadata": meta, "spec": spec}


def a_map(policy: str, **data: str) -> JsonObject:
    meta = {"name": policy, "labels": {"for": policy}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


async def _make(side: Side, *objects: JsonObject) -> None:
    for obj in objects:
        path = POLICIES if obj["kind"] == "ValidatingAdmissionPolicy" else BINDINGS
        code, said = await ask(side.api, "POST", path, obj)
        assert code == 201, said["message"]


async def _in_force(side: Side) -> None:
    """Wait for a policy that was made after all others, and by another name in each test."""
    last = f"last-{secrets.token_hex(3)}"
    await _make(side, a_policy(last, "false"), a_binding(last))

    async def denies() -> bool:
        return (await ask(side.api, "POST", MAPS, a_map(last), dryRun="All"))[0] == 422

    await eventually(RealClock(), denies, within=timedelta(seconds=20))


_HAS_A = "'a' in object.data"
_FORBIDS = {"expression": _HAS_A, "reason": "Forbidden", "message": "an a is needed"}
_EXPLAINS = {"expression": _HAS_A, "message": "plain", "messageExpression": "'no a in ' + object.metadata.name"}
_FAILS = {"expression": _HAS_A, "message": "plain", "messageExpression": "string(object.no.such)"}
_TWO_LINES = {"expression": _HAS_A, "messageExpression": r"'a\nb'"}
_VARIABLES = [
    {"name": "keys", "expression": "object.data.map(k, k)"},
    {"name": "count", "expression": "size(variables.keys)"},
    {"name": "broken", "expression": "object.no.such"},
]
POLICIES_TRIED = (
    a_policy("plain", _HAS_A),
    a_policy("two", "true", _HAS_A, "false"),
    a_policy("forbids", _FORBIDS),
    a_policy("explains", _EXPLAINS),
    a_policy("fails-to-explain", _FAILS),
    a_policy("two-lines", _TWO_LINES),
    a_policy("too-large", {"expression": _HAS_A, "reason": "RequestEntityTooLarge"}),
    a_policy("error", "object.no.such == 1"),
    a_policy("error-ignored", "object.no.such == 1", failurePolicy="Ignore"),
    a_policy("variables", "variables.count < 2 && 'a' in variables.keys", variables=_VARIABLES),
    a_policy("broken-variable", "variables.broken == 1", variables=_VARIABLES),
    a_policy(
        "only-updates",
        "oldObject.data == object.data",
        matchConditions=[{"name": "x", "expression": "oldObject != null"}],
    ),
    a_policy("condition-fails", "false", matchConditions=[{"name": "x", "expression": "object.no.such == 1"}]),
    a_policy("of-request", "request.operation == 'CREATE' && request.userInfo.username == 'admin' && !request.dryRun"),
    a_policy("of-namespace", "namespaceObject.metadata.labels.a == 'b' && namespaceObject.metadata.name == 'shop'"),
    a_policy("deletes", "request.operation != 'DELETE' || has(object.data) || oldObject.data.a == '2'"),
    a_policy("of-text", "object.metadata.name.other == 1"),
    a_policy("of-number", "dyn(size(object.metadata.name)).other == 1"),
    a_policy("of-list", "dyn([1]).other == 1"),
    a_policy("of-null", "oldObject.data == null"),
    a_policy("has-of-text", "has(object.metadata.name.other)"),
    a_policy("index-of-text", "dyn(object.metadata.name)['other'] == 1"),
    a_policy("index-of-null", "oldObject['data'] == 1"),
    a_policy("optional-of-null", "oldObject.?data.hasValue()"),
    a_policy("optional-of-text", "object.metadata.name.?other.hasValue()"),
    a_policy("null", "object.metadata.name == 'null' && object.data == null"),
)
STEPS: tuple[tuple[str, Any], ...] = (
    ("POST", {}),
    ("POST", {"a": "1"}),
    ("PATCH", {"b": "2"}),
    ("DELETE", None),
    ("PATCH", {"a": "2"}),
    ("DELETE", None),
)


@pytest.mark.real_time
async def test_policies_decide_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    async with both(own_control_plane, tmp_path) as sides:
        for side in sides:
            await _make(side, *POLICIES_TRIED, *(a_binding(it["metadata"]["name"]) for it in POLICIES_TRIED))
            await _in_force(side)
        found: list[str] = []
        for policy in (it["metadata"]["name"] for it in POLICIES_TRIED):
            for method, data in STEPS:
                real, sandbox = [await _try(side, method, policy, data) for side in sides]
                found += differences(real, sandbox, f"{policy} {method} {data}: ")
        assert not found, "\n".join(found)


async def _try(side: Side, method: str, policy: str, data: Any) -> tuple[int, Any]:
    if method == "POST":
        return await side.ask("POST", MAPS, a_map(policy, **data))
    if method == "PATCH":
        return await side.ask("PATCH", f"{MAPS}/{policy}", {"data": data}, kind=MERGE_PATCH)
    return await side.ask("DELETE", f"{MAPS}/{policy}")


@pytest.mark.real_time
async def test_bindings_bind_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    unknown = {"apiVersion": "example.com/v1", "kind": "Limit"}
    wants = ["has(params.data) && object.data.x == params.data.x"]

    def by_name(name: str, action: str, **more: str) -> JsonObject:
        return {"name": name, "parameterNotFoundAction": action} | more

    chosen = {"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"}
    elsewhere = {"namespaceSelector": {"matchLabels": {"a": "c"}}}
    narrowed = {"resourceRules": [ABOUT_MAPS | {"resourceNames": ["other"]}]}
    bound = (
        (a_policy("unbound", "false"),),
        (a_policy("warns", "false"), a_binding("warns", "Warn")),
        (a_policy("audits", "false"), a_binding("audits", "Audit")),
        (a_policy("elsewhere", "false"), a_binding("elsewhere", matchResources=elsewhere)),
        (a_policy("narrowed", "false"), a_binding("narrowed", matchResources=narrowed)),
        (a_policy("param", *wants, paramKind=kind), a_binding("param", paramRef=by_name("limits", "Deny"))),
        (
            a_policy("far", *wants, paramKind=kind),
            a_binding("far", paramRef=by_name("limits", "Deny", namespace="shop")),
        ),
        (a_policy("chosen", *wants, paramKind=kind), a_binding("chosen", paramRef=chosen)),
        (a_policy("lost", *wants, paramKind=kind), a_binding("lost", paramRef=by_name("absent", "Deny"))),
        (a_policy("lost-ok", *wants, paramKind=kind), a_binding("lost-ok", paramRef=by_name("absent", "Allow"))),
        (a_policy("unknown", "true", paramKind=unknown), a_binding("unknown", paramRef=by_name("x", "Allow"))),
        (a_policy("no-ref", "params == null", paramKind=kind), a_binding("no-ref")),
    )
    async with both(own_control_plane, tmp_path) as sides:
        for side in sides:
            limits = {"metadata": {"name": "limits", "labels": {"limits": "yes"}}, "data": {"x": "1"}}
            await side.ask("POST", MAPS, limits)
            await _make(side, *(obj for objects in bound for obj in objects))
            await _in_force(side)
        found: list[str] = []
        for name in (objects[0]["metadata"]["name"] for objects in bound):
            for x in "12":
                answers = []
                for side in sides:
                    await side.ask("DELETE", f"{MAPS}/{name}")
                    answers.append(await side.ask("POST", MAPS, a_map(name, x=x)))
                found += differences(answers[0], answers[1], f"{name} {x}: ")
        assert not found, "\n".join(found)


@pytest.mark.real_time
async def test_wrong_policies_are_refused_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    wrong = (
        a_policy("x"),
        a_policy("x", "true", matchConstraints=None),
        a_policy("x", "true", rules=()),
        a_policy("x", "object.spec.paused"),
        a_policy("x", "params.x == 1"),
        a_policy("x", "variables.x == 1", variables=[{"name": "y", "expression": "1"}]),
        a_policy("x", "true", variables=[{"name": "1a", "expression": ""}, {"name": "", "expression": "1"}]),
        a_policy("x", {"expression": "", "message": " "}, {"expression": "true", "message": "a\nb", "reason": "X"}),
        a_policy("x", {"expression": "true", "messageExpression": " "}),
        a_policy("x", {"expression": "true", "messageExpression": "nothing"}),
        a_policy("x", {"expression": "true", "messageExpression": "object.spec.reason"}),
        a_policy("x", "true", failurePolicy="Maybe", paramKind={"kind": "", "apiVersion": ""}),
        a_binding("x", "Deny", "Warn", "Deny", "Cry"),
        a_binding("x", validationActions=[]),
        a_binding("", name="x"),
        a_binding("A", name="x"),
        a_binding("x", paramRef={}),
        a_binding("x", paramRef={"name": "a", "selector": {}, "parameterNotFoundAction": "Cry"}),
    )
    async with both(own_control_plane, tmp_path) as sides:
        found: list[str] = []
        for obj in wrong:
            path = POLICIES if obj["kind"] == "ValidatingAdmissionPolicy" else BINDINGS
            real, sandbox = [await side.ask("POST", path, obj) for side in sides]
            found += differences(real, sandbox, str(obj["spec"]))
        assert not found, "\n".join(found)
