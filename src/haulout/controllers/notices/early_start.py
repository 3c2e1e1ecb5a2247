"""Ask clouds to begin maintenance early, once the node is empty.

An empty node that waits costs capacity. A source that supports it (`EarlyStartSource`) is asked as soon as the notice
has the condition Emptied, once per planned start. The request is written before the call and the answer afterwards
(`haulout.api.maintenancenotice`), each with the resourceVersion that was observed. After a crash the next leader calls
again, which is harmless; a process with a stale view gets a conflict.

A source that may have to wait for something else (`HasStartBlocker`) is asked for a blocker before each request.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    EarlyStart,
    EarlyStartAnswer,
    MaintenanceNotice,
    NoticeCondition,
    NoticePhase,
    NoticeStage,
    early_start_of,
)
from haulout.controllers.notices.source_backoff import SourceBackoff
from haulout.core.backoff import Backoff
from haulout.errors import ExternalError, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import merge_patch
from haulout.providers.event_source import EarlyStartSource, HasStartBlocker
from haulout.runtime.controller import Controller
from haulout.runtime.reconciler import Reconciler

log = logging.getLogger(__name__)

_BLOCKED_RETRY_AFTER = timedelta(seconds=15)  # while a blocker exists
_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1), jitter=0.3)
_WORKERS = 4

EarlyStartSourceOf = Callable[[str], EarlyStartSource | None]  # by `spec.source`


@dataclass(frozen=True, slots=True)
class RequestEarlyStart:
    """Ask the source to begin; the request is already recorded."""

    record: EarlyStart


def decide(notice: MaintenanceNotice, *, now: datetime) -> RequestEarlyStart | EarlyStart | None:
    """Return the next action for a notice: call the source, write this record, or nothing."""
    record, stage = early_start_of(notice), notice.spec.stage
    if record is not None and record.answer is not EarlyStartAnswer.REQUESTED:
        return None
    if record is not None and stage == NoticeStage.STARTED:
        return with_answer(
            record,
            EarlyStartAnswer.ACCEPTED,
            f"{notice.node} is empty: {notice.spec.source} was asked to begin early, and has begun",
        )
    if not may_start_early(notice):
        return None
    if record is not None:
        return RequestEarlyStart(record)
    message = f"{notice.node} is empty: {notice.spec.source} is asked to begin early"
    return EarlyStart(start=notice.spec.start, requested_at=now.replace(microsecond=0), message=message)


def may_start_early(notice: MaintenanceNotice) -> bool:
    """Return whether the maintenance has not begun, and its node was emptied for the start that is planned now."""
    status = notice.status
    condition = status.condition(NoticeCondition.EMPTIED)
    is_pending = notice.spec.stage in ("", NoticeStage.SCHEDULED) and status.phase == NoticePhase.DUE
    is_current = status.observed_generation == notice.metadata.generation
    return is_pending and is_current and condition is not None and condition.status == "True"


def with_answer(record: EarlyStart, answer: EarlyStartAnswer, message: str) -> EarlyStart:
    """Return the record with the source's answer."""
    return msgspec.structs.replace(record, answer=answer, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStartObservation:
    """A notice and its source at one moment."""

    notice: MaintenanceNotice
    source: EarlyStartSource | None  # None: its source cannot be asked
    unwritten_answer: EarlyStart | None  # of the source, to the request that the notice records
    blocked_until: datetime | None  # the source has not answered, or there is a blocker
    now: datetime


@dataclass(frozen=True, slots=True)
class EarlyStartDecision:
    """The next action, if any."""

    action: RequestEarlyStart | EarlyStart | None
    requeue_at: datetime | None = None


class EarlyStarter:
    """Asks sources to begin early. The owner runs `run` and calls `add` for each changed notice."""

    def __init__(
        self, client: Client, notices: MutationCache[MaintenanceNotice], *, early_start_source_of: EarlyStartSourceOf
    ) -> None:
        self._controller: Controller[str, EarlyStartObservation, EarlyStartDecision] = Controller(
            EarlyStartReconciler(client, notices, early_start_source_of=early_start_source_of),
            client,
            name="notice early starts",
            workers=_WORKERS,
        )

    def add(self, notice: MaintenanceNotice) -> None:
        """Queue a notice, if it has the condition Emptied."""
        if notice.status.condition(NoticeCondition.EMPTIED) is not None:
            self._controller.queue.add(notice.name)

    async def run(self) -> None:
        await self._controller.run()


class EarlyStartReconciler(Reconciler[str, EarlyStartObservation, EarlyStartDecision]):
    """Asks the source of one notice at a time, by name."""

    def __init__(
        self, client: Client, notices: MutationCache[MaintenanceNotice], *, early_start_source_of: EarlyStartSourceOf
    ) -> None:
        self._client = client
        self._notices = notices
        self._early_start_source_of = early_start_source_of
        self._source_backoff = SourceBackoff(client, _BACKOFF)
        self._logged_blockers: dict[str, str] = {}  # by notice: the blocker that was logged last
        self._unwritten_answers: dict[tuple[str, EarlyStart], EarlyStart] = {}  # answers that could not be written yet

    async def observe(self, key: str) -> EarlyStartObservation | None:
        notice = self._notices.get(key)
        if notice is None:
            return None
        now, source = self._client.clock.now(), self._early_start_source_of(notice.spec.source)
        record = early_start_of(notice)
        answer = None if record is None else self._unwritten_answers.get((key, record))
        is_asked_next = source is not None and answer is None and _leads_to_request(decide(notice, now=now))
        return EarlyStartObservation(
            notice=notice,
            source=source,
            unwritten_answer=answer,
            blocked_until=await self._blocked_until(notice, source) if is_asked_next and source is not None else None,
            now=now,
        )

    def decide(self, observation: EarlyStartObservation) -> EarlyStartDecision:
        action = None if observation.source is None else decide(observation.notice, now=observation.now)
        if isinstance(action, RequestEarlyStart) and observation.unwritten_answer is not None:
            return EarlyStartDecision(observation.unwritten_answer)
        if observation.blocked_until is not None:
            return EarlyStartDecision(None, observation.blocked_until)
        return EarlyStartDecision(action)

    async def act(self, observation: EarlyStartObservation, decision: EarlyStartDecision) -> bool:
        notice = observation.notice
        match decision.action:
            case RequestEarlyStart(record) if observation.source is not None:
                await self._request_start(notice, observation.source, record)
                return True
            case EarlyStart() as record:
                await self._write(notice, record)
                return True
        return False

    async def report(self, observation: EarlyStartObservation, decision: EarlyStartDecision) -> datetime | None:
        if decision.requeue_at is None:
            self._forget(observation.notice.name)
        return None

    async def refresh(self, key: str, error: Exception) -> bool:
        del error
        await self._notices.refresh(self._client, MAINTENANCE_NOTICES, key)
        return True

    async def forget(self, key: str) -> datetime | None:
        self._forget(key)
        return None

    def _forget(self, name: str) -> None:
        self._source_backoff.forget(name)
        self._logged_blockers.pop(name, None)
        self._unwritten_answers = {key: answer for key, answer in self._unwritten_answers.items() if key[0] != name}

    async def _request_start(
        self, notice: MaintenanceNotice, event_source: EarlyStartSource, record: EarlyStart
    ) -> None:
        """Call the source, and keep its answer in memory until it is written."""
        try:
            answer = await _start_early(event_source, notice, record)
        except ExternalError as error:
            self._record_failure(notice, error)
        else:
            self._unwritten_answers[notice.name, record] = answer

    async def _blocked_until(self, notice: MaintenanceNotice, event_source: EarlyStartSource) -> datetime | None:
        """Return when to retry, if a blocker exists or the source failed recently."""
        if retry_at := self._source_backoff.retry_at(notice.name):
            return retry_at
        if not isinstance(event_source, HasStartBlocker):
            return None
        try:
            blocker = await event_source.start_blocker(notice)
        except ExternalError as error:
            return self._record_failure(notice, error)
        if not blocker:
            return None
        if self._logged_blockers.get(notice.name) != blocker:
            self._logged_blockers[notice.name] = blocker
            log.info("%s: %s is not asked to begin yet: %s", notice.name, notice.spec.source, blocker)
        return self._client.clock.now() + _BLOCKED_RETRY_AFTER

    def _record_failure(self, notice: MaintenanceNotice, error: ExternalError) -> datetime:
        log.warning("%s: asking %s to begin early: %s; retrying", notice.name, notice.spec.source, error)
        return self._source_backoff.record_failure(notice.name, error)

    async def _write(self, notice: MaintenanceNotice, record: EarlyStart) -> None:
        patch = merge_patch({"metadata": {**notice.preconditions, **record.metadata_patch}})
        self._notices.record_write(await self._client.patch(MAINTENANCE_NOTICES, notice.name, patch))
        log.info("%s: %s", notice.name, record.message)


def _leads_to_request(action: RequestEarlyStart | EarlyStart | None) -> bool:
    """Return whether an action asks the source, or writes down that it will be asked."""
    return isinstance(action, RequestEarlyStart) or (action is not None and action.answer is EarlyStartAnswer.REQUESTED)


async def _start_early(event_source: EarlyStartSource, notice: MaintenanceNotice, record: EarlyStart) -> EarlyStart:
    source = notice.spec.source
    try:
        await event_source.start_early(notice)
    except RescheduleRefused as error:
        return with_answer(
            record, EarlyStartAnswer.REFUSED, f"{notice.node} is empty, but {source} does not begin early: {error}"
        )
    return with_answer(
        record, EarlyStartAnswer.ACCEPTED, f"{notice.node} is empty: {source} was asked to begin early, and agreed"
    )
