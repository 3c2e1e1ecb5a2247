"""The MaintenanceNotice controller: keep each notice's status current, record events, and delete expired notices.

Of nodes, the controller writes conditions only. Profiles decide what happens to a node; they watch the same notices.

The controller lists pods only for nodes whose maintenance is due: one list per node, about ten times per drain. A
thousand maintenances that fall due in the same minute cost some ten small requests per second.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from haulout.api.hold import hold_of
from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceNotice,
    MaintenanceNoticeStatus,
    NoticeCondition,
    NoticePhase,
)
from haulout.api.objects import Node, machine_key
from haulout.api.resources import NODES
from haulout.budget.unavailable_nodes import STATE_LABEL
from haulout.controllers.notices import node_conditions
from haulout.controllers.notices.conditions import (
    Observation,
    cordon_owners,
    depends_on_pods,
    evaluate_on_time,
    is_emptied,
)
from haulout.controllers.notices.decision import NoticeDecision, NoticeOptions, decide, observe
from haulout.controllers.notices.drain_prediction import DrainHistory, DrainPrediction, OnChange
from haulout.controllers.notices.early_start import EarlyStarter, EarlyStartSourceOf
from haulout.controllers.notices.events import NoticeEvent
from haulout.controllers.notices.node_conditions import NodeConditionWriter
from haulout.controllers.notices.node_lookup import MACHINE_ADDRESS, NodeLookup, alias_values, has_same_identity
from haulout.controllers.notices.notice_quota import BY_AGENT, NoticeQuota, agent_node
from haulout.controllers.notices.orphans import ended_report, orphaned_at
from haulout.controllers.notices.remaining_pods import RemainingPods, cordoned_since, drained_at, list_remaining_pods
from haulout.controllers.notices.reschedule import Calendar, ReschedulableSourceOf, Rescheduler, no_preference
from haulout.errors import Conflict, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import difference, merge_patch
from haulout.kube.recorder import EventRecorder, object_reference
from haulout.kube.reflector import ListWatch
from haulout.kube.workqueue import WorkQueue
from haulout.providers.notice_writer import NoticeWriter

log = logging.getLogger(__name__)

_WORKERS = 16
BY_NODE = "node"
_RESYNC_AFTER = timedelta(minutes=10)  # profiles or node labels may have changed; a resync costs no request
_RETRY_AFTER = timedelta(seconds=5)
_MAX_POD_LIST_AGE = timedelta(seconds=5)  # maximum age of a cached pod list


LeadTimeOf = Callable[[Node, MaintenanceNotice], timedelta | None]  # None: the default lead time
IsHandled = Callable[[Node, MaintenanceNotice], bool]  # whether a profile empties the node for the notice


def always_handled(node: Node, notice: MaintenanceNotice) -> bool:
    """Treat every notice as handled by a profile."""
    del node, notice
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePolicy:
    """What profiles decide about a notice: maintenance windows, lead time, and whether a profile handles it."""

    calendar: Calendar = no_preference
    lead_time_of: LeadTimeOf = no_preference
    is_handled: IsHandled = always_handled


OnStatusWritten = Callable[[MaintenanceNotice, MaintenanceNoticeStatus], object]
"""Hears of a notice as it was, and of the status that it has now."""


class DrainPredictor(Protocol):
    """Predicts how long it takes to empty a node."""

    def predict(self, node: Node) -> DrainPrediction | None:
        """Return the predicted duration. None: nothing is known. `PENDING`: ask again later."""
        ...

    def set_enabled(self, *, enabled: bool) -> None:
        """Enable or disable reading the history. Without open notices nothing needs predictions."""
        ...

    async def run(self, on_change: OnChange) -> None:
        """Run until cancelled; call `on_change` with the node whose history changed, or "" for all nodes."""
        ...


class MaintenanceNoticeController:
    """Reconciles all notices. Call `run` at most once. `on_status_written` is called after each status write."""

    def __init__(  # noqa: PLR0913 - dependencies, each passed by keyword
        self,
        client: Client,
        *,
        events: EventRecorder,
        nodes: Informer[Node],
        options: NoticeOptions | None = None,
        predictor: DrainPredictor | None = None,
        reschedulable_source_of: ReschedulableSourceOf = lambda _: None,
        early_start_source_of: EarlyStartSourceOf = lambda _: None,
        profile_policy: ProfilePolicy | None = None,
        on_status_written: OnStatusWritten = lambda *_: None,
    ) -> None:
        self.notices: Informer[MaintenanceNotice] = Informer(
            client, ListWatch(MAINTENANCE_NOTICES), transform=as_is, indexes={BY_NODE: _node_of, BY_AGENT: agent_node}
        )
        self._client = client
        self._clock = client.clock
        self._events = events
        self._options = options or NoticeOptions()
        self._profile_policy = profile_policy or ProfilePolicy()
        self._on_status_written = on_status_written
        self._predictor = predictor or DrainHistory(client, nodes)
        self._node_cache = nodes
        self._node_lookup = NodeLookup()
        self._open_notices: set[str] = set()  # names of notices that are not over
        self._remaining_pods: dict[str, RemainingPods] = {}  # by node: the most recent pod list
        self._node_conditions = NodeConditionWriter(
            client, nodes, notices_of_node=lambda node: self.notices.by_index(BY_NODE, node)
        )
        self._rescheduler = Rescheduler(
            client,
            self.notices,
            node_of=lambda notice: self._node_lookup.resolve(notice).node,
            reschedulable_source_of=reschedulable_source_of,
            calendar=self._profile_policy.calendar,
            record_event=self._record_event,
        )
        self._notice_writer = NoticeWriter(client)
        self._early_starter = EarlyStarter(client, self.notices, early_start_source_of=early_start_source_of)
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="notices",
        )
        self._quota = NoticeQuota(client, self.notices, nodes, events=events, requeue=self._queue.add)

    async def run(self) -> None:
        """Run until cancelled. The caller runs the node informer."""
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._watch_notices())
            await self._node_cache.wait_synced()
            stack.callback(self._node_cache.subscribe(self._on_node))  # the node informer outlives this controller
            await self.notices.wait_synced()
            self.notices.subscribe(self._on_notice)
            group.create_task(self._predictor.run(self._on_drain_history))
            group.create_task(self._node_conditions.run())
            group.create_task(self._rescheduler.run())
            group.create_task(self._early_starter.run())
            group.create_task(self._quota.run())
            await self._queue.run()

    async def _watch_notices(self) -> None:
        await self.notices.run()

    # Event handlers

    def _on_notice(self, old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        for notice in (old, new):
            if notice is not None:
                self._quota.add(notice)
        if new is not None and self._quota.exceeds_quota(new):
            return
        for notice in (old, new):
            if notice is not None:
                self._queue.add(notice.name)
                self._node_conditions.add(notice.status.node_name)
        if new is not None:
            self._rescheduler.add(new)
            self._early_starter.add(new)
        changed = new or old
        if changed is not None:
            is_open = new is not None and not _is_over(new)
            (self._open_notices.add if is_open else self._open_notices.discard)(changed.name)
            self._predictor.set_enabled(enabled=bool(self._open_notices))

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        self._node_lookup.update(old, new)
        if new is not None and (
            node_conditions.has_our_conditions(new)
            if old is None
            else not node_conditions.has_same_conditions(old, new)
        ):
            self._node_conditions.add(new.name)
        if old is not None and new is not None and _is_equivalent(old, new):
            return
        names = {node.name for node in (old, new) if node is not None}
        machines = {machine_key(node.spec.provider_id) for node in (old, new) if node is not None}
        aliases = {name for node in (old, new) if node is not None for name in alias_values(node)}
        for name in names:
            self._remaining_pods.pop(name, None)
        for notice in self.notices.all():
            spec = notice.spec
            is_affected = notice.node in names or machine_key(spec.provider_id) in machines
            if (
                is_affected
                or spec.machine_name in aliases
                or notice.metadata.annotations.get(MACHINE_ADDRESS) in aliases
            ):
                self._queue.add(notice.name)

    def _on_drain_history(self, node: str) -> None:
        for name in (
            self._open_notices if not node else [notice.name for notice in self.notices.by_index(BY_NODE, node)]
        ):
            self._queue.add(name)

    # Reconcile

    async def _reconcile(self, name: str) -> datetime | None:
        notice = self.notices.get(name)
        if notice is None or self._quota.exceeds_quota(notice):
            return None
        lookup = self._node_lookup.resolve(notice)
        orphaned = orphaned_at(notice) if lookup.node is None else None
        if orphaned is not None and self._clock.now() >= orphaned:
            await self._notice_writer.write(ended_report(notice, now=self._clock.now()))
            return None  # the watch triggers the next reconcile
        prediction = None if lookup.node is None else self._predictor.predict(lookup.node)
        options = self._options_for(notice, lookup.node)
        state, observation = observe(
            notice, lookup, now=self._clock.now(), options=options, latest_prediction=prediction
        )
        remaining = (
            await self._get_remaining_pods(observation.node)
            if observation.node is not None and depends_on_pods(observation)
            else None
        )
        if not await self._is_confirmed(observation, remaining):
            self._remaining_pods.pop(observation.notice.node, None)
            return self._clock.now() + _RETRY_AFTER
        decision = decide(lookup, state, observation, options=options, remaining=remaining)
        try:
            if decision.is_expired:
                await self._client.delete(
                    MAINTENANCE_NOTICES, name, uid=notice.uid, resource_version=notice.resource_version
                )
                return None
            await self._write(notice, decision)
        except (Conflict, NotFound) as error:
            log.debug("MaintenanceNotice %s has changed, retrying: %s", name, error)
            return None  # the watch triggers the next reconcile
        for event in decision.events:
            self._record_event(notice, event)
        resync_at = self._clock.now() + _RESYNC_AFTER if state.phase is NoticePhase.PLANNED else None
        return min(
            (instant for instant in (resync_at, decision.requeue_at, orphaned) if instant is not None), default=None
        )

    async def _is_confirmed(self, observation: Observation, remaining: RemainingPods | None) -> bool:
        """Return whether fresh reads confirm that the node is empty, if the decision would set Emptied.

        The cached node and the cached pod list may be stale, and Emptied lets the cloud begin early.
        """
        condition = observation.notice.status.condition(NoticeCondition.EMPTIED)
        was_emptied = condition is not None and condition.status == "True"
        if (
            observation.node is None
            or was_emptied
            or not is_emptied(observation, evaluate_on_time(observation, remaining))
        ):
            return True
        try:
            nodes = (await self._client.list(NODES, fields=f"metadata.name={observation.node.name}")).items
            exact_remaining = [
                await list_remaining_pods(self._client, candidate, exact=True)
                for candidate in nodes
                if candidate.uid == observation.node.uid
            ]
        except KubeError as error:
            log.debug("cannot check whether node %s is empty: %s", observation.node.name, error)
            return False
        exact_observations = [
            replace(observation, node=candidate) for candidate in nodes if candidate.uid == observation.node.uid
        ]
        return any(
            is_emptied(candidate, evaluate_on_time(candidate, exact))
            for candidate, exact in zip(exact_observations, exact_remaining, strict=True)
        )

    def _options_for(self, notice: MaintenanceNotice, node: Node | None) -> NoticeOptions:
        if node is None:
            return self._options
        lead_time = self._profile_policy.lead_time_of(node, notice)
        is_handled = self._profile_policy.is_handled(node, notice)
        return replace(
            self._options, lead_time=self._options.lead_time if lead_time is None else lead_time, is_handled=is_handled
        )

    async def _get_remaining_pods(self, node: Node) -> RemainingPods:
        now = self._clock.now()
        cached = self._remaining_pods.get(node.name)
        if cached is not None and now - cached.observed_at < _MAX_POD_LIST_AGE:
            return cached
        try:
            remaining = await list_remaining_pods(self._client, node)
        except KubeError as error:
            remaining = RemainingPods(now, problem=str(error))
        self._remaining_pods[node.name] = remaining
        return remaining

    async def _write(self, notice: MaintenanceNotice, decision: NoticeDecision) -> None:
        if decision.status.phase not in (NoticePhase.DUE, NoticePhase.ACTIVE):
            self._remaining_pods.pop(decision.status.node_name, None)
        change = difference(msgspec.to_builtins(notice.status), msgspec.to_builtins(decision.status))
        if not change:
            return
        metadata = {"uid": notice.uid, "resourceVersion": notice.resource_version}
        patch = merge_patch({"metadata": metadata, "status": change})
        await self._client.patch(MAINTENANCE_NOTICES, notice.name, patch, subresource="status")
        self._on_status_written(notice, decision.status)

    def _record_event(self, notice: MaintenanceNotice, event: NoticeEvent) -> None:
        node = self._node_lookup.resolve(notice).node
        references = [object_reference(MAINTENANCE_NOTICES, notice)]
        references += [] if node is None else [object_reference(NODES, node)]
        for regarding in references:
            self._events.event(
                regarding,
                reason=event.reason,
                note=f"{notice.name}: {event.message}",
                action="Review",
                type="Warning" if event.is_warning else "Normal",
            )


def _node_of(notice: MaintenanceNotice) -> tuple[str, ...]:
    return (notice.status.node_name,) if notice.status.node_name else ()


def _is_over(notice: MaintenanceNotice) -> bool:
    return notice.status.phase in {phase for phase in NoticePhase if phase.is_over}


def _is_equivalent(old: Node, new: Node) -> bool:
    """Return whether both versions of the node lead to the same notice status."""
    return has_same_identity(old, new) and _progress(old) == _progress(new)


def _progress(node: Node) -> tuple[object, ...]:
    state = node.metadata.labels.get(STATE_LABEL)  # a profile changes the state label after it has emptied the node
    return state, node.spec.unschedulable, cordon_owners(node), cordoned_since(node), drained_at(node), hold_of(node)
