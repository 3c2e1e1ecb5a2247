"""Performs a step: takes what must be taken, writes the node, and sees to drains. It decides nothing."""

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from haulout.budget.away import PROFILE_PREFIX, Cause
from haulout.budget.cordon_copies import CordonCopies
from haulout.budget.limits import Budget
from haulout.budget.line import Line
from haulout.budget.room import View
from haulout.budget.slots import Refused, cause_of
from haulout.drain import workloads
from haulout.drain.evictionrequests import Owner
from haulout.drain.keeper import Drains, Kept
from haulout.drain.ladder import Rung
from haulout.drain.machine_rules import honoured
from haulout.drain.policy import Policy
from haulout.drain.tallies import Meter
from haulout.errors import BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.ledger import Limit, Slot
from haulout.kube.objects import Node, Pod, RawObject
from haulout.kube.patches import merge_patch, node_patch, strategic_patch
from haulout.kube.resources import NODES, Resource
from haulout.profiles import begun, node_conditions, passed
from haulout.profiles.claims import Claims, LimitClaim
from haulout.profiles.draft import Draft
from haulout.profiles.instants import later
from haulout.profiles.machine_request import request
from haulout.profiles.node_conditions import DrainState
from haulout.profiles.plugin import (
    DATA_ANNOTATION,
    STATE_LABEL,
    BudgetClaim,
    Claim,
    Elsewhere,
    LeaseClaim,
    ReplaceMachine,
    SlotClaim,
    State,
)
from haulout.profiles.sights import NodeSights
from haulout.profiles.steps import DrainSeen, Refusal, Result, Trace, aggregate

log = logging.getLogger(__name__)

HYPERVISORS = Resource("kvm.cloud.sap", "v1", "hypervisors", "Hypervisor", namespaced=False, model=RawObject)
_ANNOTATIONS = (DATA_ANNOTATION, begun.ANNOTATION, passed.ANNOTATION, workloads.ANNOTATION)
_PUBLISHED_AGAIN_AFTER = timedelta(minutes=1)  # conditions that could not be written
_GAP = "|"  # between a node and a profile: neither has it in its name

Write = Callable[[Result, str], str]


class Performer:
    """Does what a step says; `write` makes the data annotation of a result and what it was before.

    `changed` hears of nodes whose drain has something new, `asked` of pods that are made to leave them. `before_drain`
    hears of a node before its pods are asked to leave, and may raise.
    """

    def __init__(  # noqa: PLR0913 - all that it tells others of
        self,
        client: Client,
        nodes: NodeSights,
        *,
        namespace: str,
        write: Write,
        changed: Callable[[str], object],
        line: Line,
        before_drain: Callable[[str], object] = lambda _: None,
        asked: Callable[[str, Pod, Rung], object] | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.writing: set[str] = set()  # the nodes of which a write is under way
        self.cordon_copies = CordonCopies(
            client, namespace=namespace, controller="profiles", owns=lambda it: it.startswith(PROFILE_PREFIX)
        )
        self._client = client
        self._nodes = nodes
        self._write = write
        self._before_drain = before_drain
        self._line = line
        self._claims = Claims(client, namespace=namespace, limits=self._limits)
        self._in_hand: dict[str, dict[tuple[str, str], datetime]] = {}  # by node: leases, and until when they are its
        self._unpublished: dict[str, datetime] = {}  # by node: when its conditions are to be written again
        self._publish_problem = ""
        self._drained: dict[str, tuple[str, ...]] = {}  # by node: the profiles that have a drain
        self._drains = Drains(
            client,
            changed=lambda key: changed(key.partition(_GAP)[0]),
            asked=None if asked is None else lambda key, pod, rung: asked(key.partition(_GAP)[0], pod, rung),
            meter=meter,
        )

    async def run(self) -> None:
        """Let drains run, until cancelled."""
        await self._drains.run()

    async def take(self, claims: Collection[tuple[str, Claim]], node: Node) -> dict[str, Refusal]:
        """Take what is claimed; return by profile why that was not possible."""
        refused: dict[str, Refusal] = {}
        for profile in dict.fromkeys(profile for profile, _ in claims):
            wanted = dict.fromkeys(claim for of, claim in claims if of == profile)
            if refusal := await self._take_for_one(tuple(wanted), node):
                refused[profile] = refusal
        return refused

    async def _take_for_one(self, claims: Collection[Claim], node: Node) -> Refusal | None:
        # Slots first: one that is not needed after all is given back, and a lease is not.
        slots = [claim for claim in claims if not isinstance(claim, LeaseClaim)]
        if slots and (refused := await self._claims.take_slot(slots, node)):
            return Refusal(self._no_room(slots, node, refused), refused.again_at)
        in_hand = self.in_hand(node.name)
        for claim in claims:
            if not isinstance(claim, LeaseClaim) or (claim.namespace, claim.name) in in_hand:
                continue
            if not await self._claims.take_lease(claim):
                return Refusal(f"lease {claim.namespace}/{claim.name} was taken by another node")
            until = later(self._client.clock.now(), claim.duration)
            self._in_hand.setdefault(node.name, {})[claim.namespace, claim.name] = until
        return None

    def budget(self, budget: Budget) -> View | None:
        """Return a budget, with what is seen of the nodes that share it now; None if there is none."""
        if not budget:
            return None
        return View(budget=budget, nodes=self._nodes, now=self._client.clock.now(), orders=self._line.orders())

    def _no_room(self, claims: Collection[LimitClaim], node: Node, refused: Refused) -> str:
        for claim in claims:
            view = self.budget(claim.budget) if isinstance(claim, BudgetClaim) else None
            if view is not None and (crowded := view.crowded_by(node, refused.slots)).group is not None:
                return str(crowded)
        said = [_said(it) for it in claims if isinstance(it, SlotClaim)]
        return f"no room for another node in maintenance: at most {', '.join(said or ['what the budget says'])}"

    def in_hand(self, node: str) -> frozenset[tuple[str, str]]:
        """Return the leases that were taken for a node, and not used yet."""
        now = self._client.clock.now()
        return frozenset(lease for lease, until in self._in_hand.get(node, {}).items() if now < until)

    def use_up(self, node: str) -> None:
        """Note that what was taken for a node was used."""
        self._in_hand.pop(node, None)

    async def change_elsewhere(self, result: Result) -> dict[str, str]:
        """Change what is not the node; return by profile why that was not possible."""
        whys = [
            (profile, await self._change(effect, result.draft.node, profile)) for profile, effect in result.elsewhere
        ]
        return {profile: why for profile, why in whys if why}

    async def _change(self, effect: Elsewhere, node: Node, profile: str) -> str:
        try:
            if isinstance(effect, ReplaceMachine):
                return await request(self._client, effect, node=node, profile=profile)
            await self._client.patch(HYPERVISORS, node.name, merge_patch({"spec": effect.spec}))
        except (BadRequest, Forbidden, Invalid, NotFound) as error:
            if isinstance(effect, ReplaceMachine):
                return f"Machine {effect.machine} of node {node.name} cannot be replaced: {error}"
            return f"hypervisor {node.name} cannot be changed: {error}"
        return ""

    async def write_node(self, result: Result) -> bool:
        """Write the node, if anything about it changes; return whether it does."""
        draft = self.draft_of(result)
        if (owners := draft.cordon_owners()) is not None:
            await self.cordon_copies.drop(draft.node, but=owners)
        change = draft.change()
        if change is not None:
            name = draft.node.name
            self.writing.add(name)
            try:
                self._nodes.note(await self._client.patch(NODES, name, node_patch(change)))
            finally:
                self.writing.discard(name)
        await self.cordon_copies.follow(draft.node)
        return change is not None

    def draft_of(self, result: Result) -> Draft:
        """Return the node as it is to be, with the data that says where its profiles stand."""
        if result.trace is Trace.UNTOUCHED:
            return result.draft
        if result.trace is Trace.ERASED:
            return result.draft.labelled({STATE_LABEL: None}).annotated(dict.fromkeys(_ANNOTATIONS))
        before = result.draft.before.metadata.annotations.get(DATA_ANNOTATION, "")
        annotations = {DATA_ANNOTATION: self._write(result, before), begun.ANNOTATION: begun.write(result.pending)}
        state = aggregate((result.state, *result.beside))
        return result.draft.labelled({STATE_LABEL: str(state)}).annotated(annotations)

    async def give_back(self, node: Node) -> None:
        """Give back the slot of a node that has left maintenance, as it is now, if it has one."""
        await self._claims.give_back(node)

    async def withdraw(self, node: Node) -> None:
        """Give back the slot that was taken for this version of a node, and is not used."""
        await self._claims.withdraw(node)

    # Drains

    async def see_to_drains(self, node: Node, wanted: Mapping[str, Policy]) -> None:
        """Run the drains that are wanted for a node, and no others."""
        for profile in self._drained.get(node.name, ()):
            if profile not in wanted:
                await self._stop(node.name, profile)
        for profile, policy in wanted.items():
            await self._see_to_drain(profile, node, policy)

    async def _see_to_drain(self, profile: str, node: Node, policy: Policy) -> None:
        key, policy = _key(node.name, profile), honoured(policy, node)
        kept = self._drains.seen(key)
        if kept is not None and kept.node_uid != node.uid:
            await self._stop(node.name, profile)
            kept = None
        if kept is None:
            self._before_drain(node.name)
            self._drained[node.name] = tuple(dict.fromkeys((*self._drained.get(node.name, ()), profile)))
            self._drains.start(key, node, policy, owner=Owner(name=f"{node.name}.{profile}"))
        elif kept.policy != policy:
            self._drains.change(key, policy)

    async def _stop(self, node: str, profile: str) -> None:
        await self._drains.stop(_key(node, profile))
        left = tuple(it for it in self._drained.get(node, ()) if it != profile)
        if left:
            self._drained[node] = left
        else:
            self._drained.pop(node, None)

    def _kept(self, node: str) -> dict[str, Kept]:
        """Return the drains of a node, by profile; that there are many others makes no difference."""
        seen = {profile: self._drains.seen(_key(node, profile)) for profile in self._drained.get(node, ())}
        return {profile: kept for profile, kept in seen.items() if kept is not None}

    def drains_of(self, node: str) -> dict[str, DrainSeen]:
        """Return how it stands with the drains of a node, by profile."""
        return {profile: _seen(kept) for profile, kept in self._kept(node).items()}

    def glance(self, node: str) -> dict[str, Kept]:
        """Return the same, with all that is known of each, to somebody who only looks on."""
        found = {profile: self._drains.glance(_key(node, profile)) for profile in self._drained.get(node, ())}
        return {profile: kept for profile, kept in found.items() if kept is not None}

    def ended_drains_of(self, node: str) -> dict[str, Kept]:
        """Return the drains of a node that are over, by profile."""
        return {profile: kept for profile, kept in self._kept(node).items() if kept.outcome is not None}

    async def publish(self, node: Node, result: Result) -> bool:
        """Have the conditions of a node say how far its drains are; return whether that changed the node.

        No drain depends on it: what cannot be written is tried again after a while.
        """
        now, again_at = self._client.clock.now(), self._unpublished.get(node.name)
        if again_at is not None and now < again_at:
            return False
        seen = self.drains_of(node.name)
        state = DrainState(
            drains={profile: profile in seen and seen[profile].is_done for profile in result.drains},
            waiting=result.pending.keys(),
            away=[
                name for name, it in result.entries.items() if it.current != State.OPERATIONAL or name in result.pending
            ],
        )
        change = node_conditions.published(node, state, now=now)
        if change is None:
            self._unpublished.pop(node.name, None)
            return False
        try:
            self._nodes.note(await self._client.patch(NODES, node.name, strategic_patch(change), subresource="status"))
        except (Conflict, NotFound):
            raise
        except KubeError as error:
            if self._publish_problem != str(error):
                log.warning("the conditions of node %s do not tell of its drain: %s", node.name, error)
                self._publish_problem = str(error)
            self._unpublished[node.name] = later(now, _PUBLISHED_AGAIN_AFTER)
            return False
        self._unpublished.pop(node.name, None)
        return True

    def publishes_at(self, node: str) -> datetime | None:
        """Return when the conditions of a node are to be written again, if they could not be."""
        return self._unpublished.get(node)

    async def forget(self, node: str) -> None:
        """Stop what is done for a node."""
        self._unpublished.pop(node, None)
        self._in_hand.pop(node, None)
        for profile in self._drained.get(node, ()):
            await self._stop(node, profile)

    def _limits(self, claim: LimitClaim, node: Node) -> list[Limit]:
        """Return what a claim means for the ledger: nodes in maintenance count though they may have no slot."""
        if isinstance(claim, SlotClaim):
            return [self._limit(claim, node)]
        view = self.budget(claim.budget)
        return [] if view is None else view.limits(node)

    def _limit(self, claim: SlotClaim, node: Node) -> Limit:
        now = self._client.clock.now()

        def counts(slot: Slot) -> bool:
            if cause_of(slot) is not Cause.PROFILES:
                return False
            sight = self._nodes.get(slot.name)
            if sight is None or sight.node.uid != slot.uid:
                return True  # until the server says that it is gone
            return claim.scope.counts(sight, now)

        maintained = [it for it in self._nodes.in_state(State.IN_MAINTENANCE) if it.node.uid != node.uid]
        others = frozenset(it.node.uid for it in maintained if claim.scope.counts(it, now))
        return Limit(most=claim.limit, others=others, counts=counts)


def _key(node: str, profile: str) -> str:
    return f"{node}{_GAP}{profile}"


def _seen(kept: Kept) -> DrainSeen:
    outcome = kept.outcome
    if outcome is None:
        progress = kept.progress
        blocked = next((str(it.blocker) for it in progress.blockers if not it.blocker.is_progress), "")
        words = f"{progress.gone} of {progress.total} pods have left"
        return DrainSeen(is_done=False, words=f"{words}; {blocked}" if blocked else words)
    return DrainSeen(is_done=outcome.is_drained, words=outcome.why, problem="" if outcome.is_drained else outcome.why)


def _said(claim: SlotClaim) -> str:
    return f"{claim.limit} in {claim.scope}"
