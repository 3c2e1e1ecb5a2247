"""Finds profiles that would take a node out of service for a notice and return it for the same one, repeatedly. Pure.

It evaluates the notice checks for example maintenances: one that starts after the lead time of each check, and one that
has started. If a path into a state is open, and a way back is open because a check returns that nothing is near, the
two contradict each other: for example `due` with a lead time of 40m on the way in, and `!due` with 15m or `!active` on
the way back. Other checks are assumed to pass where that matters.

The check `over` never contradicts: it interprets a maintenance like the checks that took the node for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeSpec, NoticeStage
from haulout.api.objects import ObjectMeta
from haulout.controllers.profiles.config.model import CheckChain, Profile
from haulout.controllers.profiles.plugin import Check, State
from haulout.controllers.profiles.plugins.checks.notice import NoticeCheck, When
from haulout.core import duration

_NOW = datetime(2024, 1, 1, tzinfo=UTC)
_ORDER = (State.OPERATIONAL, State.REQUIRED, State.IN_MAINTENANCE)
_OTHER_SOURCE = "\0"  # a source that no check names


@dataclass(frozen=True, slots=True)
class TransitionLoop:
    """A transition, by its state and number, and why it makes a node loop."""

    state: State
    number: int
    reason: str


def transition_loops(profile: Profile) -> Iterator[TransitionLoop]:
    """Yield the transitions that return a node for the maintenance that it was taken for."""
    examples = tuple(_example_notices(profile))
    for state in _ORDER[1:]:
        for number, transition in enumerate(profile.states[state].transitions):
            leads_back = _ORDER.index(transition.next) < _ORDER.index(state)
            found = (
                when for notice, when in examples if leads_back and _loops(profile, state, transition.check, notice)
            )
            if when := next(found, ""):
                reason = f"{when} it passes, and so does a path to {state.value}: the node would go back and forth"
                advice = "A notice check with `when: over` waits for the end of the maintenance"
                yield TransitionLoop(state, number, f"{reason}. {advice}")


def _loops(profile: Profile, state: State, back: CheckChain, notice: MaintenanceNotice) -> bool:
    """Return whether a notice leads a node into a state, and back because a check does not match the notice."""
    if not profile.is_reachable(state, lambda check: _outcome(check, notice)):
        return False
    values = {member.name: _outcome(member.plugin, notice) for member in back.members}
    is_not_matched = any(_outcome(member.plugin, notice) is False for member in back.members)
    return is_not_matched and back.evaluate(values) is not False


def _outcome(check: Check, notice: MaintenanceNotice) -> bool | None:
    if not isinstance(check, NoticeCheck):
        return None
    return None if check.when is When.OVER else check.matches(notice, now=_NOW)


def _example_notices(profile: Profile) -> Iterator[tuple[MaintenanceNotice, str]]:
    checks = [check for _, check in profile.members() if isinstance(check, NoticeCheck)]
    lead_times = sorted({check.lead_time for check in checks if check.when is When.DUE}, reverse=True)
    kinds = dict.fromkeys(kind for check in checks for kind in check.kinds)
    sources = dict.fromkeys((_OTHER_SOURCE, *(source for check in checks for source in check.sources)))
    for kind, source in product(kinds, sources):
        for lead_time in lead_times:
            spec = MaintenanceNoticeSpec(kind=kind, source=source, stage=NoticeStage.SCHEDULED, start=_NOW + lead_time)
            yield _example_notice(spec), f"{duration.format_short(lead_time)} before a maintenance ({kind})"
        yield (
            _example_notice(MaintenanceNoticeSpec(kind=kind, source=source, stage=NoticeStage.STARTED)),
            f"during a maintenance ({kind})",
        )


def _example_notice(spec: MaintenanceNoticeSpec) -> MaintenanceNotice:
    return MaintenanceNotice(metadata=ObjectMeta(name="imagined"), spec=spec)
