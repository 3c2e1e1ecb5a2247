"""Ask clouds to move maintenance to a time inside the cluster's maintenance windows.

A maintenance is moved if its source supports that (`spec.reschedulable`, and the source is a `ReschedulableSource`) and
the calendar of the profile that will empty the node forbids the planned start, but allows a later one before the
deadline.

The controller asks once per planned start. It writes the requested time before it asks, and the answer afterwards
(status.reschedule, the condition Rescheduled, and the history). After a crash the next leader asks for the same time
again, which is harmless, and never for a different one. Two processes that both believe they lead also ask for the
same time: one of them recorded it, the other one's write failed with a conflict.

If the cloud does not answer, the request is retried with backoff until the start is too near. A refusal is final.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceNotice,
    MaintenanceNoticeStatus,
    NoticeCondition,
    NoticePhase,
    NoticeStage,
    Reschedule,
)
from haulout.api.objects import Node, StatusCondition
from haulout.api.reasons import NoticeEventReason, RescheduledReason
from haulout.controllers.notices.decision import append_history, with_condition
from haulout.controllers.notices.events import NoticeEvent
from haulout.controllers.notices.source_backoff import SourceBackoff
from haulout.controllers.notices.status import write_status
from haulout.core.backoff import Backoff
from haulout.errors import ExternalError, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.mutation_cache import MutationCache
from haulout.providers.event_source import ReschedulableSource
from haulout.runtime.reconciler import Reconciler

log = logging.getLogger(__name__)

_MIN_TIME_AHEAD = timedelta(minutes=5)
_MAX_REQUESTS = 5  # requests per maintenance: stop when a cloud keeps planning new starts
_RESYNC_AFTER = timedelta(minutes=10)  # a calendar may have changed; a resync costs no request
_BACKOFF = Backoff(first=timedelta(seconds=30), limit=timedelta(minutes=10), jitter=0.3)

# The first start from the planned one on that a maintenance window allows; the planned start itself if it is allowed.
# None: no profile restricts it, it is not known, or no window opens before the deadline.
Calendar = Callable[[Node, MaintenanceNotice], datetime | None]
ReschedulableSourceOf = Callable[[str], ReschedulableSource | None]  # by `spec.source`
RecordEvent = Callable[[MaintenanceNotice, NoticeEvent], object]


def no_preference(node: Node, notice: MaintenanceNotice) -> None:
    """Allow every start."""
    del node, notice


@dataclass(frozen=True, slots=True)
class RequestReschedule:
    """Ask the source for a start that the status already records."""

    to: datetime


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """Write this status and record this event."""

    status: MaintenanceNoticeStatus
    event: NoticeEvent


def may_reschedule(notice: MaintenanceNotice, *, now: datetime) -> bool:
    """Return whether the start can still be moved."""
    spec = notice.spec
    is_pending = notice.status.phase in (NoticePhase.PLANNED, NoticePhase.DUE) and spec.stage in (
        "",
        NoticeStage.SCHEDULED,
    )
    is_current = notice.status.start == spec.start  # until then the status describes the previous start
    return (
        spec.reschedulable
        and is_pending
        and is_current
        and spec.start is not None
        and now < spec.start - _MIN_TIME_AHEAD
    )


def is_reschedule_candidate(notice: MaintenanceNotice) -> bool:
    """Return whether the source of a notice can be asked, or was asked."""
    return notice.spec.reschedulable or notice.status.reschedule is not None


def decide(
    notice: MaintenanceNotice, *, now: datetime, next_allowed_start: Callable[[], datetime | None]
) -> RequestReschedule | UpdateStatus | None:
    """Return the next action for a notice; None if there is nothing to do.

    `next_allowed_start` is called only if its result matters.
    """
    request, start, pending_start = notice.status.reschedule, notice.spec.start, _pending_start(notice)
    if request is not None and pending_start is not None:
        if start == pending_start:
            return answer_update(
                notice,
                RescheduledReason.ACCEPTED,
                f"{notice.spec.source} moved the maintenance to {_format_instant(pending_start)}",
                now=now,
            )
        if may_reschedule(notice, now=now) and start == request.from_:
            return RequestReschedule(pending_start)
        why = "it was rescheduled meanwhile" if start != request.from_ else "it cannot be moved any more"
        return answer_update(
            notice,
            RescheduledReason.NO_ANSWER,
            f"no answer to the request for {_format_instant(pending_start)}: {why}",
            now=now,
        )
    if not may_reschedule(notice, now=now) or start is None:
        return None
    if request is not None and (start in (request.from_, request.to) or request.attempts >= _MAX_REQUESTS):
        return None
    to = next_allowed_start()
    return None if to is None or to <= start else _request_update(notice, start, to, now=now)


def _pending_start(notice: MaintenanceNotice) -> datetime | None:
    """Return the start that was requested and has no recorded answer yet."""
    request, condition = notice.status.reschedule, notice.status.condition(NoticeCondition.RESCHEDULED)
    is_open = condition is not None and condition.reason == RescheduledReason.REQUESTED
    return request.to if request is not None and is_open else None


def _request_update(notice: MaintenanceNotice, start: datetime, to: datetime, *, now: datetime) -> UpdateStatus:
    previous = notice.status.reschedule
    message = (
        f"asking {notice.spec.source} to move it to {_format_instant(to)}, "
        f"since {_format_instant(start)} is outside all maintenance windows"
    )
    status = msgspec.structs.replace(
        _status_with_answer(notice, RescheduledReason.REQUESTED, message, now=now),
        reschedule=Reschedule(from_=start, to=to, attempts=1 if previous is None else previous.attempts + 1),
    )
    return UpdateStatus(status, NoticeEvent(NoticeEventReason.RESCHEDULE_REQUESTED, message))


def answer_update(notice: MaintenanceNotice, reason: RescheduledReason, message: str, *, now: datetime) -> UpdateStatus:
    """Return the status update for an answer, or for a request that will never get one."""
    is_warning = reason is not RescheduledReason.ACCEPTED
    event = NoticeEvent(NoticeEventReason(f"Reschedule{reason}"), message, notice.spec.source, is_warning=is_warning)
    return UpdateStatus(_status_with_answer(notice, reason, message, now=now, event=event), event)


def _status_with_answer(
    notice: MaintenanceNotice,
    reason: RescheduledReason,
    message: str,
    *,
    now: datetime,
    event: NoticeEvent | None = None,
) -> MaintenanceNoticeStatus:
    condition_status = {RescheduledReason.REQUESTED: "Unknown", RescheduledReason.ACCEPTED: "True"}.get(reason, "False")
    condition = StatusCondition(
        type=NoticeCondition.RESCHEDULED,
        status=condition_status,
        reason=reason,
        message=message,
        observed_generation=notice.metadata.generation,
    )
    entry = event or NoticeEvent("", message)
    return msgspec.structs.replace(
        notice.status,
        conditions=with_condition(notice.status, condition, now=now),
        history=append_history(notice, (entry,), now=now),
    )


def _format_instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class RescheduleObservation:
    """A notice and its source at one moment."""

    notice: MaintenanceNotice
    source: ReschedulableSource | None  # None: its source cannot be asked
    retry_at: datetime | None  # the source has not answered, and is not asked before
    now: datetime


@dataclass(frozen=True, slots=True)
class RescheduleDecision:
    """The next action, if any."""

    action: RequestReschedule | UpdateStatus | None
    requeue_at: datetime | None = None


class RescheduleReconciler(Reconciler[str, RescheduleObservation, RescheduleDecision]):
    """Asks sources to move maintenance, one notice at a time, by name."""

    def __init__(
        self,
        client: Client,
        notices: MutationCache[MaintenanceNotice],
        *,
        node_of: Callable[[MaintenanceNotice], Node | None],
        reschedulable_source_of: ReschedulableSourceOf,
        calendar: Calendar,
        record_event: RecordEvent,
    ) -> None:
        self._client = client
        self._notices = notices
        self._node_of = node_of
        self._reschedulable_source_of = reschedulable_source_of
        self._calendar = calendar
        self._record_event = record_event
        self._source_backoff = SourceBackoff(client, _BACKOFF)

    async def observe(self, key: str) -> RescheduleObservation | None:
        notice = self._notices.get(key)
        if notice is None:
            return None
        source = self._reschedulable_source_of(notice.spec.source)
        return RescheduleObservation(notice, source, self._source_backoff.retry_at(key), self._client.clock.now())

    def decide(self, observation: RescheduleObservation) -> RescheduleDecision:
        notice, now = observation.notice, observation.now
        if observation.source is None:
            return RescheduleDecision(None)
        action = decide(notice, now=now, next_allowed_start=lambda: self._next_allowed_start(notice))
        if isinstance(action, RequestReschedule) and observation.retry_at is not None:
            return RescheduleDecision(None, observation.retry_at)
        if action is None and may_reschedule(notice, now=now):
            return RescheduleDecision(None, now + _RESYNC_AFTER)
        return RescheduleDecision(action)

    async def act(self, observation: RescheduleObservation, decision: RescheduleDecision) -> bool:
        match decision.action:
            case RequestReschedule(to) if observation.source is not None:
                await self._request_reschedule(observation.notice, observation.source, to)
                return True
            case UpdateStatus() as update:
                await self._write(observation.notice, update)
                return True
        return False

    async def report(self, observation: RescheduleObservation, decision: RescheduleDecision) -> datetime | None:
        if decision.requeue_at is None or decision.requeue_at != observation.retry_at:
            self._source_backoff.forget(observation.notice.name)
        return None

    async def refresh(self, key: str, error: Exception) -> bool:
        del error
        await self._notices.refresh(self._client, MAINTENANCE_NOTICES, key)
        return True

    async def forget(self, key: str) -> datetime | None:
        self._source_backoff.forget(key)
        return None

    def _next_allowed_start(self, notice: MaintenanceNotice) -> datetime | None:
        node = self._node_of(notice)
        return None if node is None else self._calendar(node, notice)

    async def _request_reschedule(
        self, notice: MaintenanceNotice, event_source: ReschedulableSource, to: datetime
    ) -> None:
        source = notice.spec.source
        try:
            await event_source.reschedule(notice, to)
        except RescheduleRefused as error:
            reason, message = RescheduledReason.REFUSED, f"{source} does not move it to {_format_instant(to)}: {error}"
        except ExternalError as error:
            log.warning("%s: asking %s to move it to %s: %s; retrying", notice.name, source, _format_instant(to), error)
            self._source_backoff.record_failure(notice.name, error)
            return
        else:
            reason, message = RescheduledReason.ACCEPTED, f"{source} agreed to begin at {_format_instant(to)}"
        self._source_backoff.forget(notice.name)
        latest = self._notices.get(notice.name)  # the source may have written the new start already
        if latest is not None and latest.uid == notice.uid and _pending_start(latest) == to:
            await self._write(latest, answer_update(latest, reason, message, now=self._client.clock.now()))

    async def _write(self, notice: MaintenanceNotice, update: UpdateStatus) -> None:
        await write_status(self._client, self._notices, notice, update.status)
        self._record_event(notice, update.event)
