"""What the cluster's own components write is to the byte what anybody else would have written."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Bookmark, RawObject
from haulout.api.resources import PODS as PODS_READ
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, JsonObject, Write
from haulout_sandbox.apiserver.handlers.fast_path import FastPath
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.controllers.objects import OwnedObject, Pod
from haulout_sandbox.event_loops.virtual_time import run_virtual
from haulout_sandbox.nodes import Machine
from support.apiserver.requests import a_node, a_pod
from support.builders.objects import a_workload
from support.faults import seeded_chaos, seeded_restarts
from support.faults.seeded_chaos import digest

POD = "/api/v1/namespaces/shop/pods/a"
PODS = "/api/v1/namespaces/shop/pods"
NODE = "/api/v1/nodes/n1"
SET = "/apis/apps/v1/namespaces/shop/replicasets/a"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

READY = {"type": "Ready", "status": "True"}
SPEC: JsonObject = {"containers": [{"name": "main", "image": "example/main:1"}]}


@pytest.fixture
def missed_requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Return the requests that are to take the lane, and do not."""
    try_handle, missed = FastPath.try_handle, list[Request]()

    def record(self: FastPath, request: Request, *, username: str) -> Any:
        response = try_handle(self, request, username=username)
        if response is None and request.method != "GET":
            missed.append(request)
        return response

    monkeypatch.setattr(FastPath, "try_handle", record)
    return missed


@pytest.mark.parametrize("story", [seeded_chaos.run_scenario, seeded_restarts.run_scenario])
def test_a_history_is_the_same_without_the_lane(
    story: Callable[[int], Awaitable[Sequence[Write]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_lane = digest(run_virtual(story(5)))  # type: ignore[arg-type]  # it is a coroutine
    monkeypatch.setattr(FastPath, "try_handle", lambda *_, **__: None)
    assert digest(run_virtual(story(5))) == with_lane  # type: ignore[arg-type]  # the same


def a_merge(path: str, change: JsonObject) -> Request:
    return Request(method="PATCH", path=path, body=msgspec.json.encode(change), content_type=MERGE)


def a_patch(path: str, *operations: JsonObject) -> Request:
    return Request(method="PATCH", path=path, body=msgspec.json.encode(operations), content_type=JSON_PATCH)


def a_creation(name: str, **more: Any) -> Request:
    meta = {"name": name, "namespace": "shop", "labels": {"app": "cart"}} | more.pop("metadata", {})
    return Request(method="POST", path=PODS, body=msgspec.json.encode({"metadata": meta, "spec": SPEC} | more))


def a_binding(node: str = "n1", **meta: str) -> Request:
    body = {"metadata": {"name": "a"} | meta, "target": {"kind": "Node", "name": node}}
    return Request(method="POST", path=f"{POD}/binding", body=msgspec.json.encode(body))


def a_deletion(path: str = POD, **options: Any) -> Request:
    return Request(method="DELETE", path=path, body=msgspec.json.encode(options))


async def send_all(
    clock: Clock, requests: Sequence[Request], *, trusted: bool, change: Callable[[ApiServer], object]
) -> Any:
    """Return what is answered and what is written, by a server with a pod, a node and a replica set."""
    api = ApiServer(clock, namespaces=["shop"])
    api.put(a_node("n1") | {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other"}]}})
    api.put(a_pod("a") | {"spec": SPEC})
    api.put(a_workload("ReplicaSet", "shop/a", replicas=1))
    change(api)
    transport = api.transport("kubelets", is_trusted=trusted, latency=timedelta())
    responses = [await transport.send(request) for request in requests]
    bodies = [
        response.body if response.content is None else msgspec.json.encode(response.content) for response in responses
    ]
    return bodies, [(response.status, response.headers) for response in responses], digest(api.history)


def change_nothing(_: ApiServer) -> None:
    """Leave all as it is."""


@pytest.mark.parametrize(
    "requests",
    [
        [a_merge(f"{POD}/status", {"status": {"conditions": [READY], "podIP": "10.0.0.1"}})] * 2,
        [a_merge(f"{POD}/status", {"status": {"podIP": "10.0.0.1", "reason": ""}})],
        [a_merge(f"{SET}/status", {"metadata": {"annotations": {"a": "b"}}, "status": {"replicas": 3}})],
        [a_merge(SET, {"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 3}})],
        [
            a_patch(
                f"{NODE}/status",
                {"op": "test", "path": "/status/conditions/0/type", "value": "Ready"},
                {"op": "replace", "path": "/status/conditions/0", "value": READY},
            )
        ],
        [
            a_creation("b"),
            a_creation("c"),
            a_creation("d", metadata={"labels": {"app": "other"}, "finalizers": ["x/y"]}),
        ],
        [a_binding(), a_merge(f"{POD}/status", {"status": {"phase": "Running"}}), a_deletion()],
        [a_deletion(gracePeriodSeconds=0)],
    ],
)
async def test_the_fast_path_answers_and_writes_like_the_usual_path(
    clock: Clock, requests: Sequence[Request], missed_requests: list[Request]
) -> None:
    quick = await send_all(clock, requests, trusted=True, change=change_nothing)
    assert missed_requests == []
    assert await send_all(clock, requests, trusted=False, change=change_nothing) == quick


def with_managed_fields(api: ApiServer) -> None:
    pod = api.get("pods", "a", "shop")
    entry = {"manager": "me", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    api.put(pod | {"metadata": pod["metadata"] | {"managedFields": [entry]}})


def without_grace_period(api: ApiServer) -> None:
    pod = api.get("pods", "a", "shop")
    metadata = {"deletionTimestamp": "2026-01-05T09:00:00Z", "deletionGracePeriodSeconds": 0, "finalizers": ["x/y"]}
    api.put(pod | {"metadata": pod["metadata"] | metadata})


@pytest.mark.parametrize(
    ("requests", "change"),
    [
        ([a_merge("/api/v1/namespaces/shop/pods/none/status", {"status": {"phase": "Running"}})], change_nothing),
        (
            [a_merge(f"{POD}/status", {"metadata": {"resourceVersion": "7"}, "status": {"phase": "Running"}})],
            change_nothing,
        ),
        ([a_merge(f"{POD}/status", {"metadata": {"uid": "other"}, "status": {"phase": "Running"}})], change_nothing),
        (
            [a_merge(f"{POD}/status", {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}})],
            change_nothing,
        ),
        ([a_merge(f"{POD}/status", {"status": {"phase": "Running"}})], with_managed_fields),
        ([a_merge(f"{POD}/status", {"status": {"phase": "Running"}})], without_grace_period),
        ([a_merge(SET, {"spec": {"replicas": 1}}), a_merge(SET, {"spec": {"minReadySeconds": 3}})], change_nothing),
        ([a_merge(SET, {"metadata": {"annotations": {"a": None}}, "spec": {"replicas": 3}})], change_nothing),
        (
            [a_patch(f"{NODE}/status", {"op": "test", "path": "/status/conditions/0/type", "value": "No"})],
            change_nothing,
        ),
        ([a_patch(f"{NODE}/status", {"op": "add", "path": "/status/conditions/-", "value": READY})], change_nothing),
        (
            [a_patch(f"{NODE}/status", {"op": "replace", "path": "/status/conditions/7", "value": READY})],
            change_nothing,
        ),
        ([a_creation("b"), a_creation("b")], change_nothing),
        ([a_creation("b"), a_creation("c", metadata={"namespace": "other"})], change_nothing),
        ([a_creation("b"), a_creation("", metadata={"generateName": "b-"})], change_nothing),
        ([a_creation("b", metadata={"resourceVersion": "7"})], change_nothing),
        ([a_binding(), a_binding("n2")], change_nothing),
        ([a_deletion(preconditions={"uid": "other"})], change_nothing),
        ([a_deletion(gracePeriodSeconds=0), a_deletion()], change_nothing),
        ([a_deletion(NODE)], change_nothing),
    ],
)
async def test_refused_and_rare_requests_take_the_usual_path(
    clock: Clock, requests: Sequence[Request], change: Callable[[ApiServer], object]
) -> None:
    quick = await send_all(clock, requests, trusted=True, change=change)
    assert await send_all(clock, requests, trusted=False, change=change) == quick


async def test_pods_of_one_template_follow_a_priority_class_that_comes_later(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["shop"])
    transport = api.transport("controllers", is_trusted=True, latency=timedelta())
    for name in ("a", "b"):
        await transport.send(a_creation(name))
    priority_class = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "usual"}}
    api.put(priority_class | {"value": 7, "globalDefault": True})
    for name in ("c", "d"):
        await transport.send(a_creation(name))
    assert [pod["spec"]["priority"] for pod in api.objects("pods")] == [0, 0, 7, 7]


async def test_webhooks_apply_to_writes_of_trusted_components(clock: Clock) -> None:
    cluster = Cluster(clock, seed=1)
    webhook_requests: list[str] = []

    async def refuse(review: JsonObject) -> JsonObject:
        request = review["request"]
        webhook_requests.append(
            f"{request['userInfo']['username']} {request['operation']} {request['resource']['resource']}"
        )
        return review | {"response": {"uid": request["uid"], "allowed": False}}

    cluster.api.webhooks.serve("https://guard.example/pods", refuse)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    hook = {
        "name": "pods.guard.example",
        "clientConfig": {"url": "https://guard.example/pods"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    cluster.kubelets.add(Machine(name="n1"))
    async with cluster.running():
        cluster.api.put(kind | {"metadata": {"name": "guard"}, "webhooks": [hook]})
        cluster.api.put(a_workload("ReplicaSet", "shop/cart", replicas=1))
        await clock.sleep(timedelta(seconds=1))
    assert webhook_requests
    assert set(webhook_requests) == {"controllers CREATE pods"}
    assert cluster.api.objects("pods") == []


class MismatchedPod(msgspec.Struct):
    """A pod that no pod is."""

    spec: int


@pytest.mark.parametrize("model", [Pod, OwnedObject, RawObject, MismatchedPod])
async def test_trusted_components_get_the_content_that_others_read(clock: Clock, model: type[Any]) -> None:
    api = ApiServer(clock, namespaces=["shop"])
    clients = [
        Client(api.transport(str(trusted), is_trusted=trusted), clock=clock, random=Random(1))
        for trusted in (True, False)
    ]

    async def received(client: Client) -> list[Any]:
        async with client.watch(
            PODS_READ.with_model(model), initial_list=True, watch_timeout=timedelta(seconds=70)
        ) as events:
            return [event async for event in events]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(received(client)) for client in clients]
        for ready in (True, False):
            api.put(a_pod("a", ready=ready))
            await clock.sleep(timedelta(seconds=1))
        api.remove("pods", "a", "shop")
    first, second = (task.result() for task in tasks)
    assert first == second
    changes = [event.type for event in first if not isinstance(event, Bookmark)]
    assert changes == ["ADDED", "MODIFIED", "DELETED"]


async def test_faults_affect_the_events_of_trusted_components(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["shop"])
    transport = api.transport("view", is_trusted=True)
    client = Client(transport, clock=clock, random=Random(1))
    transport.faults.duplicate(times=None)
    async with client.watch(PODS_READ, watch_timeout=timedelta(seconds=3)) as events:
        api.put(a_pod("a"))
        assert [event.object.name async for event in events if not isinstance(event, Bookmark)] == ["a", "a"]
