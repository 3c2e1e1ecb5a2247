"""What the sandbox's API server refuses, by field, and what it makes of fields that it does not know."""

import json
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.apiserver.builtin_kinds import ALL
from haulout_sandbox.apiserver.decoding import json_fields
from haulout_sandbox.apiserver.kinds import KINDS, JsonObject, Kind
from haulout_sandbox.apiserver.protobuf import message_of
from haulout_sandbox.apiserver.shapes import Shape, shape_of
from support import samples, wrong
from support.asking import ask, merge
from support.wrong import GONE, changed

PODS = "/api/v1/namespaces/shop/pods"


def path_of(obj: JsonObject) -> str:
    kind = _kind(obj)
    return kind.path(kind.key("shop", obj["metadata"]["name"]))


def _kind(obj: JsonObject) -> Kind:
    return next(it for it in (*KINDS, *ALL) if (it.api_version, it.kind) == (obj["apiVersion"], obj["kind"]))


async def post(api: InProcessTransport, obj: JsonObject) -> tuple[int, Any]:
    return await ask(api, "POST", path_of(obj).rpartition("/")[0], obj)


async def put(api: InProcessTransport, right: JsonObject, changes: dict[str, Any], *, sub: str = "") -> tuple[int, Any]:
    code, made = await post(api, right)
    assert code == 201, made
    return await ask(api, "PUT", path_of(right) + sub, changed(made, changes))


def said(status: JsonObject) -> dict[str, str]:
    """Return what a refusal says, by field."""
    return {cause["field"]: cause["message"] for cause in status["details"]["causes"]}


@pytest.mark.parametrize("sample", samples.ALL, ids=lambda it: f"{it['kind']}-{it['metadata']['name']}")
async def test_what_people_write_is_taken(api: InProcessTransport, sample: JsonObject) -> None:
    code, made = await post(api, sample)
    assert code == 201, made
    code, again = await ask(api, "PUT", path_of(sample), made)
    assert code == 200, again


@pytest.mark.parametrize(
    ("right", "path", "value", "field"),
    [
        (wrong.POD, "metadata.name", "Upper", "metadata.name"),
        (wrong.POD, "spec.containers", GONE, "spec.containers"),
        (wrong.POD, "spec.containers.0.image", "", "spec.containers[0].image"),
        (wrong.POD, "spec.containers.1", {"name": "main", "image": "b"}, "spec.containers[1].name"),
        (
            wrong.POD,
            "spec.containers.0.resources",
            {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            "spec.containers[0].resources.requests",
        ),
        (
            wrong.POD,
            "spec.containers.0.volumeMounts",
            [{"name": "absent", "mountPath": "/a"}],
            "spec.containers[0].volumeMounts[0].name",
        ),
        (wrong.POD, "spec.volumes", [{"name": "a"}, {"name": "a"}], "spec.volumes[1].name"),
        (wrong.POD, "spec.restartPolicy", "Sometimes", "spec.restartPolicy"),
        (wrong.POD, "spec.tolerations", [{"operator": "Equal"}], "spec.tolerations[0].operator"),
        (
            wrong.POD,
            "spec.affinity",
            {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}},
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
        ),
        (wrong.NODE, "spec.taints.1", {"key": "a", "effect": "NoSchedule"}, "spec.taints[1]"),
        (wrong.NODE, "spec.taints", [{"key": "a"}], "spec.taints[0].effect"),
        (wrong.DEPLOYMENT, "spec.selector", {}, "spec.selector"),
        (wrong.DEPLOYMENT, "spec.selector", {"matchLabels": {"app": "b"}}, "spec.template.metadata.labels"),
        (wrong.DEPLOYMENT, "spec.replicas", -1, "spec.replicas"),
        (
            wrong.DEPLOYMENT,
            "spec.strategy",
            {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}},
            "spec.strategy.rollingUpdate.maxUnavailable",
        ),
        (wrong.DAEMON_SET, "spec.updateStrategy", {"type": "Never"}, "spec.updateStrategy.type"),
        (wrong.STATEFUL_SET, "spec.podManagementPolicy", "Never", "spec.podManagementPolicy"),
        (wrong.JOB, "spec.template.spec.restartPolicy", "Always", "spec.template.spec.restartPolicy"),
        (wrong.CRON_JOB, "spec.schedule", "", "spec.schedule"),
        (wrong.BUDGET, "spec.maxUnavailable", 1, "spec"),
        (wrong.BUDGET, "spec.minAvailable", "101%", "spec.minAvailable"),
        (wrong.BUDGET, "spec.minAvailable", "some", "spec.minAvailable"),
        (wrong.BUDGET, "spec.selector", {"matchLabels": {"a b": ""}}, "spec.selector.matchLabels.a b"),
        (wrong.LEASE, "spec.leaseDurationSeconds", 0, "spec.leaseDurationSeconds"),
        (wrong.SERVICE, "spec.ports", [], "spec.ports"),
        (wrong.CONFIG_MAP, "data.a", "x" * 1048577, "data"),
        (wrong.CONFIG_MAP, "metadata.annotations", {"a": "x" * 262144}, "metadata.annotations"),
        (wrong.ROLE, "rules", [{"verbs": ["get"], "resources": ["a"]}], "rules[0].apiGroups"),
        (wrong.BINDING, "roleRef.kind", "Role2", "roleRef.kind"),
        (wrong.NEW_EVENT, "action", "", "action"),
        (wrong.CLAIM, "spec.resources.requests.storage", "0", "spec.resources.requests[storage]"),
    ],
)
async def test_a_wrong_field_is_named(
    api: InProcessTransport, right: JsonObject, path: str, value: Any, field: str
) -> None:
    code, status = await post(api, changed(right, {path: value}))
    assert (code, status["reason"]) == (422, "Invalid")
    assert field in said(status)


async def test_all_that_is_wrong_is_said_at_once_and_nothing_is_stored(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    pod = changed(wrong.POD, {"metadata.labels": {"a b": "c"}, "spec.containers.0.name": ""})
    code, status = await post(api, pod)
    assert code == 422
    assert list(said(status)) == ["metadata.labels", "spec.containers[0].name"]
    assert status["message"].startswith('Pod "p" is invalid: [metadata.labels: Invalid value: "a b": ')
    assert not cluster.objects("pods")


async def test_what_is_wrong_is_said_before_that_the_name_is_taken(api: InProcessTransport) -> None:
    await post(api, wrong.POD)
    assert (await post(api, wrong.POD))[0] == 409
    assert (await post(api, changed(wrong.POD, {"spec.containers": []})))[0] == 422


@pytest.mark.parametrize(
    ("right", "path", "value", "field"),
    [
        (wrong.DEPLOYMENT, "spec.selector.matchLabels", {"app": "a", "b": "c"}, "spec.selector"),
        (wrong.STATEFUL_SET, "spec.serviceName", "other", "spec"),
        (wrong.JOB, "spec.completions", 5, "spec.completions"),
        (wrong.PRIORITY, "value", 6, "value"),
        (wrong.BINDING, "roleRef.name", "other", "roleRef"),
        (changed(wrong.NODE, {"spec.providerID": "cloud://1"}), "spec.providerID", "cloud://2", "spec.providerID"),
        (changed(wrong.CONFIG_MAP, {"immutable": True}), "data.a", "2", "data"),
        (wrong.CLAIM, "spec.accessModes", ["ReadWriteMany"], "spec"),
        (wrong.POD, "spec.containers.1", {"name": "b", "image": "b"}, "spec.containers"),
        (wrong.POD, "spec.containers.0.command", ["b"], "spec.containers[0]"),
        (wrong.POD, "spec.hostNetwork", True, "spec"),
        (wrong.POD, "spec.nodeName", "n1", "spec"),
        (wrong.POD, "spec.schedulingGates", [{"name": "new"}], "spec.schedulingGates[0]"),
        # The usual ones come back by themselves where nothing tolerates all.
        (wrong.POD, "spec.tolerations", [{"operator": "Exists"}], "spec.tolerations"),
    ],
)
async def test_what_may_not_change_is_named(
    api: InProcessTransport, right: JsonObject, path: str, value: Any, field: str
) -> None:
    code, status = await put(api, right, {path: value})
    assert code == 422
    assert field in said(status)


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.containers.0.image": "registry.example/main:2"},
        {"spec.activeDeadlineSeconds": 5},
        {"spec.tolerations.0": {"key": "a", "operator": "Exists"}, "metadata.labels": {"a": "b"}},
        {"spec.nodeSelector": {}},
    ],
)
async def test_what_may_change_in_a_pod_does(api: InProcessTransport, changes: dict[str, Any]) -> None:
    tolerant = changed(wrong.POD, {"spec.tolerations": [{"key": "a", "operator": "Exists"}]})
    code, pod = await put(api, tolerant, changes)
    assert code == 200, pod


async def test_a_status_is_checked_and_the_spec_beside_it_is_not(cluster: ApiServer, api: InProcessTransport) -> None:
    code, status = await put(api, wrong.BUDGET, {"status.disruptionsAllowed": -1}, sub="/status")
    assert (code, list(said(status))) == (422, ["status.disruptionsAllowed"])
    cluster.put(changed(wrong.POD, {"metadata.namespace": "shop", "spec.containers": []}))
    assert (await merge(api, f"{PODS}/p/status", status={"message": "ill"}))[0] == 200


async def test_an_object_that_was_right_is_not_asked_again(cluster: ApiServer, api: InProcessTransport) -> None:
    """What only a test can have stored can be labelled and let go."""
    cluster.put(changed(wrong.DEPLOYMENT, {"metadata.namespace": "shop", "spec.template.spec.containers": []}))
    assert (await merge(api, path_of(wrong.DEPLOYMENT), metadata={"labels": {"a": "b"}}))[0] == 200
    assert (await merge(api, path_of(wrong.DEPLOYMENT), spec={"replicas": 5}))[0] == 422


async def test_a_server_without_defaulting_takes_what_it_is_given(clock: Clock) -> None:
    api = ApiServer(clock, defaulting=False, namespaces=["shop"]).transport()
    assert (await post(api, changed(wrong.POD, {"spec.containers": []})))[0] == 201


# Types and unknown fields


async def sent(api: InProcessTransport, body: JsonObject, *, how: str = "") -> tuple[int, Any, str]:
    query = (("fieldValidation", how),) if how else ()
    answer = await api.send(Request(method="POST", path=PODS, query=query, body=json.dumps(body).encode()))
    return answer.status, json.loads(answer.body), answer.headers.get("warning", "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spec.hostNetwork": "yes"}, "spec.hostNetwork: expected `bool`, got `str`"),
        (
            {"spec.containers.0.livenessProbe": {"exec": {"command": "a"}}},
            "spec.containers[0].livenessProbe.exec.command: expected `array`, got `str`",
        ),
        ({"spec.containers.0.resources": {"limits": {"cpu": "many"}}}, "spec.containers[0].resources.limits: "),
        ({"metadata.creationTimestamp": "2026-02-30T00:00:00Z"}, "metadata.creationTimestamp: day is out of range"),
        ({"spec.priority": 2**31}, "spec.priority: expected `int` <= 2147483647"),
        ({"spec.containers": [None]}, "spec.containers[0]: expected `object`, got `null`"),
    ],
)
async def test_a_value_of_the_wrong_type_is_refused(
    api: InProcessTransport, changes: dict[str, Any], message: str
) -> None:
    code, status, _ = await sent(api, changed(wrong.POD, changes))
    assert (code, status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith(f'Pod in version "v1" cannot be handled as a Pod: {message}')


MISSPELT = changed(wrong.POD, {"spec.foo": 1, "spec.containers.0.bar": 2})


async def test_unknown_fields_are_dropped_and_told_of(api: InProcessTransport) -> None:
    code, pod, warnings = await sent(api, MISSPELT)
    assert code == 201
    assert set(warnings.split(", ")) == {
        r'299 - "unknown field \"spec.foo\""',
        r'299 - "unknown field \"spec.containers[0].bar\""',
    }
    assert "foo" not in pod["spec"]


async def test_unknown_fields_can_be_ignored_or_refused(api: InProcessTransport) -> None:
    code, status, warnings = await sent(api, MISSPELT, how="Strict")
    assert (code, warnings) == (400, "")
    assert 'strict decoding error: unknown field "spec.' in status["message"]
    code, pod, warnings = await sent(api, MISSPELT, how="Ignore")
    assert (code, warnings, "foo" in pod["spec"]) == (201, "", False)


async def test_a_refusal_has_the_warnings_too(api: InProcessTransport) -> None:
    body = changed(wrong.POD, {"spec.foo": 1, "spec.containers": []})
    code, _, warnings = await sent(api, body)
    assert (code, warnings) == (422, r'299 - "unknown field \"spec.foo\""')


async def test_a_patch_cannot_smuggle_in_what_the_kind_does_not_have(api: InProcessTransport) -> None:
    await post(api, wrong.POD)
    code, pod = await merge(api, f"{PODS}/p", spec={"foo": 1}, metadata={"labels": {"a": "b"}})
    assert (code, "foo" in pod["spec"], pod["metadata"]["labels"]) == (200, False, {"a": "b"})
    code, status = await merge(api, f"{PODS}/p", metadata={"labels": {"a": 5}})
    assert code == 400
    assert "metadata.labels: expected `str`, got `int`" in status["message"]


@pytest.mark.parametrize("kind", [*KINDS, *ALL], ids=lambda it: it.resource)
def test_the_types_that_we_ship_have_the_fields_that_the_shapes_have(kind: Kind) -> None:
    """The shapes are compared with the real server's; the types come from its sources."""
    message, shape = message_of(kind.api_version, kind.kind), shape_of(kind.api_version, kind.kind)
    if message is not None and shape is not None:
        _compare(message, shape, set())


def _compare(message: str, shape: Shape, seen: set[str]) -> None:
    if message in seen or "." not in message or shape.kind != "object" or not shape.declared:
        return
    seen.add(message)
    known = json_fields(message)
    assert set(known) == set(shape.declared), message
    for name, field in known.items():
        below = shape.field(name)
        inner = below.items if below and field.holds == "[]" else below
        if inner and field.holds != "{}":
            _compare(field.type, inner, seen)
