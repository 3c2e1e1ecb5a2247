"""What the sandbox refuses, and in which words, is what the real server refuses: codes, reasons, messages, causes."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from controlplane import ControlPlane
from haulout.kube.transport import Request, Response
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.builtin_kinds import ALL
from haulout_sandbox.apiserver.gate import administrator
from haulout_sandbox.apiserver.kinds import KINDS, JsonObject, Kind
from haulout_sandbox.event_loops.virtual import VirtualClock
from support import samples, wrong
from support.matching import MERGE_PATCH
from support.wrong import Wrong

STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


class Said(NamedTuple):
    """An answer, as far as it can be the same on both sides."""

    code: int
    reason: str
    message: str
    details: Any
    warnings: tuple[str, ...]


class Server(NamedTuple):
    """One of the two, and the namespace to use."""

    ask: Callable[..., tuple[Said, JsonObject]]
    namespace: str

    def path(self, obj: JsonObject) -> str:
        """Return where the object lies."""
        kind = _kind(obj)
        return kind.path(kind.key(self.namespace, obj["metadata"]["name"]))


def _kind(obj: JsonObject) -> Kind:
    return next(it for it in (*KINDS, *ALL) if (it.api_version, it.kind) == (obj["apiVersion"], obj["kind"]))


def _said(code: int, body: JsonObject, warnings: tuple[str, ...], uid: str = "") -> Said:
    if code < 400:
        return Said(code, "", "", None, warnings)
    text = msgspec.json.encode(body).decode()
    body = msgspec.json.decode(text.replace(uid, "UID") if uid else text)
    return Said(code, body.get("reason", ""), body["message"], body.get("details"), warnings)


def _compared(control_plane: ControlPlane, namespace: str, story: Callable[[Server], Any]) -> tuple[Any, Any]:
    def real(method: str, path: str, body: Any = None, *, content: str = "application/json", uid: str = "") -> Any:
        answer = control_plane.request(method, path, body, content_type=content)
        return _said(answer.status, answer.json(), answer.warnings, uid), answer.json()

    async def ours() -> Any:
        server = ApiServer(VirtualClock(), namespaces=[namespace]).transport()._server

        def ask(method: str, path: str, body: Any = None, *, content: str = "application/json", uid: str = "") -> Any:
            where, _, text = path.partition("?")
            query = tuple((name, value) for name, _, value in (it.partition("=") for it in text.split("&") if it))
            sent = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
            request = Request(method=method, path=where, query=query, body=sent, content_type=content)
            answer = server.answer(request, user=administrator("test"))
            assert isinstance(answer, Response)
            told = answer.headers.get("warning", "")
            warnings = tuple(f"299 - {it}" for it in told.removeprefix("299 - ").split(", 299 - ")) if told else ()
            decoded = msgspec.json.decode(answer.body)
            return _said(answer.status, decoded, warnings, uid), decoded

        return story(Server(ask, namespace))

    return asyncio.run(ours()), story(Server(real, namespace))


@pytest.mark.parametrize("group", wrong.NEW)
def test_new_objects_are_refused_in_the_same_words(control_plane: ControlPlane, namespace: str, group: str) -> None:
    def story(server: Server) -> dict[str, Said]:
        return {it.title: server.ask("POST", _collection(server, it), it.obj)[0] for it in wrong.NEW[group]}

    ours, theirs = _compared(control_plane, namespace, story)
    assert ours == theirs


def _collection(server: Server, case: Wrong) -> str:
    return server.path(case.right).rpartition("/")[0] + "?dryRun=All"


@pytest.mark.parametrize(("cases", "sub"), [(wrong.UPDATES, ""), (wrong.STATUSES, "/status")], ids=["object", "status"])
def test_updates_are_refused_in_the_same_words(
    control_plane: ControlPlane, namespace: str, cases: list[Wrong], sub: str
) -> None:
    def story(server: Server) -> dict[str, Said]:
        made: dict[str, JsonObject] = {}
        said = {}
        for case in cases:
            path = server.path(case.right)
            if path not in made:
                made[path] = server.ask("POST", path.rpartition("/")[0], case.right)[1]
            was = made[path]
            new = wrong.changed(copy.deepcopy(was), case.changes)
            new["metadata"].pop("managedFields", None)
            said[case.title] = server.ask("PUT", f"{path}{sub}?dryRun=All", new, uid=was["metadata"]["uid"])[0]
        for path in made:
            server.ask("PATCH", path, {"metadata": {"finalizers": None}}, content=MERGE_PATCH)
            server.ask("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        return said

    ours, theirs = _compared(control_plane, namespace, story)
    assert ours == theirs


def _pod(**spec: Any) -> JsonObject:
    return samples.sample("v1", "Pod", "p", spec=samples.pod_spec(**spec))


def _container(**more: Any) -> JsonObject:
    return _pod(containers=[{"name": "main", "image": "a", **more}])


TYPES: list[Any] = [
    _pod(hostNetwork="yes"),
    _pod(terminationGracePeriodSeconds="5"),
    _pod(terminationGracePeriodSeconds=1.5),
    _pod(priority=2**40),
    _pod(restartPolicy=5),
    _pod(nodeSelector={"a": 1}),
    _pod(nodeSelector=[]),
    _pod(containers={}),
    _pod(containers=["a"]),
    _pod(containers=[None]),
    _pod(tolerations=[None]),
    _container(command="a"),
    _container(command=[1]),
    _container(livenessProbe={"exec": "x"}),
    _container(livenessProbe={"httpGet": {"port": True}}),
    _container(livenessProbe={"httpGet": {"port": 1.5}}),
    _container(resources={"limits": {"cpu": "abc"}}),
    _container(resources={"limits": {"cpu": "1x"}}),
    _container(resources={"limits": {"cpu": True}}),
    _container(resources={"limits": []}),
    _container(env=[{"name": "a", "valueFrom": {"configMapKeyRef": {"name": 5}}}]),
    _pod(volumes=[{"name": "a", "emptyDir": 5}]),
    _pod(volumes=[{"name": "a", "configMap": {"items": 5}}]),
    _pod() | {"metadata": "x"},
    _pod() | {"metadata": {"name": 5}},
    _pod() | {"metadata": {"name": "p", "labels": {"a": True}}},
    _pod() | {"metadata": {"name": "p", "labels": {"a": None}}},
    _pod() | {"metadata": {"name": "p", "creationTimestamp": "yesterday"}},
    _pod() | {"metadata": {"name": "p", "creationTimestamp": "2026-13-01T00:00:00Z"}},
    _pod() | {"metadata": {"name": "p", "creationTimestamp": 5}},
    _pod() | {"spec": []},
    _pod() | {"kind": "Node"},
    _pod() | {"kind": "Unheard"},
    _pod() | {"apiVersion": "v2"},
    _pod() | {"apiVersion": "apps/v1", "kind": "Deployment"},
    wrong.changed(wrong.LEASE, {"spec.renewTime": "2026-01-01T00:00:00Z"}),
    wrong.changed(wrong.LEASE, {"spec.renewTime": ""}),
    wrong.changed(wrong.SECRET, {"data": {"a": "%%"}}),
    wrong.changed(wrong.SECRET, {"data": {"a": "abc"}}),
    wrong.changed(wrong.CONFIG_MAP, {"data": {"a": 5}}),
    wrong.changed(wrong.BUDGET, {"spec.minAvailable": True}),
    wrong.changed(wrong.DEPLOYMENT, {"spec.replicas": "3"}),
    wrong.changed(wrong.DEPLOYMENT, {"spec.template.spec.containers.0.ports": [{"containerPort": "80"}]}),
]


def test_values_of_the_wrong_type_are_refused_in_the_same_words(control_plane: ControlPlane, namespace: str) -> None:
    def story(server: Server) -> dict[str, Said]:
        said = {}
        for obj in TYPES:
            right = next(
                (
                    it
                    for it in (wrong.LEASE, wrong.SECRET, wrong.CONFIG_MAP, wrong.BUDGET, wrong.DEPLOYMENT)
                    if it["kind"] == obj["kind"] and it["metadata"] == obj["metadata"]
                ),
                wrong.POD,
            )
            path = server.path(right).rpartition("/")[0]
            said[str(obj)] = server.ask("POST", f"{path}?dryRun=All", obj)[0]
        return said

    ours, theirs = _compared(control_plane, namespace, story)
    assert ours == theirs


UNKNOWN: list[bytes] = [
    b'{"metadata":{"name":"p"},"spec":{"foo":1,"containers":[{"name":"a","image":"a","bar":{}}]},"zoo":[]}',
    b'{"metadata":{"name":"p","nme":"x"},"spec":{"containers":[{"name":"a","image":"a"}]}}',
    b'{"metadata":{"name":"p","name":"q"},"spec":{"foo":1,"containers":[{"name":"a","image":"a","image":"b"}]}}',
    b'{"metadata":{"name":"p","labels":{"a":"b","a":"c"}}, "spec":{"containers":[{"name":"a","image":"a"}]}}',
    b'{"metadata":{"name":"p"},"spec":{"Containers":[],"containers":[{"name":"a","image":"a"}]}}',
]


@pytest.mark.parametrize("directive", ["", "Ignore", "Warn", "Strict", "Wrong"])
def test_unknown_and_repeated_fields_are_treated_alike(
    control_plane: ControlPlane, namespace: str, directive: str
) -> None:
    def story(server: Server) -> list[Any]:
        pods = server.path(wrong.POD).rpartition("/")[0]
        query = f"?dryRun=All&fieldValidation={directive}"
        said: list[Any] = []
        for body in UNKNOWN:
            answer, made = server.ask("POST", pods + query, body)
            said.append((answer, "foo" in made.get("spec", {})))
        server.ask("POST", pods, wrong.POD)
        patch = {"metadata": {"labels": {"x": "y"}}, "spec": {"foo": 1, "containers": [{"name": "main", "bar": 2}]}}
        said += [server.ask("PATCH", f"{pods}/p{query}", patch, content=STRATEGIC)[0]]
        said += [
            server.ask("PATCH", f"{pods}/p{query}", b'{"metadata":{"labels":{"x":"a","x":"b"}}}', content=STRATEGIC)[0]
        ]
        for content, sent in (
            (MERGE_PATCH, {"metadata": {"foo": 1}}),
            (JSON_PATCH, [{"op": "add", "path": "/spec/foo", "value": 1}]),
        ):
            answer = server.ask("PATCH", f"{pods}/p{query}", sent, content=content)[0]
            said.append(_without_the_object(answer))
        said += [server.ask("PUT", f"{pods}/p{query}", wrong.POD | {"foo": 1})[0]]
        server.ask("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})
        return said

    ours, theirs = _compared(control_plane, namespace, story)
    assert ours == theirs


def _without_the_object(answer: Said) -> Said:
    """Return the answer without the patched object in it: managed fields, and the order of its fields, differ."""
    begin, _, end = answer.message.rpartition('": ')
    return answer._replace(message=f"{begin.partition('{')[0]}…{end}", details=None)


MISFITTING = [
    {"metadata": {"labels": {"x": 5}}},
    {"metadata": {"labels": []}},
    {"spec": {"activeDeadlineSeconds": "x"}},
    {"spec": {"activeDeadlineSeconds": 1.5}},
    {"spec": {"hostNetwork": 1}},
    {"spec": {"tolerations": {}}},
    {"spec": {"securityContext": "x"}},
    {"spec": {"overhead": {"cpu": "abc"}}},
]


@pytest.mark.parametrize("content", [STRATEGIC, MERGE_PATCH])
def test_patches_that_do_not_fit_are_refused_in_the_same_words(
    control_plane: ControlPlane, namespace: str, content: str
) -> None:
    def story(server: Server) -> list[Said]:
        path = server.path(wrong.POD)
        server.ask("POST", path.rpartition("/")[0], wrong.POD)
        said = [server.ask("PATCH", f"{path}?dryRun=All", it, content=content)[0] for it in MISFITTING]
        server.ask("DELETE", path, {"gracePeriodSeconds": 0})
        return said if content == STRATEGIC else [_without_the_object(it) for it in said]

    ours, theirs = _compared(control_plane, namespace, story)
    assert ours == theirs


def test_applied_values_that_do_not_fit_are_refused_in_the_same_words(
    control_plane: ControlPlane, namespace: str
) -> None:
    def story(server: Server) -> list[Said]:
        path = server.path(wrong.POD)
        typed = {"apiVersion": "v1", "kind": "Pod"}
        query = "?dryRun=All&fieldManager=tester"
        return [
            server.ask("PATCH", path + query, typed | _pod(**spec), content=APPLY)[0]
            for spec in (
                {"foo": 1},
                {"hostNetwork": 1},
                {"overhead": {"cpu": "abc"}},
                {"activeDeadlineSeconds": 1.5},
                {"restartPolicy": "Wrong"},
            )
        ]

    ours, theirs = _compared(control_plane, namespace, story)
    assert ours == theirs
