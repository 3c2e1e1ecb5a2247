"""How Machines are replaced, as the operator's environment says it.

    settings, policy = read(os.environ)         # raises ConfigErrors

A window is written as the check `timeWindow` is configured, in YAML, which may be one line.
"""

from collections.abc import Mapping
from datetime import timedelta

from haulout.core import duration
from haulout.core.shaped import meant
from haulout.core.windows import Timetable
from haulout.errors import ConfigError, ConfigErrors
from haulout.kinds.notice import Kind
from haulout.machines.records import Policy
from haulout.machines.settings import Settings
from haulout.machines.timing import Terms
from haulout.profiles import reading
from haulout.profiles.plugins.checks.time_window import TimeWindow

_PREFIX = "HAULOUT_MACHINES_"
LEAD, WINDOW, SURGE, KINDS = NAMES = tuple(f"{_PREFIX}{it}" for it in ("LEAD", "WINDOW", "SURGE", "KINDS"))
_FILE = "environment"  # what errors name as the place
_TRUTH = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False, "": False}
_NOBODY = "none"


def read(variables: Mapping[str, str]) -> tuple[Settings, Policy]:
    """Return what environment variables say; all that is wrong with them is told at once."""
    found = _Environment(variables)
    terms = Terms(lead=found.lead(), windows=found.windows(), surge=found.surge())
    policy = found.policy()
    if found.wrong:
        raise ConfigErrors(found.wrong)
    return Settings(terms=terms), policy


class _Environment:
    """Variables, and what is wrong with them."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.wrong: list[ConfigError] = []
        for name in variables:
            if name.startswith(_PREFIX) and name not in NAMES:
                self._complain(name, f"there is no such setting{meant(name, NAMES)}")

    def lead(self) -> timedelta | None:
        """Return how long before the cloud begins a Machine may go; None: at once."""
        written = self._text(LEAD)
        try:
            lead = duration.parse(written) if written else None
        except duration.DurationError as error:
            self._complain(LEAD, str(error))
            return None
        if lead is not None and lead < timedelta():
            self._complain(LEAD, f"expected a duration that is not negative, found {written!r:.60}")
        return lead

    def windows(self) -> Timetable | None:
        """Return when Machines may go; None: always."""
        written = self._text(WINDOW)
        if not written:
            return None
        try:
            window, warnings = reading.read(TimeWindow, written, file=WINDOW)
        except ConfigErrors as error:
            self.wrong += error.errors
            return None
        self.wrong += warnings  # a key that nobody knows would leave Machines without a window that was meant
        if window.calendars:
            self._complain(WINDOW, "calendars cannot be read here: say the same by blackouts")
        return window.timetable()

    def surge(self) -> bool:
        """Tell whether another Machine comes first."""
        written = self._text(SURGE)
        if written.lower() not in _TRUTH:
            self._complain(SURGE, f"expected true or false, found {written!r:.60}")
        return _TRUTH.get(written.lower(), False)

    def policy(self) -> Policy:
        """Return which notices have a Machine replaced."""
        written = [it.strip() for it in self._text(KINDS).split(",") if it.strip()]
        if not written:
            return Policy()
        if written == [_NOBODY]:
            return Policy(kinds=frozenset())
        for it in written:
            if it not in tuple(Kind):
                expected = f"expected kinds of notices ({', '.join(Kind)}) with commas between, or {_NOBODY}"
                self._complain(KINDS, f"{expected}; found {it!r:.60}")
        return Policy(kinds=frozenset(written))

    def _text(self, name: str) -> str:
        return self._variables.get(name, "").strip()

    def _complain(self, name: str, problem: str) -> None:
        self.wrong.append(ConfigError(problem, file=_FILE, key=name))
