"""How Machines leave: hooks before the drain, the drain, hooks before the end, the end of what it ran on, its Node.

Each look goes through the steps in their order and stops at the first that is not done, which the condition `Deleting`
names. What was done is done again at the next look and found to be so: nothing has to be remembered but when the drain
began. Hooks are never given up. A Machine without a node, the last of a control plane, and those of a cluster that is
being deleted itself are not drained and wait for no hook before that; nor is their Node deleted.

No volume of the sandbox is attached to a node, so the step between drain and end passes at once.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from haulout.errors import KubeError, NotFound, TooManyRequests
from haulout.kinds.clusterapi import PRE_DRAIN_HOOKS
from haulout.kube.objects import RawObject
from haulout_sandbox.clusterapi.drains import Plan, planned, rules_for
from haulout_sandbox.clusterapi.infrastructure import Infrastructure
from haulout_sandbox.clusterapi.objects import Cluster, Kinds, Machine
from haulout_sandbox.clusterapi.remotes import Remotes
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.caches import Caches
from haulout_sandbox.controllers.objects import NAMESPACES, NODES, PODS, Node

FINALIZER = "machine.cluster.x-k8s.io"
PRE_TERMINATE_HOOKS = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/"
NOT_DRAINED = "machine.cluster.x-k8s.io/exclude-node-draining"
_DRAINED_AGAIN = timedelta(seconds=20)
_DELETED_AGAIN = timedelta(seconds=2)

Tell = Callable[..., Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Held:
    """A step that is not done; it is looked at again by then, or when something changes."""

    until: datetime | None


class Leaving:
    """Takes Machines through the steps of their deletion."""

    def __init__(self, caches: Caches, kinds: Kinds, remotes: Remotes, *, tell: Tell) -> None:
        self._client = caches.client
        self._clock = caches.client.clock
        self._kinds = kinds
        self._remotes = remotes
        self._tell = tell
        self._machines = caches.of(kinds.machines)
        self._rules = caches.of(kinds.drain_rules)

    async def go_on(self, machine: Machine, cluster: Cluster | None, runs_on: Infrastructure) -> datetime | None:
        """Take a Machine as far as it goes; return when to look again."""
        if FINALIZER not in machine.metadata.finalizers:
            return None
        about_node = not self._node_is_left(machine, cluster)
        steps: list[Callable[[], Awaitable[Held | None]]] = [
            *([partial(self._await_hooks, machine, PRE_DRAIN_HOOKS, "WaitingForPreDrainHook")] if about_node else []),
            *([partial(self._drain, machine, cluster)] if about_node else []),
            partial(self._await_hooks, machine, PRE_TERMINATE_HOOKS, "WaitingForPreTerminateHook"),
            partial(self._end, machine, runs_on),
            *([partial(self._delete_node, machine)] if about_node else []),
        ]
        for step in steps:
            held = await step()
            if held is not None:
                return held.until
        finalizers = [it for it in machine.metadata.finalizers if it != FINALIZER]
        await edge.change(self._client, self._kinds.machines, machine, {"metadata": {"finalizers": finalizers}})
        return None

    def _node_is_left(self, machine: Machine, cluster: Cluster | None) -> str:
        """Return why nothing is done about its Node; empty if it is."""
        if not machine.node:
            return "it has no node"
        if cluster is None or cluster.deleting:
            return "its cluster is being deleted"
        others = (it for it in self._machines.all() if it.cluster == machine.cluster and it.uid != machine.uid)
        if machine.is_control_plane and not any(it.is_control_plane and not it.deleting for it in others):
            return "it is the last of the control plane"
        return ""

    async def _await_hooks(self, machine: Machine, prefix: str, reason: str) -> Held | None:
        hooks = sorted(it for it in machine.metadata.annotations if it.startswith(prefix))
        if not hooks:
            return None
        await self._wait(machine, reason, f"waits for its hooks: {', '.join(hooks)}")
        return Held(None)

    async def _drain(self, machine: Machine, cluster: Cluster | None) -> Held | None:
        """Empty the node; None: it is empty, or that is not wanted, or has taken too long."""
        node = self._remotes.node(machine.cluster, name=machine.node)
        if node is None or NOT_DRAINED in machine.metadata.annotations:
            return None
        began = _drain_began(machine)
        now, limit = self._clock.now(), machine.drain_timeout
        if began is not None and limit is not None and now >= began + limit:
            return None
        plan = await self._plan(machine, cluster, node)
        if plan.is_done:
            return None
        status = {"deletion": {"nodeDrainStartTime": conditions.stamp(began or now)}}
        await self._wait(machine, "DrainingNode", plan.message, **status)
        await self._empty(machine, node, plan)
        again = now + _DRAINED_AGAIN
        return Held(again if limit is None else min(again, (began or now) + limit))

    async def _plan(self, machine: Machine, cluster: Cluster | None, node: Node) -> Plan:
        client = self._remotes.client(machine.cluster)
        if client is None:
            return Plan()
        rules = rules_for(machine, cluster, self._rules.all())
        pods = (await client.list(PODS, fields=f"spec.nodeName={node.name}")).items
        namespaces = (await client.list(NAMESPACES)).items if rules else ()
        return planned(
            pods,
            rules,
            {it.name: it.metadata.labels for it in namespaces},
            is_silent=any(it.type == "Ready" and it.status == "Unknown" for it in node.status.conditions),
            now=self._clock.now(),
        )

    async def _empty(self, machine: Machine, node: Node, plan: Plan) -> None:
        client = self._remotes.client(machine.cluster)
        if client is None:
            return
        if not node.spec.unschedulable:
            await edge.change(client, NODES, node, {"spec": {"unschedulable": True}})
        for pod in plan.evicted:
            with suppress(TooManyRequests, NotFound):  # its budget does not allow it now, or it is gone
                await client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)

    async def _end(self, machine: Machine, runs_on: Infrastructure) -> Held | None:
        again = await runs_on.ended(machine)
        if again is None:
            return None
        await self._wait(machine, "WaitingForInfrastructureDeletion")
        return Held(again)

    async def _delete_node(self, machine: Machine) -> Held | None:
        await self._wait(machine, "DeletingNode")
        try:
            await self._remotes.delete(machine.cluster, machine.node)
        except KubeError:
            limit, deleted = machine.node_deletion_timeout, machine.metadata.deletion_timestamp
            now = self._clock.now()
            if limit is None or deleted is None or now < deleted + limit:
                return Held(now + _DELETED_AGAIN)
        return None

    async def _wait(self, machine: Machine, reason: str, message: str = "", **more: RawObject) -> None:
        deleting = conditions.made("Deleting", holds=True, reason=reason, message=message)
        await self._tell(machine, {"phase": "Deleting", **more}, deleting)


def _drain_began(machine: Machine) -> datetime | None:
    text = (machine.status.get("deletion") or {}).get("nodeDrainStartTime")
    return None if text is None else conditions.instant(text)
