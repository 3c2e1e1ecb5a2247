"""When a Machine may be replaced: not long before the cloud begins, and only while it is allowed. Pure.

    timing(spec, terms=Terms(lead=timedelta(days=2), windows=nights), now=now)

Without terms it is at once, as with the Machine Maintenance Operator. `lead` is how long before the cloud begins it may
be; `windows` when. If no window opens between the two, the last one before is taken: the cloud asks nobody. Should
there be none at all before the cloud begins, windows are kept nevertheless, and that is said: they are people's order.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.machinemaintenance import MachineMaintenanceSpec
from haulout.core.windows import Open, Timetable, state_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementPolicy:
    """What can differ from one installation to the next."""

    lead: timedelta | None = None  # None: as soon as it is known
    windows: Timetable | None = None  # None: at any time
    surge: bool = False  # another Machine first


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementTime:
    """Whether its time has come, and if not, when to look again."""

    is_due: bool
    message: str = ""
    requeue_at: datetime | None = None
    is_on_time: bool = True  # before the cloud begins


_DUE = ReplacementTime(is_due=True)


def check_replacement_time(
    spec: MachineMaintenanceSpec, *, policy: ReplacementPolicy, now: datetime
) -> ReplacementTime:
    """Return whether the Machine may be replaced now, as far as time goes."""
    earliest = None if spec.notbefore is None or policy.lead is None else spec.notbefore - policy.lead
    if earliest is None or earliest <= now:
        return _within_window(spec, policy.windows, now)
    if policy.windows is None or _opens_between(policy.windows, earliest, spec.notbefore):
        return ReplacementTime(
            is_due=False,
            message=f"the cloud begins at {format_instant(spec.notbefore)}, so this is early",
            requeue_at=earliest,
        )
    return _within_last_window(spec, policy.windows, now, earliest)


def _within_window(spec: MachineMaintenanceSpec, windows: Timetable | None, now: datetime) -> ReplacementTime:
    window_state = None if windows is None else state_at(windows, now)
    if window_state is None or isinstance(window_state, Open):
        return _DUE
    is_late = spec.notbefore is not None and (window_state.opens_at is None or window_state.opens_at >= spec.notbefore)
    late_text = f"; the cloud begins before that, at {format_instant(spec.notbefore)}" if is_late else ""
    return ReplacementTime(
        is_due=False,
        message=f"{window_state.reason}{late_text}",
        requeue_at=window_state.recheck_at,
        is_on_time=not is_late,
    )


def _within_last_window(
    spec: MachineMaintenanceSpec, windows: Timetable, now: datetime, earliest: datetime
) -> ReplacementTime:
    """Wait for the last window before `earliest`, after which none opens in time."""
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
    message = f"a later window is still in time, before the cloud begins at {format_instant(spec.notbefore)}"
    return ReplacementTime(is_due=False, message=message, requeue_at=next_state.opens_at)


def _opens_between(windows: Timetable, start: datetime, end: datetime | None) -> bool:
    window_state = state_at(windows, start)
    if isinstance(window_state, Open):
        return True
    return window_state.opens_at is not None and end is not None and window_state.opens_at < end


def format_instant(instant: datetime | None) -> str:
    """Return an instant for people."""
    return "any moment" if instant is None else f"{instant:%Y-%m-%d %H:%M} UTC"
