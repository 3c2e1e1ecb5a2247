"""Deletion of Machines: pre-drain hooks, drain, pre-terminate hooks, termination of the infrastructure, the Node.

Each pass goes through the steps in order and stops at the first incomplete one, which the condition `Deleting` names.
Steps are idempotent and are repeated in each pass; only the start of the drain is recorded. Hooks have no timeout. A
Machine without a node, the last Machine of a control plane, and Machines of a cluster in deletion are not drained and
have no pre-drain hooks; nor is their Node deleted.

The sandbox attaches no volumes to nodes, so the step between drain and termination completes at once.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from haulout.api.clusterapi import PRE_DRAIN_HOOK_PREFIX
from haulout.api.objects import RawObject
from haulout.errors import KubeError, NotFound, TooManyRequests
from haulout_sandbox.clusterapi.cluster_cache import ClusterCache
from haulout_sandbox.clusterapi.drain import DrainDecision, decide_drain, rules_for
from haulout_sandbox.clusterapi.infrastructure_provider import InfrastructureProvider
from haulout_sandbox.clusterapi.objects import Cluster, ClusterApiResources, Machine
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.controllers.objects import NAMESPACES, NODES, PODS, Node

FINALIZER = "machine.cluster.x-k8s.io"
PRE_TERMINATE_HOOK_PREFIX = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/"
EXCLUDE_NODE_DRAINING = "machine.cluster.x-k8s.io/exclude-node-draining"
_DRAIN_RETRY_INTERVAL = timedelta(seconds=20)
_NODE_DELETE_RETRY_INTERVAL = timedelta(seconds=2)

UpdateStatus = Callable[..., Awaitable[None]]


@dataclass(frozen=True, slots=True)
class BlockedStep:
    """An incomplete step; it is checked again at that instant, or after a change."""

    retry_at: datetime | None


class MachineDeletion:
    """Takes Machines through the steps of their deletion."""

    def __init__(
        self,
        informers: InformerFactory,
        resources: ClusterApiResources,
        cluster_cache: ClusterCache,
        *,
        update_status: UpdateStatus,
    ) -> None:
        self._client = informers.client
        self._clock = informers.client.clock
        self._resources = resources
        self._cluster_cache = cluster_cache
        self._update_status = update_status
        self._machines = informers.informer_for(resources.machines)
        self._rules = informers.informer_for(resources.machine_drain_rules)

    async def reconcile_delete(
        self, machine: Machine, cluster: Cluster | None, provider: InfrastructureProvider
    ) -> datetime | None:
        """Take a Machine as far as possible; return when to check again."""
        if FINALIZER not in machine.metadata.finalizers:
            return None
        handles_node = not self._skip_node_reason(machine, cluster)
        steps: list[Callable[[], Awaitable[BlockedStep | None]]] = [
            *(
                [partial(self._await_hooks, machine, PRE_DRAIN_HOOK_PREFIX, "WaitingForPreDrainHook")]
                if handles_node
                else []
            ),
            *([partial(self._drain, machine, cluster)] if handles_node else []),
            partial(self._await_hooks, machine, PRE_TERMINATE_HOOK_PREFIX, "WaitingForPreTerminateHook"),
            partial(self._terminate, machine, provider),
            *([partial(self._delete_node, machine)] if handles_node else []),
        ]
        for step in steps:
            blocked = await step()
            if blocked is not None:
                return blocked.retry_at
        finalizers = [finalizer for finalizer in machine.metadata.finalizers if finalizer != FINALIZER]
        await object_control.patch(
            self._client, self._resources.machines, machine, {"metadata": {"finalizers": finalizers}}
        )
        return None

    def _skip_node_reason(self, machine: Machine, cluster: Cluster | None) -> str:
        """Return why its Node is not drained and deleted, or an empty string."""
        if not machine.node:
            return "it has no node"
        if cluster is None or cluster.is_being_deleted:
            return "its cluster is being deleted"
        others = (
            other
            for other in self._machines.all()
            if other.cluster_key == machine.cluster_key and other.uid != machine.uid
        )
        if machine.is_control_plane and not any(
            other.is_control_plane and not other.is_being_deleted for other in others
        ):
            return "it is the last of the control plane"
        return ""

    async def _await_hooks(self, machine: Machine, prefix: str, reason: str) -> BlockedStep | None:
        hooks = sorted(annotation for annotation in machine.metadata.annotations if annotation.startswith(prefix))
        if not hooks:
            return None
        await self._report_waiting(machine, reason, f"waits for its hooks: {', '.join(hooks)}")
        return BlockedStep(None)

    async def _drain(self, machine: Machine, cluster: Cluster | None) -> BlockedStep | None:
        """Drain the node; None: drained, not wanted, or timed out."""
        node = self._cluster_cache.get_node(machine.cluster_key, name=machine.node)
        if node is None or EXCLUDE_NODE_DRAINING in machine.metadata.annotations:
            return None
        started_at = _drain_started_at(machine)
        now, limit = self._clock.now(), machine.drain_timeout
        if started_at is not None and limit is not None and now >= started_at + limit:
            return None
        decision = await self._decide_drain(machine, cluster, node)
        if decision.is_done:
            return None
        status = {"deletion": {"nodeDrainStartTime": conditions.format_time(started_at or now)}}
        await self._report_waiting(machine, "DrainingNode", decision.message, **status)
        await self._evict_pods(machine, node, decision)
        retry_at = now + _DRAIN_RETRY_INTERVAL
        return BlockedStep(retry_at if limit is None else min(retry_at, (started_at or now) + limit))

    async def _decide_drain(self, machine: Machine, cluster: Cluster | None, node: Node) -> DrainDecision:
        client = self._cluster_cache.client(machine.cluster_key)
        if client is None:
            return DrainDecision()
        rules = rules_for(machine, cluster, self._rules.all())
        pods = (await client.list(PODS, fields=f"spec.nodeName={node.name}")).items
        namespaces = (await client.list(NAMESPACES)).items if rules else ()
        return decide_drain(
            pods,
            rules,
            {element.name: element.metadata.labels for element in namespaces},
            is_unreachable=any(
                element.type == "Ready" and element.status == "Unknown" for element in node.status.conditions
            ),
            now=self._clock.now(),
        )

    async def _evict_pods(self, machine: Machine, node: Node, decision: DrainDecision) -> None:
        client = self._cluster_cache.client(machine.cluster_key)
        if client is None:
            return
        if not node.spec.unschedulable:
            await object_control.patch(client, NODES, node, {"spec": {"unschedulable": True}})
        for pod in decision.to_evict:
            with suppress(TooManyRequests, NotFound):  # refused by a PodDisruptionBudget, or already deleted
                await client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)

    async def _terminate(self, machine: Machine, provider: InfrastructureProvider) -> BlockedStep | None:
        retry_at = await provider.terminate(machine)
        if retry_at is None:
            return None
        await self._report_waiting(machine, "WaitingForInfrastructureDeletion")
        return BlockedStep(retry_at)

    async def _delete_node(self, machine: Machine) -> BlockedStep | None:
        await self._report_waiting(machine, "DeletingNode")
        try:
            await self._cluster_cache.delete_node(machine.cluster_key, machine.node)
        except KubeError:
            limit, deleted_at = machine.node_deletion_timeout, machine.metadata.deletion_timestamp
            now = self._clock.now()
            if limit is None or deleted_at is None or now < deleted_at + limit:
                return BlockedStep(now + _NODE_DELETE_RETRY_INTERVAL)
        return None

    async def _report_waiting(self, machine: Machine, reason: str, message: str = "", **fields: RawObject) -> None:
        deleting = conditions.new_condition("Deleting", is_true=True, reason=reason, message=message)
        await self._update_status(machine, {"phase": "Deleting", **fields}, deleting)


def _drain_started_at(machine: Machine) -> datetime | None:
    text = (machine.status.get("deletion") or {}).get("nodeDrainStartTime")
    return None if text is None else conditions.parse_time(text)
