"""Reconciles one MaintenanceNotice: what is observed, when it is ended or deleted, what its status says.

`decision` decides what the status says. Pods are listed only for nodes whose maintenance is due: one list per node,
about ten times per drain. A thousand maintenances that fall due in the same minute cost some ten small requests per
second.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceNotice,
    MaintenanceNoticeStatus,
    NoticeCondition,
    NoticePhase,
    PhaseStatus,
)
from haulout.api.objects import Node
from haulout.api.reasons import NoticeConditionReason
from haulout.api.resources import NODES
from haulout.controllers.notices.conditions import Observation, depends_on_pods, evaluate_on_time, is_emptied
from haulout.controllers.notices.decision import NoticeDecision, NoticeOptions, decide, failed_status, observe
from haulout.controllers.notices.drain_prediction import DrainPredictor
from haulout.controllers.notices.events import NoticeEvent
from haulout.controllers.notices.node_lookup import NodeLookup, NodeLookupResult
from haulout.controllers.notices.orphans import ended_report, orphaned_at
from haulout.controllers.notices.profile_policy import ProfilePolicy
from haulout.controllers.notices.remaining_pods import RemainingPods, list_remaining_pods
from haulout.controllers.notices.status import write_status
from haulout.errors import HauloutError, KubeError
from haulout.kube.client import Client
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.responses import condition_reason
from haulout.providers.notice_writer import NoticeWriter
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.reconciler import Reconciler
from haulout.runtime.status_writer import StatusWriter

log = logging.getLogger(__name__)

_RESYNC_AFTER = timedelta(minutes=10)  # profiles or node labels may have changed; a resync costs no request
_RETRY_AFTER = timedelta(seconds=5)
_MAX_POD_LIST_AGE = timedelta(seconds=5)

OnStatusWritten = Callable[[MaintenanceNotice, MaintenanceNoticeStatus], object]
"""Called with a notice as it was, and the status that it has now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeObservation:
    """A notice with its node at one moment."""

    notice: MaintenanceNotice
    lookup: NodeLookupResult
    state: PhaseStatus
    observation: Observation
    options: NoticeOptions
    remaining: RemainingPods | None  # pods left on the node; None if nothing depends on them
    orphaned_at: datetime | None  # from when on nothing will end the notice
    is_confirmed: bool  # fresh reads confirm that the node is empty, if the decision would say so


class NoticeReconciler(Reconciler[str, NoticeObservation, NoticeDecision]):
    """Reconciles one notice at a time, by name."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        client: Client,
        notices: MutationCache[MaintenanceNotice],
        *,
        node_lookup: NodeLookup,
        predictor: DrainPredictor,
        options: NoticeOptions,
        profile_policy: ProfilePolicy,
        exceeds_quota: Callable[[MaintenanceNotice], bool],
        record_event: Callable[[MaintenanceNotice, NoticeEvent], object],
        record_change: Callable[[str], object],
        on_status_written: OnStatusWritten,
        freezes: FreezeSource,
    ) -> None:
        self._freezes = freezes
        self._client = client
        self._clock = client.clock
        self._notices = notices
        self._node_lookup = node_lookup
        self._predictor = predictor
        self._options = options
        self._profile_policy = profile_policy
        self._exceeds_quota = exceeds_quota
        self._record_event = record_event
        self._record_change = record_change
        self._on_status_written = on_status_written
        self._notice_writer = NoticeWriter(client)
        self._status_writer: StatusWriter[str] = StatusWriter(client.clock)
        self._remaining_pods: dict[str, RemainingPods] = {}  # by node: the most recent pod list

    def forget_pods(self, node: str) -> None:
        """Drop the list of the pods on a node that has changed."""
        self._remaining_pods.pop(node, None)

    async def observe(self, key: str) -> NoticeObservation | None:
        notice = self._notices.get(key)
        if notice is None or self._exceeds_quota(notice):
            return None
        lookup = self._node_lookup.resolve(notice)
        options = self._options_for(notice, lookup.node)
        prediction = None if lookup.node is None else self._predictor.predict(lookup.node)
        state, observation = observe(
            notice,
            lookup,
            now=self._clock.now(),
            options=options,
            latest_prediction=prediction,
            freezes=self._freezes.current(),
        )
        remaining = (
            await self._get_remaining_pods(observation.node)
            if observation.node is not None and depends_on_pods(observation)
            else None
        )
        is_confirmed = await self._is_confirmed(observation, remaining)
        if not is_confirmed:
            self.forget_pods(notice.node)
        return NoticeObservation(
            notice=notice,
            lookup=lookup,
            state=state,
            observation=observation,
            options=options,
            remaining=remaining,
            orphaned_at=orphaned_at(notice) if lookup.node is None else None,
            is_confirmed=is_confirmed,
        )

    def decide(self, observation: NoticeObservation) -> NoticeDecision:
        notice, now, orphaned = observation.notice, observation.observation.now, observation.orphaned_at
        if orphaned is not None and now >= orphaned:
            return NoticeDecision(status=notice.status, end_report=ended_report(notice, now=now))
        if not observation.is_confirmed:
            return NoticeDecision(status=notice.status, requeue_at=now + _RETRY_AFTER)
        decision = decide(
            observation.lookup,
            observation.state,
            observation.observation,
            options=observation.options,
            remaining=observation.remaining,
        )
        resync_at = now + _RESYNC_AFTER if observation.state.phase is NoticePhase.PLANNED else None
        requeue_times = (resync_at, decision.requeue_at, orphaned)
        return replace(decision, requeue_at=min(filter(None, requeue_times), default=None))

    async def act(self, observation: NoticeObservation, decision: NoticeDecision) -> bool:
        notice = observation.notice
        if decision.end_report is not None:
            ended = self._notices.record_write(await self._notice_writer.write(decision.end_report))
            return ended.resource_version != notice.resource_version  # a later report outweighs this one
        if not decision.is_expired:
            return False
        await self._client.delete(
            MAINTENANCE_NOTICES, notice.name, uid=notice.uid, resource_version=notice.resource_version
        )
        self._notices.record_delete(notice)
        return True

    async def refresh(self, key: str, error: Exception) -> bool:
        del error
        await self._notices.refresh(self._client, MAINTENANCE_NOTICES, key)
        return True

    async def report(self, observation: NoticeObservation, decision: NoticeDecision) -> datetime | None:
        """Write the status and record events; return when to write it if that is later."""
        notice, status = observation.notice, decision.status
        if status.phase not in (NoticePhase.DUE, NoticePhase.ACTIVE):
            self.forget_pods(status.node_name)

        async def write() -> None:
            await write_status(self._client, self._notices, notice, status)
            self._on_status_written(notice, status)
            for event in decision.events:
                self._record_event(notice, event)

        if status == notice.status:
            return None
        is_transition = bool(decision.events) or _states(status) != _states(notice.status)
        if is_transition:
            self._record_change(notice.name)
        return await self._status_writer.write(notice.name, write, at_once=is_transition)

    async def report_failure(
        self, key: str, observation: NoticeObservation | None, decision: NoticeDecision | None, error: Exception
    ) -> None:
        del observation, decision
        notice = self._notices.get(key)
        if notice is None or self._status_writer.has_failed(key):
            return
        problem = str(error) if isinstance(error, HauloutError) else f"a defect in the operator: {error!r}"
        reason = condition_reason(error) or NoticeConditionReason.RETRYING
        status = failed_status(notice, reason=reason, message=problem, now=self._clock.now())
        if status == notice.status:
            return
        try:
            await self._status_writer.write(key, lambda: write_status(self._client, self._notices, notice, status))
        except KubeError as another:
            log.debug("cannot write the status of MaintenanceNotice %s: %s", key, another)

    async def forget(self, key: str) -> datetime | None:
        self._status_writer.forget(key)
        return None

    # Observation

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


def _states(status: MaintenanceNoticeStatus) -> tuple[str, dict[str, str]]:
    """Return what people and programs wait for; a new message or time is not."""
    return status.phase, {condition.type: condition.status for condition in status.conditions}
