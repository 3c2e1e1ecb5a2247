"""Pods whose node is lost: nobody is left who could end them, so they are ended here.

Follows `pkg/controller/podgc` of Kubernetes 1.36. The pods of a node that was deleted fail and go, after a while in
which the node may come back. Those of a node that is declared out of service go as soon as they are asked to: that is
how people tell that a node is really off, and its pods can start elsewhere.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from random import Random
from typing import Any

from haulout.errors import NotFound
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.caches import Caches, on_node
from haulout_sandbox.controllers.objects import NODES, PODS, Node, Pod

_QUARANTINE = timedelta(seconds=40)
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class PodCollector(Controller[str]):
    """Ends the pods of nodes that are gone or out of service; its keys are nodes."""

    name = "podgc"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._nodes, self._pods = caches.nodes, caches.pods
        self._missing_since: dict[str, datetime] = {}
        self._nodes.subscribe(self._note_node)
        self._pods.subscribe(self._note_pod)

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None and is_out_of_service(new):
            self.queue.add(new.name)
        elif new is None and old is not None:
            self.queue.add(old.name)

    def _note_pod(self, _old: Pod | None, new: Pod | None) -> None:
        if new is None or not new.spec.node_name:
            return
        node = self._nodes.get(new.spec.node_name)
        if node is None or (new.deleting and is_out_of_service(node)):
            self.queue.add(new.spec.node_name)

    async def sync(self, key: str) -> datetime | None:
        """End the pods of a node that is lost."""
        node, pods = self._nodes.get(key), on_node(self._pods, key)
        if node is not None or not pods:
            self._missing_since.pop(key, None)
            if node is not None and is_out_of_service(node):
                await self._end(pod for pod in pods if pod.deleting)
            return None
        since = self._missing_since.setdefault(key, self.clock.now())
        if self.clock.now() < since + _QUARANTINE:
            return since + _QUARANTINE
        if not await self._exists(key):
            await self._end(pods, why="node no longer exists")
        return None

    async def _exists(self, name: str) -> bool:
        try:
            await self.client.get(NODES, name)
        except NotFound:
            return False
        return True

    async def _end(self, pods: Iterable[Pod], *, why: str = "") -> None:
        async with edge.Writes(self._pods) as writes:
            for pod in pods:
                await self._fail(pod, why)
                writes.at(await edge.delete(self.client, PODS, pod, grace=timedelta()))

    async def _fail(self, pod: Pod, why: str) -> None:
        """Let a pod end before it goes: who counts on its outcome must learn that it is not running any more."""
        if pod.finished:
            return
        status: RawObject = {"phase": "Failed"}
        metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version}
        if why:
            # Read anew and whole: conditions are replaced as a list, and a cached one lacks the fields we do not know.
            fresh = await self.client.get(PODS.of(dict[str, Any]), pod.name, namespace=pod.namespace)
            status["conditions"] = _with_disruption(fresh, why, self.clock.now())
            metadata["resourceVersion"] = fresh["metadata"]["resourceVersion"]
        patch = merge_patch({"metadata": metadata, "status": status})
        await self.client.patch(PODS, pod.name, patch, namespace=pod.namespace, subresource="status")


def is_out_of_service(node: Node) -> bool:
    """Tell whether people have declared that a node is off."""
    ready = any(it.type == "Ready" and it.status == "True" for it in node.status.conditions)
    return not ready and any(taint.key == _OUT_OF_SERVICE for taint in node.spec.taints)


def _with_disruption(pod: RawObject, why: str, now: datetime) -> list[RawObject]:
    told: list[RawObject] = pod.get("status", {}).get("conditions") or []
    condition = conditions.made("DisruptionTarget", holds=True, reason="DeletionByPodGC", message=f"PodGC: {why}")
    return conditions.put(told, condition, now=now)
