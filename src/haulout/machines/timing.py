"""When a Machine may be replaced: not long before the cloud begins, and only while it is allowed. Pure.

    timing(spec, terms=Terms(lead=timedelta(days=2), windows=nights), now=now)

Without terms it is at once, as with the Machine Maintenance Operator. `lead` is how long before the cloud begins it may
be; `windows` when. If no window opens between the two, the last one before is taken: the cloud asks nobody. Should
there be none at all before the cloud begins, windows are kept nevertheless, and that is said: they are people's order.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.core.windows import Open, Timetable, openness
from haulout.kinds.machinemaintenance import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What can differ from one installation to the next."""

    lead: timedelta | None = None  # None: as soon as it is known
    windows: Timetable | None = None  # None: at any time
    surge: bool = False  # another Machine first


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Whether its time has come, and if not, when to look again."""

    has_come: bool
    why: str = ""
    until: datetime | None = None
    is_on_time: bool = True  # before the cloud begins


_NOW = Timing(has_come=True)


def timing(spec: Spec, *, terms: Terms, now: datetime) -> Timing:
    """Return whether the Machine may be replaced now, as far as time goes."""
    due = None if spec.notbefore is None or terms.lead is None else spec.notbefore - terms.lead
    if due is None or due <= now:
        return _in_a_window(spec, terms.windows, now)
    if terms.windows is None or _opens_between(terms.windows, due, spec.notbefore):
        return Timing(has_come=False, why=f"the cloud begins at {told(spec.notbefore)}, so this is early", until=due)
    return _in_the_last_window(spec, terms.windows, now, due)


def _in_a_window(spec: Spec, windows: Timetable | None, now: datetime) -> Timing:
    found = None if windows is None else openness(windows, now)
    if found is None or isinstance(found, Open):
        return _NOW
    is_late = spec.notbefore is not None and (found.opens_at is None or found.opens_at >= spec.notbefore)
    late = f"; the cloud begins before that, at {told(spec.notbefore)}" if is_late else ""
    return Timing(has_come=False, why=f"{found.reason}{late}", until=found.looks_again_at, is_on_time=not is_late)


def _in_the_last_window(spec: Spec, windows: Timetable, now: datetime, due: datetime) -> Timing:
    """Wait for the last window before `due`, after which none opens in time."""
    found = openness(windows, now)
    if not isinstance(found, Open):
        return _in_a_window(spec, windows, now)
    following = None if found.until is None else openness(windows, found.until)
    if following is None or isinstance(following, Open) or following.opens_at is None or following.opens_at >= due:
        return _NOW
    why = f"a later window is still in time, before the cloud begins at {told(spec.notbefore)}"
    return Timing(has_come=False, why=why, until=following.opens_at)


def _opens_between(windows: Timetable, first: datetime, last: datetime | None) -> bool:
    found = openness(windows, first)
    if isinstance(found, Open):
        return True
    return found.opens_at is not None and last is not None and found.opens_at < last


def told(instant: datetime | None) -> str:
    """Return an instant for people."""
    return "any moment" if instant is None else f"{instant:%Y-%m-%d %H:%M} UTC"
