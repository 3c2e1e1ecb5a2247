"""The profiles controller: for each node, take a step, perform it, and sleep until something could be different.

How a step is taken, so that it is safe to die at any instruction, is `haulout.profiles.stepping`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from haulout.budget.line import Line
from haulout.drain.keeper import Kept
from haulout.drain.ladder import Rung
from haulout.drain.tallies import Meter
from haulout.errors import Conflict, HandOver, HauloutError, LeadershipLost, NotFound
from haulout.history.interface import History, NoHistory
from haulout.kinds.clusterapi import DRAIN_RULES
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.compact import compact_nodes
from haulout.kube.follow import Selection
from haulout.kube.objects import Node, Pod
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES
from haulout.profiles import data, topics
from haulout.profiles.info import NO_LABELS, Info, NodeInfo
from haulout.profiles.model import Configuration
from haulout.profiles.performing import Performer
from haulout.profiles.plugin import NodeSight, Sights
from haulout.profiles.recording import Recorder
from haulout.profiles.shuffles import Shuffles
from haulout.profiles.sights import NodeSights
from haulout.profiles.stepping import Stepper, Surroundings
from haulout.profiles.steps import ProfileReport, Result, Trace
from haulout.profiles.telling import Teller
from haulout.profiles.waiting import Waiting

log = logging.getLogger(__name__)

_MOST_STEPS = 20  # in a row: more would mean that profiles go in circles
_WORKERS = 32
_LAST_WORDS = timedelta(seconds=5)  # for notifications that are on their way when another is to go on


class GoesInCircles(HauloutError):
    """Profiles whose checks pass again and again; the node is left alone for a while."""


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
        meter: Meter | None = None,
    ) -> None:
        self.info = Info()
        self.teller = teller
        self.tallies = teller.tallies
        self.history = history or NoHistory()
        self._recorder = Recorder(self.history, client.clock)
        self._client = client
        self._clock = client.clock
        self._configuration: Configuration | None = None
        self._waiting = Waiting()
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            meters=client.meters,
            name="profiles",
            observe=self.tallies.count_look,
        )
        self._has_own_cache = nodes is None
        row = compact_nodes(alike=(DRAIN_RULES,))
        self._cache = Cache(client, Selection(NODES), row=row) if nodes is None else nodes
        self._nodes = NodeSights(data.entries_of, changed=self._note_change, clock=client.clock)
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
            meter=meter,
        )
        self._shuffles = Shuffles(client, self.tallies)
        self._surroundings = surroundings(self)
        self._stepper = Stepper(
            self._nodes,
            self._surroundings,
            performer=self._performer,
            recorder=self._recorder,
            shuffles=self._shuffles,
            teller=teller,
            clock=client.clock,
        )
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
            background = [group.create_task(run()) for run in runs]
            await self._cache.wait_synced()
            stack.callback(self._cache.subscribe(self._nodes.follow))
            self.history.subscribe(self._look_at_all)
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
        self._look_at_all()

    def _look_at_all(self) -> None:
        for sight in list(self._nodes.all()):
            self._queue.add(sight.node.name)

    @property
    def profiles(self) -> Collection[str]:
        """The names of the profiles that there are."""
        return () if self._configuration is None else self._configuration.profiles.keys()

    @property
    def configuration(self) -> Configuration | None:
        """What it goes by."""
        return self._configuration

    def sight(self, node: str) -> NodeSight | None:
        """Return a node, and where its profiles stand."""
        return self._nodes.get(node)

    def drains(self, node: str) -> Mapping[str, Kept]:
        """Return the drains of a node by profile, as far as they are known."""
        return self._performer.glance(node)

    async def any_node(self, test: Callable[[Node], bool]) -> bool:
        """Tell whether something is so of any node, when all are known."""
        await self._cache.wait_synced()
        return any(map(test, self._cache.all()))

    def considered(self, name: str, configuration: Configuration, see: Callable[[NodeSights], Sights]) -> Result | None:
        """Return which step a node would take by a configuration; None: none. Nothing is done about it.

        `see` makes of the nodes what its checks see.
        """
        sight = self._nodes.get(name)
        if sight is None or sight.problem or not configuration.profiles:
            return None
        return self._stepper.considered(sight, configuration, see(self._nodes))

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
        # Who writes looks again anyway, and the watch often tells of a write before it is answered.
        if not by_us and node not in self._performer.writing:
            self._queue.add(node)
        for other in self._waiting.for_any(topics):
            if other != node:
                self._queue.add(other)

    # How it stands

    @property
    def queue(self) -> Queue[str]:
        """Which nodes are due, by name."""
        return self._queue

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
            if configuration is None or not configuration.profiles or sight is None:
                await self._forget(name)
                return None
            if sight.problem:
                await self._leave_alone(sight)
                return None
            self.teller.readable(name)
            self._recorder.sees(sight)
            try:
                result, wrote = await self._stepper.go_on(sight, configuration)
            except Conflict as error:
                conflict = error
                self._recorder.doubts(name)
                await self._refresh(name)
                continue
            except NotFound:
                if self._nodes.get(name) is not sight:
                    continue  # the watch has told of another of the same name meanwhile
                return None  # the watch will tell
            except HauloutError:
                self._recorder.doubts(name)
                raise
            if not wrote:
                self._waiting.set(name, result.topics)
                if result.trace is Trace.UNTOUCHED:
                    self.info.forget(name)
                else:
                    self._note(sight, result.reports, next_look=result.wakes_at, topics=result.topics)
                later = self._recorder.clears_at(sight, result), self._performer.publishes_at(name)
                return min(filter(None, (result.wakes_at, *later)), default=None)
        raise conflict or GoesInCircles(f"the profiles of node {name} lead from state to state without an end")

    async def _leave_alone(self, sight: NodeSight) -> None:
        """Touch nothing of a node whose data cannot be read: nobody knows where its profiles stand."""
        self.teller.unreadable(sight.node, sight.problem)
        self._note(sight, problem=f"the operator leaves it alone: {sight.problem}")
        await self._performer.forget(sight.node.name)
        self._waiting.forget(sight.node.name)

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
        if self._nodes.get(name) is None:
            await self._performer.cordon_copies.forget(name)
        self._waiting.forget(name)
        self.info.forget(name)
        self.teller.forget(name)
        self._recorder.forget(name)
        self._stepper.forget(name)


def _written(result: Result, before: str) -> str:
    return data.revised(before, result.entries, result.notified)
