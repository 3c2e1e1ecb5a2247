"""Performs steps: each is a write or two that carry what they rest on, and decides nothing.

A step that finds the world other than it was when it was chosen changes nothing. The next look shows what is there.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import msgspec

from haulout.api.nodemaintenance import (
    FINALIZER,
    NO_OBSERVED_GENERATION,
    NODE_MAINTENANCES,
    NodeMaintenance,
    NodeMaintenanceStatus,
    RecoveryStatus,
)
from haulout.api.objects import Lease, Node
from haulout.api.resources import LEASES, NODES
from haulout.budget.budget_check import BudgetCheck, BudgetExhausted
from haulout.budget.slots import BudgetSlots
from haulout.controllers.nodemaintenance import actions, node_lease
from haulout.controllers.nodemaintenance.events import NodeMaintenanceEventRecorder
from haulout.controllers.nodemaintenance.informers import NodeMaintenanceInformers
from haulout.controllers.nodemaintenance.node_cordon import CORDON_REQUEST
from haulout.controllers.nodemaintenance.observation import NodeMaintenanceDecision, Observation
from haulout.controllers.nodemaintenance.status import build_status, phase_transitions, status_patch
from haulout.controllers.nodemaintenance.workload_informers import WorkloadInformers
from haulout.drain.eviction_requests import RequestOwner
from haulout.drain.manager import DrainManager
from haulout.errors import AdmissionDenied, Conflict, Forbidden, LockHeld, NotFound
from haulout.kube import lease_lock, leases, namespaces
from haulout.kube.client import Client
from haulout.kube.patches import node_patch, strategic_patch

log = logging.getLogger(__name__)

_FORBIDDEN_RETRY_INTERVAL = 60.0  # seconds


class NodeMaintenanceExecutor:
    """Does to the cluster what was decided; `before_drain` hears of a node before its pods leave, and may raise."""

    def __init__(  # noqa: PLR0913 - all that it tells others of
        self,
        client: Client,
        informers: NodeMaintenanceInformers,
        drains: DrainManager,
        events: NodeMaintenanceEventRecorder,
        *,
        lease_namespace: str,
        before_drain: Callable[[str], object],
        slots: BudgetSlots,
        workload_informers: WorkloadInformers,
        budget_view: Callable[[NodeMaintenance], BudgetCheck | None],
    ) -> None:
        self.leased_at: dict[str, datetime] = {}  # by maintenance: when its node's lease was taken or renewed
        self.restored_at: dict[str, datetime] = {}  # by maintenance: when its node had to be taken again
        self._publish_after = 0.0  # by the monotonic clock: the server has refused our conditions of nodes
        self._client = client
        self._informers = informers
        self._drains = drains
        self._events = events
        self._lease_namespace = lease_namespace
        self._before_drain = before_drain
        self._slots = slots
        self._workload_informers = workload_informers
        self._budget_view = budget_view  # of the budget; None: there is none
        self.refused_slots: dict[str, BudgetExhausted] = {}  # by maintenance: why its node got no slot at the last try

    async def execute(self, action: actions.Action, observation: Observation) -> NodeMaintenance:
        """Do it; return the maintenance as it is then."""
        match action:
            case (
                actions.AddFinalizer()
                | actions.WriteInitialStatus()
                | actions.ResetStatus()
                | actions.RemoveFinalizer()
            ):
                return await self._change_maintenance(action, observation)
            case actions.RecordNodeState() | actions.RecordWorkloads() | actions.StartRecovery():
                return await self._record_in_status(action, observation.maintenance)
            case actions.CordonNode():
                return await self._cordon_node(observation, action)
            case actions.AcquireLease():
                return await self._take_lease(observation)
            case actions.ReleaseLease() | actions.PublishConditions() | actions.ReleaseNode() | actions.EndRecovery():
                await self._change_node(action, observation)
            case _:
                await self._change_drain(action, observation)
        return observation.maintenance

    async def write_status(self, maintenance: NodeMaintenance, status: NodeMaintenanceStatus) -> NodeMaintenance:
        """Write the status, if it is another one."""
        change = status_patch(maintenance, status, now=self._client.clock.now())
        return maintenance if change is None else await self._informers.patch(maintenance, change, subresource="status")

    def may_publish(self) -> bool:
        """Tell whether to write conditions of nodes: not for a while after we were told that we may not."""
        return self._client.clock.monotonic() >= self._publish_after

    def forget(self, name: str) -> None:
        """Forget a maintenance."""
        self.restored_at.pop(name, None)
        self.leased_at.pop(name, None)
        self.refused_slots.pop(name, None)

    # The maintenance itself

    async def _change_maintenance(
        self,
        action: actions.AddFinalizer | actions.WriteInitialStatus | actions.ResetStatus | actions.RemoveFinalizer,
        observation: Observation,
    ) -> NodeMaintenance:
        maintenance = observation.maintenance
        match action:
            case actions.AddFinalizer():
                return await self._set_finalizers(maintenance, (*maintenance.metadata.finalizers, FINALIZER))
            case actions.WriteInitialStatus():
                return await self._write_initial_status(observation)
            case actions.ResetStatus():
                self._events.forget(maintenance.name)
                numbered_transitions = phase_transitions(maintenance.status, "", now=observation.now)
                reset_status = NodeMaintenanceStatus(
                    phase_transitions=numbered_transitions, observed_generation=NO_OBSERVED_GENERATION
                )
                return await self.write_status(maintenance, reset_status)
            case actions.RemoveFinalizer():
                return await self._remove_finalizer(maintenance)

    async def _write_initial_status(self, observation: Observation) -> NodeMaintenance:
        update = build_status(observation, NodeMaintenanceDecision(), lease_namespace=self._lease_namespace)
        accepted = await self.write_status(observation.maintenance, update.status)
        self._events.record_status_change(observation.maintenance, update.status)
        return accepted

    async def _remove_finalizer(self, maintenance: NodeMaintenance) -> NodeMaintenance:
        remaining = tuple(finalizer for finalizer in maintenance.metadata.finalizers if finalizer != FINALIZER)
        self._informers.note_ended(maintenance)
        changed = await self._set_finalizers(maintenance, remaining)
        if not remaining:
            self._informers.maintenances.record_delete(changed)
        self._events.record_removed(maintenance)
        return changed

    async def _set_finalizers(self, maintenance: NodeMaintenance, finalizers: tuple[str, ...]) -> NodeMaintenance:
        precondition = {"uid": maintenance.uid, "resourceVersion": maintenance.resource_version}
        return await self._informers.patch(maintenance, {"metadata": precondition | {"finalizers": finalizers or None}})

    async def _record_in_status(
        self,
        action: actions.RecordNodeState | actions.RecordWorkloads | actions.StartRecovery,
        maintenance: NodeMaintenance,
    ) -> NodeMaintenance:
        """Write into the status what was before, or which workloads were evicted, and since when they recover."""
        match action:
            case actions.RecordNodeState(before):
                status = msgspec.structs.replace(maintenance.status, node_before=before)
            case actions.RecordWorkloads(recovery):
                status = msgspec.structs.replace(maintenance.status, recovery=recovery)
            case actions.StartRecovery():
                known = maintenance.status.recovery or RecoveryStatus()
                evicted = await self._workload_informers.evicted_from(maintenance.node, known)
                now = self._client.clock.now().replace(microsecond=0)
                recovery = msgspec.structs.replace(known, start_time=now, workloads=evicted.workloads)
                status = msgspec.structs.replace(maintenance.status, recovery=recovery)
        return await self.write_status(maintenance, status)

    # The node and its lease

    async def _cordon_node(self, observation: Observation, action: actions.CordonNode) -> NodeMaintenance:
        maintenance = observation.maintenance
        if action.is_first:
            confirmed = await self._informers.confirm(maintenance)
            if confirmed.is_being_deleted != maintenance.is_being_deleted:
                return confirmed
            maintenance = confirmed
            if not await self._take_slot(maintenance, _require_node(observation)):
                return maintenance
            self._informers.note_ended(maintenance)
        node = self._informers.nodes.record_write(
            await self._client.patch(NODES, maintenance.node, node_patch(action.change))
        )
        if action.tampering:
            self.restored_at[maintenance.name] = self._client.clock.now()
            self._events.record_restored_cordon(maintenance, node, action.tampering)
        return maintenance

    async def _take_slot(self, maintenance: NodeMaintenance, node: Node) -> bool:
        """Take leave for the change of this version of the node, where there is a budget; return whether it is ours."""
        budget_view = self._budget_view(maintenance)
        if budget_view is None:
            return True
        refused = await self._slots.acquire(node, budget_view.slot_limits(node))
        if refused is None:
            return True
        exhausted = budget_view.exhausted_by(node, refused.slots)
        self.refused_slots[maintenance.name] = replace(exhausted, requeue_at=refused.requeue_at)
        return False

    async def _change_node(
        self,
        action: actions.ReleaseLease | actions.PublishConditions | actions.ReleaseNode | actions.EndRecovery,
        observation: Observation,
    ) -> None:
        match action:
            case actions.ReleaseLease(lease):
                await self._release_lease(lease)
            case actions.PublishConditions():
                await self._publish_conditions(observation.maintenance, action)
            case actions.ReleaseNode(name, change, tampering):
                node = self._informers.nodes.record_write(await self._client.patch(NODES, name, node_patch(change)))
                self._events.record_release(observation.maintenance, node, tampering)
                if self._budget_view(observation.maintenance) is not None:
                    await self._slots.release(node)
            case actions.EndRecovery(name, change):
                node = self._informers.nodes.record_write(await self._client.patch(NODES, name, node_patch(change)))
                self._events.record_recovery_end(
                    observation.maintenance, is_recovered=action.is_recovered, missing=action.missing
                )
                if self._budget_view(observation.maintenance) is not None:
                    await self._slots.release(node)

    async def _publish_conditions(self, maintenance: NodeMaintenance, action: actions.PublishConditions) -> None:
        """Write conditions of a node. Where that is not permitted nothing depends on it, but none is left behind."""
        try:
            changed = await self._client.patch(NODES, action.node, strategic_patch(action.change), subresource="status")
        except (Forbidden, AdmissionDenied) as error:
            if action.is_last:
                raise
            self._publish_after = self._client.clock.monotonic() + _FORBIDDEN_RETRY_INTERVAL
            self._events.record_unpublished_conditions(maintenance, str(error))
        else:
            self._informers.nodes.record_write(changed)

    async def _take_lease(self, observation: Observation) -> NodeMaintenance:
        maintenance = observation.maintenance
        if observation.lease is None:  # another process may have ended the maintenance, and released it
            maintenance = await self._informers.confirm(maintenance)
            if maintenance.is_being_deleted:
                return maintenance
            self._informers.note_ended(maintenance)
        taken = self._informers.leases.record_write(
            await self._acquire_or_get_lease(_require_node(observation), looks_new=observation.lease is None)
        )
        if taken.spec.holder_identity == node_lease.HOLDER:
            self.leased_at[maintenance.name] = self._client.clock.now()
        return maintenance

    async def _acquire_or_get_lease(self, node: Node, *, looks_new: bool) -> Lease:
        """Take the lease, or return whose it is."""
        try:
            return await self._acquire_lease(node, looks_new=looks_new)
        except NotFound:
            await namespaces.create_missing(self._client, self._lease_namespace)
            return await self._acquire_lease(node, looks_new=looks_new)
        except Forbidden as error:  # with a namespace that is deleted goes the Role in it
            advice = f"the installation brings namespace {self._lease_namespace} and a Role in it: apply it again"
            raise Forbidden(f"{error}; {advice}", code=error.code, reason=error.reason) from error
        except LockHeld:  # our copy was too old to show that
            name = node_lease.lease_name(node.name)
            found = await leases.find(self._client, name, namespace=self._lease_namespace)
            if found is None:
                raise
            return found

    async def _acquire_lease(self, node: Node, *, looks_new: bool) -> Lease:
        return await lease_lock.acquire(
            self._client,
            node_lease.lease_name(node.name),
            namespace=self._lease_namespace,
            holder=node_lease.HOLDER,
            duration=node_lease.DURATION,
            owner=node_lease.owner_reference(node),
            assume_absent=looks_new,
        )

    async def _release_lease(self, lease: Lease) -> None:
        """Delete a lease, if it still is as we know it."""
        namespace, version = lease.namespace, lease.resource_version
        try:
            await self._client.delete(LEASES, lease.name, namespace=namespace, uid=lease.uid, resource_version=version)
        except NotFound:
            log.debug("lease %s was gone", lease.key)
        except Conflict:
            found = await leases.find(self._client, lease.name, namespace=lease.namespace)
            if found is not None:
                self._informers.leases.record_write(found)
                return
        self._informers.leases.record_delete(lease)

    # The drain

    async def _change_drain(self, action: actions.Action, observation: Observation) -> None:
        name = observation.maintenance.name
        match action:
            case actions.PrepareDrain(policy, checkpoint):
                self._drains.start(
                    name,
                    _require_node(observation),
                    policy,
                    owner=_request_owner(observation.maintenance),
                    checkpoint=checkpoint,
                    waiting=True,
                    keep_running=True,
                    taints=CORDON_REQUEST.taints,
                )
            case actions.ChangePolicy(policy):
                self._drains.set_policy(name, policy)
            case actions.StartEvictions():
                self._before_drain(observation.maintenance.node)
                self._drains.begin(name)
            case actions.StopDrain():
                await self._drains.stop(name)


def _require_node(observation: Observation) -> Node:
    if observation.node is None:
        raise RuntimeError(f"there is no node {observation.maintenance.node} to do that with")
    return observation.node


def _request_owner(maintenance: NodeMaintenance) -> RequestOwner:
    """Return on whose behalf pods are asked to leave: what was asked goes when the maintenance is deleted."""
    reference = {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "name": maintenance.name,
        "uid": maintenance.uid,
    }
    return RequestOwner(name=f"{NODE_MAINTENANCES.kind}.{maintenance.name}", reference=reference)
