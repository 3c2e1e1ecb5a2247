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
from haulout.core.backoff import Backoff
from haulout.errors import CloudError, Conflict, ExternalError, NotFound, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import merge_patch
from haulout.kube.workqueue import WorkQueue
from haulout.providers.event_source import EarlyStartSource, HasStartBlocker

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


class EarlyStarter:
    """Asks sources to begin early. The owner runs `run` and calls `add` for each changed notice."""

    def __init__(
        self, client: Client, notices: Informer[MaintenanceNotice], *, early_start_source_of: EarlyStartSourceOf
    ) -> None:
        self._client = client
        self._notices = notices
        self._early_start_source_of = early_start_source_of
        self._failures: dict[str, int] = {}
        self._retry_at: dict[str, datetime] = {}  # backoff per notice after the source failed
        self._logged_blockers: dict[str, str] = {}  # by notice: the blocker that was logged last
        self._unwritten_answers: dict[tuple[str, EarlyStart], EarlyStart] = {}  # answers that could not be written yet
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="notice early starts",
        )

    def add(self, notice: MaintenanceNotice) -> None:
        """Queue a notice, if it has the condition Emptied."""
        if notice.status.condition(NoticeCondition.EMPTIED) is not None:
            self._queue.add(notice.name)

    async def run(self) -> None:
        await self._queue.run()

    async def _reconcile(self, name: str) -> datetime | None:
        notice = self._notices.get(name)
        event_source = None if notice is None else self._early_start_source_of(notice.spec.source)
        action = None if notice is None else decide(notice, now=self._client.clock.now())
        if notice is None or event_source is None or action is None:
            self._forget(name)
            return None
        if isinstance(action, EarlyStart):
            return await self._write_unless_blocked(notice, event_source, action)
        if (name, action.record) not in self._unwritten_answers:
            return await self._request_start(notice, event_source, action.record)
        await self._write(notice, self._unwritten_answers[name, action.record])
        return None

    async def _write_unless_blocked(
        self, notice: MaintenanceNotice, event_source: EarlyStartSource, record: EarlyStart
    ) -> datetime | None:
        """Write the record of a request or of its answer; a request is not written while a blocker exists."""
        if record.answer is EarlyStartAnswer.REQUESTED and (
            retry_at := await self._blocked_until(notice, event_source)
        ):
            return retry_at
        await self._write(notice, record)
        return None  # the watch triggers the next reconcile

    async def _request_start(
        self, notice: MaintenanceNotice, event_source: EarlyStartSource, record: EarlyStart
    ) -> datetime | None:
        """Call the source, and keep its answer in memory until it is written."""
        if retry_at := await self._blocked_until(notice, event_source):
            return retry_at
        try:
            answer = await _start_early(event_source, notice, record)
        except ExternalError as error:
            return self._retry_after_failure(notice, error)
        self._unwritten_answers[notice.name, record] = answer
        await self._write(self._notices.get(notice.name) or notice, answer)
        return None

    async def _blocked_until(self, notice: MaintenanceNotice, event_source: EarlyStartSource) -> datetime | None:
        """Return when to retry, if a blocker exists or the source failed recently."""
        until = self._retry_at.get(notice.name)
        if until is not None and self._client.clock.now() < until:
            return until  # a changed notice does not shorten the backoff
        if not isinstance(event_source, HasStartBlocker):
            return None
        try:
            blocker = await event_source.start_blocker(notice)
        except ExternalError as error:
            return self._retry_after_failure(notice, error)
        if not blocker:
            return None
        if self._logged_blockers.get(notice.name) != blocker:
            self._logged_blockers[notice.name] = blocker
            log.info("%s: %s is not asked to begin yet: %s", notice.name, notice.spec.source, blocker)
        return self._client.clock.now() + _BLOCKED_RETRY_AFTER

    def _retry_after_failure(self, notice: MaintenanceNotice, error: ExternalError) -> datetime:
        failures = self._failures[notice.name] = self._failures.get(notice.name, 0) + 1
        log.warning("%s: asking %s to begin early: %s; retrying", notice.name, notice.spec.source, error)
        retry_after = error.retry_after if isinstance(error, CloudError) else None
        pause = max(_BACKOFF.delay(failures, self._client.random), retry_after or timedelta())
        until = self._retry_at[notice.name] = self._client.clock.now() + pause
        return until

    def _forget(self, name: str) -> None:
        self._failures.pop(name, None)
        self._retry_at.pop(name, None)
        self._logged_blockers.pop(name, None)
        self._unwritten_answers = {key: answer for key, answer in self._unwritten_answers.items() if key[0] != name}

    async def _write(self, notice: MaintenanceNotice, record: EarlyStart) -> None:
        metadata = {"uid": notice.uid, "resourceVersion": notice.resource_version}
        patch = merge_patch({"metadata": {**metadata, **record.metadata_patch}})
        try:
            await self._client.patch(MAINTENANCE_NOTICES, notice.name, patch)
        except (Conflict, NotFound) as error:
            log.debug(
                "MaintenanceNotice %s has changed, retrying: %s", notice.name, error
            )  # the watch triggers the next reconcile
        else:
            log.info("%s: %s", notice.name, record.message)


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
