"""A timeline for browser tests: a round of patches, blocked, failed and planned maintenance, injection attempts."""

from datetime import datetime, timedelta

from haulout.dashboard.api.types import NodeState, Span, SpanKind, Timeline, TimelineRow
from support.dashboard.notices_and_configuration import HOSTILE, LONG_TEXT

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


def a_timeline(
    now: datetime, *, rows: int = 40, start: datetime | None = None, end: datetime | None = None
) -> Timeline:
    """Return a timeline of nodes with spans, and idle nodes after them."""
    window_start, window_end = start or now - 3 * _DAY, end or now + 4 * _DAY
    busy = (_draining(now), _due(now), _failed(now), _announced(now), _hostile_row(now), *_patched(now, 12))
    quiet = tuple(
        TimelineRow(node=f"general-{number:03}", state=NodeState.IDLE)
        for number in range(20, 20 + max(0, rows - len(busy)))
    )
    return Timeline(
        start=window_start,
        end=window_end,
        now=now,
        rows=(*busy, *quiet)[:rows],
        total=max(rows, len(busy)),
        windows=_windows(now),
    )


def a_timeline_without_history(now: datetime) -> Timeline:
    """Return a timeline without recorded history."""
    whole = a_timeline(now, rows=4)
    return Timeline(
        start=whole.start,
        end=whole.end,
        now=now,
        rows=whole.rows,
        total=120,
        problem="The past is missing: no history is kept here, as its definition is not installed.",
    )


def _draining(now: datetime) -> TimelineRow:
    return TimelineRow(
        node="general-05",
        state=NodeState.BLOCKED,
        spans=(
            Span(
                kind=SpanKind.PROFILE,
                title="os",
                start=now - 8 * _HOUR,
                end=now - 42 * _MINUTE,
                state="maintenance-required",
                message="wanted passed: node general-05 has the label example.com/patches",
            ),
            Span(
                kind=SpanKind.PROFILE,
                title="os",
                start=now - 42 * _MINUTE,
                state="in-maintenance",
                message="night passed",
            ),
            Span(
                kind=SpanKind.DRAIN,
                title="profile os",
                start=now - 42 * _MINUTE,
                state="running",
                message="waiting for PodDisruptionBudget bank/ledger: 2 of 2 healthy pods needed",
            ),
        ),
    )


def _due(now: datetime) -> TimelineRow:
    return TimelineRow(
        node="large-01",
        state=NodeState.PLANNED,
        spans=(
            Span(
                kind=SpanKind.NOTICE,
                title="Reboot: EVACUATION",
                start=now + 12 * _MINUTE,
                end=now + 72 * _MINUTE,
                state="Due",
                message="oci-e1: its drain has not begun",
            ),
        ),
    )


def _failed(now: datetime) -> TimelineRow:
    return TimelineRow(
        node="general-08",
        state=NodeState.BLOCKED,
        spans=(
            Span(
                kind=SpanKind.MAINTENANCE,
                title="patch-08",
                start=now - 5 * _HOUR,
                state="Failed",
                message="DrainTimedOut: 30m passed, and shop/cart-0 is still there",
            ),
            Span(
                kind=SpanKind.DRAIN,
                title="NodeMaintenance patch-08",
                start=now - 5 * _HOUR,
                end=now - 270 * _MINUTE,
                state="DrainTimedOut",
                message="blocked longest by PodDisruptionBudget shop/cart (28m)",
            ),
        ),
    )


def _announced(now: datetime) -> TimelineRow:
    return TimelineRow(
        node="large-02",
        state=NodeState.PLANNED,
        spans=(
            Span(
                kind=SpanKind.NOTICE,
                title="Stop: PowerFeed",
                start=now + 28 * _HOUR,
                end=now + 31 * _HOUR,
                state="Planned",
                message="rack-12-power: Rack 12 gets a second power feed",
            ),
            Span(
                kind=SpanKind.NOTICE,
                title="Migrate: aws-event-4",
                start=now - 2 * _DAY,
                end=now - 46 * _HOUR,
                state="Completed",
                message="aws-event-4: system maintenance",
            ),
        ),
    )


def _hostile_row(now: datetime) -> TimelineRow:
    return TimelineRow(
        node=f"evil-{LONG_TEXT}",
        state=NodeState.IN_MAINTENANCE,
        spans=(
            Span(kind=SpanKind.MAINTENANCE, title=HOSTILE, start=now - 2 * _HOUR, state=HOSTILE, message=HOSTILE),
            Span(kind=SpanKind.PROFILE, title="os", start=now - _HOUR, end=now - 30 * _MINUTE, state="in-maintenance"),
        ),
    )


def _patched(now: datetime, count: int) -> tuple[TimelineRow, ...]:
    return tuple(
        _patched_row(f"general-{number + 1:03}", now - 2 * _DAY + number * 97 * _MINUTE) for number in range(count)
    )


def _patched_row(node: str, started: datetime) -> TimelineRow:
    required, drained, ended = started + 2 * _HOUR, started + 135 * _MINUTE, started + 3 * _HOUR
    return TimelineRow(
        node=node,
        state=NodeState.IDLE,
        spans=(
            Span(
                kind=SpanKind.PROFILE,
                title="os",
                start=started,
                end=required,
                state="maintenance-required",
                message="patches wait",
            ),
            Span(
                kind=SpanKind.PROFILE,
                title="os",
                start=required,
                end=ended,
                state="in-maintenance",
                message="night && one passed",
            ),
            Span(
                kind=SpanKind.DRAIN,
                title="profile os",
                start=required,
                end=drained,
                state="Drained",
                message="7 pods removed in 15m",
            ),
        ),
    )


def _windows(now: datetime) -> tuple[Span, ...]:
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    nights = tuple(
        Span(
            kind=SpanKind.WINDOW,
            title="os: night",
            start=day + offset * _DAY + 22 * _HOUR,
            end=day + (offset + 1) * _DAY + 4 * _HOUR,
            message="mon-thu 22:00-04:00 Europe/Berlin",
        )
        for offset in range(-4, 5)
    )
    freeze = Span(
        kind=SpanKind.BLACKOUT,
        title="os: night",
        start=day + 2 * _DAY,
        end=day + 3 * _DAY,
        message="nothing begins: release freeze",
    )
    return (*nights, freeze)
