"""Asks clouds to move maintenance to a time that suits the cluster.

A maintenance is moved if its source can do that (`spec.reschedulable`, and the source is a `ReschedulableSource`) and
the calendar of whoever will empty its node does not allow the planned time, but allows a later one before the deadline.

It is asked for once for each start that the source plans. What is asked for is written down before, and what came of it
after (status.reschedule, the condition Rescheduled, and the history). So whoever takes over after a crash asks for the
same time again, which is harmless, and never for another one. Two who both believe they lead ask for the same time,
too: one of them wrote it down, the other was refused.

A cloud that does not answer is asked again, with pauses, until the start is too near. One that says no is believed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

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
from haulout.controllers.notices.decision import append_history, with_condition
from haulout.controllers.notices.notice_events import NoticeEvent
from haulout.core.backoff import Backoff
from haulout.errors import Conflict, ExternalError, NotFound, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import difference, merge_patch
from haulout.kube.workqueue import WorkQueue
from haulout.providers.event_source import ReschedulableSource

log = logging.getLogger(__name__)

_MIN_TIME_AHEAD = timedelta(minutes=5)
_MAX_REQUESTS = 5  # starts of one maintenance: a cloud that plans again and again is not argued with
_RESYNC_AFTER = timedelta(minutes=10)  # a calendar may have changed; looking costs no request
_BACKOFF = Backoff(first=timedelta(seconds=30), limit=timedelta(minutes=10), jitter=0.3)
_WORKERS = 4

# The first start from the planned one on that suits the node, which is the planned one if that does; None: nobody
# minds, nobody can tell, or nothing suits before the deadline.
Calendar = Callable[[Node, MaintenanceNotice], datetime | None]
ReschedulableSourceOf = Callable[[str], ReschedulableSource | None]  # by what `spec.source` says
RecordEvent = Callable[[MaintenanceNotice, NoticeEvent], object]


def no_preference(node: Node, notice: MaintenanceNotice) -> None:
    """Have every start suit."""
    del node, notice


class RescheduledReason(StrEnum):
    """The reasons of the condition Rescheduled."""

    ASKING = "Asking"
    AGREED = "Agreed"
    REFUSED = "Refused"
    NO_ANSWER = "NoAnswer"


@dataclass(frozen=True, slots=True)
class RequestReschedule:
    """The source is to be asked, for what is written down already."""

    to: datetime


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """Something is to be written down."""

    status: MaintenanceNoticeStatus
    event: NoticeEvent


def may_reschedule(notice: MaintenanceNotice, *, now: datetime) -> bool:
    """Tell whether it makes sense to ask for another time."""
    spec = notice.spec
    is_pending = notice.status.phase in (NoticePhase.PLANNED, NoticePhase.DUE) and spec.stage in (
        "",
        NoticeStage.SCHEDULED,
    )
    is_current = notice.status.start == spec.start  # else its history does not tell yet what is planned
    return (
        spec.reschedulable
        and is_pending
        and is_current
        and spec.start is not None
        and now < spec.start - _MIN_TIME_AHEAD
    )


def decide(
    notice: MaintenanceNotice, *, now: datetime, next_allowed_start: Callable[[], datetime | None]
) -> RequestReschedule | UpdateStatus | None:
    """Return what to do next about a notice.

    None: nothing. `next_allowed_start` is asked for a start only if that matters.
    """
    request, start, pending_start = notice.status.reschedule, notice.spec.start, _pending_start(notice)
    if request is not None and pending_start is not None:
        if start == pending_start:
            return answer_update(
                notice,
                RescheduledReason.AGREED,
                f"{notice.spec.source} moved it to {_format_instant(pending_start)}",
                now=now,
            )
        if may_reschedule(notice, now=now) and start == request.from_:
            return RequestReschedule(pending_start)
        why = "it was planned anew meanwhile" if start != request.from_ else "it cannot be moved any more"
        return answer_update(
            notice, RescheduledReason.NO_ANSWER, f"no answer about {_format_instant(pending_start)}: {why}", now=now
        )
    if not may_reschedule(notice, now=now) or start is None:
        return None
    if request is not None and (start in (request.from_, request.to) or request.asked >= _MAX_REQUESTS):
        return None
    to = next_allowed_start()
    return None if to is None or to <= start else _request_update(notice, start, to, now=now)


def _pending_start(notice: MaintenanceNotice) -> datetime | None:
    """Return the start that was asked for, and of which nobody has said yet what came of it."""
    request, condition = notice.status.reschedule, notice.status.condition(NoticeCondition.RESCHEDULED)
    is_open = condition is not None and condition.reason == RescheduledReason.ASKING
    return request.to if request is not None and is_open else None


def _request_update(notice: MaintenanceNotice, start: datetime, to: datetime, *, now: datetime) -> UpdateStatus:
    previous = notice.status.reschedule
    message = (
        f"asking {notice.spec.source} for {_format_instant(to)}, "
        f"since {_format_instant(start)} is outside of all windows"
    )
    status = msgspec.structs.replace(
        _status_with_answer(notice, RescheduledReason.ASKING, message, now=now),
        reschedule=Reschedule(from_=start, to=to, asked=1 if previous is None else previous.asked + 1),
    )
    return UpdateStatus(status, NoticeEvent("MaintenanceMoveAsked", message))


def answer_update(notice: MaintenanceNotice, reason: RescheduledReason, message: str, *, now: datetime) -> UpdateStatus:
    """Return that the source has answered, or never will."""
    is_warning = reason is not RescheduledReason.AGREED
    event = NoticeEvent(f"MaintenanceMove{reason}", message, notice.spec.source, is_warning=is_warning)
    return UpdateStatus(_status_with_answer(notice, reason, message, now=now, event=event), event)


def _status_with_answer(
    notice: MaintenanceNotice,
    reason: RescheduledReason,
    message: str,
    *,
    now: datetime,
    event: NoticeEvent | None = None,
) -> MaintenanceNoticeStatus:
    condition_status = {RescheduledReason.ASKING: "Unknown", RescheduledReason.AGREED: "True"}.get(reason, "False")
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


class Rescheduler:
    """Asks for other times; the owner runs `run`, and says by `add` which notices have changed."""

    def __init__(
        self,
        client: Client,
        notices: Informer[MaintenanceNotice],
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
        self._failures: dict[str, int] = {}
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="moving notices",
        )

    def add(self, notice: MaintenanceNotice) -> None:
        """Look at a notice soon, if its source can be asked."""
        if notice.spec.reschedulable or notice.status.reschedule is not None:
            self._queue.add(notice.name)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    async def _reconcile(self, name: str) -> datetime | None:
        notice = self._notices.get(name)
        event_source = None if notice is None else self._reschedulable_source_of(notice.spec.source)
        if notice is None or event_source is None:
            self._failures.pop(name, None)
            return None
        now = self._client.clock.now()
        match decide(notice, now=now, next_allowed_start=lambda: self._next_allowed_start(notice)):
            case RequestReschedule(to):
                return await self._request_reschedule(notice, event_source, to)
            case UpdateStatus() as update:
                await self._write(notice, update)
                return None  # the watch will tell
        return now + _RESYNC_AFTER if may_reschedule(notice, now=now) else None

    def _next_allowed_start(self, notice: MaintenanceNotice) -> datetime | None:
        node = self._node_of(notice)
        return None if node is None else self._calendar(node, notice)

    async def _request_reschedule(
        self, notice: MaintenanceNotice, event_source: ReschedulableSource, to: datetime
    ) -> datetime | None:
        source = notice.spec.source
        try:
            await event_source.reschedule(notice, to)
        except RescheduleRefused as error:
            reason, message = RescheduledReason.REFUSED, f"{source} does not move it to {_format_instant(to)}: {error}"
        except ExternalError as error:
            failures = self._failures[notice.name] = self._failures.get(notice.name, 0) + 1
            log.warning("%s: asking %s for %s: %s; trying again", notice.name, source, _format_instant(to), error)
            return self._client.clock.now() + _BACKOFF.delay(failures, self._client.random)
        else:
            reason, message = RescheduledReason.AGREED, f"{source} agreed to begin at {_format_instant(to)}"
        self._failures.pop(notice.name, None)
        latest = self._notices.get(notice.name)
        if latest is not None and latest.uid == notice.uid and _pending_start(latest) == to:
            await self._write(latest, answer_update(latest, reason, message, now=self._client.clock.now()))
        return None

    async def _write(self, notice: MaintenanceNotice, update: UpdateStatus) -> None:
        change = difference(msgspec.to_builtins(notice.status), msgspec.to_builtins(update.status))
        metadata = {"uid": notice.uid, "resourceVersion": notice.resource_version}
        patch = merge_patch({"metadata": metadata, "status": change})
        try:
            await self._client.patch(MAINTENANCE_NOTICES, notice.name, patch, subresource="status")
        except (Conflict, NotFound) as error:
            log.debug("notice %s is not as it was: %s", notice.name, error)
            return  # the watch will tell, and it is asked again for the same
        self._record_event(notice, update.event)
