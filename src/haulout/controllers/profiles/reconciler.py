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
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.decision import decide
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.executor import Executor
from haulout.controllers.profiles.history_recorder import HistoryRecorder
from haulout.controllers.profiles.machine import data_annotation, transitions
from haulout.controllers.profiles.machine.loop_backoff import LoopBackoff
from haulout.controllers.profiles.observation import Decision, NotificationRequest, Observation
from haulout.controllers.profiles.plugin import (
    DATA_ANNOTATION,
    LOG_DETAILS_LABEL,
    Claim,
    ClusterView,
    LeaseClaim,
    ObservedNode,
    State,
)
from haulout.controllers.profiles.pod_shuffles import PodShuffleCounter
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.core.clock import Clock
from haulout.errors import BadRequest, Forbidden, Invalid

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


class NodeReconciler:
    """Reconciles single nodes.

    The controller calls it for many nodes in parallel, but never twice for the same node.
    """

    def __init__(
        self,
        nodes: NodeIndex,
        informers: Informers,
        *,
        executor: Executor,
        recorder: HistoryRecorder,
        pod_shuffles: PodShuffleCounter,
        events: ProfileEvents,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._informers = informers
        self._executor = executor
        self._recorder = recorder
        self._pod_shuffles = pod_shuffles
        self._events = events
        self._clock = clock
        # Decisions with claims read what earlier ones have taken. In parallel, several nodes would decide for the same
        # slot, and all but one be refused.
        self._claims_lock = asyncio.Lock()
        self._loop_backoff = LoopBackoff()

    async def reconcile(self, observed: ObservedNode, configuration: Configuration) -> tuple[Decision, bool]:
        """Reconcile once; return the decision, and whether the node was written."""
        await self._executor.cordon_copies.load(lambda: (node.node for node in self._nodes.all()))
        decision = self._decide(self._observe(observed, configuration), configuration)
        if not decision.claims and not decision.external_actions:
            return decision, await self._execute(observed, decision)
        async with self._claims_lock:
            current = self._nodes.get(observed.node.name)
            if current is None or current.node.resource_version != observed.node.resource_version:
                return decision, True  # the node changed while this one waited for the lock: reconcile again
            decision, has_slot = await self._prepare(self._observe(current, configuration), configuration)
            try:
                wrote = await self._execute(current, decision)
            except _PERMANENT_ERRORS:
                if has_slot and not _was_in_maintenance(current):
                    await self._executor.withdraw_slot(current.node)  # so that another node can take the slot
                raise
            if has_slot and not _needs_slot(decision):
                await self._executor.withdraw_slot(current.node)
            return decision, wrote

    def forget(self, node: str) -> None:
        self._loop_backoff.forget(node)

    async def _prepare(self, observation: Observation, configuration: Configuration) -> tuple[Decision, bool]:
        """Return a decision whose claims are taken, and whether a slot may have been taken.

        A refused claim or failed external action changes the decision, and the new one may need other claims: another
        profile may proceed instead. Repeat until nothing is refused.
        """
        taken: set[tuple[str, Claim]] = set()
        may_have_slot = False  # a refused set of claims may be taken in part: the slot, but not the lease
        while True:
            decision = self._decide(observation, configuration)
            wanted = [item for item in decision.claims if item not in taken]
            may_have_slot |= any(not isinstance(claim, LeaseClaim) for _, claim in wanted)
            deferred = await self._executor.take_claims(wanted, observation.node)
            taken |= {item for item in wanted if item[0] not in deferred}
            failed = {} if deferred else await self._executor.execute_external_actions(decision)
            if not deferred and not failed:
                return decision, may_have_slot
            deferred_transitions = {
                (profile, decision.claimed_transitions[profile]): deferral for profile, deferral in deferred.items()
            }
            observation = replace(
                observation,
                deferred={**observation.deferred, **deferred_transitions},
                failed_actions={**observation.failed_actions, **failed},
            )

    def preview(self, observed: ObservedNode, configuration: Configuration, cluster: ClusterView) -> Decision:
        """Return the decision for a node under a configuration, without executing it."""
        return self._decide(self._observe(observed, configuration, cluster), configuration)

    def _decide(self, observation: Observation, configuration: Configuration) -> Decision:
        return decide(observation, configuration.profiles)

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
            is_recorded=not self._recorder.has_unwritten(node.name),
            throttled=self._loop_backoff.throttled(node.name, self._clock.now()),
        )

    async def _execute(self, observed: ObservedNode, decision: Decision) -> bool:
        wrote = await self._executor.write_node(self._recorder.with_unwritten(observed, decision))
        if decision.claims:
            self._executor.clear_held_leases(observed.node.name)
        if wrote and decision.tampering:
            self._events.record_restored_cordon(observed.node, decision.tampering)
        for warning in decision.warnings if wrote else ():
            self._events.record_warning(observed.node, warning)
        for report in decision.reports:
            self._events.record_report(observed.node, report)
            self._loop_backoff.record(observed.node.name, report, self._clock.now())
        self._recorder.record(observed, decision, self._executor.ended_drains(observed.node.name))
        for notification in decision.notifications:
            self._informers.send(notification, observed)
        if wrote:
            self._pod_shuffles.record_decision(observed, decision)
        if decision.drains:
            await self._pod_shuffles.wait_listed(observed.node.name)
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
