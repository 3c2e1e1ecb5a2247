"""What the sandbox's API server refuses, by field; `tests/cluster` compares all of it with a real one."""

import json
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, gotypes
from haulout_sandbox.apiserver.builtin_kinds import ALL
from haulout_sandbox.apiserver.kinds import KINDS, JsonObject, Kind
from haulout_sandbox.apiserver.shapes import Shape, shape_of
from haulout_sandbox.apiserver.validation.schedules import problem
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
    ("right", "path", "value", "field", "message"),
    [
        (wrong.POD, "spec.containers", GONE, "spec.containers", "Required value"),
        (wrong.POD, "spec.containers.0.image", "", "spec.containers[0].image", "Required value"),
        (
            wrong.POD,
            "spec.containers.0.image",
            " a",
            "spec.containers[0].image",
            'Invalid value: " a": must not have leading or trailing whitespace',
        ),
        (
            wrong.POD,
            "spec.containers.1",
            {"name": "main", "image": "b"},
            "spec.containers[1].name",
            'Duplicate value: "main"',
        ),
        (
            wrong.POD,
            "spec.containers.0.resources",
            {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            "spec.containers[0].resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            wrong.POD,
            "spec.containers.0.volumeMounts",
            [{"name": "absent", "mountPath": "/a"}],
            "spec.containers[0].volumeMounts[0].name",
            'Not found: "absent"',
        ),
        (
            wrong.POD,
            "spec.restartPolicy",
            "Sometimes",
            "spec.restartPolicy",
            'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            wrong.NODE,
            "spec.taints.1",
            {"key": "a", "effect": "NoSchedule"},
            "metadata.taints[1]",
            (
                'Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: '
                "taints must be unique by key and effect pair"
            ),
        ),
        (wrong.NODE, "spec.taints", [{"key": "a"}], "metadata.taints[0].effect", "Required value"),
        (
            wrong.DEPLOYMENT,
            "spec.selector",
            {},
            "spec.selector",
            "Invalid value: {}: empty selector is invalid for deployment",
        ),
        (
            wrong.DEPLOYMENT,
            "spec.selector",
            {"matchLabels": {"app": "b"}},
            "spec.template.metadata.labels",
            'Invalid value: {"app":"a"}: `selector` does not match template `labels`',
        ),
        (
            wrong.DEPLOYMENT,
            "spec.replicas",
            -1,
            "spec.replicas",
            "Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            wrong.JOB,
            "spec.template.spec.restartPolicy",
            "Always",
            "spec.template.spec.restartPolicy",
            'Required value: valid values: "OnFailure", "Never"',
        ),
        (
            wrong.BUDGET,
            "spec.maxUnavailable",
            1,
            "spec",
            (
                'Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"app":"a"}},"MaxUnavailable":1,'
                '"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set'
            ),
        ),
        (
            wrong.BUDGET,
            "spec.minAvailable",
            "101%",
            "spec.minAvailable",
            'Invalid value: "101%": must not be greater than 100%',
        ),
        (
            wrong.LEASE,
            "spec.leaseDurationSeconds",
            0,
            "spec.leaseDurationSeconds",
            "Invalid value: 0: must be greater than 0",
        ),
        (
            wrong.PRIORITY,
            "value",
            2_000_000_000,
            "value",
            "Forbidden: maximum allowed value of a user defined priority is 1000000000",
        ),
        (wrong.SERVICE, "spec.ports", [], "spec.ports", "Required value"),
        (wrong.CONFIG_MAP, "data.a", "x" * 1048577, "", "Too long: may not be more than 1048576 bytes"),
        (
            wrong.CONFIG_MAP,
            "metadata.annotations",
            {"a": "x" * 262144},
            "metadata.annotations",
            "Too long: may not be more than 262144 bytes",
        ),
        (wrong.ROLE, "rules", [{"verbs": ["get"], "resources": ["a"]}], "rules[0].apiGroups", "Required value: "),
        (wrong.NEW_EVENT, "action", "", "action", "Required value"),
        (
            wrong.CLAIM,
            "spec.resources.requests.storage",
            "0",
            "spec.resources[storage]",
            'Invalid value: "0": must be greater than zero',
        ),
    ],
)
async def test_a_wrong_field_is_named(
    api: InProcessTransport, right: JsonObject, path: str, value: Any, field: str, message: str
) -> None:
    code, status = await post(api, changed(right, {path: value}))
    assert (code, status["reason"]) == (422, "Invalid")
    assert said(status)[field].startswith(message)


async def test_all_that_is_wrong_is_said_at_once_and_nothing_is_stored(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    pod = changed(wrong.POD, {"metadata.labels": {"a b": "c"}, "spec.containers.0.name": "", "spec.dnsPolicy": "None"})
    code, status = await post(api, pod)
    assert code == 422
    assert list(said(status)) == ["metadata.labels", "spec.containers[0].name", "spec.dnsConfig"]
    assert status["message"].startswith('Pod "p" is invalid: [metadata.labels: Invalid value: "a b": name part must')
    assert not cluster.objects("pods")


async def test_what_is_wrong_is_said_before_that_the_name_is_taken(api: InProcessTransport) -> None:
    await post(api, wrong.POD)
    assert (await post(api, wrong.POD))[0] == 409
    assert (await post(api, changed(wrong.POD, {"spec.containers": []})))[0] == 422


@pytest.mark.parametrize(
    ("right", "path", "value", "field", "message"),
    [
        (
            wrong.DEPLOYMENT,
            "spec.selector.matchLabels",
            {"app": "a", "b": "c"},
            "spec.selector",
            'Invalid value: {"matchLabels":{"app":"a","b":"c"}}: field is immutable',
        ),
        (
            wrong.STATEFUL_SET,
            "spec.serviceName",
            "other",
            "spec",
            "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template'",
        ),
        (wrong.JOB, "spec.completions", 5, "spec.completions", "Invalid value: 5: field is immutable"),
        (wrong.PRIORITY, "value", 6, "value", "Forbidden: may not be changed in an update."),
        (
            wrong.BINDING,
            "roleRef.name",
            "other",
            "roleRef",
            (
                'Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"other"}: '
                "cannot change roleRef"
            ),
        ),
        (
            changed(wrong.NODE, {"spec.providerID": "cloud://1"}),
            "spec.providerID",
            "cloud://2",
            "spec.providerID",
            'Forbidden: node updates may not change providerID except from "" to valid',
        ),
        (
            changed(wrong.CONFIG_MAP, {"immutable": True}),
            "data.a",
            "2",
            "data",
            "Forbidden: field is immutable when `immutable` is set",
        ),
        (
            wrong.POD,
            "spec.containers.1",
            {"name": "b", "image": "b"},
            "spec.containers",
            "Forbidden: pod updates may not add or remove containers",
        ),
        (
            wrong.POD,
            "spec.schedulingGates",
            [{"name": "new"}],
            "spec.schedulingGates[0].name",
            "Forbidden: only deletion is allowed, but found new scheduling gate 'new'",
        ),
        (
            wrong.POD,
            "spec.tolerations",
            [],
            "spec.tolerations",
            "Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
    ],
)
async def test_what_may_not_change_is_named(
    api: InProcessTransport, right: JsonObject, path: str, value: Any, field: str, message: str
) -> None:
    if (right["kind"], path) == ("Pod", "spec.tolerations"):
        value = [{"operator": "Exists"}]  # the usual ones come back by themselves where nothing tolerates all
    code, status = await put(api, right, {path: value})
    assert code == 422
    assert said(status)[field].startswith(message)


async def test_a_change_of_a_pod_that_nobody_may_make_is_shown(api: InProcessTransport) -> None:
    code, status = await put(api, wrong.POD, {"spec.hostNetwork": True})
    assert code == 422
    message = said(status)["spec"]
    assert message.startswith("Forbidden: pod updates may not change fields other than `spec.containers[*].image`,")
    assert '-  "HostNetwork": false,\n+  "HostNetwork": true,\n' in message


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


async def test_there_is_one_usual_priority(api: InProcessTransport) -> None:
    await post(api, changed(wrong.PRIORITY, {"globalDefault": True}))
    code, status = await post(api, changed(wrong.PRIORITY, {"metadata.name": "second", "globalDefault": True}))
    assert (code, status["reason"]) == (403, "Forbidden")
    said_ = "PriorityClass wrong-priority is already marked as default. Only one default can exist"
    assert status["message"] == f'priorityclasses.scheduling.k8s.io "second" is forbidden: {said_}'
    await post(api, changed(wrong.PRIORITY, {"metadata.name": "third"}))
    assert (await merge(api, "/apis/scheduling.k8s.io/v1/priorityclasses/third", globalDefault=True))[0] == 403


async def test_a_server_without_defaulting_takes_what_it_is_given(clock: Clock) -> None:
    api = ApiServer(clock, defaulting=False, namespaces=["shop"]).transport()
    assert (await post(api, changed(wrong.POD, {"spec.containers": []})))[0] == 201


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("* * * * *", ""),
        ("*/15 0-5,22 1 JAN-MAR mon", ""),
        ("@every 1h30m", ""),
        ("0 24 * * *", "end of range (24) above maximum (23): 24"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/1/2 * * * *", "too many slashes: */1/2"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
    ],
)
def test_a_schedule_that_cron_cannot_read_is_explained(schedule: str, expected: str) -> None:
    assert problem(schedule) == expected


# Types and unknown fields


async def sent(api: InProcessTransport, body: bytes | JsonObject, *, how: str = "") -> tuple[int, Any, str]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    query = (("fieldValidation", how),) if how else ()
    answer = await api.send(Request(method="POST", path=PODS, query=query, body=content))
    return answer.status, json.loads(answer.body), answer.headers.get("warning", "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"spec.hostNetwork": "yes"},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            {"spec.containers.0.livenessProbe": {"exec": {"command": "a"}}},
            (
                "json: cannot unmarshal string into Go struct field "
                "ExecAction.spec.containers.livenessProbe.ProbeHandler.exec.command of type []string"
            ),
        ),
        (
            {"spec.containers.0.resources": {"limits": {"cpu": "many"}}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ({"spec.containers.0.resources": {"limits": {"cpu": "1ii"}}}, "unable to parse quantity's suffix"),
        (
            {"metadata.creationTimestamp": "2026-02-30T00:00:00Z"},
            'parsing time "2026-02-30T00:00:00Z": day out of range',
        ),
        (
            {"metadata.creationTimestamp": "2026-02-03T00:00:00Zulu"},
            'parsing time "2026-02-03T00:00:00Zulu": extra text: "ulu"',
        ),
        (
            {"spec.priority": 2**31},
            "json: cannot unmarshal number 2147483648 into Go struct field PodSpec.spec.priority of type int32",
        ),
    ],
)
async def test_a_value_of_the_wrong_type_is_refused(
    api: InProcessTransport, changes: dict[str, Any], message: str
) -> None:
    code, status, _ = await sent(api, changed(wrong.POD, changes))
    assert (code, status["reason"]) == (400, "BadRequest")
    assert status["message"] == f'Pod in version "v1" cannot be handled as a Pod: {message}'


MISSPELT = b'{"metadata":{"name":"p"},"spec":{"foo":1,"containers":[{"name":"a","image":"a","bar":2,"image":"b"}]}}'


async def test_unknown_fields_are_dropped_and_told_of(api: InProcessTransport) -> None:
    code, pod, warnings = await sent(api, MISSPELT)
    assert code == 201
    assert warnings.split(", ") == [
        r'299 - "unknown field \"spec.foo\""',
        r'299 - "unknown field \"spec.containers[0].bar\""',
        r'299 - "duplicate field \"spec.containers[0].image\""',
    ]
    assert "foo" not in pod["spec"]
    assert pod["spec"]["containers"][0]["image"] == "b"


async def test_unknown_fields_can_be_ignored_or_refused(api: InProcessTransport) -> None:
    code, status, warnings = await sent(api, MISSPELT, how="Strict")
    assert (code, warnings) == (400, "")
    assert status["message"].startswith(
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.foo", unknown field'
    )
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
    assert code == 422
    assert status["message"].endswith(
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
    )


async def test_nothing_in_a_list_is_the_empty_thing(api: InProcessTransport) -> None:
    code, status, _ = await sent(api, changed(wrong.POD, {"spec.containers": [None]}))
    assert (code, list(said(status))) == (422, ["spec.containers[0].name", "spec.containers[0].image"])


@pytest.mark.parametrize("kind", [*KINDS, *ALL], ids=lambda it: it.resource)
def test_the_types_that_we_ship_have_the_fields_that_the_shapes_have(kind: Kind) -> None:
    """The shapes are compared with the real server's; the types come from its sources."""
    name, shape = gotypes.type_of(kind.api_version, kind.kind), shape_of(kind.api_version, kind.kind)
    assert name
    if shape is not None:
        _compare(name, shape, set())


def _compare(name: str, shape: Shape, seen: set[str]) -> None:
    known = gotypes.fields_of(name)
    if name in seen or not known or shape.kind != "object":
        return
    seen.add(name)
    assert set(known) == set(shape.declared), name
    for field, told in known.items():
        below, inner = shape.field(field), gotypes.underlying(told.type)
        while below and inner.startswith("[]"):
            below, inner = below.items, gotypes.underlying(inner[2:])
        if below:
            _compare(inner, below, seen)
