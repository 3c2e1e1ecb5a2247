"""What would change with another configuration: in the file, and for the nodes as they are now.

For each node the very step is taken that the operator would take, once by what is in force and once by the edit
(`haulout.controllers.profiles.decision`), and nothing of it is performed. Nobody outside is asked: what is not known
counts as not known. Nodes for which the same would change are told together.

It gives way to others every few nodes, so that thousands of them hold up nobody.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from haulout.controllers.profiles.config import description, diagram, diff
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.observation import Decision, ProfileReport, TransitionReport
from haulout.controllers.profiles.plugin import State
from haulout.core.clock import Clock
from haulout.dashboard.api.configuration.edit import ParsedEdit
from haulout.dashboard.api.types import Change, WhatIf

MAX_NAMED = 20
_MAX_CHANGES = 500
_NODES_PER_BATCH = 10  # nodes
_MAX_SECONDS_PER_NODE = 1.0  # seconds for one node: then the edit is not tried on the others
_MAX_SECONDS = 30.0  # seconds for all of them

NextStep = Callable[[str, Configuration], Decision | None]
"""Returns which step a node would take by a configuration."""


@dataclass(frozen=True, slots=True)
class ProfileOutcome:
    """What becomes of a profile of a node next; equal ones are told together."""

    state: str
    next_state: str = ""  # it goes there now, or begins to
    waits_for: tuple[str, ...] = ()  # checks that do not pass on the way that is nearest, or what else it needs
    error: str = ""

    def __str__(self) -> str:
        """Return it as what comes after `they`."""
        if self.error:
            return f"stay {self.state}, as something is wrong: {self.error}"
        match self.next_state:
            case State.IN_MAINTENANCE:
                return "go into maintenance now"
            case State.OPERATIONAL:
                return "go back to operational now"
            case str(state) if state:
                return f"go on to {state} now"
        waits = f", and wait for {', '.join(self.waits_for)}" if self.waits_for else ""
        return f"stay {self.state}{waits}"


@dataclass(slots=True)
class _NodeGroups:
    """Nodes by what would change for them."""

    nodes: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # by profile and text

    def add(self, profile: str, text: str, node: str) -> None:
        """Note it."""
        if len(self.nodes) < _MAX_CHANGES or (profile, text) in self.nodes:
            self.nodes.setdefault((profile, text), []).append(node)

    def changes(self) -> Iterator[Change]:
        """Yield them, those of most nodes first."""
        for (profile, text), found in sorted(self.nodes.items(), key=lambda group: (-len(group[1]), group[0])):
            yield Change(text=text, profile=profile, nodes=tuple(sorted(found)[:MAX_NAMED]), count=len(found))


async def preview_edit(
    edit: ParsedEdit,
    in_force: Configuration,
    edited: Configuration,
    *,
    nodes: Collection[str],
    next_step: NextStep,
    clock: Clock,
) -> WhatIf:
    """Return what an edit would change; both configurations are with what they have by default."""
    groups = _NodeGroups()
    looked_at = 0
    changed = [*configuration_changes(in_force, edited, edit)]
    started_at = clock.monotonic()
    for name in () if edit.is_too_large else nodes:
        node_started_at = clock.monotonic()
        old_step, new_step = next_step(name, in_force), next_step(name, edited)
        for profile, text in differences(old_step, new_step):
            groups.add(profile, text, name)
        looked_at += 1
        now = clock.monotonic()
        if now - node_started_at > _MAX_SECONDS_PER_NODE or now - started_at > _MAX_SECONDS:
            break
        if looked_at % _NODES_PER_BATCH == 0:
            await clock.sleep(timedelta())
    if looked_at < len(nodes):
        why = f"the edit was tried on {looked_at} of {len(nodes)} nodes only: it takes too long"
        changed.append(Change(text=why))
    return WhatIf(
        is_good=True,
        findings=edit.findings,
        changes=tuple(_redact(change, edit) for change in (*groups.changes(), *changed)),
        looked_at=looked_at,
        profiles=edit.profiles,
    )


def differences(before: Decision | None, after: Decision | None) -> Iterator[tuple[str, str]]:
    """Yield by profile what would be otherwise for a node."""
    old, new = profile_outcomes(before), profile_outcomes(after)
    for profile in dict.fromkeys((*old, *new)):
        if profile not in old:
            yield profile, f"would get profile {profile}, and {new[profile]}"
        elif profile not in new:
            unfinished = old[profile].state != State.OPERATIONAL
            yield profile, f"would lose profile {profile}" + (f" while {old[profile].state}" if unfinished else "")
        elif old[profile] != new[profile]:
            yield profile, f"would {new[profile]}; by what is in force they {old[profile]}"


def profile_outcomes(result: Decision | None) -> Mapping[str, ProfileOutcome]:
    """Return by profile what becomes of it next."""
    return {} if result is None else {report.name: _profile_outcome(report, result) for report in result.reports}


def _profile_outcome(report: ProfileReport, result: Decision) -> ProfileOutcome:
    if report.error:
        return ProfileOutcome(report.state, error=report.error)
    if report.next != report.state:
        return ProfileOutcome(report.state, next_state=report.next)
    pending = result.pending.get(report.name)
    if pending is not None:
        return ProfileOutcome(report.state, next_state=pending.next)
    transition = _nearest(report.transitions)
    return ProfileOutcome(report.state, waits_for=() if transition is None else tuple(_blocking_reasons(transition)))


def _nearest(transitions: Iterable[TransitionReport]) -> TransitionReport | None:
    """Return the way on that lacks least: the first of them."""
    return min(transitions, key=lambda transition: sum(1 for _ in _blocking_reasons(transition)), default=None)


def _blocking_reasons(transition: TransitionReport) -> Iterator[str]:
    if transition.veto:
        yield "room in the budget" if "budget" in transition.veto else transition.veto
    if transition.chain_passed:
        return
    for name, check in transition.checks.items():
        if not check.result.passed:
            yield f"{name} (not known)" if check.result.passed is None else name


# What is different in the file


def configuration_changes(before: Configuration, after: Configuration, edit: ParsedEdit) -> Iterator[Change]:
    """Yield what is different between two configurations, and of profiles and instances how."""
    for text in diff.differences(before, after):
        family, _, rest = text.partition(" ")
        name = rest.removesuffix(" changed")
        if name == rest:
            yield Change(text=text, profile=rest.split(" ")[0] if family == "profile" else "")
        elif family == "profile" and after.profiles[name].is_ending:
            yield Change(text=f"profile {name} is gone, and only brings to its end what it has begun", profile=name)
        elif family == "profile":
            how = "; ".join(
                _line_differences(
                    diagram.explain_profile(before.profiles[name]), diagram.explain_profile(after.profiles[name])
                )
            )
            if how:  # otherwise its instances changed, each of which is told by itself
                yield Change(text=f"{text}: {how}", profile=name)
        else:
            settings = [_plugin_settings(configuration, family, name, edit) for configuration in (before, after)]
            how = "; ".join(_line_differences(*settings))
            yield Change(text=f"{text}{f': {how}' if how else ''}")


def _line_differences(old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, after = dict.fromkeys(map(str.strip, old)), dict.fromkeys(map(str.strip, new))
    yield from (f"now “{line}”" for line in after if line not in before)
    yield from (f"no longer “{line}”" for line in before if line not in after)


def _plugin_settings(configuration: Configuration, family: str, name: str, edit: ParsedEdit) -> list[str]:
    descriptions = [
        description
        for description in description.describe_instances(configuration, edit.values)
        if (description.family, description.name) == (family, name)
    ]
    return [
        f"{key}: {value}"
        for description in descriptions
        for key, value in (("type", description.type), *description.options.items())
    ]


def _redact(change: Change, edit: ParsedEdit) -> Change:
    text = edit.redaction.redact(description.mask_values(change.text, edit.values))
    return Change(text=text, profile=change.profile, nodes=change.nodes, count=change.count)
