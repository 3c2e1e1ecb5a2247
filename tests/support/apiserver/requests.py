"""Requests to the sandbox's API server, and sample objects (all in the namespace shop), for its own tests."""

from typing import Any

import msgspec

from haulout.kube.transport import Request, Response, Transport
from haulout_sandbox.apiserver import JsonObject
from support.builders import objects
from support.builders.objects import SHOP

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/shop/pods"
CONFIG_MAPS = "/api/v1/namespaces/shop/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
INITIAL = {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


async def request_json(
    api: Transport, method: str, path: str, body: Any = None, *, kind: str = "application/json", **query: str
) -> tuple[int, Any]:
    """Send a request; return status and decoded body."""
    answer = await send(api, method, path, body, kind=kind, **query)
    return answer.status, msgspec.json.decode(answer.body)


async def send(
    api: Transport, method: str, path: str, body: Any = None, *, kind: str = "application/json", **query: str
) -> Response:
    content = None if body is None else msgspec.json.encode(body)
    request = Request(method=method, path=path, body=content, content_type=kind, query=tuple(query.items()))
    return await api.send(request)


async def patch(api: Transport, path: str, *operations: JsonObject) -> tuple[int, Any]:
    return await request_json(api, "PATCH", path, operations, kind=JSON_PATCH)


async def merge(api: Transport, path: str, **changes: Any) -> tuple[int, Any]:
    return await request_json(api, "PATCH", path, changes, kind=MERGE_PATCH)


async def watch(api: Transport, path: str, **query: str) -> list[tuple[str, JsonObject]]:
    """Watch for `timeoutSeconds`, one by default; return the events."""
    answer = await send(api, "GET", path, **{"watch": "1", "timeoutSeconds": "1", **query})
    events = [msgspec.json.decode(line) for line in answer.body.splitlines()]
    return [(event["type"], event["object"]) for event in events]


def event_names(events: list[tuple[str, JsonObject]]) -> list[tuple[str, str]]:
    return [(kind, obj["metadata"].get("name", "")) for kind, obj in events]


def a_node(name: str = "n1", **spec: Any) -> JsonObject:
    return objects.a_node(name, **spec)


def a_config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> JsonObject:
    return objects.a_config_map(f"{SHOP}/{name}", labels=labels, **data)


def a_lease(name: str = "lock", **meta: Any) -> JsonObject:
    lease = objects.a_lease(f"{SHOP}/{name}")
    return lease | {"metadata": lease["metadata"] | meta}


def a_pod(name: str = "cart-0", *, phase: str = "Running", ready: bool = True, node: str = "n1") -> JsonObject:
    pod = objects.a_pod(f"{SHOP}/{name}", on=node, labels={"app": "cart"}, grace=20)
    return pod.running(ready=ready).with_status(phase=phase)


def a_pdb(name: str = "cart", *, selector: Any = None, policy: str = "", **status: Any) -> JsonObject:
    budget = objects.a_pdb(f"{SHOP}/{name}", app="cart", minAvailable=1)
    if selector is not None:
        budget = budget.with_spec(selector=selector)
    if policy:
        budget = budget.with_spec(unhealthyPodEvictionPolicy=policy)
    return budget.with_status(**{"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, **status})


def an_eviction(name: str = "cart-0", **options: Any) -> JsonObject:
    meta = {"name": name, "namespace": "shop"}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
