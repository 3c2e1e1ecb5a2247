"""Server-side apply: the sandbox makes of an object what the real server makes of it, owners of fields included."""

import copy
import json
import random
from dataclasses import dataclass
from typing import Any

import pytest

from controlplane import Answer, ControlPlane
from haulout_sandbox.apiserver.apply import APPLY_PATCH, apply, track
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.shapes import Shape, from_schema
from haulout_sandbox.apiserver.status import Refused
from support.matching import (
    CONFIG_MAP,
    DEPLOYMENT,
    MERGE_PATCH,
    NODE,
    SERVICE,
    Real,
    a_config_map,
    a_node,
    condition,
    container,
    content_of,
    done,
    owner,
    shape,
)

CREATE = "create"
NOW = "2099-01-02T03:04:05Z"  # later than any time that the real server gives
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def applied(kind: Kind, name: str, **more: Any) -> JsonObject:
    meta = {"name": name} | more.pop("metadata", {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta} | more


def config(data: dict[str, str] | None = None, **meta: Any) -> JsonObject:
    return applied(CONFIG_MAP, "c", metadata=meta, data=data or {})


def deployment(*containers: JsonObject, replicas: int | None = None, **spec: Any) -> JsonObject:
    pod = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": list(containers)} | spec}
    rest = {"selector": {"matchLabels": {"app": "d"}}, "template": pod}
    return applied(DEPLOYMENT, "d", spec=rest | ({} if replicas is None else {"replicas": replicas}))


def env_of(*names: str) -> JsonObject:
    return container("web", env=[{"name": name, "value": str(at)} for at, name in enumerate(names)])


def service(*ports: JsonObject) -> JsonObject:
    return applied(SERVICE, "s", spec={"ports": list(ports), "selector": {"a": "b"}})


def node(**more: Any) -> JsonObject:
    return applied(NODE, "patched-node", **more)


@dataclass(frozen=True, slots=True)
class Step:
    """One write, by someone: an apply unless `content` says otherwise."""

    who: str
    body: JsonObject
    force: bool = False
    sub: str = ""
    content: str = APPLY_PATCH


def change(who: str, body: JsonObject, *, sub: str = "") -> Step:
    return Step(who, body, sub=sub, content=MERGE_PATCH)


STORIES: dict[str, tuple[Kind, list[Step]]] = {
    "a field goes with the last of its owners": (
        CONFIG_MAP,
        [
            Step("a", config({"x": "1", "y": "2"}, labels={"l": "1"}, annotations={"n": "1"})),
            Step("b", config({"x": "1"})),
            Step("a", config({"y": "3"}, labels={"m": "1"})),
            Step("b", config()),
            Step("a", applied(CONFIG_MAP, "c")),
        ],
    ),
    "conflicts": (
        CONFIG_MAP,
        [
            Step("a", config({"x": "1", "y": "1", "z": "1"})),
            Step("b", config({"x": "2"})),
            Step("b", config({"x": "2", "y": "2"})),
            Step("c", config({"x": "1"})),
            Step("b", config({"x": "2", "z": "2", "w": "1"})),
            Step("b", config({"x": "2", "y": "2"}), force=True),
            Step("a", config({"x": "1", "z": "1"})),
            Step("a", config({"z": "1"})),
        ],
    ),
    "writes between applies": (
        CONFIG_MAP,
        [
            Step("a", config({"x": "1", "y": "1"})),
            change("hand", {"data": {"x": "9", "new": "1"}, "metadata": {"labels": {"by": "hand"}}}),
            Step("a", config({"x": "1", "y": "1"})),
            Step("a", config({"y": "1"})),
            change("hand", {"data": {"y": None}}),
            Step("a", config({"y": "1", "new": "1"})),
            change("hand", {"metadata": {"finalizers": ["example.com/a"], "ownerReferences": [owner("1")]}}),
            Step("a", config({"y": "1"}, finalizers=["example.com/b"], ownerReferences=[owner("2")])),
            Step("a", config({"y": "1"})),
            change("hand", {"metadata": {"finalizers": None}}),
        ],
    ),
    "lists with keys": (
        DEPLOYMENT,
        [
            Step("a", deployment(container("web", env=[{"name": "A", "value": "1"}]), container("old"))),
            Step("b", deployment(container("web", env=[{"name": "B", "value": "1"}]), replicas=3)),
            Step("a", deployment(container("new"), container("web", env=[{"name": "C", "value": "1"}]))),
            Step("a", deployment(container("web"), container("new"), replicas=4)),
            Step("scaler", applied(DEPLOYMENT, "d", spec={"replicas": 5}), force=True),
            change("scaler", {"spec": {"replicas": 6}}),
            Step("b", deployment(container("web"))),
            Step(
                "a",
                deployment(container("web", ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}])),
            ),
            Step("a", deployment(container("web", ports=[{"containerPort": 80, "protocol": "UDP"}]))),
            Step("a", deployment(container("web", args=["x"], resources={"limits": {"cpu": "1"}}))),
            Step("b", deployment(container("web", args=["y"], resources={"limits": {"memory": "1Gi"}}))),
            Step(
                "a", deployment(container("web"), tolerations=[{"key": "x"}], volumes=[{"name": "v", "emptyDir": {}}])
            ),
            Step("a", deployment(container("web"), volumes=[{"name": "v", "configMap": {"name": "c"}}])),
            Step("a", deployment(container("web"))),
        ],
    ),
    "an object that was not applied at first": (
        DEPLOYMENT,
        [
            Step("creator", deployment(container("web"), replicas=2), content=CREATE),
            Step("a", deployment(container("web", image="registry.example/web:2"), replicas=3)),
            Step("a", deployment(container("web", image="registry.example/web:2"), replicas=3), force=True),
            change("creator", {"spec": {"paused": True, "replicas": 1}}),
            Step("a", deployment(container("web"))),
        ],
    ),
    "ports of a service": (
        SERVICE,
        [
            Step("a", service({"port": 80, "name": "a"}, {"port": 53, "protocol": "UDP", "name": "b"})),
            Step("b", applied(SERVICE, "s", spec={"ports": [{"port": 53, "protocol": "TCP", "name": "c"}]})),
            Step("a", service({"port": 53, "protocol": "UDP", "name": "b"})),
            Step("b", applied(SERVICE, "s", spec={"selector": {"x": "y"}})),
            Step("b", applied(SERVICE, "s", spec={"selector": {"x": "y"}}), force=True),
        ],
    ),
    "a node and its status": (
        NODE,
        [
            Step("creator", a_node(), content=CREATE),
            Step("a", node(metadata={"labels": {"pool": "x"}}, spec={"unschedulable": True})),
            change("kubelet", {"status": {"conditions": [condition("Ready")], "capacity": {"cpu": "1"}}}, sub="status"),
            Step("a", node(status={"conditions": [condition("Drained")]}), sub="status"),
            Step("a", node(status={"conditions": [condition("Ready", "False")]}), sub="status"),
            Step("b", node(status={"conditions": [condition("Drained", "False")]}), sub="status"),
            Step("b", node(status={"conditions": [condition("Drained", "False")]}), sub="status", force=True),
            Step("b", node(status={}), sub="status"),
            Step("a", node(spec={"taints": [{"key": "z", "effect": "NoSchedule"}]})),
            Step("a", node(spec={"taints": [{"key": "z", "effect": "NoSchedule"}]}), force=True),
            Step("a", node()),
        ],
    ),
    "an object that nobody tracked": (
        CONFIG_MAP,
        [
            Step("creator", a_config_map(), content=CREATE),
            change("hand", {"metadata": {"managedFields": [{}]}}),
            change("hand", {"data": {"x": "7"}}),
            Step("a", config({"x": "1", "y": "2"})),
            Step("a", config({"x": "1", "y": "2"}), force=True),
        ],
    ),
    "items that are there twice": (
        DEPLOYMENT,
        [
            Step("creator", deployment(env_of("a", "b", "a")), content=CREATE),
            change("hand", deployment(env_of("a", "b", "a", "b"))),
            Step("a", deployment(env_of("a", "c"))),
            Step("a", deployment(env_of("a", "c")), force=True),
            change("hand", deployment(env_of("b", "b", "c", "a"))),
            change("hand", deployment(env_of("c", "a"))),
            Step("a", deployment(container("web"))),
        ],
    ),
    "more writers than are kept": (
        CONFIG_MAP,
        [Step("a", config({"x": "1"})), *(change(f"w{n:02}", {"data": {f"w{n}": "1"}}) for n in range(13))],
    ),
    "from kubectl apply to kubectl apply --server-side": (
        CONFIG_MAP,
        [
            Step(
                "kubectl-client-side-apply",
                config(
                    {"x": "1", "y": "1"},
                    annotations={LAST_APPLIED: json.dumps(config({"x": "1", "y": "1"}))},
                ),
                content=CREATE,
            ),
            change("hand", {"data": {"y": "2"}}),
            Step("kubectl", config({"x": "<2>", "y": "3"})),
            Step("other", config({"x": "2"})),
            Step("kubectl", config({"x": "<2>"})),
        ],
    ),
}


SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "plain": {"type": "array", "items": {"type": "string"}},
                "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "rows": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "port"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "port": {"type": "integer", "default": 80},
                            "value": {"x-kubernetes-int-or-string": True},
                        },
                    },
                },
                "pair": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                },
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "at": {"type": "string", "format": "date-time"},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
                "ids": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id"],
                    "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
                },
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
THING = Kind(group="patches.example.com", version="v1", plural="things", kind="Thing", custom=True, has_status=True)


def thing(status: JsonObject | None = None, **spec: Any) -> JsonObject:
    return applied(THING, "t", spec=spec) | ({"status": status} if status else {})


CUSTOM_STORY = [
    Step("a", thing(plain=["x"], set=["b", "a"], rows=[{"name": "n", "value": 1}], pair={"a": "1"})),
    Step("b", thing(set=["c", "a"], rows=[{"name": "n", "port": 81}, {"name": "m", "value": "x"}])),
    Step("b", thing(set=["c", "a"], rows=[{"name": "n", "port": 80, "value": 2}])),
    Step("b", thing(pair={"b": "2"})),
    Step("b", thing(pair={"b": "2"}), force=True),
    Step("a", thing(set=["a"], labels={"x": "1"}, free={"deep": {"x": 1, "y": [1, {"a": 2}]}, "other": {}})),
    Step("b", thing(labels={"x": "1", "y": "2"}, free={"deep": {"z": True}}, at="2026-01-01T00:00:00Z")),
    Step("b", thing(free={"deep": {"x": {"now": "an object"}}})),
    Step("b", thing(free={"deep": {"x": {"now": "an object"}}}), force=True),
    change("hand", {"spec": {"free": {"deep": "flat"}, "set": ["q"]}}),
    Step("a", thing(free={"deep": {"x": 3}}), force=True),
    Step("a", thing(template={"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}}})),
    change("controller", {"status": {"phase": "Ready", "conditions": [condition("A")]}}, sub="status"),
    Step("c", thing({"phase": "Done", "more": {"x": 1}}), sub="status"),
    Step("c", thing({"phase": "Done", "more": {"x": 1}}), sub="status", force=True),
    Step("c", thing({"more": {"y": 1}}), sub="status"),
    Step("a", thing({"phase": "not taken"})),
    Step("a", thing(unknown=1)),
    Step("a", thing(rows=[{"name": "n"}, {"name": "n", "port": 80}])),
    Step("a", thing(ids=[{}])),
    Step("a", thing(rows=[5])),
    Step("a", thing(set=["a", "a"])),
    Step("a", thing(set=[{}])),
    Step("a", thing(labels={"a": 1})),
    Step("a", thing(template=5)),
    Step("a", applied(THING, "t")),
]


def test_custom_resources_are_applied_by_their_schema(control_plane: ControlPlane, namespace: str) -> None:
    define(control_plane)
    follow(Real(control_plane, namespace, kind=THING, name="t"), from_schema(SCHEMA), CUSTOM_STORY)


def define(cluster: ControlPlane) -> None:
    names = {"plural": THING.plural, "kind": THING.kind}
    version = {"name": THING.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    version["subresources"] = {"status": {}}
    spec = {"group": THING.group, "scope": "Namespaced", "names": names, "versions": [version]}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = f"{THING.plural}.{THING.group}"
    done(cluster.request("POST", definitions, {"metadata": {"name": name}, "spec": spec}))
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s")


BAD_CONFIGURATIONS: list[JsonObject] = [
    deployment(container("web", foo=1)),
    deployment(container("web", image=5)),
    deployment(container("web", image={"a": [1, "b", None]})),
    deployment(container("web", tty="x")),
    deployment(container("web", args=[True])),
    deployment(container("web", resources={"limits": {"cpu": {"a": 1}}})),
    deployment(container("web"), container("web")),
    deployment(container("web"), containers=5),
    deployment(container("web"), containers=[None]),
    deployment(container("web"), containers=["web"]),
    deployment(container("web"), tolerations=[{"foo": 1}]),
    applied(DEPLOYMENT, "d", spec=5),
    applied(DEPLOYMENT, "d", spec={"replicas": "x", "paused": "y"}),
    applied(DEPLOYMENT, "d", metadata={"managedFields": []}),
    applied(DEPLOYMENT, "d", metadata={"finalizers": ["a", "a"]}),
    applied(DEPLOYMENT, "d") | {"kind": "Other"},
    applied(DEPLOYMENT, "d") | {"apiVersion": "v1"},
    {},
]


def test_a_wrong_configuration_is_refused_as_the_real_server_refuses_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    follow(
        Real(control_plane, namespace, kind=DEPLOYMENT, name="d"),
        shape(DEPLOYMENT),
        [Step("a", deployment(container("web")))]
        + [Step("a", body) for body in BAD_CONFIGURATIONS]
        + [Step("", deployment(container("web")))],
    )


def random_story(seed: int) -> list[Step]:
    """Return applies of three managers that add, drop, reorder and change items of lists, and other writes."""
    chance = random.Random(seed)
    story = [Step("a", deployment(container("web")))]
    for _ in range(20):
        names = chance.sample("pqrst", chance.randrange(4))
        env = [{"name": name, "value": chance.choice("12")} for name in chance.sample("ABCDE", chance.randrange(5))]
        web = container("web", **({"env": env} if env else {}))
        pods = [web, *(container(name) for name in names)]
        chance.shuffle(pods)
        finalizers = [f"example.com/{each}" for each in chance.sample("uvwxyz", chance.randrange(4))]
        who = chance.choice("abc")
        if chance.random() < 0.25:
            story.append(change(who, {"spec": {"template": {"spec": {"containers": pods}}}}))
        else:
            body = deployment(*pods)
            body["metadata"] |= {"finalizers": finalizers} if finalizers else {}
            story.append(Step(who, body, force=chance.random() < 0.6))
    return story


@pytest.mark.parametrize("seed", range(4))
def test_random_applies_end_as_on_the_real_server(control_plane: ControlPlane, namespace: str, seed: int) -> None:
    story = random_story(seed)
    follow(Real(control_plane, namespace, kind=DEPLOYMENT, name="d"), shape(DEPLOYMENT), story)


@pytest.mark.parametrize("name", STORIES)
def test_applies_and_other_writes_end_as_on_the_real_server(
    control_plane: ControlPlane, namespace: str, name: str
) -> None:
    kind, steps = STORIES[name]
    follow(Real(control_plane, namespace, kind=kind, name=steps[0].body["metadata"]["name"]), shape(kind), steps)


def follow(real: Real, shape: Shape, steps: list[Step]) -> None:
    """Take the steps on the real server, and see after each that the sandbox does the same from the same object."""
    live: JsonObject | None = None
    for step in steps:
        ours = apply_ours(step, real.kind, shape, live) if step.content == APPLY_PATCH else None
        checked = real.try_out(ours, sub=step.sub, new=not live) if isinstance(ours, dict) else None
        answer = take(step, real)
        if isinstance(ours, Refused):
            assert refusal(ours.status) == refusal(answer.json()), step
            continue
        live, before = done(answer), live
        if checked is None:
            ours = track_ours(step, real.kind, shape, before, live)
        else:
            assert content_of(checked) == content_of(live), step
        assert ours is not None
        assert owners(ours) == owners(live), step
    real.ask("DELETE")


def apply_ours(step: Step, kind: Kind, shape: Shape, live: JsonObject | None) -> JsonObject | Refused:
    try:
        return apply(
            copy.deepcopy(live),
            copy.deepcopy(step.body),
            kind=kind,
            shape=shape,
            manager=step.who,
            now=NOW,
            force=step.force,
            subresource=step.sub,
        )
    except Refused as refused:
        return refused


def track_ours(step: Step, kind: Kind, shape: Shape, old: JsonObject | None, new: JsonObject) -> JsonObject:
    """Return `new` with its owners, given only what the client sent about them."""
    sent = step.body.get("metadata", {}).get("managedFields")
    sent_object = new | {"metadata": new["metadata"] | {"managedFields": sent}}
    return track(old, sent_object, kind=kind, shape=shape, manager=step.who, now=NOW, subresource=step.sub, always=True)


def take(step: Step, real: Real) -> Answer:
    query = f"fieldManager={step.who}" + ("&force=true" if step.force else "")
    if step.content == CREATE:
        return real.ask("POST", step.body, query=query)
    return real.ask("PATCH", step.body, sub=step.sub, query=query, content=step.content)


def refusal(status: JsonObject) -> JsonObject:
    """Return a refusal whose parts are in order: the real server has them in that of a Go map, which is none."""
    causes = sorted(status.get("details", {}).get("causes", []), key=json.dumps)
    return status | {"message": sorted(status["message"].splitlines()), "details": {"causes": causes}}


def owners(obj: JsonObject) -> list[JsonObject]:
    """Return the managed fields; of the times only which entries have one."""
    entries = [entry | ({"time": NOW} if "time" in entry else {}) for entry in obj["metadata"].get("managedFields", [])]
    return sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
