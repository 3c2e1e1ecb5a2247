"""One step of one node: decided, and then performed in an order that makes it safe to die at any instruction.

1. What must be taken is taken, by compare-and-swap: slots of budgets, leases. A transition whose slot is not to be had
   does not happen. Who has a slot already keeps it.
2. What is changed elsewhere is changed. It can be repeated.
3. The node is written, once, under the resourceVersion that the step rests on: labels, annotations, finalizers, cordon,
   and the data that says where each profile stands. Either all of it is there, or none.
4. What people are told is told: events, and notifications, which the data already says were sent: none is sent twice.
   What happened is noted in the history, which a successor completes from the data.
5. Drains begin or end, and the conditions of the node say so, which a successor completes as well.

Steps that take something are made one at a time, each on what the one before it wrote. All others run side by side.
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
from haulout.controllers.profiles.machine import data_annotation, pending_transitions
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

_PERMANENT_ERRORS = BadRequest, Forbidden, Invalid  # trying again will not help, until somebody changes something


class Informers(Protocol):
    """What there is beside nodes, and how people are told: what a configuration needs of it is followed."""

    def use(self, configuration: Configuration) -> None:
        """Follow what this configuration needs, and nothing else."""
        ...

    async def run(self) -> None:
        """Follow it until cancelled."""
        ...

    def cluster_view(self, node: str, nodes: NodeIndex) -> ClusterView:
        """Return what checks of a node see."""
        ...

    def query_interval(self, node: str) -> timedelta | None:
        """Return how often the outside is asked for a node; None: it is not."""
        ...

    def send(self, notification: NotificationRequest, observed: ObservedNode) -> None:
        """Send a notification; it is written down that it was sent."""
        ...

    async def flush(self, timeout: timedelta) -> None:
        """Return when what was posted is sent, or after `timeout`."""
        ...


class NodeReconciler:
    """Takes steps of nodes, for the controller."""

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
        self._claims_lock = asyncio.Lock()
        self._loop_backoff = LoopBackoff()

    async def reconcile(self, observed: ObservedNode, configuration: Configuration) -> tuple[Decision, bool]:
        """Take one step; return what it was, and whether it changed the node."""
        await self._executor.cordon_copies.load(lambda: (node.node for node in self._nodes.all()))
        decision = self._decide(self._observe(observed, configuration), configuration)
        if not decision.claims and not decision.external_actions:
            return decision, await self._execute(observed, decision)
        async with self._claims_lock:
            current = self._nodes.get(observed.node.name)
            if current is None or current.node.resource_version != observed.node.resource_version:
                return decision, True  # it changed while others had their turn: look again
            decision, has_slot = await self._prepare(self._observe(current, configuration), configuration)
            try:
                wrote = await self._execute(current, decision)
            except _PERMANENT_ERRORS:
                if has_slot and not _was_in_maintenance(current):
                    await self._executor.withdraw_slot(current.node)  # others may be luckier
                raise
            if has_slot and not _needs_slot(decision):
                await self._executor.withdraw_slot(current.node)
            return decision, wrote

    def forget(self, node: str) -> None:
        """Forget a node."""
        self._loop_backoff.forget(node)

    async def _prepare(self, observation: Observation, configuration: Configuration) -> tuple[Decision, bool]:
        """Return a step that has all it needs, and whether a slot may have been taken.

        What cannot be had makes it another step, which may want something else: another profile may have its turn.
        """
        taken: set[tuple[str, Claim]] = set()
        may_have_slot = False  # of what is refused a part may have been taken: a slot, and then no lease
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
        """Return which step would be taken by a configuration; nothing is done about it."""
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
            pending=pending_transitions.read(node),
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
        remaining = self._nodes.find(observed.node.name)
        if remaining is None or remaining.uid != observed.node.uid:
            return wrote
        if _has_left_maintenance(observed, decision):
            await self._executor.release_slot(remaining)
        return await self._executor.write_conditions(remaining, decision) or wrote


def _has_left_maintenance(observed: ObservedNode, decision: Decision) -> bool:
    """Tell whether a node was in maintenance, or on its way there, and is not any more."""
    return _was_in_maintenance(observed) and not _needs_slot(decision)


def _was_in_maintenance(observed: ObservedNode) -> bool:
    return observed.state == State.IN_MAINTENANCE or bool(pending_transitions.read(observed.node))


def _needs_slot(decision: Decision) -> bool:
    return decision.state is State.IN_MAINTENANCE or bool(decision.pending)
