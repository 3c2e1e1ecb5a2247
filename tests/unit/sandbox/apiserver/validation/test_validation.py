"""What the sandbox's API server refuses, by field, and what it makes of fields that it does not know."""

import json
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS
from haulout_sandbox.apiserver.kinds.kind import CORE_KINDS, JsonObject, Kind
from haulout_sandbox.apiserver.patch.merge_schema import MergeSchema, merge_schema_of
from haulout_sandbox.apiserver.serializer.decoder import json_fields
from haulout_sandbox.apiserver.serializer.protobuf import message_name
from support.apiserver.requests import merge, request_json
from support.builders import invalid_objects, samples
from support.builders.invalid_objects import REMOVED, with_changes

PODS = "/api/v1/namespaces/shop/pods"


def path_of(obj: JsonObject) -> str:
    kind = _kind(obj)
    return kind.path(kind.key("shop", obj["metadata"]["name"]))


def _kind(obj: JsonObject) -> Kind:
    return next(
        kind
        for kind in (*CORE_KINDS, *BUILTIN_KINDS)
        if (kind.api_version, kind.kind) == (obj["apiVersion"], obj["kind"])
    )


async def post(api: InProcessTransport, obj: JsonObject) -> tuple[int, Any]:
    return await request_json(api, "POST", path_of(obj).rpartition("/")[0], obj)


async def put(api: InProcessTransport, valid: JsonObject, changes: dict[str, Any], *, sub: str = "") -> tuple[int, Any]:
    code, made = await post(api, valid)
    assert code == 201, made
    return await request_json(api, "PUT", path_of(valid) + sub, with_changes(made, changes))


def cause_fields(status: JsonObject) -> dict[str, str]:
    """Return what a refusal says, by field."""
    return {cause["field"]: cause["message"] for cause in status["details"]["causes"]}


@pytest.mark.parametrize("sample", samples.ALL, ids=lambda it: f"{it['kind']}-{it['metadata']['name']}")
async def test_valid_samples_are_accepted(api: InProcessTransport, sample: JsonObject) -> None:
    code, made = await post(api, sample)
    assert code == 201, made
    code, again = await request_json(api, "PUT", path_of(sample), made)
    assert code == 200, again


@pytest.mark.parametrize(
    ("right", "path", "value", "field"),
    [
        (invalid_objects.POD, "metadata.name", "Upper", "metadata.name"),
        (invalid_objects.POD, "spec.containers", REMOVED, "spec.containers"),
        (invalid_objects.POD, "spec.containers.0.image", "", "spec.containers[0].image"),
        (invalid_objects.POD, "spec.containers.1", {"name": "main", "image": "b"}, "spec.containers[1].name"),
        (
            invalid_objects.POD,
            "spec.containers.0.resources",
            {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            "spec.containers[0].resources.requests",
        ),
        (
            invalid_objects.POD,
            "spec.containers.0.volumeMounts",
            [{"name": "absent", "mountPath": "/a"}],
            "spec.containers[0].volumeMounts[0].name",
        ),
        (invalid_objects.POD, "spec.volumes", [{"name": "a"}, {"name": "a"}], "spec.volumes[1].name"),
        (invalid_objects.POD, "spec.restartPolicy", "Sometimes", "spec.restartPolicy"),
        (invalid_objects.POD, "spec.tolerations", [{"operator": "Equal"}], "spec.tolerations[0].operator"),
        (
            invalid_objects.POD,
            "spec.affinity",
            {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}},
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
        ),
        (invalid_objects.NODE, "spec.taints.1", {"key": "a", "effect": "NoSchedule"}, "spec.taints[1]"),
        (invalid_objects.NODE, "spec.taints", [{"key": "a"}], "spec.taints[0].effect"),
        (invalid_objects.DEPLOYMENT, "spec.selector", {}, "spec.selector"),
        (invalid_objects.DEPLOYMENT, "spec.selector", {"matchLabels": {"app": "b"}}, "spec.template.metadata.labels"),
        (invalid_objects.DEPLOYMENT, "spec.replicas", -1, "spec.replicas"),
        (
            invalid_objects.DEPLOYMENT,
            "spec.strategy",
            {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}},
            "spec.strategy.rollingUpdate.maxUnavailable",
        ),
        (invalid_objects.DAEMON_SET, "spec.updateStrategy", {"type": "Never"}, "spec.updateStrategy.type"),
        (invalid_objects.STATEFUL_SET, "spec.podManagementPolicy", "Never", "spec.podManagementPolicy"),
        (invalid_objects.JOB, "spec.template.spec.restartPolicy", "Always", "spec.template.spec.restartPolicy"),
        (invalid_objects.BUDGET, "spec.maxUnavailable", 1, "spec"),
        (invalid_objects.BUDGET, "spec.minAvailable", "101%", "spec.minAvailable"),
        (invalid_objects.BUDGET, "spec.minAvailable", "some", "spec.minAvailable"),
        (invalid_objects.BUDGET, "spec.selector", {"matchLabels": {"a b": ""}}, "spec.selector.matchLabels.a b"),
        (invalid_objects.LEASE, "spec.leaseDurationSeconds", 0, "spec.leaseDurationSeconds"),
        (invalid_objects.CONFIG_MAP, "metadata.annotations", {"a": "x" * 262144}, "metadata.annotations"),
    ],
)
async def test_a_wrong_field_is_named(
    api: InProcessTransport, right: JsonObject, path: str, value: Any, field: str
) -> None:
    code, status = await post(api, with_changes(right, {path: value}))
    assert (code, status["reason"]) == (422, "Invalid")
    assert field in cause_fields(status)


async def test_all_problems_are_reported_at_once_and_nothing_is_stored(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    pod = with_changes(invalid_objects.POD, {"metadata.labels": {"a b": "c"}, "spec.containers.0.name": ""})
    code, status = await post(api, pod)
    assert code == 422
    assert list(cause_fields(status)) == ["metadata.labels", "spec.containers[0].name"]
    assert status["message"].startswith('Pod "p" is invalid: [metadata.labels: Invalid value: "a b": ')
    assert not cluster.objects("pods")


async def test_invalid_objects_are_refused_before_existing_names(api: InProcessTransport) -> None:
    await post(api, invalid_objects.POD)
    assert (await post(api, invalid_objects.POD))[0] == 409
    assert (await post(api, with_changes(invalid_objects.POD, {"spec.containers": []})))[0] == 422


@pytest.mark.parametrize(
    ("right", "path", "value", "field"),
    [
        (invalid_objects.DEPLOYMENT, "spec.selector.matchLabels", {"app": "a", "b": "c"}, "spec.selector"),
        (invalid_objects.STATEFUL_SET, "spec.serviceName", "other", "spec"),
        (invalid_objects.JOB, "spec.completions", 5, "spec.completions"),
        (
            with_changes(invalid_objects.NODE, {"spec.providerID": "cloud://1"}),
            "spec.providerID",
            "cloud://2",
            "spec.providerID",
        ),
        (invalid_objects.POD, "spec.hostNetwork", True, "spec"),
        (invalid_objects.POD, "spec.nodeName", "n1", "spec"),
    ],
)
async def test_what_may_not_change_is_named(
    api: InProcessTransport, right: JsonObject, path: str, value: Any, field: str
) -> None:
    code, status = await put(api, right, {path: value})
    assert code == 422
    assert field in cause_fields(status)


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
    tolerant = with_changes(invalid_objects.POD, {"spec.tolerations": [{"key": "a", "operator": "Exists"}]})
    code, pod = await put(api, tolerant, changes)
    assert code == 200, pod


async def test_a_status_is_checked_and_the_spec_beside_it_is_not(cluster: ApiServer, api: InProcessTransport) -> None:
    code, status = await put(api, invalid_objects.BUDGET, {"status.disruptionsAllowed": -1}, sub="/status")
    assert (code, list(cause_fields(status))) == (422, ["status.disruptionsAllowed"])
    cluster.put(with_changes(invalid_objects.POD, {"metadata.namespace": "shop", "spec.containers": []}))
    assert (await merge(api, f"{PODS}/p/status", status={"message": "ill"}))[0] == 200


async def test_an_object_that_was_right_is_not_asked_again(cluster: ApiServer, api: InProcessTransport) -> None:
    """What only a test can have stored can be labelled and let go."""
    cluster.put(
        with_changes(invalid_objects.DEPLOYMENT, {"metadata.namespace": "shop", "spec.template.spec.containers": []})
    )
    assert (await merge(api, path_of(invalid_objects.DEPLOYMENT), metadata={"labels": {"a": "b"}}))[0] == 200
    assert (await merge(api, path_of(invalid_objects.DEPLOYMENT), spec={"replicas": 5}))[0] == 422


async def test_a_server_without_defaulting_accepts_incomplete_objects(clock: Clock) -> None:
    api = ApiServer(clock, defaulting=False, namespaces=["shop"]).transport()
    assert (await post(api, with_changes(invalid_objects.POD, {"spec.containers": []})))[0] == 201


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
    code, status, _ = await sent(api, with_changes(invalid_objects.POD, changes))
    assert (code, status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith(f'Pod in version "v1" cannot be handled as a Pod: {message}')


MISSPELT = with_changes(invalid_objects.POD, {"spec.foo": 1, "spec.containers.0.bar": 2})


async def test_unknown_fields_are_dropped_with_a_warning(api: InProcessTransport) -> None:
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
    body = with_changes(invalid_objects.POD, {"spec.foo": 1, "spec.containers": []})
    code, _, warnings = await sent(api, body)
    assert (code, warnings) == (422, r'299 - "unknown field \"spec.foo\""')


async def test_a_patch_cannot_add_unknown_fields(api: InProcessTransport) -> None:
    await post(api, invalid_objects.POD)
    code, pod = await merge(api, f"{PODS}/p", spec={"foo": 1}, metadata={"labels": {"a": "b"}})
    assert (code, "foo" in pod["spec"], pod["metadata"]["labels"]) == (200, False, {"a": "b"})
    code, status = await merge(api, f"{PODS}/p", metadata={"labels": {"a": 5}})
    assert code == 400
    assert "metadata.labels: expected `str`, got `int`" in status["message"]


@pytest.mark.parametrize("kind", [*CORE_KINDS, *BUILTIN_KINDS], ids=lambda it: it.resource)
def test_the_types_that_we_ship_have_the_fields_that_the_shapes_have(kind: Kind) -> None:
    """The shapes are compared with the real server's; the types come from its sources."""
    message, shape = message_name(kind.api_version, kind.kind), merge_schema_of(kind.api_version, kind.kind)
    if message is not None and shape is not None:
        _compare_fields(message, shape, set())


def _compare_fields(message: str, schema: MergeSchema, visited: set[str]) -> None:
    if message in visited or "." not in message or schema.kind != "object" or not schema.declared_fields:
        return
    visited.add(message)
    known = json_fields(message)
    assert set(known) - {"evictionResponders"} == set(schema.declared_fields), message
    for name in schema.declared_fields:
        field, inner_schema = known[name], schema.field(name)
        inner = inner_schema.items if inner_schema and field.container == "[]" else inner_schema
        if inner and field.container != "{}":
            _compare_fields(field.type, inner, visited)
