"""Settings for replacing Machines, from environment variables.

    settings, policy = read_settings(os.environ)  # raises ConfigErrors

The window has the YAML syntax of the check `timeWindow`; one line suffices.
"""

from collections.abc import Mapping
from datetime import timedelta

from haulout.api.maintenancenotice import MaintenanceKind
from haulout.controllers.machines.desired_maintenance import NoticeFilter
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.controllers.machines.settings import MachineSettings
from haulout.core import duration
from haulout.core.windows import Timetable
from haulout.core.yaml_decoder import did_you_mean
from haulout.errors import ConfigError, ConfigErrors

_PREFIX = "HAULOUT_MACHINES_"
LEAD, WINDOW, SURGE, KINDS = MACHINE_VARIABLES = tuple(f"{_PREFIX}{it}" for it in ("LEAD", "WINDOW", "SURGE", "KINDS"))
_SOURCE = "environment"  # the location that errors name
_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False, "": False}
_NONE = "none"


def read_settings(variables: Mapping[str, str]) -> tuple[MachineSettings, NoticeFilter]:
    """Parse the environment variables; raise `ConfigErrors` with all errors at once."""
    environment = _Environment(variables)
    terms = ReplacementPolicy(lead=environment.lead(), windows=environment.windows(), surge=environment.surge())
    policy = environment.policy()
    if environment.problems:
        raise ConfigErrors(environment.problems)
    return MachineSettings(policy=terms), policy


class _Environment:
    """Parses the variables, and collects errors."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.problems: list[ConfigError] = []
        for name in variables:
            if name.startswith(_PREFIX) and name not in MACHINE_VARIABLES:
                self._add_problem(name, f"there is no such setting{did_you_mean(name, MACHINE_VARIABLES)}")

    def lead(self) -> timedelta | None:
        """Return how long before the start of the cloud's maintenance a Machine may be replaced; None: at once."""
        text = self._text(LEAD)
        try:
            lead = duration.parse(text) if text else None
        except duration.DurationError as error:
            self._add_problem(LEAD, str(error))
            return None
        if lead is not None and lead < timedelta():
            self._add_problem(LEAD, f"expected a duration that is not negative, found {text!r:.60}")
        return lead

    def windows(self) -> Timetable | None:
        """Return when Machines may be replaced; None: always."""
        text = self._text(WINDOW)
        if not text:
            return None
        from haulout.controllers.profiles.config import reader
        from haulout.controllers.profiles.plugins.checks.time_window import TimeWindow

        try:
            window, warnings = reader.read(TimeWindow, text, file=WINDOW)
        except ConfigErrors as error:
            self.problems += error.errors
            return None
        self.problems += warnings  # warnings count as errors: a misspelled key would silently drop the window
        if window.calendars:
            self._add_problem(WINDOW, "calendars are not supported here: use blackouts")
        return window.timetable()

    def surge(self) -> bool:
        """Return whether the replacement Machine is created first."""
        text = self._text(SURGE)
        if text.lower() not in _BOOLEANS:
            self._add_problem(SURGE, f"expected true or false, found {text!r:.60}")
        return _BOOLEANS.get(text.lower(), False)

    def policy(self) -> NoticeFilter:
        """Return which notices cause the replacement of a Machine."""
        kinds = [kind.strip() for kind in self._text(KINDS).split(",") if kind.strip()]
        if not kinds:
            return NoticeFilter()
        if kinds == [_NONE]:
            return NoticeFilter(kinds=frozenset())
        for kind in kinds:
            if kind not in tuple(MaintenanceKind):
                expected = f"expected kinds of notices ({', '.join(MaintenanceKind)}) with commas between, or {_NONE}"
                self._add_problem(KINDS, f"{expected}; found {kind!r:.60}")
        return NoticeFilter(kinds=frozenset(kinds))

    def _text(self, name: str) -> str:
        return self._variables.get(name, "").strip()

    def _add_problem(self, name: str, problem: str) -> None:
        self.problems.append(ConfigError(problem, file=_SOURCE, key=name))
