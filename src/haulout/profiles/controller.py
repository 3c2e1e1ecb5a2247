"""The profiles controller: for each node, take a step, perform it, and sleep until something could be different.

The order in which a step is performed is what makes it safe to die at any instruction:

1. What must be taken is taken, by compare-and-swap: slots of budgets, leases. A transition whose slot is not to be had
   does not happen. Who has a slot already keeps it.
2. What is changed elsewhere is changed. It can be repeated.
3. The node is written, once, under the resourceVersion that the step rests on: labels, annotations, finalizers, cordon,
   and the data that says where each profile stands. Either all of it is there, or none.
4. What people are told is told: events, and notifications, which the data already says were sent: none is sent twice.
   What happened is noted in the history, which a successor completes from the data.

Steps that take something are made one at a time, each on what the one before it wrote. All others run side by side.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from haulout.budget.line import Line
from haulout.drain.ladder import Rung
from haulout.errors import BadRequest, Conflict, Forbidden, HandOver, HauloutError, Invalid, LeadershipLost, NotFound
from haulout.history.keeper import History, NoHistory
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.compact import compact_nodes
from haulout.kube.follow import Selection
from haulout.kube.objects import Node, Pod
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES
from haulout.profiles import begun, data, topics
from haulout.profiles.attaching import attached
from haulout.profiles.info import NO_LABELS, Info, NodeInfo
from haulout.profiles.machine import step
from haulout.profiles.model import Configuration
from haulout.profiles.performing import Performer
from haulout.profiles.plugin import DATA_ANNOTATION, LOG_DETAILS_LABEL, Claim, LeaseClaim, NodeSight, Sights, State
from haulout.profiles.recording import Recorder
from haulout.profiles.shuffles import Shuffles
from haulout.profiles.sights import NodeSights
from haulout.profiles.steps import ProfileReport, Result, Sending, Subject
from haulout.profiles.telling import Teller
from haulout.profiles.waiting import Waiting

log = logging.getLogger(__name__)

_MOST_STEPS = 20  # in a row: more would mean that profiles go in circles
_WORKERS = 32
_LAST_WORDS = timedelta(seconds=5)  # for notifications that are on their way when another is to go on
_REFUSALS = BadRequest, Forbidden, Invalid  # trying again will not help, until somebody changes something


class GoesInCircles(HauloutError):
    """Profiles whose checks pass again and again; the node is left alone for a while."""


class Surroundings(Protocol):
    """What there is beside nodes, and how people are told: what a configuration needs of it is followed."""

    def use(self, configuration: Configuration) -> None:
        """Follow what this configuration needs, and nothing else."""
        ...

    async def run(self) -> None:
        """Follow it until cancelled."""
        ...

    def sights(self, node: str, nodes: NodeSights) -> Sights:
        """Return what checks of a node see."""
        ...

    def asks_every(self, node: str) -> timedelta | None:
        """Return how often the outside is asked for a node; None: it is not."""
        ...

    def post(self, sending: Sending, node: NodeSight) -> None:
        """Send a notification; it is written down that it was sent."""
        ...

    async def settle(self, within: timedelta) -> None:
        """Return when what was posted is sent, or after `within`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can differ from one installation to the next."""

    namespace: str  # of the operator: where ledgers are
    own_node: str = ""  # hand over before it is drained; empty: never


class Controller:
    """Sees to all nodes by a configuration, which may be changed at any time; `run` may be called once.

    `nodes` is a copy that somebody else keeps up to date; without it, it has its own.
    """

    def __init__(
        self,
        client: Client,
        *,
        teller: Teller,
        settings: Settings,
        surroundings: Callable[["Controller"], Surroundings],
        nodes: Cache[Node] | None = None,
        history: History | None = None,
        line: Line | None = None,
    ) -> None:
        self.info = Info()
        self.teller = teller
        self.tallies = teller.tallies
        self._recorder = Recorder(history or NoHistory(), client.clock)
        self._client = client
        self._clock = client.clock
        self._configuration: Configuration | None = None
        self._waiting = Waiting()
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            name="profiles",
            observe=self.tallies.count_look,
        )
        self._has_own_cache = nodes is None
        self._cache = Cache(client, Selection(NODES), row=compact_nodes()) if nodes is None else nodes
        self._nodes = NodeSights(data.entries_of, changed=self._note_change)
        self._line = line or Line()
        self._performer = Performer(
            client,
            self._nodes,
            namespace=settings.namespace,
            write=_written,
            changed=self._queue.add,
            before_drain=self._hand_over_if_on,
            asked=self._tell_leaving,
            line=self._line,
        )
        self._shuffles = Shuffles(client, self.tallies)
        self._surroundings = surroundings(self)
        self._taking = asyncio.Lock()
        self._own_node = settings.own_node
        self._is_handing_over = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; raises `HandOver` when another process should go on."""
        with ExitStack() as stack:
            await self._work_until_handing_over(stack)
        raise HandOver(f"this process runs on node {self._own_node}, which a profile is about to drain")

    async def _work_until_handing_over(self, stack: ExitStack) -> None:
        async with asyncio.TaskGroup() as group:
            own = (self._cache.run,) if self._has_own_cache else ()
            runs = (*own, self._performer.run, self._shuffles.run, self._surroundings.run)
            background = [group.create_task(_endless(run)) for run in runs]
            await self._cache.wait_synced()
            stack.callback(self._cache.subscribe(self._nodes.follow))
            stack.callback(self._line.subscribe(partial(self.note_topics, frozenset({topics.SERVICE}))))
            working = group.create_task(self._queue.run())
            await self._is_handing_over.wait()
            working.cancel()
            await self._surroundings.settle(_LAST_WORDS)
            for task in background:
                task.cancel()

    def _hand_over_if_on(self, node: str) -> None:
        """Give way to another process before the node is emptied on which this one runs."""
        if node == self._own_node:
            self._is_handing_over.set()
            raise HandOver(f"node {node} is to be drained by another process")

    def use(self, configuration: Configuration) -> None:
        """Go on by this configuration: all nodes are looked at again."""
        self._configuration = configuration
        self.tallies.know(configuration.profiles)
        self._surroundings.use(configuration)
        for sight in list(self._nodes.all()):
            self._queue.add(sight.node.name)

    def wake(self, node: str) -> None:
        """Look at a node: something that it asked for is there."""
        self._queue.add(node)

    def fails_on(self, node: str) -> None:
        """Hear that what a node asked the outside failed once more: its profiles fail as they did, which is told."""
        known, sight = self.info.get(node), self._nodes.get(node)
        if known is not None and sight is not None:
            for report in known.reports:
                self.teller.fails_on(sight.node, report)

    def note_topics(self, topics: frozenset[str]) -> None:
        """Look at the nodes that wait for one of these topics."""
        for node in self._waiting.for_any(topics):
            self._queue.add(node)

    def _note_change(self, node: str, topics: frozenset[str], by_us: bool) -> None:  # noqa: FBT001 - a callback
        if not by_us:  # who writes looks again anyway
            self._queue.add(node)
        for other in self._waiting.for_any(topics):
            if other != node:
                self._queue.add(other)

    # How it stands

    @property
    def due(self) -> int:
        """How many nodes are due to be looked at, or being looked at."""
        stats = self._queue.stats()
        return stats.waiting + stats.running

    def unready(self) -> str:
        """Return why nodes are not known yet; empty if they are."""
        health = self._cache.health()
        return "" if health.synced else f"nodes are not known yet: {health.problem or 'they are being read'}"

    def _tell_leaving(self, name: str, pod: Pod, rung: Rung) -> None:
        sight = self._nodes.get(name)
        if sight is not None:
            self.teller.leaves(sight.node, pod, rung)

    # One node

    async def _work(self, name: str) -> datetime | None:
        try:
            wakes_at = await self._look_at(name)
        except (HandOver, LeadershipLost):
            raise
        except Exception as error:
            self._tell_failure(name, error)
            raise  # the queue backs off, for this node alone
        self.teller.works(name)
        return wakes_at

    def _tell_failure(self, name: str, error: Exception) -> None:
        """Say of a node that nothing can be done about it for now, and why."""
        sight = self._nodes.get(name)
        if sight is None:
            return
        why = self.teller.fails(sight.node, error)
        known = self.info.get(name)
        reports = () if known is None else known.reports
        self._note(sight, tuple(replace(it, next=it.state, error=why) for it in reports), problem=why)

    async def _look_at(self, name: str) -> datetime | None:
        """Take steps until there is nothing more to do; return when to look again."""
        conflict: Conflict | None = None
        for _ in range(_MOST_STEPS):
            sight, configuration = self._nodes.get(name), self._configuration
            if configuration is None or not configuration.profiles:
                await self._forget(name)
                return None
            if sight is None:
                await self._forget(name)
                return None
            if sight.problem:
                await self._leave_alone(sight)
                return None
            self.teller.readable(name)
            self._recorder.sees(sight)
            try:
                result, wrote = await self._go_on(sight, configuration)
            except Conflict as error:
                conflict = error
                self._recorder.doubts(name)
                await self._refresh(name)
                continue
            except NotFound:
                return None  # the watch will tell
            except HauloutError:
                self._recorder.doubts(name)
                raise
            if not wrote:
                self._waiting.set(name, result.topics)
                self._note(sight, result.reports, next_look=result.wakes_at, topics=result.topics)
                return result.wakes_at
        raise conflict or GoesInCircles(f"the profiles of node {name} lead from state to state without an end")

    async def _leave_alone(self, sight: NodeSight) -> None:
        """Touch nothing of a node whose data cannot be read: nobody knows where its profiles stand."""
        self.teller.unreadable(sight.node, sight.problem)
        self._note(sight, problem=f"the operator leaves it alone: {sight.problem}")
        await self._performer.forget(sight.node.name)
        self._waiting.forget(sight.node.name)

    async def _go_on(self, sight: NodeSight, configuration: Configuration) -> tuple[Result, bool]:
        """Take one step; return what it was, and whether it changed the node."""
        result = self._step(self._subject(sight, configuration), configuration)
        if not result.claims and not result.hypervisors:
            return result, await self._perform(sight, result)
        async with self._taking:
            now = self._nodes.get(sight.node.name)
            if now is None or now.node.resource_version != sight.node.resource_version:
                return result, True  # it changed while others had their turn: look again
            result, has_slot = await self._prepare(self._subject(now, configuration), configuration)
            try:
                wrote = await self._perform(now, result)
            except _REFUSALS:
                if has_slot and not _has_been_taken(now):
                    await self._performer.withdraw(now.node)  # others may be luckier
                raise
            if has_slot and not _needs_slot(result):
                await self._performer.withdraw(now.node)
            return result, wrote

    async def _prepare(self, subject: Subject, configuration: Configuration) -> tuple[Result, bool]:
        """Return a step that has all it needs, and whether a slot may have been taken.

        What cannot be had makes it another step, which may want something else: another profile may have its turn.
        """
        taken: set[tuple[str, Claim]] = set()
        may_have_slot = False  # of what is refused a part may have been taken: a slot, and then no lease
        while True:
            result = self._step(subject, configuration)
            wanted = [it for it in result.claims if it not in taken]
            may_have_slot |= any(not isinstance(claim, LeaseClaim) for _, claim in wanted)
            refused = await self._performer.take(wanted, subject.node)
            taken |= {it for it in wanted if it[0] not in refused}
            failed = {} if refused else await self._performer.change_elsewhere(result)
            if not refused and not failed:
                return result, may_have_slot
            whys = {(profile, result.claiming[profile]): why for profile, why in refused.items()}
            subject = replace(subject, refused={**subject.refused, **whys}, failed={**subject.failed, **failed})

    def _step(self, subject: Subject, configuration: Configuration) -> Result:
        return step(subject, configuration.profiles, attached(subject.node, configuration.profiles))

    def _subject(self, sight: NodeSight, configuration: Configuration) -> Subject:
        node = sight.node
        return Subject(
            node=node,
            entries=sight.entries,
            notified=data.notified_of(node.metadata.annotations.get(DATA_ANNOTATION)),
            pending=begun.read(node),
            drains=self._performer.drains_of(node.name),
            in_hand=self._performer.in_hand(node.name),
            sights=self._surroundings.sights(node.name, self._nodes),
            requeue=configuration.requeue,
            now=self._clock.now(),
            budget=self._performer.budget(configuration.budget),
            logs_details=node.metadata.labels.get(LOG_DETAILS_LABEL) == "true",
        )

    async def _perform(self, sight: NodeSight, result: Result) -> bool:
        wrote = await self._performer.write_node(self._recorder.carried(sight, result))
        if result.claims:
            self._performer.use_up(sight.node.name)
        for report in result.reports:
            self.teller.tell(sight.node, report)
        self._recorder.records(sight, result, self._performer.ended_drains_of(sight.node.name))
        for sending in result.sendings:
            self._surroundings.post(sending, sight)
        if wrote:
            self._shuffles.note(sight, result)
        if result.drains:
            await self._shuffles.seen(sight.node.name)
        await self._performer.see_to_drains(sight.node, result.drains)
        if _has_left(sight, result) and (left := self._nodes.find(sight.node.name)):
            await self._performer.give_back(left)
        return wrote

    def _note(
        self,
        sight: NodeSight,
        reports: tuple[ProfileReport, ...] = (),
        *,
        next_look: datetime | None = None,
        topics: frozenset[str] = frozenset(),
        problem: str = "",
    ) -> None:
        shown = () if self._configuration is None else self._configuration.label_filter
        labels = {key: value for key, value in sight.node.metadata.labels.items() if key in shown} or NO_LABELS
        asks_every, name, now = self._surroundings.asks_every(sight.node.name), sight.node.name, self._clock.now()
        self.info.note(NodeInfo(name, labels, reports, now, next_look, topics, asks_every, problem))

    async def _refresh(self, name: str) -> None:
        """Ask the server for a node of which our copy has proved to be old."""
        try:
            self._nodes.note(await self._client.get(NODES, name))
        except NotFound:
            log.debug("node %s is gone", name)

    async def _forget(self, name: str) -> None:
        await self._performer.forget(name)
        self._waiting.forget(name)
        self.info.forget(name)
        self.teller.forget(name)
        self._recorder.forget(name)


def _written(result: Result, before: str) -> str:
    return data.revised(before, result.entries, result.notified)


def _has_left(sight: NodeSight, result: Result) -> bool:
    """Tell whether a node was in maintenance, or on its way there, and is not any more."""
    return _has_been_taken(sight) and not _needs_slot(result)


def _has_been_taken(sight: NodeSight) -> bool:
    return sight.state == State.IN_MAINTENANCE or bool(begun.read(sight.node))


def _needs_slot(result: Result) -> bool:
    return result.state is State.IN_MAINTENANCE or bool(result.pending)


async def _endless(run: Callable[[], Awaitable[None]]) -> None:
    await run()
