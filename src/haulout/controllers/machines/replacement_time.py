"""When a Machine may be replaced: not too long before the cloud's event begins, and only in maintenance windows. Pure.

    check_replacement_time(spec, policy=ReplacementPolicy(lead=timedelta(days=2), windows=nights), now=now)

Without a policy it may be replaced at once, as with the Machine Maintenance Operator. `lead` is the maximum time before
the event begins; `windows` are the maintenance windows. If no window opens between the two, the last one before is
used, since the cloud does not wait. If none opens before the event begins, the windows are respected nevertheless,
because users configured them, and the status warns of that.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.machinemaintenance import MachineMaintenanceSpec
from haulout.core.windows import Open, Timetable, state_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementPolicy:
    """Settings that differ between installations."""

    lead: timedelta | None = None  # None: as soon as the event is known
    windows: Timetable | None = None  # None: at any time
    surge: bool = False  # create the replacement first


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementTime:
    """Whether the Machine may be replaced now, and if not, when to check again."""

    is_due: bool
    message: str = ""
    requeue_at: datetime | None = None
    is_on_time: bool = True  # before the cloud's event begins


_DUE = ReplacementTime(is_due=True)


def check_replacement_time(
    spec: MachineMaintenanceSpec, *, policy: ReplacementPolicy, now: datetime
) -> ReplacementTime:
    """Return whether windows and lead permit the replacement now."""
    earliest = None if spec.notbefore is None or policy.lead is None else spec.notbefore - policy.lead
    if earliest is None or earliest <= now:
        return _within_window(spec, policy.windows, now)
    if policy.windows is None or _opens_between(policy.windows, earliest, spec.notbefore):
        return ReplacementTime(
            is_due=False,
            message=f"the maintenance of the cloud begins at {format_instant(spec.notbefore)}, so it is too early",
            requeue_at=earliest,
        )
    return _within_last_window(spec, policy.windows, now, earliest)


def _within_window(spec: MachineMaintenanceSpec, windows: Timetable | None, now: datetime) -> ReplacementTime:
    window_state = None if windows is None else state_at(windows, now)
    if window_state is None or isinstance(window_state, Open):
        return _DUE
    is_late = spec.notbefore is not None and (window_state.opens_at is None or window_state.opens_at >= spec.notbefore)
    late_text = (
        f"; the maintenance of the cloud begins before that, at {format_instant(spec.notbefore)}" if is_late else ""
    )
    return ReplacementTime(
        is_due=False,
        message=f"{window_state.reason}{late_text}",
        requeue_at=window_state.recheck_at,
        is_on_time=not is_late,
    )


def _within_last_window(
    spec: MachineMaintenanceSpec, windows: Timetable, now: datetime, earliest: datetime
) -> ReplacementTime:
    """Use the last window before `earliest`, because none opens between `earliest` and the event."""
    window_state = state_at(windows, now)
    if not isinstance(window_state, Open):
        return _within_window(spec, windows, now)
    next_state = None if window_state.until is None else state_at(windows, window_state.until)
    if (
        next_state is None
        or isinstance(next_state, Open)
        or next_state.opens_at is None
        or next_state.opens_at >= earliest
    ):
        return _DUE
    message = (
        "a later window is still in time, before the maintenance of the cloud begins at "
        f"{format_instant(spec.notbefore)}"
    )
    return ReplacementTime(is_due=False, message=message, requeue_at=next_state.opens_at)


def _opens_between(windows: Timetable, start: datetime, end: datetime | None) -> bool:
    window_state = state_at(windows, start)
    if isinstance(window_state, Open):
        return True
    return window_state.opens_at is not None and end is not None and window_state.opens_at < end


def format_instant(instant: datetime | None) -> str:
    return "any moment" if instant is None else f"{instant:%Y-%m-%d %H:%M} UTC"
