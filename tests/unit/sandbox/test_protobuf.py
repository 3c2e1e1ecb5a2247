"""Protobuf bodies mean the objects that kubectl wrote; hostile ones are refused in the real server's words.

`protobuf_bodies.json` has what kubectl 1.36 sent for `kubectl create …`, by the collection that it was sent to.
"""

import base64
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.bodies import from_request
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.protobuf import MAGIC, MEDIA_TYPE, Malformed, decode
from haulout_sandbox.apiserver.status import Refused
from haulout_sandbox.event_loops.virtual import VirtualClock

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "protobuf_bodies.json").read_text())
CART: JsonObject = {"app": "cart"}
META: JsonObject = {"metadata": {"name": "x"}}
NO_BUDGET: JsonObject = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


def recorded(plural: str) -> bytes:
    return base64.b64decode(RECORDED[plural])


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def put(number: int, value: int | bytes | str) -> bytes:
    """Return one field on the wire."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def sent(api_version: str, kind: str, content: bytes) -> bytes:
    return MAGIC + put(1, put(1, api_version) + put(2, kind)) + put(2, content)


def decoded(body: bytes) -> JsonObject:
    return decode(body, api_version="v1", kind="ConfigMap")


def refusal(body: bytes, content_type: str = MEDIA_TYPE) -> JsonObject:
    with pytest.raises(Refused) as refused:
        from_request(body, content_type, api_version="v1", kind="ConfigMap")
    return refused.value.status


@pytest.mark.parametrize(
    ("plural", "expected"),
    [
        ("configmaps", {"data": {"color": "red", "empty": ""}, "metadata": {"name": "settings"}}),
        ("secrets", {"data": {"user": "YWRtaW4="}, "metadata": {"name": "login"}}),
        ("namespaces", {"metadata": {"name": "shop"}, "spec": {}, "status": {}}),
        (
            "deployments",
            {
                "metadata": {"name": "cart", "labels": CART},
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": CART},
                    "strategy": {},
                    "template": {
                        "metadata": {"labels": CART},
                        "spec": {
                            "containers": [
                                {"name": "cart", "image": "cart:1", "ports": [{"containerPort": 80}], "resources": {}}
                            ]
                        },
                    },
                },
                "status": {},
            },
        ),
        (
            "poddisruptionbudgets",
            {
                "metadata": {"name": "cart"},
                "spec": {"minAvailable": "50%", "selector": {"matchLabels": CART}},
                "status": NO_BUDGET,
            },
        ),
        (
            "services",
            {
                "metadata": {"name": "cart", "labels": CART},
                "spec": {
                    "ports": [{"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080}],
                    "selector": CART,
                    "type": "ClusterIP",
                },
                "status": {"loadBalancer": {}},
            },
        ),
        (
            "resourcequotas",
            {"metadata": {"name": "few"}, "spec": {"hard": {"cpu": "2", "pods": "3"}}, "status": {}},
        ),
        (
            "selfsubjectaccessreviews",
            {
                "metadata": {},
                "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}},
                "status": {"allowed": False},
            },
        ),
    ],
)
def test_what_kubectl_sends_means_what_it_was_told_to_create(plural: str, expected: JsonObject) -> None:
    found = decoded(recorded(plural))
    assert {name: value for name, value in found.items() if name not in ("apiVersion", "kind")} == expected


def test_the_envelope_names_the_kind() -> None:
    assert (decoded(recorded("jobs"))["apiVersion"], decoded(recorded("jobs"))["kind"]) == ("batch/v1", "Job")


def test_an_envelope_without_a_name_is_of_the_kind_that_is_expected() -> None:
    assert decoded(MAGIC + put(2, put(2, put(1, "a") + put(2, "b")))) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {"a": "b"},
    }


def test_delete_options_are_known_in_the_group_of_what_is_deleted() -> None:
    options = put(1, 30) + put(2, put(1, "the-uid")) + put(4, "Background")
    for version in ("v1", "policy/v1", "meta.k8s.io/v1", "example.com/v1"):
        assert decoded(sent(version, "DeleteOptions", options)) == {
            "apiVersion": version,
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 30,
            "preconditions": {"uid": "the-uid"},
            "propagationPolicy": "Background",
        }


def test_a_pointer_to_zero_is_shown_and_a_plain_zero_is_not() -> None:
    """Grace 0 means now, no grace means the default; generation 0 means nothing."""
    meta = put(1, "x") + put(7, 0) + put(10, 0)
    assert decoded(sent("v1", "ConfigMap", put(1, meta)))["metadata"] == {"name": "x", "deletionGracePeriodSeconds": 0}


def test_times_are_texts_and_an_empty_one_is_absent() -> None:
    spec = put(1, "me") + put(3, put(1, 1_700_000_000) + put(2, 123_456_789)) + put(4, put(1, 0))
    lease = decoded(sent("coordination.k8s.io/v1", "Lease", put(1, put(1, "x") + put(8, b"")) + put(2, spec)))
    assert lease["metadata"] == {"name": "x"}
    assert lease["spec"] == {
        "holderIdentity": "me",
        "acquireTime": "2023-11-14T22:13:20.123456Z",
        "renewTime": "1970-01-01T00:00:00.000000Z",
    }
    deleted = put(1, put(9, put(1, -1)))
    assert decoded(sent("v1", "Pod", deleted))["metadata"] == {"deletionTimestamp": "1969-12-31T23:59:59Z"}


def test_a_negative_number_is_negative() -> None:
    assert decoded(sent("scheduling.k8s.io/v1", "PriorityClass", put(2, -10)))["value"] == -10


def test_an_inlined_message_lies_beside_its_siblings() -> None:
    volume = put(1, "v") + put(2, put(1, put(1, "/data")))
    pod = decoded(sent("v1", "Pod", put(2, put(1, volume))))
    assert pod["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/data"}}]


def test_a_message_in_parts_is_one() -> None:
    pod = decoded(sent("v1", "Pod", put(2, put(10, "n1")) + put(2, put(3, "Always"))))
    assert pod["spec"] == {"nodeName": "n1", "restartPolicy": "Always"}


def test_packed_numbers_are_a_list() -> None:
    context = put(4, varint(1) + varint(2)) + put(4, 3)
    pod = decoded(sent("v1", "Pod", put(2, put(14, context))))
    assert pod["spec"]["securityContext"] == {"supplementalGroups": [1, 2, 3]}


def test_raw_json_and_schemas_of_definitions_are_read() -> None:
    number = varint(9 << 3 | 1) + struct.pack("<d", 5.0) + varint(11 << 3 | 1) + struct.pack("<d", 0.5)
    schema = (
        put(5, "object") + number + put(8, put(1, b'{"a":[1]}')) + put(30, put(1, 1)) + put(24, put(1, put(5, "x")))
    )
    crd = put(2, put(7, put(1, "v1") + put(4, put(1, schema))))
    found = decoded(sent("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd))
    props = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert props == {
        "type": "object",
        "maximum": 5,
        "minimum": 0.5,
        "default": {"a": [1]},
        "additionalProperties": True,
        "items": {"type": "x"},
    }


def test_a_group_of_users_is_a_list() -> None:
    extra = put(5, put(1, "scopes") + put(2, put(1, "a") + put(1, "b")))
    review = decoded(sent("authorization.k8s.io/v1", "SubjectAccessReview", put(2, extra)))
    assert review["spec"]["extra"] == {"scopes": ["a", "b"]}


def test_fields_that_nobody_knows_are_skipped() -> None:
    strange = put(900, "x") + varint(901 << 3 | 5) + b"1234" + varint(902 << 3 | 3) + put(1, 1) + varint(902 << 3 | 4)
    assert decoded(sent("v1", "ConfigMap", strange + put(1, put(1, "x")))) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        **META,
    }


NO_PREFIX = "provided data does not appear to be a protobuf message, expected prefix"
UNKNOWN = 'no kind "ConfigMap" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111"'
UNRECOGNIZED = "the object provided is unrecognized (must be of type ConfigMap): "


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", f"{UNRECOGNIZED}empty data (<empty>)"),
        (MAGIC, f"{UNRECOGNIZED}empty body (6b387300)"),
        (
            b'{"metadata":{"name":"x"}}',
            f'{UNRECOGNIZED}{NO_PREFIX} [107 56 115 0] ({{"metadata":{{"name":"x"}}}})',
        ),
        (MAGIC + b"\xff\xff\xff", f"{UNRECOGNIZED}unexpected EOF (6b387300ffffff)"),
        (
            recorded("configmaps")[:-5],
            f"{UNRECOGNIZED}unexpected EOF (6b3873000a0f0a0276311209436f6e6669674d617012330a180a08736574 ...)",
        ),
        (
            sent("v1", "ConfigMap", b"\x0a\x20abc"),
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: unexpected EOF',
        ),
        (
            sent("v2", "ConfigMap", b""),
            f'ConfigMap in version "v2" cannot be handled as a ConfigMap: {UNKNOWN}',
        ),
    ],
)
def test_malformed_bodies_are_refused_in_the_words_of_the_real_server(body: bytes, said: str) -> None:
    status = refusal(body)
    assert (status["code"], status["message"]) == (400, said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (put(1, 5), "proto: wrong wireType = 0 for field ObjectMeta"),
        (b"\x00\x00", "proto: ConfigMap: illegal tag 0 (wire type 0)"),
        (b"\x0c", "proto: ConfigMap: wiretype end group for non-group"),
        (b"\x0b", "unexpected EOF"),
        (b"\x0e", "proto: illegal wireType 6"),
        (b"\x08" + b"\xff" * 10, "proto: integer overflow"),
        (put(1, put(8, put(1, 1 << 62))), "Time.MarshalJSON: year outside of range [0,9999]"),
    ],
)
def test_the_problem_is_named(content: bytes, said: str) -> None:
    with pytest.raises(Malformed) as problem:
        decoded(sent("v1", "ConfigMap", content))
    assert str(problem.value) == said


@pytest.mark.parametrize("raw", [b"{", b"\xff", b"[" * 100_000])
def test_raw_json_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decoded(sent("apps/v1", "ControllerRevision", put(2, put(1, raw))))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_refused(number: float) -> None:
    schema = varint(9 << 3 | 1) + struct.pack("<d", number)
    crd = put(2, put(7, put(4, put(1, schema))))
    with pytest.raises(Malformed, match="json: unsupported value"):
        decoded(sent("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd))


def test_a_schema_without_end_is_refused() -> None:
    schema = b""
    for _ in range(500):
        schema = put(28, schema)
    crd = put(2, put(7, put(4, put(1, schema))))
    with pytest.raises(Malformed, match="exceeded max depth"):
        decoded(sent("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd))


@pytest.mark.parametrize("content_type", ["text/plain", "application/cbor", "garbage", "application/merge-patch+json"])
def test_a_content_type_that_nobody_reads_is_refused(content_type: str) -> None:
    status = refusal(b"{}", content_type)
    assert (status["code"], status["reason"]) == (415, "UnsupportedMediaType")
    assert status["message"].endswith("application/json, application/yaml, application/vnd.kubernetes.protobuf")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("", b'{"metadata": {"name": "x"}}'),
        ("application/json; charset=utf-8", b'{"metadata": {"name": "x"}}'),
        ("application/yaml", b"metadata: {name: x}"),
        ("application/vnd.kubernetes.protobuf;x=y", sent("v1", "ConfigMap", put(1, put(1, "x")))),
    ],
)
def test_the_content_type_says_how_a_body_is_read(content_type: str, body: bytes) -> None:
    assert from_request(body, content_type, api_version="v1", kind="ConfigMap")["metadata"] == META["metadata"]


def test_json_without_end_is_refused() -> None:
    assert refusal(b'{"a":' * 100_000, "application/json")["code"] == 400


async def test_the_server_stores_what_came_as_protobuf() -> None:
    api = ApiServer(VirtualClock())
    transport = api.transport("alice")
    body, path = recorded("configmaps"), "/api/v1/namespaces/default/configmaps"
    answer = await transport.send(Request(method="POST", path=path, body=body, content_type=MEDIA_TYPE))
    assert answer.status == 201
    assert api.get("configmaps", "settings", namespace="default")["data"] == {"color": "red", "empty": ""}
    gone = sent("v1", "DeleteOptions", put(5, "All"))
    path = f"{path}/settings"
    answer = await transport.send(Request(method="DELETE", path=path, body=gone, content_type=MEDIA_TYPE))
    assert answer.status == 200
    assert api.get("configmaps", "settings", namespace="default")["metadata"]["name"] == "settings"  # a dry run


def mutations() -> st.SearchStrategy[bytes]:
    """Return bodies that kubectl sent, damaged, and what was never a body."""

    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        body = bytearray(recorded(draw(st.sampled_from(sorted(RECORDED)))))
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(4, len(body) - 1))
            body[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
        return bytes(body)

    kinds = st.sampled_from(["v1 Pod", "apps/v1 Deployment", "events.k8s.io/v1 Event"])

    def inside(kind: str, content: bytes) -> bytes:
        api_version, name = kind.split()
        return sent(api_version, name, content)

    return st.one_of(
        damaged(),
        st.builds(inside, kinds, st.binary(max_size=60)),
        st.binary(max_size=40),
        st.binary(max_size=40).map(lambda it: MAGIC + it),
    )


@given(mutations())
def test_hostile_bytes_are_an_object_or_refused(body: bytes) -> None:
    try:
        told: JsonObject = from_request(body, MEDIA_TYPE, api_version="v1", kind="ConfigMap")
    except Refused as refused:
        told = refused.status
    assert told.get("code", 400) == 400
    json.dumps(told, allow_nan=False)
