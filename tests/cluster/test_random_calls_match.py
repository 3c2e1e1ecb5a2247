"""Random sequences of API calls get the same answers from the sandbox as from a real server.

Each example is a story of requests about a handful of names in a namespace of its own. Values that a server gives
(uids, revisions, times) are named in a story by what they are: "the uid it has", "a revision it had before". Compared
are the code, the reason and the object or list in every answer.
"""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport

pytestmark = pytest.mark.real_time

JsonObject = dict[str, Any]

_JSON = "application/json"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_NEVER_A_UID = "00000000-0000-0000-0000-000000000000"


class Call(NamedTuple):
    """One request; `$uid`, `$revision` and `$before` in its body stand for what the object has or had."""

    method: str
    path: str
    body: Any = None
    content_type: str = _JSON
    query: str = ""


# What the stories are made of

_POD_SPEC = {"containers": [{"name": "main", "image": "main:1"}]}
_TEMPLATE = {
    "metadata": {"labels": {"app": "a"}},
    "spec": _POD_SPEC,
}
_SELECTOR = {"matchLabels": {"app": "a"}}
_KINDS: dict[str, tuple[str, JsonObject]] = {
    "configmaps": ("/api/v1", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}),
    "pods": ("/api/v1", {"apiVersion": "v1", "kind": "Pod", "spec": _POD_SPEC | {"serviceAccountName": "default"}}),
    "leases": (
        "/apis/coordination.k8s.io/v1",
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "a"}},
    ),
    "deployments": (
        "/apis/apps/v1",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "spec": {"replicas": 2, "selector": _SELECTOR, "template": _TEMPLATE},
        },
    ),
    "statefulsets": (
        "/apis/apps/v1",
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "spec": {"serviceName": "a", "selector": _SELECTOR, "template": _TEMPLATE},
        },
    ),
    "poddisruptionbudgets": (
        "/apis/policy/v1",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "spec": {"minAvailable": 1, "selector": _SELECTOR},
        },
    ),
    "jobs": (
        "/apis/batch/v1",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {"template": {"spec": _POD_SPEC | {"restartPolicy": "Never"}}},
        },
    ),
}
_WITH_STATUS = ("pods", "deployments", "statefulsets", "poddisruptionbudgets", "jobs")
_SCALED = ("deployments", "statefulsets")

_names = st.sampled_from(["a", "b"])
_plurals = st.sampled_from(sorted(_KINDS))
_dry = st.sampled_from(["", "", "", "dryRun=All"])
_metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.sampled_from([{"app": "a"}, {"app": "b"}, {}, {"x": None}, {"bad key": "1"}]),
        "annotations": st.sampled_from([{"note": "n"}, {}, {"note": None}]),
        "finalizers": st.sampled_from([["example.dev/stay"], [], ["orphan"], ["nodomain"]]),
        "resourceVersion": st.sampled_from(["$revision", "$before", "0", "", "x"]),
        "uid": st.sampled_from(["$uid", _NEVER_A_UID]),
        "generation": st.just(7),
        "ownerReferences": st.sampled_from(
            [[{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": _NEVER_A_UID}], []]
        ),
    },
)
_changes: dict[str, st.SearchStrategy[JsonObject]] = {
    "configmaps": st.sampled_from([{"data": {"a": "2"}}, {"data": None}, {"data": {"b": "x"}}, {"immutable": True}]),
    "pods": st.sampled_from(
        [
            {"spec": {"nodeName": "n1"}},
            {"spec": {"terminationGracePeriodSeconds": 5}},
            {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}},
            {"spec": {"activeDeadlineSeconds": 60}},
            {"status": {"phase": "Running"}},
        ]
    ),
    "leases": st.sampled_from(
        [{"spec": {"holderIdentity": "b"}}, {"spec": {"leaseDurationSeconds": -1}}, {"spec": {"leaseTransitions": 1}}]
    ),
    "deployments": st.sampled_from(
        [
            {"spec": {"replicas": 3}},
            {"spec": {"replicas": -1}},
            {"spec": {"paused": True}},
            {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}},
            {"spec": {"selector": {"matchLabels": {"app": "c"}}}},
            {"status": {"replicas": 1, "observedGeneration": 1}},
        ]
    ),
    "statefulsets": st.sampled_from(
        [{"spec": {"replicas": 3}}, {"spec": {"serviceName": "b"}}, {"spec": {"minReadySeconds": 5}}]
    ),
    "poddisruptionbudgets": st.sampled_from(
        [
            {"spec": {"minAvailable": "50%"}},
            {"spec": {"maxUnavailable": 1}},
            {"spec": {"minAvailable": None, "maxUnavailable": 1}},
            {"spec": {"selector": {"matchLabels": {"app": "b"}}}},
            {"status": {"disruptionsAllowed": 1, "observedGeneration": 1}},
            {"status": {"disruptionsAllowed": 1, "observedGeneration": 9, "expectedPods": 1, "currentHealthy": 1}},
        ]
    ),
    "jobs": st.sampled_from([{"spec": {"parallelism": 2}}, {"spec": {"suspend": True}}, {"spec": {"completions": 2}}]),
}
_operations = st.lists(
    st.sampled_from(
        [
            {"op": "test", "path": "/metadata/uid", "value": "$uid"},
            {"op": "test", "path": "/metadata/uid", "value": _NEVER_A_UID},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "$revision"},
            {"op": "add", "path": "/metadata/labels", "value": {"app": "c"}},
            {"op": "add", "path": "/metadata/labels/tier", "value": "gold"},
            {"op": "remove", "path": "/metadata/labels/tier"},
            {"op": "remove", "path": "/metadata/finalizers"},
            {"op": "replace", "path": "/metadata/name", "value": "other"},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "example.dev/stay"},
            {"op": "copy", "from": "/metadata/name", "path": "/metadata/annotations/name"},
            {"op": "wobble", "path": "/metadata"},
        ]
    ),
    min_size=1,
    max_size=3,
)
_delete_options = st.fixed_dictionaries(
    {},
    optional={
        "gracePeriodSeconds": st.sampled_from([0, 5, -1]),
        "preconditions": st.sampled_from(
            [{"uid": "$uid"}, {"uid": _NEVER_A_UID}, {"resourceVersion": "$revision"}, {"resourceVersion": "$before"}]
        ),
        "propagationPolicy": st.sampled_from(["Background", "Foreground", "Orphan", "Sideways"]),
        "dryRun": st.sampled_from([["All"], ["Some"], []]),
    },
)
_queries = st.sampled_from(
    [
        "",
        "labelSelector=app%3Da",
        "labelSelector=app!%3Da",
        "labelSelector=app+in+(a,b)",
        "labelSelector=app%3D%3D%3Da",
        "fieldSelector=metadata.name%3Da",
        "fieldSelector=spec.nothing%3Da",
        "fieldSelector=metadata.name!%3Da",
        "limit=1",
        "resourceVersion=x",
        "limit=x",
    ]
)
_list_queries = st.one_of(_queries, st.just("resourceVersion=0"))  # a real deletion of these may find them changed


class Subject(NamedTuple):
    """What a call is about."""

    plural: str
    name: str

    @property
    def collection(self) -> str:
        """Where its kind is."""
        return f"{_KINDS[self.plural][0]}/namespaces/$namespace/{self.plural}"

    @property
    def path(self) -> str:
        """Where it is itself."""
        return f"{self.collection}/{self.name}"

    def body(self, draw: st.DrawFn, **metadata: str) -> JsonObject:
        """Return the object as someone might send it."""
        changed = _merged(_KINDS[self.plural][1], draw(st.one_of(st.just({}), _changes[self.plural])))
        return changed | {"metadata": draw(_metadata) | metadata}


def _a_creation(draw: st.DrawFn, it: Subject) -> Call:
    named = draw(st.sampled_from([{"name": it.name}, {"name": it.name}, {"name": it.name}, {}, {"name": "Bad_Name"}]))
    return Call("POST", it.collection, it.body(draw, **named), query=draw(_dry))


def _an_update(draw: st.DrawFn, it: Subject) -> Call:
    return Call("PUT", it.path, it.body(draw, name=it.name), query=draw(_dry))


def _a_patch(draw: st.DrawFn, it: Subject) -> Call:
    content_type = draw(st.sampled_from([_MERGE, _STRATEGIC, _JSON_PATCH, "application/x-patch"]))
    if content_type == _JSON_PATCH:
        return Call("PATCH", it.path, draw(_operations), content_type, draw(_dry))
    patch = draw(_changes[it.plural]) | draw(st.one_of(st.just({}), st.builds(_as_metadata, _metadata)))
    return Call("PATCH", it.path, patch, content_type, draw(_dry))


def _as_metadata(metadata: JsonObject) -> JsonObject:
    return {"metadata": metadata}


def _a_status(draw: st.DrawFn, it: Subject) -> Call:
    it = it._replace(plural=draw(st.sampled_from(_WITH_STATUS)))
    return Call("PATCH", f"{it.path}/status", draw(_changes[it.plural]) | {"metadata": draw(_metadata)}, _MERGE)


def _a_scale(draw: st.DrawFn, it: Subject) -> Call:
    it = it._replace(plural=draw(st.sampled_from(_SCALED)))
    return Call("PATCH", f"{it.path}/scale", {"spec": {"replicas": draw(st.sampled_from([0, 5, -1]))}}, _MERGE)


def _an_eviction(draw: st.DrawFn, it: Subject) -> Call:
    body: JsonObject = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": it.name}}
    options = draw(st.one_of(st.none(), _delete_options))
    if options is not None:
        body["deleteOptions"] = options
    return Call("POST", f"{it._replace(plural='pods').path}/eviction", body)


def _a_binding(draw: st.DrawFn, it: Subject) -> Call:
    target = {"kind": "Node", "name": draw(st.sampled_from(["n1", "n2"]))}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": it.name}, "target": target}
    return Call("POST", f"{it._replace(plural='pods').path}/binding", body)


_VERBS: dict[str, tuple[int, Callable[[st.DrawFn, Subject], Call]]] = {  # and how often each is chosen
    "create": (4, _a_creation),
    "update": (3, _an_update),
    "patch": (3, _a_patch),
    "delete": (2, lambda draw, it: Call("DELETE", it.path, draw(st.one_of(st.none(), _delete_options)))),
    "delete all": (1, lambda draw, it: Call("DELETE", it.collection, query=draw(_queries))),
    "get": (1, lambda _, it: Call("GET", it.path)),
    "list": (2, lambda draw, it: Call("GET", it.collection, query=draw(_list_queries))),
    "status": (1, _a_status),
    "scale": (1, _a_scale),
    "evict": (1, _an_eviction),
    "bind": (1, _a_binding),
}
_verbs = st.sampled_from([verb for verb, (weight, _) in _VERBS.items() for _ in range(weight)])


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Draw one call."""
    return _VERBS[draw(_verbs)][1](draw, Subject(draw(_plurals), draw(_names)))


def _merged(sample: JsonObject, change: JsonObject) -> JsonObject:
    result = dict(sample)
    for name, value in change.items():
        inner = result.get(name)
        if isinstance(value, dict) and isinstance(inner, dict):
            result[name] = _merged(inner, value)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


# The two servers


class Server:
    """Sends calls, with what they name filled in from what this server has told."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._told: dict[str, list[JsonObject]] = {}  # the metadata of each object, oldest first

    def call(self, call: Call) -> tuple[int, Any]:
        """Return the code and the content of the answer."""
        path = call.path.replace("$namespace", self.namespace)
        known = self._told.get(_object_path(path), [])
        body = None if call.body is None else json.dumps(call.body)
        if body is not None:
            body = body.replace("$uid", known[-1]["uid"] if known else _NEVER_A_UID)
            body = body.replace("$revision", known[-1]["resourceVersion"] if known else "1")
            body = body.replace("$before", known[-2]["resourceVersion"] if len(known) > 1 else "1")
        code, content = self.send(call._replace(path=path, body=None if body is None else json.loads(body)))
        if isinstance(content, dict) and "uid" in content.get("metadata", {}) and "dryRun" not in call.query:
            known = self._told.setdefault(_object_path(path), [])
            if not known or known[-1]["resourceVersion"] != content["metadata"]["resourceVersion"]:
                known.append(content["metadata"])
        return code, content

    def send(self, call: Call) -> tuple[int, Any]:
        """Send one call."""
        raise NotImplementedError


class Real(Server):
    """The real one."""

    def __init__(self, cluster: ControlPlane, namespace: str) -> None:
        super().__init__(namespace)
        self._cluster = cluster
        made = cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert made.status == 201, made.body

    def send(self, call: Call) -> tuple[int, Any]:
        """Send one call over the network."""
        answer = self._cluster.request(
            call.method, f"{call.path}?{call.query}", call.body, content_type=call.content_type
        )
        return answer.status, _content(answer.body)


class Sandbox(Server):
    """Ours."""

    def __init__(self, runner: asyncio.Runner, transport: InProcessTransport, namespace: str) -> None:
        super().__init__(namespace)
        self._runner = runner
        self._transport = transport

    def send(self, call: Call) -> tuple[int, Any]:
        """Send one call in-process."""
        request = Request(
            method=call.method,
            path=call.path,
            query=tuple(_pair(it) for it in call.query.split("&") if it),
            body=None if call.body is None else json.dumps(call.body).encode(),
            content_type=call.content_type,
        )
        answer = self._runner.run(self._transport.send(request))
        return answer.status, _content(answer.body)


@contextmanager
def both(cluster: ControlPlane, namespace: str) -> Iterator[tuple[Real, Sandbox]]:
    with asyncio.Runner() as runner:

        async def begin() -> InProcessTransport:
            api = ApiServer(RealClock(), random=Random(namespace))
            api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            return api.transport("tester")

        yield Real(cluster, namespace), Sandbox(runner, runner.run(begin()), namespace)


def _object_path(path: str) -> str:
    return re.sub(r"/(status|scale|eviction|binding)$", "", path)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value.replace("%3D", "=").replace("+", " ")


def _content(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


# The comparison


_GIVEN = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z"), "TIME"),
    (re.compile(r"random-[0-9]+"), "NAMESPACE"),
    (re.compile(r"\((uid|resourceVersion|ResourceVersion)? ?[0-9]+\)"), "REVISION"),
]


def _comparable(value: Any) -> Any:
    if isinstance(value, dict) and value.get("kind") == "Status":
        return {name: value.get(name) for name in ("status", "reason", "code")}
    if isinstance(value, dict):
        hidden = ("managedFields", "resourceVersion", "continue")
        shown = {name: item for name, item in value.items() if name not in hidden}
        if shown.get("lastProbeTime", "") is None:  # to those who read it, null and nothing are the same
            del shown["lastProbeTime"]
        return {name: _comparable(item) for name, item in shown.items()}
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]
    if not isinstance(value, str):
        return value
    for pattern, word in _GIVEN:
        value = pattern.sub(word, value)
    return value


_numbers = itertools.count(1)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(story=st.lists(calls(), min_size=8, max_size=25))
def test_a_random_story_gets_the_same_answers(control_plane: ControlPlane, story: list[Call]) -> None:
    with both(control_plane, f"random-{next(_numbers)}") as (real, sandbox):
        for number, call in enumerate(story):
            theirs, ours = real.call(call), sandbox.call(call)
            assert _comparable(ours) == _comparable(theirs), _told(story[: number + 1])


def _told(story: list[Call]) -> str:
    return "\n".join(["after", *(f"  {it.method} {it.path} {it.query} {it.content_type} {it.body}" for it in story)])
