"""Tells clouds to begin, once a node has been emptied for a maintenance that would begin later by itself.

A node that is empty and waits costs capacity. So a source that can be told (a `EarlyStartSource`) is told as soon as
the notice says Emptied, once for each start that it plans. That it is told is written down before, and what came of it
after (`haulout.api.early_start`), each on the object as it was seen: whoever takes over after a crash tells it again,
which is harmless, and whoever has an old view is refused.

A source that has to wait for others (`HasStartBlocker`) is asked for what is in the way each time before.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.api.early_start import EarlyStart, EarlyStartAnswer, early_start_of
from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceNotice,
    NoticeCondition,
    NoticePhase,
    NoticeStage,
)
from haulout.core.backoff import Backoff
from haulout.errors import CloudError, Conflict, ExternalError, NotFound, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import merge_patch
from haulout.kube.workqueue import WorkQueue
from haulout.providers.event_source import EarlyStartSource, HasStartBlocker

log = logging.getLogger(__name__)

_BLOCKED_RETRY_AFTER = timedelta(seconds=15)  # while something is in the way
_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1), jitter=0.3)
_WORKERS = 4

EarlyStartSourceOf = Callable[[str], EarlyStartSource | None]  # by what `spec.source` says


@dataclass(frozen=True, slots=True)
class RequestEarlyStart:
    """The source is to be told, which is written down already."""

    record: EarlyStart


def decide(notice: MaintenanceNotice, *, now: datetime) -> RequestEarlyStart | EarlyStart | None:
    """Return what to do next about a notice: tell, write down, or nothing."""
    record, stage = early_start_of(notice), notice.spec.stage
    if record is not None and record.answer is not EarlyStartAnswer.ASKING:
        return None
    if record is not None and stage == NoticeStage.STARTED:
        return with_answer(
            record,
            EarlyStartAnswer.AGREED,
            f"{notice.node} is empty: {notice.spec.source} was told to begin, and has begun",
        )
    if not may_start_early(notice):
        return None
    if record is not None:
        return RequestEarlyStart(record)
    message = f"{notice.node} is empty: {notice.spec.source} is told to begin"
    return EarlyStart(start=notice.spec.start, asked_at=now.replace(microsecond=0), said=message)


def may_start_early(notice: MaintenanceNotice) -> bool:
    """Tell whether a maintenance has not begun, and its node was emptied for what is planned now."""
    status = notice.status
    condition = status.condition(NoticeCondition.EMPTIED)
    is_pending = notice.spec.stage in ("", NoticeStage.SCHEDULED) and status.phase == NoticePhase.DUE
    is_current = status.observed_generation == notice.metadata.generation
    return is_pending and is_current and condition is not None and condition.status == "True"


def with_answer(record: EarlyStart, answer: EarlyStartAnswer, message: str) -> EarlyStart:
    """Return that the source has answered."""
    return msgspec.structs.replace(record, answer=answer, said=message)


class EarlyStarter:
    """Tells sources; the owner runs `run`, and says by `add` which notices have changed."""

    def __init__(
        self, client: Client, notices: Informer[MaintenanceNotice], *, early_start_source_of: EarlyStartSourceOf
    ) -> None:
        self._client = client
        self._notices = notices
        self._early_start_source_of = early_start_source_of
        self._failures: dict[str, int] = {}
        self._retry_at: dict[str, datetime] = {}  # until when the source is left alone, after it failed
        self._logged_blockers: dict[str, str] = {}  # for what, as it was logged last
        self._unwritten_answers: dict[tuple[str, EarlyStart], EarlyStart] = {}  # that could not be written yet
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="starting notices",
        )

    def add(self, notice: MaintenanceNotice) -> None:
        """Look at a notice soon, if there is anything to see."""
        if notice.status.condition(NoticeCondition.EMPTIED) is not None:
            self._queue.add(notice.name)

    async def run(self) -> None:
        """Work until cancelled."""
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
        """Write down that the source is told, or what came of that, unless something is in the way."""
        if record.answer is EarlyStartAnswer.ASKING and (retry_at := await self._blocked_until(notice, event_source)):
            return retry_at
        await self._write(notice, record)
        return None  # the watch will tell

    async def _request_start(
        self, notice: MaintenanceNotice, event_source: EarlyStartSource, record: EarlyStart
    ) -> datetime | None:
        """Tell the source, and keep what it said until that is written."""
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
        """Return when to look again, if something is in the way."""
        until = self._retry_at.get(notice.name)
        if until is not None and self._client.clock.now() < until:
            return until  # that the notice has changed is no reason to ask sooner
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
            log.info("%s: %s is not told to begin yet: %s", notice.name, notice.spec.source, blocker)
        return self._client.clock.now() + _BLOCKED_RETRY_AFTER

    def _retry_after_failure(self, notice: MaintenanceNotice, error: ExternalError) -> datetime:
        failures = self._failures[notice.name] = self._failures.get(notice.name, 0) + 1
        log.warning("%s: telling %s to begin: %s; trying again", notice.name, notice.spec.source, error)
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
            log.debug("notice %s is not as it was: %s", notice.name, error)  # the watch will tell
        else:
            log.info("%s: %s", notice.name, record.said)


async def _start_early(event_source: EarlyStartSource, notice: MaintenanceNotice, record: EarlyStart) -> EarlyStart:
    source = notice.spec.source
    try:
        await event_source.start_early(notice)
    except RescheduleRefused as error:
        return with_answer(
            record, EarlyStartAnswer.REFUSED, f"{notice.node} is empty, but {source} does not begin early: {error}"
        )
    return with_answer(
        record, EarlyStartAnswer.AGREED, f"{notice.node} is empty: {source} was told to begin, and agreed"
    )
