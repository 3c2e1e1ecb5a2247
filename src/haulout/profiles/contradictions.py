"""Finds profiles that would take a node for a notice and give it back for the same one, again and again. Pure.

A maintenance is imagined as far away as each check looks ahead, and begun. If a way into a state is open then, and so
is one back because a check says that nothing is near, the two contradict each other: `due` with a lead time of 40m on
the way there, and `!due` with 15m or `!active` on the way back. Other checks are taken to pass if that
matters.

The check `over` never contradicts: it reads a maintenance as those checks do that took the node for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

from haulout.core import duration
from haulout.kinds.notice import MaintenanceNotice, Spec, Stage
from haulout.kube.objects import Metadata
from haulout.profiles.model import CheckChain, Profile
from haulout.profiles.plugin import Check, State
from haulout.profiles.plugins.checks.notice import Notice, When

_NOW = datetime(2024, 1, 1, tzinfo=UTC)
_ORDER = (State.OPERATIONAL, State.REQUIRED, State.IN_MAINTENANCE)
_ANY_OTHER = "\0"  # a source that no check names


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A transition, by the state it begins in and its number, and why it makes a node go in circles."""

    state: State
    number: int
    why: str


def contradictions(profile: Profile) -> Iterator[Contradiction]:
    """Yield the transitions that give back what was taken for the same maintenance."""
    imagined = tuple(_imagined(profile))
    for state in _ORDER[1:]:
        for number, way in enumerate(profile.states[state].transitions):
            leads_back = _ORDER.index(way.next) < _ORDER.index(state)
            found = (when for notice, when in imagined if leads_back and _goes_round(profile, state, way.check, notice))
            if when := next(found, ""):
                why = f"{when} it passes, and so does a way to {state.value}: the node would go back and forth"
                yield Contradiction(state, number, f"{why}. A notice check with `when: over` waits for the end")


def _goes_round(profile: Profile, state: State, back: CheckChain, notice: MaintenanceNotice) -> bool:
    """Tell whether a node gets to a state for a maintenance, and back because a check does not see that near."""
    if not profile.leads_to(state, lambda check: _says(check, notice)):
        return False
    values = {it.name: _says(it.plugin, notice) for it in back.members}
    is_overlooked = any(_says(it.plugin, notice) is False for it in back.members)
    return is_overlooked and back.evaluate(values) is not False


def _says(check: Check, notice: MaintenanceNotice) -> bool | None:
    if not isinstance(check, Notice):
        return None
    return None if check.when is When.OVER else check.sees(notice, now=_NOW)


def _imagined(profile: Profile) -> Iterator[tuple[MaintenanceNotice, str]]:
    checks = [it for _, it in profile.members() if isinstance(it, Notice)]
    leads = sorted({it.lead_time for it in checks if it.when is When.DUE}, reverse=True)
    kinds = dict.fromkeys(kind for it in checks for kind in it.kinds)
    sources = dict.fromkeys((_ANY_OTHER, *(source for it in checks for source in it.sources)))
    for kind, source in product(kinds, sources):
        for lead in leads:
            spec = Spec(kind=kind, source=source, stage=Stage.SCHEDULED, start=_NOW + lead)
            yield _notice(spec), f"{duration.short(lead)} before a maintenance ({kind})"
        yield _notice(Spec(kind=kind, source=source, stage=Stage.STARTED)), f"during a maintenance ({kind})"


def _notice(spec: Spec) -> MaintenanceNotice:
    return MaintenanceNotice(metadata=Metadata(name="imagined"), spec=spec)
