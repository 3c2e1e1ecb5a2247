"""Pod garbage collector: deletes pods whose node is lost and whose kubelet therefore cannot.

Follows `pkg/controller/podgc` of Kubernetes 1.36. The pods of a deleted node fail and are deleted after a while in
which the node may return. On a node with the out-of-service taint, terminating pods are deleted at once: with that
taint, people state that the node is really off, and its pods can start elsewhere.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from random import Random
from typing import Any

from haulout.api.objects import RawObject
from haulout.errors import NotFound
from haulout.kube.patches import merge_patch
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.informers import InformerFactory, on_node
from haulout_sandbox.controllers.objects import NODES, PODS, Node, Pod

_QUARANTINE_PERIOD = timedelta(seconds=40)
_OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"


class PodGCController(Controller[str]):
    """Deletes the pods of nodes that are deleted or out of service; its keys are nodes."""

    name = "podgc"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._nodes, self._pods = informers.nodes, informers.pods
        self._missing_since: dict[str, datetime] = {}
        self._nodes.subscribe(self._on_node_change)
        self._pods.subscribe(self._on_pod_change)

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if new is not None and is_out_of_service(new):
            self.queue.add(new.name)
        elif new is None and old is not None:
            self.queue.add(old.name)

    def _on_pod_change(self, _old: Pod | None, new: Pod | None) -> None:
        if new is None or not new.spec.node_name:
            return
        node = self._nodes.get(new.spec.node_name)
        if node is None or (new.is_being_deleted and is_out_of_service(node)):
            self.queue.add(new.spec.node_name)

    async def sync(self, key: str) -> datetime | None:
        node, pods = self._nodes.get(key), on_node(self._pods, key)
        if node is not None or not pods:
            self._missing_since.pop(key, None)
            if node is not None and is_out_of_service(node):
                await self._force_delete(pod for pod in pods if pod.is_being_deleted)
            return None
        since = self._missing_since.setdefault(key, self.clock.now())
        if self.clock.now() < since + _QUARANTINE_PERIOD:
            return since + _QUARANTINE_PERIOD
        if not await self._node_exists(key):
            await self._force_delete(pods, message="node no longer exists")
        return None

    async def _node_exists(self, name: str) -> bool:
        try:
            await self.client.get(NODES, name)
        except NotFound:
            return False
        return True

    async def _force_delete(self, pods: Iterable[Pod], *, message: str = "") -> None:
        async with object_control.WriteBarrier(self._pods) as writes:
            for pod in pods:
                await self._mark_failed(pod, message)
                writes.record_version(await object_control.delete(self.client, PODS, pod, grace=timedelta()))

    async def _mark_failed(self, pod: Pod, message: str) -> None:
        """Set the phase of a pod to Failed before its deletion, so that its controller sees that it no longer runs."""
        if pod.is_finished:
            return
        status: RawObject = {"phase": "Failed"}
        metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version}
        if message:
            # Read the live object as plain JSON: conditions are replaced as a list, and the cached object lacks
            # undeclared fields.
            live = await self.client.get(PODS.with_model(dict[str, Any]), pod.name, namespace=pod.namespace)
            status["conditions"] = _with_disruption_target(live, message, self.clock.now())
            metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
        patch = merge_patch({"metadata": metadata, "status": status})
        await self.client.patch(PODS, pod.name, patch, namespace=pod.namespace, subresource="status")


def is_out_of_service(node: Node) -> bool:
    """Return whether the node has the out-of-service taint."""
    is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    return not is_ready and any(taint.key == _OUT_OF_SERVICE_TAINT for taint in node.spec.taints)


def _with_disruption_target(pod: RawObject, message: str, now: datetime) -> list[RawObject]:
    status_conditions: list[RawObject] = pod.get("status", {}).get("conditions") or []
    condition = conditions.new_condition(
        "DisruptionTarget", is_true=True, reason="DeletionByPodGC", message=f"PodGC: {message}"
    )
    return conditions.upsert(status_conditions, condition, now=now)
