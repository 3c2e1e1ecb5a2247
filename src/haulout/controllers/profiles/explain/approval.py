"""Approvals: labels and annotations that a person can set on a node so that a check passes. Pure.

    change_satisfying(check)                   # the label that hasLabel requires; None: not settable on a node
    offered = offers(reports, configuration)   # what the profiles of a node wait for and a person can set
    chosen = choose(offered, profile="os")     # the intended one; raises `ApprovalError` with a message for users
    patch(chosen.changes)                      # a merge patch of the node

An approval is required for the transition from `maintenance-required` to `in-maintenance`. Checks of other transitions
are offered only by name: approving without a name must neither start nor end a maintenance. Other checks of the chain
need not pass yet: an approval in the morning counts when the window opens in the evening.

`awaited_approval` answers for one check by the state on the node, without a report: only a change that the
configuration asks for in the current state of a profile can be made this way.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from haulout.api.objects import Node, RawObject
from haulout.controllers.profiles.config.model import Configuration, Member, Profile, StateTransition
from haulout.controllers.profiles.explain.remedies import Remedy, RequiredResult, format_remedy, remedies
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.observation import ProfileReport, TransitionReport
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, Check, State
from haulout.controllers.profiles.plugins.checks.has_annotation import HasAnnotation
from haulout.controllers.profiles.plugins.checks.has_label import HasLabel
from haulout.errors import HauloutError

ANY_VALUE = "true"  # for a check that accepts any value


class ApprovalError(HauloutError):
    """Raised if there is nothing to approve, or the choice is ambiguous."""


class MetadataField(StrEnum):
    """The part of a node's metadata that a check reads."""

    LABEL = "label"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """A label or an annotation to set; a value of None removes it."""

    field: MetadataField
    key: str
    value: str | None

    def __str__(self) -> str:
        return f"no {self.field} {self.key}" if self.value is None else f"{self.field} {self.key}={self.value}"

    def command(self, node: Node) -> str:
        """Return a kubectl command that makes the change."""
        verb = "label" if self.field is MetadataField.LABEL else "annotate"
        setting = f"{self.key}-" if self.value is None else f"{self.key}={self.value}"
        overwrite = " --overwrite" if self.value is not None and self.key in self._metadata_of(node) else ""
        return f"kubectl {verb} node {shlex.quote(node.name)} {shlex.quote(setting)}{overwrite}"

    def _metadata_of(self, node: Node) -> Mapping[str, str]:
        return node.metadata.labels if self.field is MetadataField.LABEL else node.metadata.annotations


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Changes by a person that let a profile continue."""

    profile: str
    state: State
    target: State
    checks: tuple[str, ...]  # instances whose results change
    remedy_text: str  # the same, for people
    changes: tuple[MetadataChange, ...]
    waits_for: str = ""  # other checks that must pass, and that nobody can set

    @property
    def is_approval(self) -> bool:
        """Whether it lets a node that waits for maintenance enter it."""
        return self.state is State.REQUIRED and self.target is State.IN_MAINTENANCE

    def __str__(self) -> str:
        return f"{self.profile}: {' and '.join(self.checks)} ({', '.join(map(str, self.changes))})"


def change_satisfying(check: Check, *, passed: bool = True, by: str = "") -> MetadataChange | None:
    """Return the change that makes a check pass, or not pass; None if the check reads nothing that a person can set.

    An annotation that may have any value gets `by`, the user's name, if given. A label does not: names are no valid
    values.
    """
    match check:
        case HasLabel(key=key, value=value):
            return MetadataChange(field=MetadataField.LABEL, key=key, value=(value or ANY_VALUE) if passed else None)
        case HasAnnotation(key=key, value=value):
            return MetadataChange(
                field=MetadataField.ANNOTATION, key=key, value=(value or by or ANY_VALUE) if passed else None
            )
    return None


def offers(reports: Iterable[ProfileReport], configuration: Configuration, *, by: str = "") -> tuple[Offer, ...]:
    """Return what the profiles of a node wait for and the user `by` can set, in order."""
    found = (
        offer
        for report in reports
        for transition, transition_report in transitions_of(report, configuration)
        if not transition_report.chain_passed
        for remedy in _remedies(transition, transition_report)
        if (offer := _offer(remedy, transition, report, by)) is not None
    )
    return tuple(dict.fromkeys(found))


def transitions_of(
    report: ProfileReport, configuration: Configuration
) -> tuple[tuple[StateTransition, TransitionReport], ...]:
    """Return the transitions out of a profile's state with their reports; none if the configuration has changed."""
    profile = configuration.profiles.get(report.name)
    if profile is None or report.state not in tuple(State):
        return ()
    transitions = profile.states[State(report.state)].transitions
    # The report and the configuration are paired by position, so both must have the same transitions.
    is_edited = [transition.check.text for transition in transitions] != [
        transition.expression for transition in report.transitions
    ]
    return () if is_edited else tuple(zip(transitions, report.transitions, strict=True))


def choose(offered: Sequence[Offer], *, profile: str = "", check: str = "") -> Offer:
    """Return the intended offer; without a check name, only an approval. Raise `ApprovalError` unless there is one."""
    candidates = [offer for offer in offered if profile in ("", offer.profile)]
    found = [offer for offer in candidates if offer.checks == (check,)] or [
        offer for offer in candidates if check in offer.checks
    ]
    if not check:
        found = [offer for offer in candidates if offer.is_approval]
    # Equal changes may open several transitions: the first of them counts.
    distinct = list({(offer.profile, offer.changes): offer for offer in reversed(found)}.values())[::-1]
    if len(distinct) == 1:
        return distinct[0]
    if distinct:
        raise ApprovalError(
            f"several approvals are possible: {_format_offers(distinct)}. Choose one with --profile and --check"
        )
    raise ApprovalError(
        _not_found_message(profile, check)
        + (f"; possible with --check: {_format_offers(candidates)}" if candidates else "")
    )


def _not_found_message(profile: str, check: str) -> str:
    if check:
        of = f" of profile {profile}" if profile else ""
        return f"check {check}{of} does not wait for a label or annotation that a person can set"
    return f"profile {profile} is not waiting for an approval" if profile else "no profile is waiting for an approval"


def patch(changes: Iterable[MetadataChange]) -> RawObject:
    """Return a merge patch of a node."""
    found: dict[str, dict[str, str | None]] = {}
    for change in changes:
        found.setdefault("labels" if change.field is MetadataField.LABEL else "annotations", {})[change.key] = (
            change.value
        )
    return {"metadata": found}


def command(node: Node, changes: Iterable[MetadataChange]) -> str:
    """Return a shell command that makes the changes."""
    return " && ".join(change.command(node) for change in changes)


def _format_offers(found: Iterable[Offer]) -> str:
    return "; ".join(map(str, found))


def _remedies(transition: StateTransition, transition_report: TransitionReport) -> tuple[Remedy, ...]:
    values = {name: check.result.passed for name, check in transition_report.checks.items()}
    return remedies(transition.check.evaluate, values)


def _offer(remedy: Remedy, transition: StateTransition, report: ProfileReport, by: str) -> Offer | None:
    members = {item.name: item for item in transition.check.members}
    settable = dict(_settable(remedy, members, by))
    if not settable:
        return None
    return Offer(
        profile=report.name,
        state=State(report.state),
        target=transition.next,
        checks=tuple(item.name for item in settable),
        remedy_text=format_remedy(tuple(settable)),
        changes=tuple(settable.values()),
        waits_for=format_remedy(tuple(item for item in remedy if item not in settable)),
    )


def _settable(
    remedy: Remedy, members: Mapping[str, Member[Check]], by: str
) -> Iterator[tuple[RequiredResult, MetadataChange]]:
    for required in remedy:
        member = members.get(required.name)
        change = None if member is None else change_satisfying(member.plugin, passed=required.passed, by=by)
        if change is not None:
            yield required, change


@dataclass(frozen=True, slots=True)
class AwaitedApproval:
    """The change that a check waits for, and whether the node already has it."""

    change: MetadataChange
    is_met: bool


def awaited_approval(
    node: Node, configuration: Configuration, *, profile: str, check: str, by: str = ""
) -> AwaitedApproval:
    """Return the change that a check of a profile waits for, made by `by`. Raise `ApprovalError` if there is none."""
    known = configuration.profiles.get(profile)
    if known is None:
        raise ApprovalError(f"there is no profile {profile!r} in the configuration")
    state = _state(node, known)
    checks = [
        member.plugin
        for transition in known.states[state].transitions
        for member in transition.check.members
        if member.name == check
    ]
    if not checks:
        raise ApprovalError(f"profile {profile} is {state} on node {node.name}; that state has no check {check!r}")
    change = change_satisfying(checks[0], by=by)
    if change is None:
        raise ApprovalError(f"check {check} of profile {profile} does not read a label or annotation of the node")
    current = node.metadata.labels if change.field is MetadataField.LABEL else node.metadata.annotations
    required_value = getattr(checks[0], "value", "")
    return AwaitedApproval(change, is_met=change.key in current and required_value in ("", current[change.key]))


def _state(node: Node, profile: Profile) -> State:
    try:
        status = data_annotation.statuses_of(node.metadata.annotations.get(DATA_ANNOTATION)).get(profile.name)
    except data_annotation.DataError as error:
        raise ApprovalError(f"the states of the profiles of node {node.name} cannot be read: {error}") from None
    if status is None or status.current not in tuple(State):
        raise ApprovalError(f"profile {profile.name} does not apply to node {node.name}")
    return State(status.current)
