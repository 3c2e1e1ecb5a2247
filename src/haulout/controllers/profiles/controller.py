"""The profiles controller: reconciles each node and requeues it for the time at which its decision can change.

`haulout.controllers.profiles.reconciler` runs one reconcile and describes the order of writes that makes a crash at any
point safe. This module owns the work queue, the topic subscriptions, the statuses and the handover of leadership before
the node of this pod is drained.
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
from haulout.budget.budget_check import WaitingList
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
from haulout.kube.reflector import ListWatch
from haulout.kube.transforms import compact_nodes
from haulout.kube.workqueue import WorkQueue

# Nodes by the topics that their checks depend on. A change requeues only the nodes that subscribe to one of its topics,
# so that the cost depends on the number of dependent nodes, not on the size of the cluster.


class TopicSubscriptions:
    """Maps topics to the nodes that are requeued when the topic changes."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, None]] = {}  # a set in insertion order, so that runs are reproducible
        self._topics: dict[str, frozenset[str]] = {}

    def set(self, node: str, topics: frozenset[str]) -> None:
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
        self.set(node, frozenset())

    def subscribers(self, topics: Iterable[str]) -> list[str]:
        """Return the nodes that subscribe to any of these topics, without duplicates, in a stable order."""
        return list(dict.fromkeys(node for topic in sorted(topics) for node in self._nodes.get(topic, ())))


log = logging.getLogger(__name__)

_MAX_STEPS = 20  # per reconcile; more means that the profiles form a loop
# Workers wait for API requests most of the time. With one worker, as in the SAP maintenance-controller, a slow write
# would delay all nodes.
_WORKERS = 32
_FLUSH_TIMEOUT = timedelta(seconds=5)  # for notifications in flight before leadership is handed over


class TransitionLoopError(HauloutError):
    """Raised if profiles change state without end within one reconcile; the work queue backs off for the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """What differs between installations. It does not change while the process runs."""

    namespace: str  # of the operator; holds the slot ledger
    own_node: str = ""  # hand over leadership before this node is drained; empty: never


class ProfilesController:
    """Reconciles all nodes by the current configuration, which `use` can replace at any time.

    Call `run` at most once. If `nodes` is given, its owner runs that informer; otherwise the controller creates and
    runs its own.
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
        """Run until cancelled. Raise `LeadershipHandover` when another process must take over."""
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
            # Reconciles end first, so that nothing new is decided. Then notifications that are recorded as sent are
            # sent, because the next leader will not send them.
            reconciling.cancel()
            await self._informers.flush(_FLUSH_TIMEOUT)
            for task in background:
                task.cancel()

    def _hand_over_if_own_node(self, node: str) -> None:
        """Hand over leadership before the node that runs this process is drained."""
        if node == self._own_node:
            self._is_handing_over.set()
            raise LeadershipHandover(f"node {node} is to be drained by another process")

    def use(self, configuration: Configuration) -> None:
        """Switch to this configuration and requeue all nodes."""
        self._configuration = configuration
        self.metrics.initialize_series(configuration.profiles)
        self._informers.use(configuration)
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        for observed in list(self._nodes.all()):
            self._queue.add(observed.node.name)

    @property
    def profiles(self) -> Collection[str]:
        return () if self._configuration is None else self._configuration.profiles.keys()

    @property
    def configuration(self) -> Configuration | None:
        """The current configuration; None before the first `use`."""
        return self._configuration

    def observed_node(self, node: str) -> ObservedNode | None:
        """Return a node with the status of each of its profiles."""
        return self._nodes.get(node)

    def drains(self, node: str) -> Mapping[str, DrainSnapshot]:
        """Return the known drains of a node, by profile."""
        return self._executor.detailed_drains(node)

    async def any_node(self, predicate: Callable[[Node], bool]) -> bool:
        """Return whether the predicate holds for any node. Wait until the informer has synced."""
        await self._cache.wait_synced()
        return any(map(predicate, self._cache.all()))

    def preview(
        self, name: str, configuration: Configuration, view_of: Callable[[NodeIndex], ClusterView]
    ) -> Decision | None:
        """Return the decision for a node under a configuration without executing it; None if there is none.

        `view_of` builds the cluster view that checks see from the node index.
        """
        observed = self._nodes.get(name)
        if observed is None or observed.problem or not configuration.profiles:
            return None
        return self._reconciler.preview(observed, configuration, view_of(self._nodes))

    def requeue(self, node: str) -> None:
        """Requeue a node because the result of one of its external queries has arrived."""
        self._queue.add(node)

    def record_repeated_failure(self, node: str) -> None:
        """Record that an external query of a node failed again: emit the failure events of its profiles again."""
        known, observed = self.statuses.get(node), self._nodes.get(node)
        if known is not None and observed is not None:
            for report in known.reports:
                self.events.record_repeated_failure(observed.node, report)

    def requeue_for_topics(self, topics: frozenset[str]) -> None:
        """Requeue the nodes that subscribe to one of these topics."""
        for node in self._topic_subscriptions.subscribers(topics):
            self._queue.add(node)

    def _on_node_change(self, node: str, topics: frozenset[str], is_own_write: bool) -> None:  # noqa: FBT001 - a callback
        # A reconcile that writes runs again anyway, and the watch event of a write often arrives before the response to
        # it.
        if not is_own_write and node not in self._executor.writing:
            self._queue.add(node)
        for other in self._topic_subscriptions.subscribers(topics):
            if other != node:
                self._queue.add(other)

    # Status and health

    @property
    def queue(self) -> WorkQueue[str]:
        """The work queue of nodes, by name."""
        return self._queue

    @property
    def due_count(self) -> int:
        """How many nodes are queued or being reconciled."""
        stats = self._queue.stats()
        return stats.waiting + stats.running

    def unready_reason(self) -> str:
        """Return why the node informer has not synced; empty if it has."""
        health = self._cache.health()
        return "" if health.has_synced else f"nodes are not known yet: {health.problem or 'they are being read'}"

    def _record_pod_removal(self, name: str, pod: Pod, escalation: EscalationStep) -> None:
        observed = self._nodes.get(name)
        if observed is not None:
            self.events.record_pod_removal(observed.node, pod, escalation)

    # Reconcile

    async def _reconcile(self, name: str) -> datetime | None:
        try:
            requeue_at = await self._reconcile_node(name)
        except (LeadershipHandover, LeadershipLost):
            raise
        # The boundary of a reconcile: whatever fails for one node must not stop the work of the others.
        except Exception as error:
            self._report_failure(name, error)
            raise  # the queue backs off for this node only
        self.events.clear_step_failure(name)
        return requeue_at

    def _report_failure(self, name: str, error: Exception) -> None:
        """Store an error status for a node whose reconcile failed."""
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
        """Reconcile until nothing is left to write. Return when to reconcile again."""
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
                    continue  # the watch has delivered a new node of the same name meanwhile
                return None  # the watch will deliver the deletion
            # A request that failed without a response may have changed the node.
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
        raise conflict or TransitionLoopError(f"the profiles of node {name} change from state to state without end")

    async def _skip(self, observed: ObservedNode) -> None:
        """Leave a node untouched if its data cannot be read: the states of its profiles are unknown."""
        self.events.record_unreadable_data(observed.node, observed.problem)
        self._store_status(observed, problem=f"Haulout does not manage this node: {observed.problem}")
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
        """Get a node from the API server after a conflict has shown that the cached copy is stale."""
        try:
            self._nodes.record_write(await self._client.get(NODES, name))
        except NotFound:
            log.debug("node %s no longer exists", name)

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
