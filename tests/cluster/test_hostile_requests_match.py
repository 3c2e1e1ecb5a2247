"""A request that makes no sense gets the same refusal from the sandbox as from the real server, over the network."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from controlplane import ControlPlane
from haulout_sandbox.apiserver import ApiServer
from support.raw_http import RawClient
from support.sites import a_listening_sandbox

MAPS = "/api/v1/namespaces/default/configmaps"
ONE = f"{MAPS}/hostile"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
YAML = "application/yaml"
TOKEN = "secret"
LARGE = 100_000_000


@pytest.fixture(scope="module")
def real(control_plane: ControlPlane) -> Iterator[RawClient]:
    client = RawClient(control_plane.server, control_plane.ca, control_plane.token())
    made = client.ask("POST", MAPS, b'{"metadata":{"name":"hostile"}}')
    assert made.code == 201, made
    yield client
    client.ask("DELETE", ONE)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    folder: Path = tmp_path_factory.mktemp("sandbox")

    def fill(api: ApiServer) -> None:
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hostile", "namespace": "default"}})

    with a_listening_sandbox(folder, tokens={TOKEN: "alice"}, rbac=True, fill=fill) as client:
        yield RawClient(client.server, client.ca, TOKEN)


class Pair:
    """Both servers."""

    def __init__(self, real: RawClient, sandbox: RawClient) -> None:
        self.clients = real, sandbox
        self.differences: list[str] = []

    def same(self, *about: Any, **more: Any) -> None:
        """Ask both, and note it if the code, the reason or the message differs."""
        truth, mine = (client.ask(*about, **more).status for client in self.clients)
        if truth != mine:
            self.differences.append(f"{str((about, more))[:300]}\nreal:    {truth}\nsandbox: {mine}")


@pytest.fixture
def both(real: RawClient, sandbox: RawClient) -> Iterator[Pair]:
    """Return both servers; at the end they must not have differed."""
    pair = Pair(real, sandbox)
    yield pair
    assert not pair.differences, "\n".join(pair.differences)


BODIES = (
    b"",
    b'{"a":',
    b"[]",
    b'"x"',
    b"7",
    b"null",
    b"true",
    b"{}",
    b"\x00\x01\x02",
    b"a text that is longer than what a message shows of it",
    b"{'metadata':1}",
    b'{"metadata":{"name":"c"},}',
    b'{"metadata":{"name":"c"}} x',
    b'{"metadata":{"name":"a\x00b"}}',
    b'{"metadata":{"name":"a\\xb"}}',
    b'{"metadata":{"name":"a\\u00zz"}}',
    b'{"metadata":{"name":"c"},"x":NaN}',
    b'{"metadata":{"name":"c"},"x":01}',
    b'{"metadata":{"name":"c"},"x":1.}',
    b'{"metadata":{"name":"c"},"x":tru}',
    b'\xef\xbb\xbf{"metadata":{"name":"c"}}',
    b'{"metadata":"c"}',
    b'{"metadata":{"name":"a\\u0000b"}}',
    b'{"metadata":{"name":"\xff"}}',
    b'{"metadata":{"name":"a/b"}}',
    b'{"metadata":{"name":".."}}',
    b'{"apiVersion":1,"kind":"ConfigMap"}',
    b'{"apiVersion":"a/b/c","kind":"ConfigMap"}',
    b'{"apiVersion":"v1","kind":"Pod"}',
    b'{"apiVersion":"apps/v1","kind":"Deployment"}',
    b'{"apiVersion":"v1","kind":"Foo"}',
    b'{"apiVersion":"foo/v1","kind":"Foo"}',
    b'{"apiVersion":"v2","kind":"ConfigMap"}',
    b"[" * 20_000,
    b'{"x":' + b"[" * 10_001 + b"]" * 10_001 + b"}",
    b'{"x":' + b'{"a":' * 10_001 + b"1" + b"}" * 10_001 + b"}",
    gzip.compress(b"{}", mtime=0),
)


def test_bodies_that_are_no_objects(both: Pair) -> None:
    for body in BODIES:
        both.same("POST", f"{MAPS}?dryRun=All", body)


def test_what_go_forgives_is_forgiven(both: Pair) -> None:
    for body in (
        b'{"metadata":{"name":"f"},"x":1e400}',
        b'{"metadata":{"name":"f"},"x":' + b"9" * 5000 + b"}",
        b'{"metadata":{"name":"f"},"data":{"a":"\xff"}}',
        b'{"metadata":{"name":"f"},"data":{"a":"\\ud800"}}',
        b'{"metadata":{"name":"f"},"metadata":{"name":"g"}}',
    ):
        for client in both.clients:
            assert client.ask("POST", f"{MAPS}?dryRun=All", body).code == 201, body


def test_keys_that_come_twice_are_told(both: Pair) -> None:
    body = b'{"metadata":{"name":"d","name":"e"},"data":{"a":"1","b":"2","a":"3"}}'
    both.same("POST", f"{MAPS}?dryRun=All&fieldValidation=Strict", body)
    both.same("PUT", f"{ONE}?dryRun=All&fieldValidation=Strict", body)
    for validation, warned in (("Warn", True), ("", True), ("Ignore", False)):
        asked = ("POST", f"{MAPS}?dryRun=All&fieldValidation={validation}", body)
        truth, mine = (client.ask(*asked) for client in both.clients)
        assert (mine.code, "warning" in mine.headers) == (201, warned)
        assert ("warning" in truth.headers) is warned
    assert mine.headers.get("warning", "") == truth.headers.get("warning", "")


def test_types_of_content(both: Pair) -> None:
    content_type: str | None
    for content_type in ("application/xml", ";;;", "text/plain", "application/json-patch+json"):
        both.same("POST", MAPS, b"{}", content_type=content_type)
        both.same("PUT", ONE, b"{}", content_type=content_type)
        both.same("DELETE", ONE, b"{}", content_type=content_type)
    for content_type in ("application/foo", "application/json", None, "Application/merge-patch+json", ""):
        both.same("PATCH", ONE, b"{}", content_type=content_type)
    for content_type in (None, "Application/JSON", "application/json; charset=utf-8"):
        both.same("POST", MAPS, b"{}", content_type=content_type)
    for accept in ("text/html", ";;;", "image/*"):
        both.same("GET", ONE, headers=[("Accept", accept)])
        both.same("POST", MAPS, b"{}", headers=[("Accept", accept)])


PATCHES = (
    (MERGE, b""),
    (MERGE, b'{"a"'),
    (MERGE, b"[]"),
    (MERGE, b'"x"'),
    (MERGE, b"null"),
    (MERGE, b'{"a":' * 10_001 + b"1" + b"}" * 10_001),
    (JSON_PATCH, b""),
    (JSON_PATCH, b'{"a"'),
    (JSON_PATCH, b"{}"),
    (JSON_PATCH, b"null"),
    (JSON_PATCH, b"[1]"),
    (JSON_PATCH, b"[null]"),
    (JSON_PATCH, b'[{"op":1}]'),
    (JSON_PATCH, b'[{"op":"add","path":1,"value":1}]'),
    (JSON_PATCH, b'[{"op":"foo","path":"/a"}]'),
    (JSON_PATCH, b'[{"op":"add","path":"/x","value":' + b"[" * 10_001 + b"]" * 10_001 + b"}]"),
    (STRATEGIC, b'{"a"'),
    (STRATEGIC, b"[]"),
    (APPLY, b""),
    (APPLY, b"{}"),
    (APPLY, b"- a"),
    (APPLY, b"a: " + b"[" * 10_001 + b"]" * 10_001),
)


def test_patches_that_are_none(both: Pair) -> None:
    for content_type, body in PATCHES:
        query = "dryRun=All" + ("&fieldManager=m" if content_type == APPLY else "")
        both.same("PATCH", f"{ONE}?{query}", body, content_type=content_type)


def test_yaml_that_is_none(both: Pair) -> None:
    bomb = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (name, name, b",".join([b"*%c" % (name - 1)] * 9)) for name in b"bcdefghi"
    )
    for body in (b"a: [", b"- a", b"", b"null", b"metadata: {}\n---\nmetadata: 1\n", bomb):
        both.same("POST", f"{MAPS}?dryRun=All", body, content_type=YAML)
    for body in (b"a: &a [*a]\n", b'a: "\xff"', b"x: " + b"[" * 10_001 + b"]" * 10_001):  # other words
        answers = [client.ask("POST", MAPS, body, content_type=YAML).status for client in both.clients]
        assert answers[0][:2] == answers[1][:2] == (400, "BadRequest"), answers


PATHS = (
    "/api/v1/namespaces/../nodes",
    "/api/v1/./nodes",
    "/api/v1/namespaces/%2e%2e/configmaps",
    "/api/v1/namespaces/./configmaps/x",
    "/api/v1/namespaces/../configmaps?watch=1",
    f"{MAPS}/a%2Fb",
    "/api/v1/namespaces/a%2Fb/configmaps",
    f"{MAPS}/..",
    f"{MAPS}/.",
    f"{MAPS}/a%25b",
    f"{MAPS}/a%00b",
    f"{MAPS}/a%zzb",
    f"{MAPS}/a b",
    f"{MAPS}/a\0b",
    f"{MAPS}/{'a' * 300}",
    f"{MAPS}//status",
    "//api/v1/nodes",
    "/api//v1/nodes",
    "/api/v1//nodes",
    "/api/v1/watch",
    "/api/v9/nodes",
    "/apis/apps/v9/deployments",
    "/apis/nope.example.org/v1/things",
    "/api/v1/things",
    "/api/v1/nodes/x/foo",
    "/api/v1/proxy/nodes/x",
    "/nosuch",
    "/" + "a/" * 3000,
    "/api/v1/" + "a/" * 3000,
    "api/v1/nodes",
    "/api/v1/nodes?x=" + "a" * 2_000_000,
    "/api/v1/nodes#x",
)


def test_paths_that_lead_nowhere(both: Pair) -> None:
    for path in PATHS:
        both.same("GET", path)
    both.same("GET", f"{MAPS}/%C3%A9")
    both.same("GET", "/version", headers=[("X-Long", "a" * 1_200_000)])
    both.same("POST", "/api/v1/namespaces/../configmaps", b'{"metadata":{"name":"x"}}')
    for method in ("PUT", "DELETE"):
        both.same(method, f"{MAPS}/..", b'{"metadata":{"name":".."}}')


def test_what_is_odd_and_yet_fine(both: Pair) -> None:
    for path in (
        f"{ONE}/",
        "/api/v1/nodes/",
        "/apis/",
        "/version/",
        "https://elsewhere/api/v1/nodes",
        "/api/v1/nodes?unknown=1&limit=1",
        "/api/v1/nodes?%zz=1&limit=%zz",
        "/api/v1/nodes?a=1;b=2",
        "/api/v1/nodes?x=" + "a" * 20_000,
        "/api/v1/namespaces/a%20b/configmaps",
        f"{ONE}?watch=1",
    ):
        for client in both.clients:
            assert client.ask("GET", path).code == 200, (path, client)
    many = [(f"X-{number}", "a") for number in range(2000)]
    for client in both.clients:
        assert client.ask("GET", "/version", headers=many).code == 200
        assert client.ask("OPTIONS", "*").code == 200
        old = client.ask("GET", f"/api/v1/watch{ONE.removeprefix('/api/v1')}?timeoutSeconds=1")
        assert old.body.count(b"\n") == 1
        assert b'"name":"hostile"' in old.body


def test_methods_that_are_none(both: Pair) -> None:
    for method in ("FOO", "get", "TRACE", "CONNECT", "OPTIONS", "PUT", "PATCH"):
        both.same(method, "/api/v1/nodes")
    for method, path in (
        ("POST", ONE),
        ("OPTIONS", ONE),
        ("POST", "/version"),
        ("POST", "/api"),
        ("POST", "/nosuch"),
        ("DELETE", "/api/v1/pods"),
        ("DELETE", "/api/v1/namespaces"),
        ("POST", "/api/v1/pods"),
        ("DELETE", "/api/v1/nodes/x/status"),
        ("POST", "/api/v1/nodes/x/status"),
        ("POST", "/api/v1/watch/nodes"),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ("GET", "/api/v1/namespaces/default/serviceaccounts/x/token"),
        ("POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews"),
    ):
        both.same(method, path, b"{}")
    for path in ("/api/v1/nodes", ONE, "/version", "/livez", "/api"):
        codes = [client.ask("HEAD", path).code for client in both.clients]
        assert codes[0] == codes[1], path


LISTS = (
    "limit=-1",
    "limit=abc",
    "limit=99999999999999999999",
    "limit=",
    "limit=1.5",
    "timeoutSeconds=x",
    "resourceVersion=-1",
    "resourceVersion=abc",
    "resourceVersion=99999999999999999999999",
    "continue=xyz",
    "continue=%7B",
    "resourceVersionMatch=Foo",
    "resourceVersionMatch=Foo&resourceVersion=1",
    "sendInitialEvents=x",
    *(
        f"labelSelector={quote(text)}"
        for text in (
            *("a b", "==", "a in (", "a=b=c", "-a", "a=b!", ",", "a in ()", "\0", "a= b", "a>x", "a foo (x)", "!"),
            *("!a=b", "é", "a/b/c", "/a", "a/", "a,", "a,,b", "a in (b c)", "a in (b,,c)", "a in b", "a notin (,)"),
            *("a=(", "a in (=)", "a=b,c", "a < 5", "in=a", "notin", "a=in", "x" * 64, f"a={'b' * 64}", "a=-", "A_/b"),
            *("a=b\\", " a , b ", "a in(b)", "(a)", "a>", "a!", "a!=", "a==", "a!b"),
        )
    ),
    *(
        f"fieldSelector={quote(text)}"
        for text in ("foo", "foo=bar", "metadata.name", "metadata.name=a=b", "=", ",", "metadata.name=a\\", "a\\,b=c")
    ),
    *(f"fieldSelector={quote(text)}" for text in ("metadata.name=\\x", "metadata.name!=a", "metadata.name==a,foo=b")),
)


def test_lists_that_select_nonsense(both: Pair) -> None:
    for query in LISTS:
        both.same("GET", f"{MAPS}?{query}")


OPTIONS = ("dryRun=Foo", "dryRun=", "dryRun=All&dryRun=Foo", "dryRun=all", "fieldValidation=x", "fieldManager=a%00b")


def test_options_that_are_none(both: Pair) -> None:
    body = b'{"metadata":{"name":"hostile"}}'
    for query in (*OPTIONS, f"fieldManager={'a' * 129}", "fieldManager=a%0Ab&dryRun=x"):
        both.same("POST", f"{MAPS}?{query}", body)
        both.same("PUT", f"{ONE}?{query}", body)
        both.same("PATCH", f"{ONE}?{query}", b"{}", content_type=MERGE)
    both.same("PATCH", f"{ONE}?force=x", b"{}", content_type=MERGE)
    both.same("PATCH", ONE, b"{}", content_type=APPLY)
    for query in (
        "propagationPolicy=Foo",
        "propagationPolicy=",
        "gracePeriodSeconds=x",
        "gracePeriodSeconds=-5",
        "gracePeriodSeconds=99999999999999999999",
        "orphanDependents=true&propagationPolicy=Background",
    ):
        both.same("DELETE", f"{ONE}?dryRun=All&{query}")
    for content in (
        b'{"propagationPolicy":"Foo"}',
        b'{"propagationPolicy":1}',
        b'{"dryRun":["Foo"]}',
        b'{"dryRun":"All"}',
        b'{"gracePeriodSeconds":"x"}',
        b'{"kind":"Pod","apiVersion":"v1"}',
        b"[]",
        b"{",
        b'{"orphanDependents":true,"propagationPolicy":"Orphan"}',
        b'{"kind":"DeleteOptions","apiVersion":"v2","dryRun":["All"]}',
        b'{"dryRun":["All"],"gracePeriodSeconds":-1}',
    ):
        both.same("DELETE", ONE, content)


def test_bodies_without_end(both: Pair) -> None:
    body = b"x" * ((3 << 20) + 1)
    for asked in (("POST", MAPS), ("PUT", ONE), ("GET", f"{MAPS}/missing"), ("DELETE", ONE), ("POST", "/version")):
        both.same(*asked, body)
    both.same("POST", MAPS, body, chunked=True)
    both.same("PATCH", ONE, body, content_type=MERGE)
    both.same("POST", MAPS, body, headers=[("Content-Encoding", "gzip")])
    both.same("POST", MAPS, body, token="nobody")
    endless = b"x" * LARGE
    both.same("POST", MAPS, endless, chunked=True)
    both.same("POST", MAPS, endless, token="")
    for sent, closing in ((body, ""), (endless, "close")):
        answers = [client.ask("POST", MAPS, sent) for client in both.clients]
        assert [(it.status[:2], it.headers.get("connection", "")) for it in answers] == [
            ((413, "RequestEntityTooLarge"), closing)
        ] * 2


def test_what_is_no_http(both: Pair) -> None:
    for sent in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET /version HTTP/1.1\r\nHost: x\r\nfoo bar\r\n\r\n",
        b"POST /version HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    ):
        answers = [client.exchange(sent) for client in both.clients]
        assert answers[0].status == answers[1].status, sent
        assert answers[1].headers["connection"] == "close"
