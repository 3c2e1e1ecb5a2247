"""Performs steps: each is a write or two that carry what they rest on, and decides nothing.

A step that finds the world other than it was when it was chosen changes nothing. The next look shows what is there.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import msgspec

from haulout.budget.room import Crowded, View
from haulout.budget.slots import Slots
from haulout.drain.evictionrequests import Owner
from haulout.drain.keeper import Drains
from haulout.errors import AdmissionDenied, Conflict, Forbidden, LockHeld, NotFound
from haulout.kube import leases, locks, namespaces
from haulout.kube.client import Client
from haulout.kube.objects import Lease, Node
from haulout.kube.patches import node_patch, strategic_patch
from haulout.kube.resources import LEASES, NODES
from haulout.maintenance import lease as node_lease
from haulout.maintenance import steps
from haulout.maintenance.holding import WISHES
from haulout.maintenance.resource import (
    FINALIZER,
    NODE_MAINTENANCES,
    UNOBSERVED,
    NodeMaintenance,
    RecoveryStatus,
    Status,
)
from haulout.maintenance.seen import Decision, Seen
from haulout.maintenance.sight import Sight
from haulout.maintenance.status import change_of, describe, transitions
from haulout.maintenance.telling import Teller
from haulout.maintenance.workloads import Workloads

log = logging.getLogger(__name__)

_FORBIDDEN_FOR = 60.0  # seconds


class Performer:
    """Does to the cluster what was decided; `before_drain` hears of a node before its pods leave, and may raise."""

    def __init__(  # noqa: PLR0913 - all that it tells others of
        self,
        client: Client,
        sight: Sight,
        drains: Drains,
        teller: Teller,
        *,
        lease_namespace: str,
        before_drain: Callable[[str], object],
        slots: Slots,
        workloads: Workloads,
        view: Callable[[NodeMaintenance], View | None],
    ) -> None:
        self.leased_at: dict[str, datetime] = {}  # by maintenance: when its node's lease was taken or renewed
        self.restored_at: dict[str, datetime] = {}  # by maintenance: when its node had to be taken again
        self._publishes_from = 0.0  # by the monotonic clock: the server has refused our conditions of nodes
        self._client = client
        self._sight = sight
        self._drains = drains
        self._teller = teller
        self._lease_namespace = lease_namespace
        self._before_drain = before_drain
        self._slots = slots
        self._workloads = workloads
        self._view = view  # of the budget; None: there is none
        self.refused: dict[str, Crowded] = {}  # by maintenance: why its node got no slot at the last try

    async def perform(self, step: steps.Step, seen: Seen) -> NodeMaintenance:
        """Do it; return the maintenance as it is then."""
        match step:
            case steps.AddFinalizer() | steps.Accept() | steps.StartOver() | steps.RemoveFinalizer():
                return await self._change_maintenance(step, seen)
            case steps.RecordNode() | steps.RecordWorkloads() | steps.BeginRecovery():
                return await self._record(step, seen.maintenance)
            case steps.Hold():
                return await self._hold(seen, step)
            case steps.TakeLease():
                return await self._take_lease(seen)
            case steps.ReleaseLease() | steps.Publish() | steps.Release() | steps.EndRecovery():
                await self._change_node(step, seen)
            case _:
                await self._change_drain(step, seen)
        return seen.maintenance

    async def write_status(self, maintenance: NodeMaintenance, status: Status) -> NodeMaintenance:
        """Write the status, if it is another one."""
        change = change_of(maintenance, status, now=self._client.clock.now())
        return maintenance if change is None else await self._sight.patch(maintenance, change, subresource="status")

    def may_publish(self) -> bool:
        """Tell whether to write conditions of nodes: not for a while after we were told that we may not."""
        return self._client.clock.monotonic() >= self._publishes_from

    def forget(self, name: str) -> None:
        """Forget a maintenance."""
        self.restored_at.pop(name, None)
        self.leased_at.pop(name, None)
        self.refused.pop(name, None)

    # The maintenance itself

    async def _change_maintenance(
        self, step: steps.AddFinalizer | steps.Accept | steps.StartOver | steps.RemoveFinalizer, seen: Seen
    ) -> NodeMaintenance:
        maintenance = seen.maintenance
        match step:
            case steps.AddFinalizer():
                return await self._set_finalizers(maintenance, (*maintenance.metadata.finalizers, FINALIZER))
            case steps.Accept():
                return await self._accept(seen)
            case steps.StartOver():
                self._teller.forget(maintenance.name)
                numbered = transitions(maintenance.status, "", now=seen.now)
                anew = Status(phase_transitions=numbered, observed_generation=UNOBSERVED)
                return await self.write_status(maintenance, anew)
            case steps.RemoveFinalizer():
                return await self._remove_finalizer(maintenance)

    async def _accept(self, seen: Seen) -> NodeMaintenance:
        report = describe(seen, Decision(), lease_namespace=self._lease_namespace)
        accepted = await self.write_status(seen.maintenance, report.status)
        self._teller.changes(seen.maintenance, report.status)
        return accepted

    async def _remove_finalizer(self, maintenance: NodeMaintenance) -> NodeMaintenance:
        left = tuple(it for it in maintenance.metadata.finalizers if it != FINALIZER)
        self._sight.note_over(maintenance)
        changed = await self._set_finalizers(maintenance, left)
        if not left:
            self._sight.maintenances.note_gone(changed)
        self._teller.is_removed(maintenance)
        return changed

    async def _set_finalizers(self, maintenance: NodeMaintenance, finalizers: tuple[str, ...]) -> NodeMaintenance:
        basis = {"uid": maintenance.uid, "resourceVersion": maintenance.resource_version}
        return await self._sight.patch(maintenance, {"metadata": basis | {"finalizers": finalizers or None}})

    async def _record(
        self, step: steps.RecordNode | steps.RecordWorkloads | steps.BeginRecovery, maintenance: NodeMaintenance
    ) -> NodeMaintenance:
        """Write into the status what was before, or which workloads were evicted, and since when they recover."""
        match step:
            case steps.RecordNode(before):
                status = msgspec.structs.replace(maintenance.status, node_before=before)
            case steps.RecordWorkloads(recovery):
                status = msgspec.structs.replace(maintenance.status, recovery=recovery)
            case steps.BeginRecovery():
                known = maintenance.status.recovery or RecoveryStatus()
                evicted = await self._workloads.evicted_from(maintenance.node, known)
                now = self._client.clock.now().replace(microsecond=0)
                recovery = msgspec.structs.replace(known, start_time=now, workloads=evicted.workloads)
                status = msgspec.structs.replace(maintenance.status, recovery=recovery)
        return await self.write_status(maintenance, status)

    # The node and its lease

    async def _hold(self, seen: Seen, step: steps.Hold) -> NodeMaintenance:
        maintenance = seen.maintenance
        if step.is_first:
            confirmed = await self._sight.confirmed(maintenance)
            if confirmed.is_leaving != maintenance.is_leaving:
                return confirmed
            maintenance = confirmed
            if not await self._has_slot(maintenance, _present(seen)):
                return maintenance
            self._sight.note_over(maintenance)
        node = self._sight.nodes.note(await self._client.patch(NODES, maintenance.node, node_patch(step.change)))
        if step.tampering:
            self.restored_at[maintenance.name] = self._client.clock.now()
            self._teller.restores(maintenance, node, step.tampering)
        return maintenance

    async def _has_slot(self, maintenance: NodeMaintenance, node: Node) -> bool:
        """Take leave for the change of this version of the node, where there is a budget; return whether it is ours."""
        view = self._view(maintenance)
        if view is None:
            return True
        refused = await self._slots.take(node, view.limits(node))
        if refused is None:
            return True
        crowded = view.crowded_by(node, refused.slots)
        self.refused[maintenance.name] = replace(crowded, again_at=refused.again_at)
        return False

    async def _change_node(
        self, step: steps.ReleaseLease | steps.Publish | steps.Release | steps.EndRecovery, seen: Seen
    ) -> None:
        match step:
            case steps.ReleaseLease(lease):
                await self._release_lease(lease)
            case steps.Publish():
                await self._publish(seen.maintenance, step)
            case steps.Release(name, change, tampering):
                node = self._sight.nodes.note(await self._client.patch(NODES, name, node_patch(change)))
                self._teller.gives_back(seen.maintenance, node, tampering)
                if self._view(seen.maintenance) is not None:
                    await self._slots.give_back(node)
            case steps.EndRecovery(name, change):
                node = self._sight.nodes.note(await self._client.patch(NODES, name, node_patch(change)))
                self._teller.recovers(seen.maintenance, is_recovered=step.is_recovered, missing=step.missing)
                if self._view(seen.maintenance) is not None:
                    await self._slots.give_back(node)

    async def _publish(self, maintenance: NodeMaintenance, step: steps.Publish) -> None:
        """Write conditions of a node. Where that is not permitted nothing depends on it, but none is left behind."""
        try:
            changed = await self._client.patch(NODES, step.node, strategic_patch(step.change), subresource="status")
        except (Forbidden, AdmissionDenied) as error:
            if step.is_last:
                raise
            self._publishes_from = self._client.clock.monotonic() + _FORBIDDEN_FOR
            self._teller.cannot_publish(maintenance, str(error))
        else:
            self._sight.nodes.note(changed)

    async def _take_lease(self, seen: Seen) -> NodeMaintenance:
        maintenance = seen.maintenance
        if seen.lease is None:  # another process may have ended the maintenance, and released it
            maintenance = await self._sight.confirmed(maintenance)
            if maintenance.is_leaving:
                return maintenance
            self._sight.note_over(maintenance)
        taken = self._sight.leases.note(await self._taken_lease(_present(seen), looks_new=seen.lease is None))
        if taken.spec.holder_identity == node_lease.HOLDER:
            self.leased_at[maintenance.name] = self._client.clock.now()
        return maintenance

    async def _taken_lease(self, node: Node, *, looks_new: bool) -> Lease:
        """Take the lease, or return whose it is."""
        try:
            return await self._acquired_lease(node, looks_new=looks_new)
        except NotFound:
            await namespaces.create_missing(self._client, self._lease_namespace)
            return await self._acquired_lease(node, looks_new=looks_new)
        except Forbidden as error:  # with a namespace that is deleted goes the Role in it
            advice = f"the installation brings namespace {self._lease_namespace} and a Role in it: apply it again"
            raise Forbidden(f"{error}; {advice}", code=error.code, reason=error.reason) from error
        except LockHeld:  # our copy was too old to show that
            name = node_lease.name_of(node.name)
            found = await leases.find(self._client, name, namespace=self._lease_namespace)
            if found is None:
                raise
            return found

    async def _acquired_lease(self, node: Node, *, looks_new: bool) -> Lease:
        return await locks.acquire(
            self._client,
            node_lease.name_of(node.name),
            namespace=self._lease_namespace,
            holder=node_lease.HOLDER,
            duration=node_lease.DURATION,
            owner=node_lease.owner_of(node),
            looks_new=looks_new,
        )

    async def _release_lease(self, lease: Lease) -> None:
        """Delete a lease, if it still is as we know it."""
        place, version = lease.namespace, lease.resource_version
        try:
            await self._client.delete(LEASES, lease.name, namespace=place, uid=lease.uid, resource_version=version)
        except NotFound:
            log.debug("lease %s was gone", lease.key)
        except Conflict:
            found = await leases.find(self._client, lease.name, namespace=lease.namespace)
            if found is not None:
                self._sight.leases.note(found)
                return
        self._sight.leases.note_gone(lease)

    # The drain

    async def _change_drain(self, step: steps.Step, seen: Seen) -> None:
        name = seen.maintenance.name
        match step:
            case steps.StartDrain(policy, checkpoint):
                self._drains.start(
                    name,
                    _present(seen),
                    policy,
                    owner=_owner(seen.maintenance),
                    checkpoint=checkpoint,
                    waiting=True,
                    lasting=True,
                    taints=WISHES.taints,
                )
            case steps.ChangePolicy(policy):
                self._drains.change(name, policy)
            case steps.BeginDrain():
                self._before_drain(seen.maintenance.node)
                self._drains.begin(name)
            case steps.StopDrain():
                await self._drains.stop(name)


def _present(seen: Seen) -> Node:
    if seen.node is None:
        raise RuntimeError(f"there is no node {seen.maintenance.node} to do that with")
    return seen.node


def _owner(maintenance: NodeMaintenance) -> Owner:
    """Return on whose behalf pods are asked to leave: what was asked goes when the maintenance is deleted."""
    reference = {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "name": maintenance.name,
        "uid": maintenance.uid,
    }
    return Owner(name=f"{NODE_MAINTENANCES.kind}.{maintenance.name}", reference=reference)
