"""Preview of an edited configuration: differences in the file, and for the current nodes.

For each node the decision function of the operator (`haulout.controllers.profiles.decision`) runs twice, with the
configuration in force and with the edit. Nothing is executed, and no external system is queried: what is not cached
counts as unknown. Nodes with the same difference form one group.

The event loop gets control every few nodes, so that thousands of nodes block nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from haulout.controllers.profiles.config import description
from haulout.controllers.profiles.config.description import explain_profile
from haulout.controllers.profiles.config.differences import differences as configuration_differences
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.observation import Decision, ProfileReport, TransitionReport
from haulout.controllers.profiles.plugin import State
from haulout.core.clock import Clock
from haulout.dashboard.api.configuration.edit import ParsedEdit
from haulout.dashboard.api.types import ConfigurationChange, ConfigurationPreview

MAX_NAMED = 20
_MAX_CHANGES = 500
_NODES_PER_BATCH = 10  # between two yields to the event loop
_MAX_SECONDS_PER_NODE = 1.0  # then the other nodes are skipped
_MAX_SECONDS = 30.0  # for all nodes

NextStep = Callable[[str, Configuration], Decision | None]
"""Returns the decision about a node with a configuration."""


@dataclass(frozen=True, slots=True)
class ProfileOutcome:
    """The next step of a profile on a node; equal outcomes are grouped."""

    state: str
    next_state: str = ""  # the target of a transition that happens or begins now
    waits_for: tuple[str, ...] = ()  # failing checks of the nearest transition, or what else it needs
    error: str = ""

    def __str__(self) -> str:
        """Return the outcome as the continuation of `they`."""
        if self.error:
            return f"stay {self.state} because of an error: {self.error}"
        match self.next_state:
            case State.IN_MAINTENANCE:
                return "go into maintenance now"
            case State.OPERATIONAL:
                return "go back to operational now"
            case str(state) if state:
                return f"change to {state} now"
        waits = f", and wait for {', '.join(self.waits_for)}" if self.waits_for else ""
        return f"stay {self.state}{waits}"


@dataclass(slots=True)
class _NodeGroups:
    """Nodes grouped by what would change for them."""

    nodes: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # by profile and text

    def add(self, profile: str, text: str, node: str) -> None:
        if len(self.nodes) < _MAX_CHANGES or (profile, text) in self.nodes:
            self.nodes.setdefault((profile, text), []).append(node)

    def changes(self) -> Iterator[ConfigurationChange]:
        """Yield the changes, those of most nodes first."""
        for (profile, text), found in sorted(self.nodes.items(), key=lambda group: (-len(group[1]), group[0])):
            yield ConfigurationChange(
                text=text, profile=profile, nodes=tuple(sorted(found)[:MAX_NAMED]), count=len(found)
            )


async def preview_edit(
    edit: ParsedEdit,
    in_force: Configuration,
    edited: Configuration,
    *,
    nodes: Collection[str],
    next_step: NextStep,
    clock: Clock,
) -> ConfigurationPreview:
    """Return what an edit would change; both configurations include their defaults."""
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
        why = f"the preview covers only {looked_at} of {len(nodes)} nodes: it reached its time limit"
        changed.append(ConfigurationChange(text=why))
    return ConfigurationPreview(
        is_valid=True,
        findings=edit.findings,
        changes=tuple(_redact(change, edit) for change in (*groups.changes(), *changed)),
        evaluated_nodes=looked_at,
        profiles=edit.profiles,
    )


def differences(before: Decision | None, after: Decision | None) -> Iterator[tuple[str, str]]:
    """Yield, by profile, the differences for a node."""
    old, new = profile_outcomes(before), profile_outcomes(after)
    for profile in dict.fromkeys((*old, *new)):
        if profile not in old:
            yield profile, f"would get profile {profile}, and {new[profile]}"
        elif profile not in new:
            unfinished = old[profile].state != State.OPERATIONAL
            yield profile, f"would lose profile {profile}" + (f" while {old[profile].state}" if unfinished else "")
        elif old[profile] != new[profile]:
            yield profile, f"would {new[profile]}; with the configuration in force they {old[profile]}"


def profile_outcomes(result: Decision | None) -> Mapping[str, ProfileOutcome]:
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
    """Return the first transition with the fewest blocking reasons."""
    return min(transitions, key=lambda transition: sum(1 for _ in _blocking_reasons(transition)), default=None)


def _blocking_reasons(transition: TransitionReport) -> Iterator[str]:
    if transition.veto:
        yield "a free budget slot" if "budget" in transition.veto else transition.veto
    if transition.chain_passed:
        return
    for name, check in transition.checks.items():
        if not check.result.passed:
            yield f"{name} (not known)" if check.result.passed is None else name


# Differences in the file


def configuration_changes(
    before: Configuration, after: Configuration, edit: ParsedEdit
) -> Iterator[ConfigurationChange]:
    """Yield the differences between two configurations, with details for profiles and instances."""
    for text in configuration_differences(before, after):
        family, _, rest = text.partition(" ")
        name = rest.removesuffix(" changed")
        if name == rest:
            yield ConfigurationChange(text=text, profile=rest.split(" ")[0] if family == "profile" else "")
        elif family == "profile" and after.profiles[name].is_ending:
            yield ConfigurationChange(
                text=f"profile {name} is removed: it finishes the maintenance that it has begun, and starts none",
                profile=name,
            )
        elif family == "profile":
            how = "; ".join(
                _line_differences(explain_profile(before.profiles[name]), explain_profile(after.profiles[name]))
            )
            if how:  # otherwise only its instances changed, each with a line of its own
                yield ConfigurationChange(text=f"{text}: {how}", profile=name)
        else:
            settings = [_plugin_settings(configuration, family, name, edit) for configuration in (before, after)]
            how = "; ".join(_line_differences(*settings))
            yield ConfigurationChange(text=f"{text}{f': {how}' if how else ''}")


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


def _redact(change: ConfigurationChange, edit: ParsedEdit) -> ConfigurationChange:
    text = edit.redaction.redact(description.mask_values(change.text, edit.values))
    return ConfigurationChange(text=text, profile=change.profile, nodes=change.nodes, count=change.count)
