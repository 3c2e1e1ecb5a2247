"""Whatever is asked, the server answers with a Status; tests/cluster compares the words with the real server's."""

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from haulout.core.clock import Clock, RealClock
from haulout.kube.transport import Request, Response
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, User
from haulout_sandbox.apiserver.request_paths import path_parts
from haulout_sandbox.apiserver.selectors import parse_label_selector
from haulout_sandbox.apiserver.serializer.protobuf import MAGIC, MEDIA_TYPE, MalformedProtobuf, decode
from haulout_sandbox.apiserver.serializer.request_body import MAX_DEPTH
from haulout_sandbox.apiserver.status import RetryLater, StatusError
from support.apiserver.requests import CONFIG_MAPS, MERGE_PATCH, a_config_map, a_node, a_pod, request_json, send

PATHS = (
    "/api/v1/nodes",
    "/api/v1/nodes/n1",
    "/api/v1/nodes/n1/status",
    "/api/v1/namespaces/shop/pods",
    "/api/v1/namespaces/shop/pods/cart-0",
    "/api/v1/namespaces/shop/pods/cart-0/eviction",
    "/api/v1/namespaces/shop/pods/cart-0/binding",
    "/api/v1/namespaces/shop/configmaps/m",
    "/api/v1/namespaces/shop/serviceaccounts/x/token",
    "/api/v1/namespaces/shop",
    "/api/v1/watch/namespaces/shop/pods",
    "/apis/apps/v1/namespaces/shop/deployments/d",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/view",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/coordination.k8s.io/v1/namespaces/shop/leases/l",
    "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/b",
    "/openapi/v3/api/v1",
    "/api",
    "/version",
    "/",
)
CONTENT = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "",
)
PARAMETERS = (
    *("watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector"),
    *("timeoutSeconds", "sendInitialEvents", "allowWatchBookmarks", "dryRun", "fieldManager", "fieldValidation"),
    *("force", "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "includeObject"),
)
VALUES = ("", "0", "1", "true", "-1", "All", "Exact", "NotOlderThan", "metadata.name=x", "a in (b)", "Strict", "m")
KEYS = (
    *("apiVersion", "kind", "metadata", "spec", "status", "data", "rules", "roleRef", "subjects", "name", "namespace"),
    *(
        "labels",
        "annotations",
        "finalizers",
        "resourceVersion",
        "generateName",
        "ownerReferences",
        "op",
        "path",
        "value",
    ),
    *("containers", "replicas", "selector", "template", "target", "deleteOptions", "preconditions", "token", "user"),
)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=8)
named = scalars | st.sampled_from(("v1", "ConfigMap", "Pod", "n1", "add", "/metadata/name", "shop"))
documents = st.recursive(
    named,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
objects = st.builds(
    lambda obj, name, meta: {**obj, "metadata": {"name": name, **meta}},
    st.dictionaries(st.sampled_from(KEYS), documents, max_size=4),
    st.sampled_from(("m", "n1", "cart-0", "new")),
    st.dictionaries(st.sampled_from(KEYS), named | documents, max_size=2),
)
patches = st.lists(st.fixed_dictionaries({"op": named, "path": named, "value": documents}), max_size=3)
bodies = st.binary(max_size=60) | (documents | objects | patches).map(lambda it: json.dumps(it).encode())
requests = st.builds(
    Request,
    method=st.sampled_from(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "FOO")) | st.text(max_size=5),
    path=st.sampled_from(PATHS) | st.text(max_size=30).map("/{}".format) | st.text(max_size=12),
    query=st.lists(
        st.tuples(st.sampled_from(PARAMETERS), st.sampled_from(VALUES) | st.text(max_size=6)), max_size=3
    ).map(tuple),
    body=st.none() | bodies,
    content_type=st.sampled_from(CONTENT) | st.text(max_size=10),
    accept=st.just("application/json") | st.text(max_size=10),
    headers=st.lists(
        st.tuples(st.sampled_from(("Impersonate-User", "Impersonate-Group", "Impersonate-Extra-a")), st.text()),
        max_size=2,
    ).map(tuple),
)


class DirectServer:
    """A server with some objects, asked directly."""

    def __init__(self, *, rbac: bool) -> None:
        self.api = ApiServer(RealClock(), rbac=rbac)
        self.transport = self.api.transport()
        for obj in (a_node(), a_pod(), a_config_map("m", a="b")):
            self.api.put(obj)

    def handle(self, request: Request, user: User | None = None) -> Response | None:
        """Return the answer; None for a watch, or if the server would wait."""
        try:
            response = self.transport._server.handle(request, user=user or self.transport.user)
        except RetryLater:
            return None
        return response if isinstance(response, Response) else None


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(request=requests)
@example(Request(method="POST", path="/api/v1/namespaces/shop/pods", body=b'{"metadata":{"name":"p"},"spec":7}'))
@example(
    Request(
        method="PATCH", path="/api/v1/nodes/n1", body=b'{"metadata":7}', content_type="application/merge-patch+json"
    )
)
def test_everything_is_answered(request: Request) -> None:
    for server in (DirectServer(rbac=False), DirectServer(rbac=True)):
        response = server.handle(request)
        if response is None:
            continue
        assert 200 <= response.status < 600
        assert b"InternalError" not in response.body
        if response.status >= 400 and response.headers["content-type"].startswith("application/json"):
            status = msgspec.json.decode(response.body)
            assert (status["kind"], status["code"]) == ("Status", response.status)
        for obj in (*server.api.objects("nodes"), *server.api.objects("configmaps")):
            assert isinstance(obj["metadata"]["name"], str)


@given(request=requests)
@settings(max_examples=100, deadline=None)
def test_no_random_request_exceeds_the_permissions_of_its_user(request: Request) -> None:
    server = DirectServer(rbac=True)
    before = server.api.revision
    response = server.handle(request, User("system:anonymous", ("system:unauthenticated",)))
    assert response is not None
    assert response.status in (200, 400, 403, 404, 405, 500)
    assert server.api.revision == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1,",
        b"null",
        b"[]",
        b'{"metadata":{"name":"\xff"}}',
        b"[" * 20_000,
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        b'{"a":' * (MAX_DEPTH + 2) + b"1" + b"}" * (MAX_DEPTH + 2),
        b'{"kind":5}',
        b'{"kind":"Pod"}',
    ],
)
async def test_a_body_that_is_no_object_of_its_kind_is_a_bad_request(api: InProcessTransport, body: bytes) -> None:
    for content_type in ("application/json", "application/vnd.kubernetes.protobuf"):
        answer = await api.send(Request(method="POST", path=CONFIG_MAPS, body=body, content_type=content_type))
        assert answer.status == 400


@given(body=st.binary(max_size=60))
def test_protobuf_is_read_or_refused(body: bytes) -> None:
    with suppress(MalformedProtobuf):
        decode(MAGIC + body, api_version="v1", kind="Pod")


async def test_kubectl_may_create_in_protobuf(api: InProcessTransport) -> None:
    """As `kubectl create configmap c --from-literal=a=b` sends it."""
    metadata = b'\n\x11\n\x01c\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00'
    body = b"k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x1b" + metadata + b'\x12\x06\n\x01a\x12\x01b\x1a\x00"\x00'
    answer = await api.send(Request(method="POST", path=CONFIG_MAPS, body=body, content_type=MEDIA_TYPE))
    made = msgspec.json.decode(answer.body)
    assert (answer.status, made["metadata"]["name"], made["data"]) == (201, "c", {"a": "b"})


async def test_a_body_of_another_type_is_not_taken(api: InProcessTransport) -> None:
    answer = await api.send(Request(method="POST", path=CONFIG_MAPS, body=b"a: b", content_type="application/yaml"))
    assert answer.status == 415


@pytest.mark.parametrize(
    ("selector", "matching"),
    [
        ("", "abc"),
        ("x", "ab"),
        ("!x", "c"),
        ("x=1", "a"),
        ("x == 1", "a"),
        ("x!=1", "bc"),
        ("x in (1,2)", "ab"),
        ("x notin (1)", "bc"),
        ("x in ()", ""),
        ("x in (2,,)", "b"),
        ("x>1", "b"),
        ("x<2", "a"),
        ("x,y", "b"),
        (" x , !y ", "a"),
        ("in=3", "c"),
        ("y=in", "b"),
    ],
)
def test_label_selectors_select(selector: str, matching: str) -> None:
    labels = {"a": {"x": "1"}, "b": {"x": "2", "y": "in"}, "c": {"in": "3"}}
    is_selected = parse_label_selector(selector)
    assert "".join(name for name, labels_of_object in labels.items() if is_selected(labels_of_object)) == matching


@given(text=st.text(alphabet="ab=!(), <>inotx-/.0\0é", max_size=14))
def test_a_label_selector_is_read_or_refused(text: str) -> None:
    with suppress(StatusError):
        assert isinstance(parse_label_selector(text)({"a": "b"}), bool)


def test_a_path_is_decoded_before_it_is_taken_apart() -> None:
    assert path_parts("/api/v1/nodes/a%2Fb/") == ["api", "v1", "nodes", "a", "b"]
    assert path_parts("//api") == ["", "api"]


async def test_a_body_that_is_too_large_is_refused_also_in_process(clock: Clock) -> None:
    api = ApiServer(clock).transport()
    huge = a_config_map("m", a="x" * (3 << 20))
    for method, path, kind in (("POST", CONFIG_MAPS, "application/json"), ("PATCH", f"{CONFIG_MAPS}/m", MERGE_PATCH)):
        status, response_body = await request_json(api, method, path, huge, kind=kind)
        assert (status, response_body["reason"], response_body["message"]) == (
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
        )


async def test_a_bug_in_the_server_is_answered_with_500_and_logged(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    api = ApiServer(clock).transport()

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(api._server._reader, "list", bug)
        status, response_body = await request_json(api, "GET", "/api/v1/nodes")
    assert (status, response_body["reason"]) == (500, "InternalError")
    assert "a bug" in caplog.text
    assert (await request_json(api, "GET", "/api/v1/nodes"))[0] == 200


async def test_methods_that_a_path_does_not_know_are_refused(api: InProcessTransport) -> None:
    for method in ("HEAD", "OPTIONS", "FOO"):
        assert (await send(api, method, "/api/v1/nodes")).status == 405
    for path in ("/version", "/api", "/apis/apps/v1"):
        assert (await send(api, "POST", path, {})).status == 405
    assert (await send(api, "POST", "/livez")).status == 200
