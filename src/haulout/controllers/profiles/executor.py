"""Executes decisions: takes claims, writes the node, and starts and stops drains. It decides nothing.

Claims are the slots and leases that a transition needs before it may happen, each taken by compare-and-swap. The first
writer wins. If the transition then does not happen, a slot is released against the current version of the node and a
lease expires. A repeated attempt finds that it already holds the claim.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from haulout.api import workloads
from haulout.api.objects import LeaseSpec, Node, Pod, RawObject
from haulout.api.resources import NODES, Resource
from haulout.budget.budget_check import BudgetCheck, WaitingList
from haulout.budget.cordon_copies import CordonCopies
from haulout.budget.limits import Budget
from haulout.budget.slots import BudgetSlots, SlotUnavailable, cause_of
from haulout.budget.unavailable_nodes import PROFILE_OWNER_PREFIX, MaintenanceCause
from haulout.controllers.profiles import node_conditions
from haulout.controllers.profiles.machine import transitions
from haulout.controllers.profiles.machine.node_draft import NodeDraft
from haulout.controllers.profiles.machine_replacement import request_replacement
from haulout.controllers.profiles.node_conditions import DrainState
from haulout.controllers.profiles.observation import DataUpdate, Decision, Deferral, DrainStatus, aggregate_state
from haulout.controllers.profiles.plugin import (
    DATA_ANNOTATION,
    STATE_LABEL,
    BudgetClaim,
    Claim,
    ExternalAction,
    LeaseClaim,
    ReplaceMachine,
    SlotClaim,
    State,
)
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.core.timestamps import add_saturating
from haulout.drain.escalation import EscalationStep
from haulout.drain.eviction_requests import RequestOwner
from haulout.drain.machine_drain_rules import with_machine_drain_rules
from haulout.drain.manager import DrainManager, DrainSnapshot
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.drain.policy import DrainPolicy
from haulout.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch, node_patch, strategic_patch
from haulout.kube.slot_ledger import Slot, SlotLimit

LimitClaim = SlotClaim | BudgetClaim


class Claims:
    """Takes claims for nodes. `limits` translates a claim into limits of the slot ledger."""

    def __init__(
        self, client: Client, *, namespace: str, limits: Callable[[LimitClaim, Node], list[SlotLimit]]
    ) -> None:
        self._client = client
        self._slots = BudgetSlots(client, namespace=namespace, cause=MaintenanceCause.PROFILES)
        self._limits = limits

    async def take_slot(self, claims: Sequence[LimitClaim], node: Node) -> SlotUnavailable | None:
        """Take a slot that satisfies all claims. Return None on success, otherwise why it was refused."""
        return await self._slots.acquire(node, [limit for claim in claims for limit in self._limits(claim, node)])

    async def release_slot(self, node: Node) -> None:
        """Release the slot of a node that no profile keeps in maintenance; `node` is its current version."""
        await self._slots.release(node)

    async def withdraw_slot(self, node: Node) -> None:
        """Release a slot that was taken for this version of a node and is not used."""
        await self._slots.release_unused(node)

    async def take_lease(self, claim: LeaseClaim) -> bool:
        """Take a lease; return False if another writer was first."""
        now = self._client.clock.now()
        spec = LeaseSpec(
            holder_identity=claim.holder,
            lease_duration_seconds=int(claim.duration.total_seconds()),
            acquire_time=now,
            renew_time=now,
            lease_transitions=claim.transitions,
        )
        try:
            await leases.write(
                self._client, claim.name, spec, namespace=claim.namespace, version=claim.resource_version
            )
        except (Conflict, AlreadyExists, NotFound):
            return False
        return True


log = logging.getLogger(__name__)

HYPERVISORS = Resource("kvm.cloud.sap", "v1", "hypervisors", "Hypervisor", namespaced=False, model=RawObject)
_ANNOTATIONS = (
    DATA_ANNOTATION,
    transitions.PENDING_ANNOTATION,
    transitions.UNRECORDED_ANNOTATION,
    workloads.WORKLOADS_ANNOTATION,
)
_CONDITIONS_RETRY_AFTER = timedelta(minutes=1)  # after a failed write of conditions
_KEY_SEPARATOR = "|"  # between node and profile; neither name contains it

WriteData = Callable[[Decision, str], str]


class ProfilesExecutor:
    """Executes decisions. `write_data` returns the data annotation for a decision and the previous annotation.

    `requeue` is called with nodes whose drain has made progress, `on_pod_removal` with pods that are evicted or
    deleted. `before_drain` is called with a node before its first pod is evicted, and may raise.
    """

    def __init__(  # noqa: PLR0913 - collaborators and callbacks
        self,
        client: Client,
        nodes: NodeIndex,
        *,
        namespace: str,
        write_data: WriteData,
        requeue: Callable[[str], object],
        waiting_list: WaitingList,
        before_drain: Callable[[str], object] = lambda _: None,
        on_pod_removal: Callable[[str, Pod, EscalationStep], object] | None = None,
        drain_metrics: InitiatorDrainMetrics | None = None,
    ) -> None:
        self.writing: set[str] = set()  # nodes with a write in flight
        self.cordon_copies = CordonCopies(
            client,
            namespace=namespace,
            controller="profiles",
            owns=lambda owner: owner.startswith(PROFILE_OWNER_PREFIX),
        )
        self._client = client
        self._nodes = nodes
        self._write_data = write_data
        self._before_drain = before_drain
        self._waiting_list = waiting_list
        self._claims = Claims(client, namespace=namespace, limits=self._limits)
        self._held_leases: dict[str, dict[tuple[str, str], datetime]] = {}  # by node: leases and when they expire
        self._unwritten_conditions: dict[str, datetime] = {}  # by node: when to retry
        self._conditions_problem = ""
        self._drained_profiles: dict[str, tuple[str, ...]] = {}  # by node: profiles that have a drain
        self._drains = DrainManager(
            client,
            on_change=lambda key: requeue(key.partition(_KEY_SEPARATOR)[0]),
            on_pod_requested=None
            if on_pod_removal is None
            else lambda key, pod, escalation: on_pod_removal(key.partition(_KEY_SEPARATOR)[0], pod, escalation),
            metrics=drain_metrics,
        )

    async def run(self) -> None:
        await self._drains.run()

    async def take_claims(self, claims: Collection[tuple[str, Claim]], node: Node) -> dict[str, Deferral]:
        """Take claims; return by profile why they were refused."""
        deferred: dict[str, Deferral] = {}
        for profile in dict.fromkeys(profile for profile, _ in claims):
            wanted = dict.fromkeys(claim for claimant, claim in claims if claimant == profile)
            if deferral := await self._take_for_profile(tuple(wanted), node):
                deferred[profile] = deferral
        return deferred

    async def _take_for_profile(self, claims: Collection[Claim], node: Node) -> Deferral | None:
        # Slots first: an unused slot can be released, an unused lease only expires.
        slots = [claim for claim in claims if not isinstance(claim, LeaseClaim)]
        if slots and (refused := await self._claims.take_slot(slots, node)):
            reason, is_budget_exhausted = self._budget_message(slots, node, refused)
            return Deferral(reason, refused.requeue_at, is_budget_exhausted=is_budget_exhausted)
        held_leases = self.held_leases(node.name)
        for claim in claims:
            if not isinstance(claim, LeaseClaim) or (claim.namespace, claim.name) in held_leases:
                continue
            if not await self._claims.take_lease(claim):
                return Deferral(f"Lease {claim.namespace}/{claim.name} was taken for another node")
            expires_at = add_saturating(self._client.clock.now(), claim.duration)
            self._held_leases.setdefault(node.name, {})[claim.namespace, claim.name] = expires_at
        return None

    def budget_view(self, budget: Budget) -> BudgetCheck | None:
        """Return a check of the budget against the nodes observed now; None if there is no budget."""
        if not budget:
            return None
        return BudgetCheck(
            budget=budget, nodes=self._nodes, now=self._client.clock.now(), waiting=self._waiting_list.entries()
        )

    def _budget_message(self, claims: Collection[LimitClaim], node: Node, refused: SlotUnavailable) -> tuple[str, bool]:
        """Return why there is no slot, and whether that is the budget."""
        for claim in claims:
            view = self.budget_view(claim.budget) if isinstance(claim, BudgetClaim) else None
            if view is not None and (exhausted := view.exhausted_by(node, refused.slots)).group is not None:
                return str(exhausted), True
        limits = [_format_slot_claim(slot_claim) for slot_claim in claims if isinstance(slot_claim, SlotClaim)]
        allowed = ", ".join(limits or ["what the budget allows"])
        return f"no slot for another node in maintenance: at most {allowed}", False

    def held_leases(self, node: str) -> frozenset[tuple[str, str]]:
        """Return the leases that were taken for a node and are not used yet."""
        now = self._client.clock.now()
        return frozenset(lease for lease, until in self._held_leases.get(node, {}).items() if now < until)

    def clear_held_leases(self, node: str) -> None:
        """Forget the leases taken for a node because its transition has used them."""
        self._held_leases.pop(node, None)

    async def execute_external_actions(self, decision: Decision) -> dict[str, str]:
        """Change other objects than the node; return by profile why that failed."""
        problems = [
            (profile, await self._execute_external_action(action, decision.draft.node, profile))
            for profile, action in decision.external_actions
        ]
        return {profile: problem for profile, problem in problems if problem}

    async def _execute_external_action(self, action: ExternalAction, node: Node, profile: str) -> str:
        try:
            if isinstance(action, ReplaceMachine):
                return await request_replacement(self._client, action, node=node, profile=profile)
            await self._client.patch(HYPERVISORS, node.name, merge_patch({"spec": action.spec}))
        # These errors are permanent, and belong to this profile. All others fail the whole reconcile, which is retried.
        except (BadRequest, Forbidden, Invalid, NotFound) as error:
            if isinstance(action, ReplaceMachine):
                return f"Machine {action.machine} of node {node.name} cannot be replaced: {error}"
            return f"hypervisor {node.name} cannot be changed: {error}"
        return ""

    async def write_node(self, decision: Decision) -> bool:
        """Write the node if anything changes; return whether it does."""
        draft = self.draft_of(decision)
        if (owners := draft.cordon_owners()) is not None:
            # Before the write: a copy that outlived its owner would restore the cordon that the write removes.
            await self.cordon_copies.remove_owners(draft.node, keep=owners)
        change = draft.patch()
        if change is not None:
            name = draft.node.name
            # The watch may deliver this write before its response arrives. It must not requeue the node, which is
            # reconciled again anyway.
            self.writing.add(name)
            try:
                self._nodes.record_write(await self._client.patch(NODES, name, node_patch(change)))
            finally:
                self.writing.discard(name)
        await self.cordon_copies.sync(draft.node)
        return change is not None

    def draft_of(self, decision: Decision) -> NodeDraft:
        """Return the draft with the state label and the data annotations."""
        if decision.data_update is DataUpdate.NONE:
            return decision.draft
        if decision.data_update is DataUpdate.REMOVE:
            return decision.draft.with_labels({STATE_LABEL: None}).with_annotations(dict.fromkeys(_ANNOTATIONS))
        before = decision.draft.before.metadata.annotations.get(DATA_ANNOTATION, "")
        annotations = {
            DATA_ANNOTATION: self._write_data(decision, before),
            transitions.PENDING_ANNOTATION: transitions.encode_pending(decision.pending),
        }
        state = aggregate_state((decision.state, *decision.unmanaged_states))
        return decision.draft.with_labels({STATE_LABEL: str(state)}).with_annotations(annotations)

    async def release_slot(self, node: Node) -> None:
        """Release the slot, if any, of a node that has left maintenance; `node` is its current version."""
        await self._claims.release_slot(node)

    async def withdraw_slot(self, node: Node) -> None:
        """Release the slot that was taken for this version of a node and is not used."""
        await self._claims.withdraw_slot(node)

    # Drains

    async def reconcile_drains(self, node: Node, wanted: Mapping[str, DrainPolicy]) -> None:
        """Start the wanted drains of a node, and stop all others."""
        for profile in self._drained_profiles.get(node.name, ()):
            if profile not in wanted:
                await self._stop_drain(node.name, profile)
        for profile, policy in wanted.items():
            await self._reconcile_drain(profile, node, policy)

    async def _reconcile_drain(self, profile: str, node: Node, policy: DrainPolicy) -> None:
        key, policy = _drain_key(node.name, profile), with_machine_drain_rules(policy, node)
        drain = self._drains.snapshot(key)
        if drain is not None and drain.node_uid != node.uid:
            await self._stop_drain(node.name, profile)
            drain = None
        if drain is None:
            # May hand over leadership: the process must not evict its own pod in the middle of a drain that it runs.
            self._before_drain(node.name)
            self._drained_profiles[node.name] = tuple(
                dict.fromkeys((*self._drained_profiles.get(node.name, ()), profile))
            )
            self._drains.start(key, node, policy, owner=RequestOwner(name=f"{node.name}.{profile}"))
        elif drain.policy != policy:
            self._drains.set_policy(key, policy)

    async def _stop_drain(self, node: str, profile: str) -> None:
        await self._drains.stop(_drain_key(node, profile))
        remaining = tuple(other for other in self._drained_profiles.get(node, ()) if other != profile)
        if remaining:
            self._drained_profiles[node] = remaining
        else:
            self._drained_profiles.pop(node, None)

    def _tracked_drains(self, node: str) -> dict[str, DrainSnapshot]:
        """Return the drains of a node, by profile. The cost does not depend on the number of other drains."""
        drains = {
            profile: self._drains.snapshot(_drain_key(node, profile))
            for profile in self._drained_profiles.get(node, ())
        }
        return {profile: drain for profile, drain in drains.items() if drain is not None}

    def drain_statuses(self, node: str) -> dict[str, DrainStatus]:
        return {profile: _drain_status(drain) for profile, drain in self._tracked_drains(node).items()}

    def detailed_drains(self, node: str) -> dict[str, DrainSnapshot]:
        """Return the drains of a node in full detail, for display only."""
        drains = {
            profile: self._drains.peek(_drain_key(node, profile)) for profile in self._drained_profiles.get(node, ())
        }
        return {profile: drain for profile, drain in drains.items() if drain is not None}

    def ended_drains(self, node: str) -> dict[str, DrainSnapshot]:
        """Return the completed and failed drains of a node, by profile."""
        return {profile: drain for profile, drain in self._tracked_drains(node).items() if drain.outcome is not None}

    async def write_conditions(self, node: Node, decision: Decision) -> bool:
        """Write the drain progress to the conditions of the node; return whether that changed the node.

        No drain depends on the conditions, so a failed write is retried after a minute instead of raising.
        """
        now, retry_at = self._client.clock.now(), self._unwritten_conditions.get(node.name)
        if retry_at is not None and now < retry_at:
            return False
        statuses = self.drain_statuses(node.name)
        state = DrainState(
            drains={profile: profile in statuses and statuses[profile].is_done for profile in decision.drains},
            pending_profiles=decision.pending.keys(),
            maintained_profiles=[
                name
                for name, status in decision.statuses.items()
                if status.current != State.OPERATIONAL or name in decision.pending
            ],
        )
        change = node_conditions.conditions_patch(node, state, now=now)
        if change is None:
            self._unwritten_conditions.pop(node.name, None)
            return False
        try:
            self._nodes.record_write(
                await self._client.patch(NODES, node.name, strategic_patch(change), subresource="status")
            )
        except (Conflict, NotFound):
            raise
        except KubeError as error:
            if self._conditions_problem != str(error):
                log.warning("cannot update the drain conditions of node %s: %s", node.name, error)
                self._conditions_problem = str(error)
            self._unwritten_conditions[node.name] = add_saturating(now, _CONDITIONS_RETRY_AFTER)
            return False
        self._unwritten_conditions.pop(node.name, None)
        return True

    def conditions_retry_at(self, node: str) -> datetime | None:
        """Return when to retry a failed write of a node's conditions; None if none failed."""
        return self._unwritten_conditions.get(node)

    async def forget(self, node: str) -> None:
        """Stop the drains of a node and forget its state."""
        self._unwritten_conditions.pop(node, None)
        self._held_leases.pop(node, None)
        for profile in self._drained_profiles.get(node, ()):
            await self._stop_drain(node, profile)

    def _limits(self, claim: LimitClaim, node: Node) -> list[SlotLimit]:
        """Return the ledger limits of a claim. Nodes in maintenance count even without a slot."""
        if isinstance(claim, SlotClaim):
            return [self._limit(claim, node)]
        view = self.budget_view(claim.budget)
        return [] if view is None else view.slot_limits(node)

    def _limit(self, claim: SlotClaim, node: Node) -> SlotLimit:
        now = self._client.clock.now()

        def counts(slot: Slot) -> bool:
            if cause_of(slot) is not MaintenanceCause.PROFILES:
                return False
            observed = self._nodes.get(slot.name)
            # The informer may lag behind the ledger: a node that it does not know may be new rather than deleted.
            if observed is None or observed.node.uid != slot.uid:
                return True  # until the API server confirms its deletion
            return claim.scope.counts(observed, now)

        in_maintenance = [other for other in self._nodes.in_state(State.IN_MAINTENANCE) if other.node.uid != node.uid]
        others = frozenset(other.node.uid for other in in_maintenance if claim.scope.counts(other, now))
        return SlotLimit(max_slots=claim.limit, unavailable_uids=others, counts=counts)


def _drain_key(node: str, profile: str) -> str:
    return f"{node}{_KEY_SEPARATOR}{profile}"


def _drain_status(drain: DrainSnapshot) -> DrainStatus:
    outcome = drain.outcome
    if outcome is None:
        progress = drain.progress
        blocked = next((str(blocker.blocker) for blocker in progress.blockers if not blocker.blocker.is_progress), "")
        message = f"{progress.gone} of {progress.total} pods have left"
        return DrainStatus(is_done=False, message=f"{message}; {blocked}" if blocked else message)
    return DrainStatus(
        is_done=outcome.is_drained, message=outcome.message, problem="" if outcome.is_drained else outcome.message
    )


def _format_slot_claim(claim: SlotClaim) -> str:
    return f"{claim.limit} in {claim.scope}"
