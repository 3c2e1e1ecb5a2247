"""The profiles controller: its informers, its work queue, and the changes that enqueue a node.

`reconciler` reconciles one node and describes the order of writes that makes a crash at any point safe. A node is
reconciled when it changes, when an object changes that its checks depend on (`view.topics`), and at the time at which
its decision can change.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import partial

from haulout.api.objects import Node, Pod
from haulout.budget.budget_check import WaitingList
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.executor import ProfilesExecutor
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.observation import Decision
from haulout.controllers.profiles.plugin import ClusterView, ObservedNode
from haulout.controllers.profiles.reconciler import Informers, ProfilesReconciler
from haulout.controllers.profiles.rescheduled_pods import RescheduledPodCounter
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.core.backoff import Backoff
from haulout.drain.escalation import EscalationStep
from haulout.drain.manager import DrainSnapshot
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.history.interface import History
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.workqueue import WorkQueue
from haulout.runtime.controller import Controller
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.handover import Handover

NAME = "profiles"  # of the controller in logs and metrics

# Workers wait for API requests most of the time. With one worker, as in the SAP maintenance-controller, a slow write
# would delay all nodes.
_WORKERS = 32
_BACKOFF = Backoff(limit=timedelta(minutes=5))  # longer than by default, because all nodes may fail at once
_FLUSH_TIMEOUT = timedelta(seconds=5)  # for notifications in flight before leadership is handed over


class ProfilesController:
    """Reconciles all nodes by the current configuration, which `use` can replace at any time.

    Call `run` at most once; the caller runs the informer of nodes. `namespace` is that of the operator, which holds the
    slot ledger.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        client: Client,
        *,
        events: ProfileEvents,
        namespace: str,
        informers: Callable[["ProfilesController"], Informers],
        nodes: Informer[Node],
        history: History,
        waiting_list: WaitingList,
        drain_metrics: InitiatorDrainMetrics | None = None,
        handover: Handover,
        freezes: FreezeSource,
    ) -> None:
        self.events = events
        self._freezes = freezes
        self.metrics = events.metrics
        self.history = history
        self._cache = nodes
        self._nodes = NodeIndex(data_annotation.statuses_of, on_change=self._on_node_change, clock=client.clock)
        self._waiting_list = waiting_list
        self._executor = ProfilesExecutor(
            client,
            self._nodes,
            namespace=namespace,
            write_data=_data_annotation,
            requeue=self.requeue,
            before_drain=handover.before_drain,
            on_pod_removal=self._record_pod_removal,
            waiting_list=self._waiting_list,
            drain_metrics=drain_metrics,
        )
        self._rescheduled_pods = RescheduledPodCounter(client, self.metrics)
        self._informers = informers(self)
        self._reconciler = ProfilesReconciler(
            client,
            nodes=self._nodes,
            informers=self._informers,
            executor=self._executor,
            rescheduled_pods=self._rescheduled_pods,
            events=events,
            history=self.history,
            freezes=self._freezes,
        )
        self.statuses = self._reconciler.statuses
        self._controller = Controller(
            self._reconciler,
            client,
            name=NAME,
            workers=_WORKERS,
            backoff=_BACKOFF,
            handover=handover,
            on_completed=self.metrics.record_reconcile,
        )

    async def run(self) -> None:
        """Run until cancelled. Raise `LeadershipHandover` when another process must take over."""
        background = (self._executor.run, self._rescheduled_pods.run, self._informers.run)
        await self._controller.run(background=background, start=self._start, stop=self._stop)

    async def _start(self, subscriptions: ExitStack) -> None:
        await self._cache.wait_synced()
        subscriptions.callback(self._cache.subscribe(self._nodes.on_watch_event))
        self.history.subscribe(self._enqueue_all)
        subscriptions.callback(self._freezes.subscribe(self._enqueue_all))
        availability = partial(self.requeue_for_topics, frozenset({topics.AVAILABILITY}))
        subscriptions.callback(self._waiting_list.subscribe(availability))

    async def _stop(self) -> None:
        """Send the notifications that are recorded as sent, because the next leader will not send them."""
        await self._informers.flush(_FLUSH_TIMEOUT)

    def use(self, configuration: Configuration) -> None:
        """Switch to this configuration and requeue all nodes."""
        self._reconciler.configuration = configuration
        self.metrics.initialize_series(configuration.profiles)
        self._informers.use(configuration)
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        for observed in list(self._nodes.all()):
            self.queue.add(observed.node.name)

    @property
    def profiles(self) -> Collection[str]:
        return () if self.configuration is None else self.configuration.profiles.keys()

    @property
    def configuration(self) -> Configuration | None:
        """The current configuration; None before the first `use`."""
        return self._reconciler.configuration

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
        """Requeue a node because an external query has a result, or its drain has made progress."""
        self.queue.add(node)

    def record_repeated_failure(self, node: str) -> None:
        """Record that an external query of a node failed again: emit the failure events of its profiles again."""
        known, observed = self.statuses.get(node), self._nodes.get(node)
        if known is not None and observed is not None:
            for report in known.reports:
                self.events.record_repeated_failure(observed.node, report)

    def requeue_for_topics(self, topics: frozenset[str]) -> None:
        """Requeue the nodes that subscribe to one of these topics."""
        for node in self._reconciler.topic_subscriptions.subscribers(topics):
            self.queue.add(node)

    def _on_node_change(self, node: str, topics: frozenset[str], is_own_write: bool) -> None:  # noqa: FBT001 - a callback
        # A reconcile that writes runs again anyway, and the watch event of a write often arrives before the response to
        # it.
        if not is_own_write and node not in self._executor.writing:
            self.queue.add(node)
        for other in self._reconciler.topic_subscriptions.subscribers(topics):
            if other != node:
                self.queue.add(other)

    # Status and health

    @property
    def queue(self) -> WorkQueue[str]:
        """The work queue of nodes, by name."""
        return self._controller.queue

    @property
    def due_count(self) -> int:
        """How many nodes are queued or being reconciled."""
        stats = self.queue.stats()
        return stats.waiting + stats.running

    def unready_reason(self) -> str:
        """Return why the node informer has not synced; empty if it has."""
        health = self._cache.health()
        return "" if health.has_synced else f"nodes are not known yet: {health.problem or 'they are being read'}"

    def _record_pod_removal(self, name: str, pod: Pod, escalation: EscalationStep) -> None:
        observed = self._nodes.get(name)
        if observed is not None:
            self.events.record_pod_removal(observed.node, pod, escalation)


def _data_annotation(decision: Decision, before: str) -> str:
    return data_annotation.updated(before, decision.statuses, decision.last_sent)
