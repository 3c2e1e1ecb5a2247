"""The profiles controller: for each node, take a step, perform it, and sleep until something could be different.

How a step is taken, so that it is safe to die at any instruction, is `haulout.controllers.profiles.reconciler`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from haulout.api.clusterapi import DRAIN_RULES
from haulout.api.objects import Node, Pod
from haulout.api.resources import NODES
from haulout.budget.waiting_list import WaitingList
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.executor import Executor
from haulout.controllers.profiles.history_recorder import HistoryRecorder
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.observation import DataUpdate, Decision, ProfileReport
from haulout.controllers.profiles.plugin import ClusterView, ObservedNode
from haulout.controllers.profiles.pod_shuffles import PodShuffleCounter
from haulout.controllers.profiles.reconciler import Informers, NodeReconciler
from haulout.controllers.profiles.status import NO_LABELS, NodeStatus, NodeStatuses
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.drain.escalation import EscalationStep
from haulout.drain.manager import DrainSnapshot
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.errors import Conflict, HauloutError, LeadershipHandover, LeadershipLost, NotFound
from haulout.history.interface import History, NoHistory
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.node_transform import compact_nodes
from haulout.kube.reflector import ListWatch
from haulout.kube.workqueue import WorkQueue

# Who waits for what: nodes by the topics that their checks have named.
#
# A change wakes those who wait for one of its topics, and nobody else. So its cost does not depend on how many nodes
# there are, but on how many could care.


class TopicSubscriptions:
    """Nodes by topic."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, None]] = {}  # a set with an order, so that runs repeat themselves
        self._topics: dict[str, frozenset[str]] = {}

    def set(self, node: str, topics: frozenset[str]) -> None:
        """Let a node wait for these topics, and for no others."""
        before = self._topics.get(node, frozenset())
        if before == topics:
            return
        for topic in before - topics:
            self._nodes[topic].pop(node, None)
            if not self._nodes[topic]:
                del self._nodes[topic]
        for topic in sorted(topics - before):
            self._nodes.setdefault(topic, {})[node] = None
        self._topics[node] = topics
        if not topics:
            del self._topics[node]

    def forget(self, node: str) -> None:
        """Let a node wait for nothing."""
        self.set(node, frozenset())

    def subscribers(self, topics: Iterable[str]) -> list[str]:
        """Return who waits for any of these topics."""
        return list(dict.fromkeys(node for topic in sorted(topics) for node in self._nodes.get(topic, ())))


log = logging.getLogger(__name__)

_MAX_STEPS = 20  # in a row: more would mean that profiles go in circles
_WORKERS = 32
_FLUSH_TIMEOUT = timedelta(seconds=5)  # for notifications that are on their way when another is to go on


class TransitionLoopError(HauloutError):
    """Profiles whose checks pass again and again; the node is left alone for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """What can differ from one installation to the next."""

    namespace: str  # of the operator: where ledgers are
    own_node: str = ""  # hand over before it is drained; empty: never


class ProfilesController:
    """Sees to all nodes by a configuration, which may be changed at any time; `run` may be called once.

    `nodes` is a copy that somebody else keeps up to date; without it, it has its own.
    """

    def __init__(
        self,
        client: Client,
        *,
        events: ProfileEvents,
        settings: ProfileSettings,
        informers: Callable[["ProfilesController"], Informers],
        nodes: Informer[Node] | None = None,
        history: History | None = None,
        waiting_list: WaitingList | None = None,
        drain_metrics: InitiatorDrainMetrics | None = None,
    ) -> None:
        self.statuses = NodeStatuses()
        self.events = events
        self.metrics = events.metrics
        self.history = history or NoHistory()
        self._history_recorder = HistoryRecorder(self.history, client.clock)
        self._client = client
        self._clock = client.clock
        self._configuration: Configuration | None = None
        self._topic_subscriptions = TopicSubscriptions()
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="profiles",
            on_completed=self.metrics.record_reconcile,
        )
        self._has_own_cache = nodes is None
        row = compact_nodes(shared_annotations=(DRAIN_RULES,))
        self._cache = Informer(client, ListWatch(NODES), transform=row) if nodes is None else nodes
        self._nodes = NodeIndex(data_annotation.statuses_of, on_change=self._on_node_change, clock=client.clock)
        self._waiting_list = waiting_list or WaitingList()
        self._executor = Executor(
            client,
            self._nodes,
            namespace=settings.namespace,
            write_data=_data_annotation,
            requeue=self._queue.add,
            before_drain=self._hand_over_if_own_node,
            on_pod_removal=self._record_pod_removal,
            waiting_list=self._waiting_list,
            drain_metrics=drain_metrics,
        )
        self._pod_shuffles = PodShuffleCounter(client, self.metrics)
        self._informers = informers(self)
        self._reconciler = NodeReconciler(
            self._nodes,
            self._informers,
            executor=self._executor,
            recorder=self._history_recorder,
            pod_shuffles=self._pod_shuffles,
            events=events,
            clock=client.clock,
        )
        self._own_node = settings.own_node
        self._is_handing_over = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; raises `LeadershipHandover` when another process should go on."""
        with ExitStack() as stack:
            await self._run_until_handover(stack)
        raise LeadershipHandover(f"this process runs on node {self._own_node}, which a profile is about to drain")

    async def _run_until_handover(self, stack: ExitStack) -> None:
        async with asyncio.TaskGroup() as group:
            own = (self._cache.run,) if self._has_own_cache else ()
            runs = (*own, self._executor.run, self._pod_shuffles.run, self._informers.run)
            background = [group.create_task(run()) for run in runs]
            await self._cache.wait_synced()
            stack.callback(self._cache.subscribe(self._nodes.on_watch_event))
            self.history.subscribe(self._enqueue_all)
            stack.callback(
                self._waiting_list.subscribe(partial(self.requeue_for_topics, frozenset({topics.AVAILABILITY})))
            )
            reconciling = group.create_task(self._queue.run())
            await self._is_handing_over.wait()
            reconciling.cancel()
            await self._informers.flush(_FLUSH_TIMEOUT)
            for task in background:
                task.cancel()

    def _hand_over_if_own_node(self, node: str) -> None:
        """Give way to another process before the node is emptied on which this one runs."""
        if node == self._own_node:
            self._is_handing_over.set()
            raise LeadershipHandover(f"node {node} is to be drained by another process")

    def use(self, configuration: Configuration) -> None:
        """Go on by this configuration: all nodes are looked at again."""
        self._configuration = configuration
        self.metrics.initialize_series(configuration.profiles)
        self._informers.use(configuration)
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        for observed in list(self._nodes.all()):
            self._queue.add(observed.node.name)

    @property
    def profiles(self) -> Collection[str]:
        """The names of the profiles that there are."""
        return () if self._configuration is None else self._configuration.profiles.keys()

    @property
    def configuration(self) -> Configuration | None:
        """What it goes by."""
        return self._configuration

    def observed_node(self, node: str) -> ObservedNode | None:
        """Return a node, and where its profiles stand."""
        return self._nodes.get(node)

    def drains(self, node: str) -> Mapping[str, DrainSnapshot]:
        """Return the drains of a node by profile, as far as they are known."""
        return self._executor.detailed_drains(node)

    async def any_node(self, predicate: Callable[[Node], bool]) -> bool:
        """Tell whether something is so of any node, when all are known."""
        await self._cache.wait_synced()
        return any(map(predicate, self._cache.all()))

    def preview(
        self, name: str, configuration: Configuration, view_of: Callable[[NodeIndex], ClusterView]
    ) -> Decision | None:
        """Return which step a node would take by a configuration; None: none. Nothing is done about it.

        `view_of` makes of the nodes what its checks see.
        """
        observed = self._nodes.get(name)
        if observed is None or observed.problem or not configuration.profiles:
            return None
        return self._reconciler.preview(observed, configuration, view_of(self._nodes))

    def requeue(self, node: str) -> None:
        """Look at a node: something that it asked for is there."""
        self._queue.add(node)

    def record_repeated_failure(self, node: str) -> None:
        """Hear that what a node asked the outside failed once more: its profiles fail as they did, which is told."""
        known, observed = self.statuses.get(node), self._nodes.get(node)
        if known is not None and observed is not None:
            for report in known.reports:
                self.events.record_repeated_failure(observed.node, report)

    def requeue_for_topics(self, topics: frozenset[str]) -> None:
        """Look at the nodes that wait for one of these topics."""
        for node in self._topic_subscriptions.subscribers(topics):
            self._queue.add(node)

    def _on_node_change(self, node: str, topics: frozenset[str], is_own_write: bool) -> None:  # noqa: FBT001 - a callback
        # Who writes looks again anyway, and the watch often tells of a write before it is answered.
        if not is_own_write and node not in self._executor.writing:
            self._queue.add(node)
        for other in self._topic_subscriptions.subscribers(topics):
            if other != node:
                self._queue.add(other)

    # How it stands

    @property
    def queue(self) -> WorkQueue[str]:
        """Which nodes are due, by name."""
        return self._queue

    @property
    def due_count(self) -> int:
        """How many nodes are due to be looked at, or being looked at."""
        stats = self._queue.stats()
        return stats.waiting + stats.running

    def unready_reason(self) -> str:
        """Return why nodes are not known yet; empty if they are."""
        health = self._cache.health()
        return "" if health.has_synced else f"nodes are not known yet: {health.problem or 'they are being read'}"

    def _record_pod_removal(self, name: str, pod: Pod, escalation: EscalationStep) -> None:
        observed = self._nodes.get(name)
        if observed is not None:
            self.events.record_pod_removal(observed.node, pod, escalation)

    # One node

    async def _reconcile(self, name: str) -> datetime | None:
        try:
            requeue_at = await self._reconcile_node(name)
        except (LeadershipHandover, LeadershipLost):
            raise
        except Exception as error:
            self._report_failure(name, error)
            raise  # the queue backs off, for this node alone
        self.events.clear_step_failure(name)
        return requeue_at

    def _report_failure(self, name: str, error: Exception) -> None:
        """Say of a node that nothing can be done about it for now, and why."""
        observed = self._nodes.get(name)
        if observed is None:
            return
        problem = self.events.record_step_failure(observed.node, error)
        known = self.statuses.get(name)
        reports = () if known is None else known.reports
        self._store_status(
            observed, tuple(replace(report, next=report.state, error=problem) for report in reports), problem=problem
        )

    async def _reconcile_node(self, name: str) -> datetime | None:
        """Take steps until there is nothing more to do; return when to look again."""
        conflict: Conflict | None = None
        for _ in range(_MAX_STEPS):
            observed, configuration = self._nodes.get(name), self._configuration
            if configuration is None or not configuration.profiles or observed is None:
                await self._forget(name)
                return None
            if observed.problem:
                await self._skip(observed)
                return None
            self.events.clear_unreadable_data(name)
            self._history_recorder.complete(observed)
            try:
                decision, has_written = await self._reconciler.reconcile(observed, configuration)
            except Conflict as error:
                conflict = error
                self._history_recorder.invalidate(name)
                await self._refresh(name)
                continue
            except NotFound:
                if self._nodes.get(name) is not observed:
                    continue  # the watch has told of another of the same name meanwhile
                return None  # the watch will tell
            except HauloutError:
                self._history_recorder.invalidate(name)
                raise
            if not has_written:
                self._topic_subscriptions.set(name, decision.topics)
                if decision.data_update is DataUpdate.NONE:
                    self.statuses.forget(name)
                else:
                    self._store_status(
                        observed, decision.reports, next_reconcile=decision.requeue_at, topics=decision.topics
                    )
                later_times = (
                    self._history_recorder.recheck_at(observed, decision),
                    self._executor.conditions_retry_at(name),
                )
                return min(filter(None, (decision.requeue_at, *later_times)), default=None)
        raise conflict or TransitionLoopError(f"the profiles of node {name} lead from state to state without an end")

    async def _skip(self, observed: ObservedNode) -> None:
        """Touch nothing of a node whose data cannot be read: nobody knows where its profiles stand."""
        self.events.record_unreadable_data(observed.node, observed.problem)
        self._store_status(observed, problem=f"the operator leaves it alone: {observed.problem}")
        await self._executor.forget(observed.node.name)
        self._topic_subscriptions.forget(observed.node.name)

    def _store_status(
        self,
        observed: ObservedNode,
        reports: tuple[ProfileReport, ...] = (),
        *,
        next_reconcile: datetime | None = None,
        topics: frozenset[str] = frozenset(),
        problem: str = "",
    ) -> None:
        shown_labels = () if self._configuration is None else self._configuration.label_filter
        labels = {
            key: value for key, value in observed.node.metadata.labels.items() if key in shown_labels
        } or NO_LABELS
        query_interval, name, now = (
            self._informers.query_interval(observed.node.name),
            observed.node.name,
            self._clock.now(),
        )
        self.statuses.store(NodeStatus(name, labels, reports, now, next_reconcile, topics, query_interval, problem))

    async def _refresh(self, name: str) -> None:
        """Ask the server for a node of which our copy has proved to be old."""
        try:
            self._nodes.record_write(await self._client.get(NODES, name))
        except NotFound:
            log.debug("node %s is gone", name)

    async def _forget(self, name: str) -> None:
        await self._executor.forget(name)
        if self._nodes.get(name) is None:
            await self._executor.cordon_copies.remove_node(name)
        self._topic_subscriptions.forget(name)
        self.statuses.forget(name)
        self.events.forget(name)
        self._history_recorder.forget(name)
        self._reconciler.forget(name)


def _data_annotation(decision: Decision, before: str) -> str:
    return data_annotation.updated(before, decision.statuses, decision.last_sent)
