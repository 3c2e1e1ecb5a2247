"""Executes the actions of NodeMaintenances. An action is one or two writes; this module decides nothing.

Each write carries a precondition (UID, resourceVersion) for what the decision was based on. If the object has changed
since, the write changes nothing, and the next reconcile observes the new state.
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
from haulout.controllers.nodemaintenance.events import NodeMaintenanceEvents
from haulout.controllers.nodemaintenance.informers import NodeMaintenanceInformers, WorkloadInformers
from haulout.controllers.nodemaintenance.node_cordon import CORDON_REQUEST
from haulout.controllers.nodemaintenance.observation import NodeMaintenanceDecision, Observation
from haulout.controllers.nodemaintenance.status import build_status, phase_transitions, status_patch
from haulout.drain.eviction_requests import RequestOwner
from haulout.drain.manager import DrainManager
from haulout.errors import AdmissionDenied, Conflict, Forbidden, LockHeld, NotFound
from haulout.kube import namespaces
from haulout.kube.client import Client
from haulout.kube.leases import acquire
from haulout.kube.patches import node_patch, strategic_patch

log = logging.getLogger(__name__)

_FORBIDDEN_RETRY_INTERVAL = 60.0  # seconds


class NodeMaintenanceExecutor:
    """Executes actions.

    `before_drain` is called with the name of a node before its first eviction, and may raise.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        client: Client,
        informers: NodeMaintenanceInformers,
        drains: DrainManager,
        events: NodeMaintenanceEvents,
        *,
        lease_namespace: str,
        before_drain: Callable[[str], object],
        slots: BudgetSlots,
        workload_informers: WorkloadInformers,
        budget_view: Callable[[NodeMaintenance], BudgetCheck | None],
    ) -> None:
        self.leased_at: dict[str, datetime] = {}  # by maintenance: when its node's lease was acquired or renewed
        self.restored_at: dict[str, datetime] = {}  # by maintenance: when its node's cordon was last restored
        self._publish_after = 0.0  # monotonic; set after the API server refused our node conditions
        self._client = client
        self._informers = informers
        self._drains = drains
        self._events = events
        self._lease_namespace = lease_namespace
        self._before_drain = before_drain
        self._slots = slots
        self._workload_informers = workload_informers
        self._budget_view = budget_view  # returns None if there is no budget
        self.refused_slots: dict[str, BudgetExhausted] = {}  # by maintenance: why the last request for a slot failed

    async def execute(self, action: actions.Action, observation: Observation) -> NodeMaintenance:
        """Execute the action; return the updated maintenance."""
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
        """Patch the status if it differs; return the updated maintenance."""
        change = status_patch(maintenance, status, now=self._client.clock.now())
        return maintenance if change is None else await self._informers.patch(maintenance, change, subresource="status")

    def may_publish(self) -> bool:
        """Return whether to write node conditions. False for a minute after the API server refused that."""
        return self._client.clock.monotonic() >= self._publish_after

    def forget(self, name: str) -> None:
        self.restored_at.pop(name, None)
        self.leased_at.pop(name, None)
        self.refused_slots.pop(name, None)

    # The NodeMaintenance object

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
        # Finalizers of others stay, and so does the object.
        remaining = tuple(finalizer for finalizer in maintenance.metadata.finalizers if finalizer != FINALIZER)
        self._informers.note_ended(maintenance)
        changed = await self._set_finalizers(maintenance, remaining)
        if not remaining:
            self._informers.maintenances.record_delete(changed)
        self._events.record_removed(maintenance)
        return changed

    async def _set_finalizers(self, maintenance: NodeMaintenance, finalizers: tuple[str, ...]) -> NodeMaintenance:
        # A merge patch replaces the list of finalizers (RFC 7386). Without the precondition, those that others added
        # since would be lost.
        return await self._informers.patch(
            maintenance, {"metadata": maintenance.preconditions | {"finalizers": finalizers or None}}
        )

    async def _record_in_status(
        self,
        action: actions.RecordNodeState | actions.RecordWorkloads | actions.StartRecovery,
        maintenance: NodeMaintenance,
    ) -> NodeMaintenance:
        """Record the node's state, its workloads, or the start of recovery in the status."""
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
            # The cached maintenance may have been deleted. Nobody would release a node that is cordoned for it now.
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
        """Acquire a budget slot for this version of the node; return whether the node may be cordoned."""
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
        """Write node conditions.

        They are optional: a refusal is only recorded, unless conditions would be left behind.
        """
        try:
            # A strategic merge patch merges the conditions of a Node by type (patchMergeKey in
            # staging/src/k8s.io/api/core/v1/types.go), so those of the kubelet stay.
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
        if observation.lease is None:  # another replica may have ended the maintenance and released the lease
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
        """Acquire the lease, or return the lease of its current holder."""
        try:
            return await self._acquire_lease(node, looks_new=looks_new)
        except NotFound:
            # The admission plugin NamespaceLifecycle answers 404 to a create in a namespace that does not exist
            # (staging/src/k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go).
            await namespaces.create_missing(self._client, self._lease_namespace)
            return await self._acquire_lease(node, looks_new=looks_new)
        except Forbidden as error:  # deleting the namespace deletes the Role in it, too
            advice = f"apply the installation again: it contains namespace {self._lease_namespace} and the Role in it"
            raise Forbidden(f"{error}; {advice}", code=error.code, reason=error.reason) from error
        except LockHeld:  # the cached lease was stale
            name = node_lease.lease_name(node.name)
            found = await self._client.find(LEASES, name, namespace=self._lease_namespace)
            if found is None:
                raise
            return found

    async def _acquire_lease(self, node: Node, *, looks_new: bool) -> Lease:
        return await acquire(
            self._client,
            node_lease.lease_name(node.name),
            namespace=self._lease_namespace,
            holder=node_lease.HOLDER,
            duration=node_lease.DURATION,
            owner=node_lease.owner_reference(node),
            assume_absent=looks_new,
        )

    async def _release_lease(self, lease: Lease) -> None:
        """Delete the lease if it is unchanged. If it has changed, only update the cache."""
        namespace, version = lease.namespace, lease.resource_version
        try:
            await self._client.delete(LEASES, lease.name, namespace=namespace, uid=lease.uid, resource_version=version)
        except NotFound:
            log.debug("lease %s was already deleted", lease.key)
        except Conflict:
            found = await self._client.find(LEASES, lease.name, namespace=lease.namespace)
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
        raise RuntimeError(f"node {observation.maintenance.node} does not exist")
    return observation.node


def _request_owner(maintenance: NodeMaintenance) -> RequestOwner:
    """Return the owner of EvictionRequests, so that they are garbage-collected with the maintenance."""
    reference = {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "name": maintenance.name,
        "uid": maintenance.uid,
    }
    return RequestOwner(name=f"{NODE_MAINTENANCES.kind}.{maintenance.name}", reference=reference)
