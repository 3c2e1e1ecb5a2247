"""The notices controller: keeps the status of each notice true, tells people, and clears away what is long over.

Of nodes it writes conditions only, which say what is announced for them. What is done about a notice is for profiles to
decide, which see the same objects.

Pods are looked at only of nodes that should be empty soon, by a list of the pods of one node, some ten times: a
thousand maintenances that fall due in the same minute are some ten small requests in a second.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from haulout.budget.away import STATE_LABEL
from haulout.errors import Conflict, KubeError, NotFound
from haulout.kinds.hold import hold_of
from haulout.kinds.machines import machine_key
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeCondition, Phase, Status
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, reference
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.patches import difference, merge_patch
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES
from haulout.notices import announcing
from haulout.notices.announcing import Announcer
from haulout.notices.emptying import cordon_owners, is_emptied
from haulout.notices.finding import MACHINE_ADDRESS, Nodes, is_found_alike, names_of
from haulout.notices.happenings import Happening
from haulout.notices.inbox import Inbox
from haulout.notices.moving import Calendar, MoverOf, Moving, nobody_minds
from haulout.notices.occupancy import Occupancy, drained_at, held_since, occupancy
from haulout.notices.orphans import ended, orphaned_at
from haulout.notices.past import Changed, Past
from haulout.notices.prediction import Prediction
from haulout.notices.review import Review, Terms, planned, reviewed
from haulout.notices.starting import StarterOf, Starting
from haulout.notices.surplus import BY_AGENT, SurplusNotices, agent_of
from haulout.notices.timeliness import Plan, judged, needs_a_look

log = logging.getLogger(__name__)

_WORKERS = 16
BY_NODE = "node"
_LOOKS_AGAIN_AFTER = timedelta(minutes=10)  # profiles, or those of a node, may have changed; looking costs no request
_SOON = timedelta(seconds=5)
_NEW_ENOUGH = timedelta(seconds=5)  # what was seen of pods: our own writes wake us, too


LeadOf = Callable[[Node, MaintenanceNotice], timedelta | None]  # None: as is usual
Minded = Callable[[Node, MaintenanceNotice], bool]  # whether somebody empties the node for it


def always(node: Node, notice: MaintenanceNotice) -> bool:
    """Have every notice minded."""
    del node, notice
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """What profiles go by: their windows, and how long before its start they empty the node."""

    calendar: Calendar = nobody_minds
    lead_of: LeadOf = nobody_minds
    is_minded: Minded = always


Observe = Callable[[MaintenanceNotice, Status], object]
"""Hears of a notice as it was, and of the status that it has now."""


class Foresight(Protocol):
    """Knows how long emptying a node takes."""

    def predict(self, node: Node) -> Prediction | None:
        """Return how long it takes; None: nothing is known, `NOT_YET`: ask again later."""
        ...

    def want(self, *, wanted: bool) -> None:
        """Say whether anybody will ask."""
        ...

    async def run(self, changed: Changed) -> None:
        """Work until cancelled."""
        ...


class Controller:
    """Sees to all notices; `run` may be called once. `observe` hears of each status that was written."""

    def __init__(  # noqa: PLR0913 - what it is told by others, each by its name
        self,
        client: Client,
        *,
        events: EventRecorder,
        nodes: Cache[Node],
        terms: Terms | None = None,
        foresight: Foresight | None = None,
        mover_of: MoverOf = lambda _: None,
        starter_of: StarterOf = lambda _: None,
        by: By | None = None,
        observe: Observe = lambda *_: None,
    ) -> None:
        self.notices: Cache[MaintenanceNotice] = Cache(
            client, Selection(MAINTENANCE_NOTICES), row=as_is, indexes={BY_NODE: _node_of, BY_AGENT: agent_of}
        )
        self._client = client
        self._clock = client.clock
        self._events = events
        self._terms = terms or Terms()
        self._by = by or By()
        self._observe = observe
        self._foresight = foresight or Past(client, nodes)
        self._node_cache = nodes
        self._nodes = Nodes()
        self._open: set[str] = set()  # notices that are not over
        self._seen: dict[str, Occupancy] = {}  # by node: what was left there lately
        self._announcer = Announcer(client, nodes, about=lambda node: self.notices.by(BY_NODE, node))
        self._moving = Moving(
            client,
            self.notices,
            node_of=lambda notice: self._nodes.of(notice).node,
            mover_of=mover_of,
            calendar=self._by.calendar,
            tell=self._tell,
        )
        self._inbox = Inbox(client)
        self._starting = Starting(client, self.notices, starter_of=starter_of)
        self._queue: Queue[str] = Queue(
            self._work, clock=client.clock, random=client.random, workers=_WORKERS, meters=client.meters, name="notices"
        )
        self._surplus = SurplusNotices(client, self.notices, nodes, events=events, wake=self._queue.add)

    async def run(self) -> None:
        """Work until cancelled; somebody else runs the cache of nodes."""
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._follow())
            await self._node_cache.wait_synced()
            stack.callback(self._node_cache.subscribe(self._note_node))  # that copy outlives us
            await self.notices.wait_synced()
            self.notices.subscribe(self._note_notice)
            group.create_task(self._foresight.run(self._note_past))
            group.create_task(self._announcer.run())
            group.create_task(self._moving.run())
            group.create_task(self._starting.run())
            group.create_task(self._surplus.run())
            await self._queue.run()

    async def _follow(self) -> None:
        await self.notices.run()

    # Who is woken by what

    def _note_notice(self, old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        for it in (old, new):
            if it is not None:
                self._surplus.add(it)
        if new is not None and self._surplus.is_held_back(new):
            return
        for it in (old, new):
            if it is not None:
                self._queue.add(it.name)
                self._announcer.add(it.status.node_name)
        if new is not None:
            self._moving.add(new)
            self._starting.add(new)
        changed = new or old
        if changed is not None:
            is_open = new is not None and not _is_over(new)
            (self._open.add if is_open else self._open.discard)(changed.name)
            self._foresight.want(wanted=bool(self._open))

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        self._nodes.follow(old, new)
        if new is not None and (announcing.says_anything(new) if old is None else not announcing.says_alike(old, new)):
            self._announcer.add(new.name)
        if old is not None and new is not None and _is_alike(old, new):
            return
        names = {it.name for it in (old, new) if it is not None}
        machines = {machine_key(it.spec.provider_id) for it in (old, new) if it is not None}
        called = {name for it in (old, new) if it is not None for name in names_of(it)}
        for name in names:
            self._seen.pop(name, None)
        for notice in self.notices.all():
            spec = notice.spec
            is_meant = notice.node in names or machine_key(spec.provider_id) in machines
            if is_meant or spec.machine_name in called or notice.metadata.annotations.get(MACHINE_ADDRESS) in called:
                self._queue.add(notice.name)

    def _note_past(self, node: str) -> None:
        for name in self._open if not node else [it.name for it in self.notices.by(BY_NODE, node)]:
            self._queue.add(name)

    # One look

    async def _work(self, name: str) -> datetime | None:
        notice = self.notices.get(name)
        if notice is None or self._surplus.is_held_back(notice):
            return None
        finding = self._nodes.of(notice)
        orphaned = orphaned_at(notice) if finding.node is None else None
        if orphaned is not None and self._clock.now() >= orphaned:
            await self._inbox.take(ended(notice, now=self._clock.now()))
            return None  # the watch will tell
        predicted = None if finding.node is None else self._foresight.predict(finding.node)
        terms = self._terms_of(notice, finding.node)
        standing, plan = planned(notice, finding, now=self._clock.now(), terms=terms, predicted=predicted)
        seen = await self._look_at(plan.node) if plan.node is not None and needs_a_look(plan) else None
        if not await self._is_true(plan, seen):
            self._seen.pop(plan.notice.node, None)
            return self._clock.now() + _SOON
        review = reviewed(finding, standing, plan, terms=terms, seen=seen)
        try:
            if review.is_done_with:
                await self._client.delete(
                    MAINTENANCE_NOTICES, name, uid=notice.uid, resource_version=notice.resource_version
                )
                return None
            await self._write(notice, review)
        except (Conflict, NotFound) as error:
            log.debug("notice %s is not as it was: %s", name, error)
            return None  # the watch will tell
        for happening in review.happenings:
            self._tell(notice, happening)
        again = self._clock.now() + _LOOKS_AGAIN_AFTER if standing.phase is Phase.PLANNED else None
        return min((it for it in (again, review.next_look, orphaned) if it is not None), default=None)

    async def _is_true(self, plan: Plan, seen: Occupancy | None) -> bool:
        """Tell whether a node is as we think, if that would give leave to begin: what we have seen may be old."""
        said = plan.notice.status.condition(NoticeCondition.EMPTIED)
        is_said = said is not None and said.status == "True"
        if plan.node is None or is_said or not is_emptied(plan, judged(plan, seen)):
            return True
        try:
            found = (await self._client.list(NODES, fields=f"metadata.name={plan.node.name}")).items
            left = [await occupancy(self._client, it, exact=True) for it in found if it.uid == plan.node.uid]
        except KubeError as error:
            log.debug("whether node %s is empty cannot be told: %s", plan.node.name, error)
            return False
        now = [replace(plan, node=it) for it in found if it.uid == plan.node.uid]
        return any(is_emptied(it, judged(it, exactly)) for it, exactly in zip(now, left, strict=True))

    def _terms_of(self, notice: MaintenanceNotice, node: Node | None) -> Terms:
        if node is None:
            return self._terms
        lead = self._by.lead_of(node, notice)
        is_minded = self._by.is_minded(node, notice)
        return replace(self._terms, lead=self._terms.lead if lead is None else lead, is_minded=is_minded)

    async def _look_at(self, node: Node) -> Occupancy:
        now = self._clock.now()
        known = self._seen.get(node.name)
        if known is not None and now - known.at < _NEW_ENOUGH:
            return known
        try:
            seen = await occupancy(self._client, node)
        except KubeError as error:
            seen = Occupancy(now, trouble=str(error))
        self._seen[node.name] = seen
        return seen

    async def _write(self, notice: MaintenanceNotice, review: Review) -> None:
        if review.status.phase not in (Phase.DUE, Phase.ACTIVE):
            self._seen.pop(review.status.node_name, None)
        change = difference(msgspec.to_builtins(notice.status), msgspec.to_builtins(review.status))
        if not change:
            return
        basis = {"uid": notice.uid, "resourceVersion": notice.resource_version}
        patch = merge_patch({"metadata": basis, "status": change})
        await self._client.patch(MAINTENANCE_NOTICES, notice.name, patch, subresource="status")
        self._observe(notice, review.status)

    def _tell(self, notice: MaintenanceNotice, happening: Happening) -> None:
        node = self._nodes.of(notice).node
        about = [reference(MAINTENANCE_NOTICES, notice)]
        about += [] if node is None else [reference(NODES, node)]
        for regarding in about:
            self._events.record(
                regarding,
                reason=happening.reason,
                note=f"{notice.name}: {happening.what}",
                action="Review",
                type="Warning" if happening.is_bad else "Normal",
            )


def _node_of(notice: MaintenanceNotice) -> tuple[str, ...]:
    return (notice.status.node_name,) if notice.status.node_name else ()


def _is_over(notice: MaintenanceNotice) -> bool:
    return notice.status.phase in {it for it in Phase if it.is_over}


def _is_alike(old: Node, new: Node) -> bool:
    """Tell whether the same is to be said about notices of both."""
    return is_found_alike(old, new) and _progress(old) == _progress(new)


def _progress(node: Node) -> tuple[object, ...]:
    state = node.metadata.labels.get(STATE_LABEL)  # a profile goes on when it has emptied the node
    return state, node.spec.unschedulable, cordon_owners(node), held_since(node), drained_at(node), hold_of(node)
