"""Notices in the API: phase, whether their nodes will be empty in time, and why. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition, NoticePhase, phase_at
from haulout.api.maintenancenotice import NoticeHistoryEntry as StoredEntry
from haulout.dashboard.api.types import Notice, NoticeHistoryEntry, NoticeList

_NEVER = datetime.max.replace(tzinfo=UTC)
_BOOLEANS = {"True": True, "False": False}


def notice_to_api(notice: MaintenanceNotice, *, now: datetime) -> Notice:
    spec, status = notice.spec, notice.status
    on_time, rescheduled = status.condition(NoticeCondition.ON_TIME), status.condition(NoticeCondition.RESCHEDULED)
    return Notice(
        name=notice.name,
        phase=phase_of(notice, now=now),
        kind=spec.kind,
        node=notice.node,
        source=spec.source,
        id=spec.notice_id,
        reason=spec.reason,
        description=spec.description,
        start=spec.start,
        end=spec.end,
        deadline=spec.deadline,
        drain_at=status.drain_at,
        predicted_drain_seconds=status.predicted_drain_seconds,
        is_on_time=None if on_time is None else _BOOLEANS.get(on_time.status),
        on_time_message="" if on_time is None else on_time.message,
        reschedulable=spec.reschedulable,
        rescheduled="" if rescheduled is None else rescheduled.message,
        history=tuple(_history_entry(entry, since=_created_at(notice, now)) for entry in reversed(status.history)),
    )


def notice_list(notices: Iterable[MaintenanceNotice], *, revision: str, now: datetime) -> NoticeList:
    """Return all notices: current ones first, by their start."""
    found = [notice_to_api(notice, now=now) for notice in notices]
    return NoticeList(revision=revision, notices=tuple(sorted(found, key=_sort_key)))


def phase_of(notice: MaintenanceNotice, *, now: datetime) -> NoticePhase:
    """Return the phase in the status, or else the phase by the clock."""
    try:
        return NoticePhase(notice.status.phase)
    except ValueError:
        return phase_at(notice.spec, now=now).phase


def is_late(notice: Notice) -> bool:
    """Return whether the node will not be empty in time and the notice is not over."""
    return notice.is_on_time is False and not NoticePhase(notice.phase).is_over


def _sort_key(notice: Notice) -> tuple[object, ...]:
    if NoticePhase(notice.phase).is_over:
        # Of past notices the newest comes first.
        ended = notice.end or notice.start
        return True, 0.0 if ended is None else -ended.timestamp(), notice.name
    return False, (notice.start or notice.deadline or _NEVER).timestamp(), notice.name


def _created_at(notice: MaintenanceNotice, now: datetime) -> datetime:
    return notice.metadata.creation_timestamp or now


def _history_entry(entry: StoredEntry, *, since: datetime) -> NoticeHistoryEntry:
    return NoticeHistoryEntry(time=entry.time or since, message=entry.message, reporter=entry.reporter)
