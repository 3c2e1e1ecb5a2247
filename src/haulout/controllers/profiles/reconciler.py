"""Reconciles one node: observe, decide, execute. The order of writes makes a crash at any point safe.

1. Take claims by compare-and-swap: budget slots and leases. A transition whose slot is refused does not happen. A node
   that already has a slot keeps it.
2. Change other objects. These changes are idempotent.
3. Write the node once, under the resourceVersion that the decision is based on: labels, annotations, finalizers,
   cordon, and the data annotation with the states of the profiles. Either all of it is written, or nothing.
4. Emit events and send notifications. The data annotation already records them as sent, so none is sent twice. Record
   the transition in the history; after a crash the next leader completes the history from the data annotation.
5. Start or stop drains and write the conditions of the node, which the next leader completes as well.

Decisions with claims or external actions are executed one at a time, each based on the write before it. All others run
in parallel.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from haulout.api.resources import NODES
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.decision import decide
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.executor import ProfilesExecutor
from haulout.controllers.profiles.history_recorder import HistoryRecorder
from haulout.controllers.profiles.machine import data_annotation, transitions
from haulout.controllers.profiles.machine.loop_backoff import LoopBackoff
from haulout.controllers.profiles.observation import (
    DataUpdate,
    Decision,
    NotificationRequest,
    Observation,
    ProfileReport,
)
from haulout.controllers.profiles.plugin import (
    DATA_ANNOTATION,
    LOG_DETAILS_LABEL,
    Claim,
    ClusterView,
    LeaseClaim,
    ObservedNode,
    State,
)
from haulout.controllers.profiles.rescheduled_pods import RescheduledPodCounter
from haulout.controllers.profiles.status import NO_LABELS, NodeProfilesStatus, NodeStatuses
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.controllers.profiles.view.topics import TopicSubscriptions
from haulout.errors import BadRequest, Forbidden, HauloutError, Invalid, NotFound, ObservationStale
from haulout.history.interface import History
from haulout.kube.client import Client
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.reconciler import Reconciler

_PERMANENT_ERRORS = BadRequest, Forbidden, Invalid  # a retry does not help until someone changes something


class Informers(Protocol):
    """What the reconciler needs beside nodes: informers, the external query cache, and notifications."""

    def use(self, configuration: Configuration) -> None:
        """Watch and query what this configuration needs, and nothing else."""
        ...

    async def run(self) -> None: ...

    def cluster_view(self, node: str, nodes: NodeIndex) -> ClusterView:
        """Return the view of the cluster that the checks of a node get."""
        ...

    def query_interval(self, node: str) -> timedelta | None:
        """Return how often external queries run for a node; None: it has none."""
        ...

    def send(self, notification: NotificationRequest, observed: ObservedNode) -> None:
        """Send a notification. The caller has already recorded it as sent."""
        ...

    async def flush(self, timeout: timedelta) -> None:
        """Return when all queued notifications are sent, or after `timeout`."""
        ...


@dataclass(frozen=True, slots=True)
class NodeObservation:
    """A node whose data is readable, with all that its next decision depends on."""

    observed: ObservedNode
    observation: Observation
    configuration: Configuration


class ProfilesReconciler(Reconciler[str, NodeObservation, Decision]):
    """Reconciles all profiles of one node at a time, by the name of the node."""

    def __init__(
        self,
        client: Client,
        *,
        nodes: NodeIndex,
        informers: Informers,
        executor: ProfilesExecutor,
        rescheduled_pods: RescheduledPodCounter,
        events: ProfileEvents,
        history: History,
        freezes: FreezeSource,
    ) -> None:
        self._freezes = freezes
        self.configuration: Configuration | None = None
        self.statuses = NodeStatuses()
        self.topic_subscriptions = TopicSubscriptions()
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._informers = informers
        self._executor = executor
        self._rescheduled_pods = rescheduled_pods
        self._events = events
        self._history_recorder = HistoryRecorder(history, client.clock)
        # Decisions with claims read what earlier ones have taken. In parallel, several nodes would decide for the same
        # slot, and all but one be refused.
        self._claims_lock = asyncio.Lock()
        self._loop_backoff = LoopBackoff()

    async def observe(self, key: str) -> NodeObservation | None:
        observed, configuration = self._nodes.get(key), self.configuration
        if observed is None or observed.problem or configuration is None or not configuration.profiles:
            return None
        self._events.clear_unreadable_data(key)
        self._history_recorder.complete(observed)
        await self._executor.cordon_copies.load(lambda: (node.node for node in self._nodes.all()))
        return NodeObservation(observed, self._observe(observed, configuration), configuration)

    def decide(self, observation: NodeObservation) -> Decision:
        return decide(observation.observation, observation.configuration.profiles)

    async def act(self, observation: NodeObservation, decision: Decision) -> bool | Decision:
        name = observation.observed.node.name
        try:
            if not decision.claims and not decision.external_actions:
                return await self._execute(observation.observed, decision)
            async with self._claims_lock:
                current = await self.observe(name)
                if current is None:
                    raise ObservationStale(f"node {name} has changed while it waited to take its claims")
                return await self._execute_with_claims(current)
        # A request that failed without a response may have changed the node.
        except HauloutError:
            self._history_recorder.invalidate(name)
            raise

    async def _execute_with_claims(self, current: NodeObservation) -> bool | Decision:
        """Take the claims of a node and execute what they allow; withdraw a slot that is not used."""
        node = current.observed.node
        decision, has_slot = await self._prepare(current)
        try:
            has_written = await self._execute(current.observed, decision)
        except _PERMANENT_ERRORS:
            if has_slot and not _was_in_maintenance(current.observed):
                await self._executor.withdraw_slot(node)  # so that another node can take the slot
            raise
        if has_slot and not _needs_slot(decision):
            await self._executor.withdraw_slot(node)
        return has_written or decision

    async def _prepare(self, current: NodeObservation) -> tuple[Decision, bool]:
        """Return a decision whose claims are taken, and whether a slot may have been taken.

        A refused claim or failed external action changes the decision, and the new one may need other claims: another
        profile may proceed instead. Repeat until nothing is refused.
        """
        taken: set[tuple[str, Claim]] = set()
        may_have_slot = False  # a refused set of claims may be taken in part: the slot, but not the lease
        while True:
            decision = self.decide(current)
            wanted = [item for item in decision.claims if item not in taken]
            may_have_slot |= any(not isinstance(claim, LeaseClaim) for _, claim in wanted)
            deferred = await self._executor.take_claims(wanted, current.observed.node)
            taken |= {item for item in wanted if item[0] not in deferred}
            failed = {} if deferred else await self._executor.execute_external_actions(decision)
            if not deferred and not failed:
                return decision, may_have_slot
            deferred_transitions = {
                (profile, decision.claimed_transitions[profile]): deferral for profile, deferral in deferred.items()
            }
            before = current.observation
            after = replace(
                before,
                deferred={**before.deferred, **deferred_transitions},
                failed_actions={**before.failed_actions, **failed},
            )
            current = replace(current, observation=after)

    async def report(self, observation: NodeObservation, decision: Decision) -> datetime | None:
        """Store the status and the topics of a node; return when to look at its history or conditions again."""
        name = observation.observed.node.name
        self.topic_subscriptions.set(name, decision.topics)
        if decision.data_update is DataUpdate.NONE:
            self.statuses.forget(name)
        else:
            self._store_status(
                observation.observed, decision.reports, next_reconcile=decision.requeue_at, topics=decision.topics
            )
        self._events.clear_step_failure(name)
        recheck_at = self._history_recorder.recheck_at(observation.observed, decision)
        return min(filter(None, (recheck_at, self._executor.conditions_retry_at(name))), default=None)

    async def refresh(self, key: str, error: Exception) -> bool:
        del error
        try:
            self._nodes.record_write(await self._client.get(NODES, key))
        except NotFound:
            return self._nodes.get(key) is None  # otherwise the watch will deliver the deletion
        return True

    async def report_failure(
        self, key: str, observation: NodeObservation | None, decision: Decision | None, error: Exception
    ) -> None:
        """Store an error status for a node whose reconcile failed."""
        del observation, decision
        observed = self._nodes.get(key)
        if observed is None:
            return
        problem = self._events.record_step_failure(observed.node, error)
        known = self.statuses.get(key)
        reports = () if known is None else known.reports
        self._store_status(
            observed, tuple(replace(report, next=report.state, error=problem) for report in reports), problem=problem
        )

    async def forget(self, key: str) -> datetime | None:
        """Stop everything for a node that is not managed.

        It does not exist, no profile is configured, or its data cannot be read.
        """
        observed, configuration = self._nodes.get(key), self.configuration
        if observed is not None and observed.problem and configuration is not None and configuration.profiles:
            self._report_unreadable_data(observed)
        else:
            self.statuses.forget(key)
            self._events.forget(key)
            self._history_recorder.forget(key)
            self._loop_backoff.forget(key)
        self.topic_subscriptions.forget(key)
        await self._executor.forget(key)
        if self._nodes.get(key) is None:
            await self._executor.cordon_copies.remove_node(key)
        return None

    def _report_unreadable_data(self, observed: ObservedNode) -> None:
        """Report that a node is left untouched: the states of its profiles are unknown."""
        self._events.record_unreadable_data(observed.node, observed.problem)
        self._events.clear_step_failure(observed.node.name)
        self._store_status(observed, problem=f"Haulout does not manage this node: {observed.problem}")

    def _store_status(
        self,
        observed: ObservedNode,
        reports: tuple[ProfileReport, ...] = (),
        *,
        next_reconcile: datetime | None = None,
        topics: frozenset[str] = frozenset(),
        problem: str = "",
    ) -> None:
        node = observed.node
        shown_labels = () if self.configuration is None else self.configuration.label_filter
        labels = {key: value for key, value in node.metadata.labels.items() if key in shown_labels} or NO_LABELS
        interval, now = self._informers.query_interval(node.name), self._clock.now()
        self.statuses.store(
            NodeProfilesStatus(node.name, labels, reports, now, next_reconcile, topics, interval, problem)
        )

    def preview(self, observed: ObservedNode, configuration: Configuration, cluster: ClusterView) -> Decision:
        """Return the decision for a node under a configuration, without executing it."""
        return decide(self._observe(observed, configuration, cluster), configuration.profiles)

    def _observe(
        self, observed: ObservedNode, configuration: Configuration, cluster: ClusterView | None = None
    ) -> Observation:
        node = observed.node
        return Observation(
            node=node,
            statuses=observed.statuses,
            last_sent=data_annotation.last_sent_of(node.metadata.annotations.get(DATA_ANNOTATION)),
            pending=transitions.read_pending(node),
            drains=self._executor.drain_statuses(node.name),
            held_leases=self._executor.held_leases(node.name),
            cluster=cluster or self._informers.cluster_view(node.name, self._nodes),
            requeue=configuration.requeue,
            now=self._clock.now(),
            budget=self._executor.budget_view(configuration.budget),
            cordon_copy=self._executor.cordon_copies.get(node),
            logs_details=node.metadata.labels.get(LOG_DETAILS_LABEL) == "true",
            is_recorded=not self._history_recorder.has_unwritten(node.name),
            freezes=self._freezes.current(),
            throttled=self._loop_backoff.throttled(node.name, self._clock.now()),
        )

    async def _execute(self, observed: ObservedNode, decision: Decision) -> bool:
        wrote = await self._executor.write_node(self._history_recorder.with_unwritten(observed, decision))
        if decision.claims:
            self._executor.clear_held_leases(observed.node.name)
        if wrote and decision.tampering:
            self._events.record_restored_cordon(observed.node, decision.tampering)
        for warning in decision.warnings if wrote else ():
            self._events.record_warning(observed.node, warning)
        for report in decision.reports:
            self._events.record_report(observed.node, report)
            self._loop_backoff.record(observed.node.name, report, self._clock.now())
        self._history_recorder.record(observed, decision, self._executor.ended_drains(observed.node.name))
        for notification in decision.notifications:
            self._informers.send(notification, observed)
        if wrote:
            self._rescheduled_pods.record_decision(observed, decision)
        if decision.drains:
            await self._rescheduled_pods.wait_listed(observed.node.name)
        await self._executor.reconcile_drains(observed.node, decision.drains)
        # The node may have been deleted, or replaced by one of its name, while this reconcile was writing.
        remaining = self._nodes.find(observed.node.name)
        if remaining is None or remaining.uid != observed.node.uid:
            return wrote
        if _has_left_maintenance(observed, decision):
            await self._executor.release_slot(remaining)
        return await self._executor.write_conditions(remaining, decision) or wrote


def _has_left_maintenance(observed: ObservedNode, decision: Decision) -> bool:
    """Return whether the node was in maintenance or on its way there, and no longer is."""
    return _was_in_maintenance(observed) and not _needs_slot(decision)


def _was_in_maintenance(observed: ObservedNode) -> bool:
    return observed.state == State.IN_MAINTENANCE or bool(transitions.read_pending(observed.node))


def _needs_slot(decision: Decision) -> bool:
    return decision.state is State.IN_MAINTENANCE or bool(decision.pending)
