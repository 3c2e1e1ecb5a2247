"""What a person can set on a node so that a check says what its chain waits for: labels and annotations. Pure.

    satisfying(check)                          # Wish: the label that hasLabel looks for; None: not a person's to set
    offered = offers(reports, configuration)   # what the profiles of a node wait for, of what a person can set
    chosen = choose(offered, profile="os")     # the one that is meant; raises `ApprovalError` in words for people
    patch(chosen.wishes)                       # a merge patch of the node

An approval is what stands between `maintenance-required` and `in-maintenance`. A check of any other transition is only
offered by its name: who approves all there is must not order a maintenance, nor end one.

Other checks of the chain need not pass yet: an approval in the morning counts when the window opens in the evening.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from haulout.api.objects import Node, RawObject
from haulout.controllers.profiles.config.model import Configuration, Member, Transition
from haulout.controllers.profiles.explain.remedies import Remedy, RequiredResult, format_remedy, remedies
from haulout.controllers.profiles.observation import ProfileReport, TransitionReport
from haulout.controllers.profiles.plugin import Check, State
from haulout.controllers.profiles.plugins.checks.has_annotation import HasAnnotation
from haulout.controllers.profiles.plugins.checks.has_label import HasLabel
from haulout.errors import HauloutError

ANY_VALUE = "true"  # for a check that takes any value


class ApprovalError(HauloutError):
    """What is to be approved is not there, or not clear."""


class MetadataField(StrEnum):
    """What of a node's metadata a check looks at."""

    LABEL = "label"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """A label or an annotation that is to be set; a value of None takes it off."""

    field: MetadataField
    key: str
    value: str | None

    def __str__(self) -> str:
        return f"no {self.field} {self.key}" if self.value is None else f"{self.field} {self.key}={self.value}"

    def is_set_on(self, node: Node) -> bool:
        """Tell whether a node is so already."""
        return self._metadata_of(node).get(self.key) == self.value

    def command(self, node: Node) -> str:
        """Return what to type, for a shell."""
        verb = "label" if self.field is MetadataField.LABEL else "annotate"
        setting = f"{self.key}-" if self.value is None else f"{self.key}={self.value}"
        overwrite = " --overwrite" if self.value is not None and self.key in self._metadata_of(node) else ""
        return f"kubectl {verb} node {shlex.quote(node.name)} {shlex.quote(setting)}{overwrite}"

    def _metadata_of(self, node: Node) -> Mapping[str, str]:
        return node.metadata.labels if self.field is MetadataField.LABEL else node.metadata.annotations


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What lets a profile go on, as far as a person can bring that about."""

    profile: str
    state: State
    target: State
    checks: tuple[str, ...]  # the instances that would say something else
    remedy_text: str  # the same, in words
    changes: tuple[MetadataChange, ...]
    waits_for: str = ""  # what else has to come, which nobody can set

    @property
    def is_approval(self) -> bool:
        """Whether it lets a node into maintenance that waits for it."""
        return self.state is State.REQUIRED and self.target is State.IN_MAINTENANCE

    def __str__(self) -> str:
        return f"{self.profile}: {' and '.join(self.checks)} ({', '.join(map(str, self.changes))})"


def change_satisfying(check: Check, *, passed: bool = True, by: str = "") -> MetadataChange | None:
    """Return what makes a check pass, or not pass; None: that is not a person's to set on a node.

    An annotation that may have any value says who set it, if that is told. A label cannot: names do not fit.
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
    """Return what the profiles of a node wait for that a person, `by` name, can set, in their order."""
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
) -> tuple[tuple[Transition, TransitionReport], ...]:
    """Return the ways out of the state that a profile is in, with what was said about each."""
    profile = configuration.profiles.get(report.name)
    if profile is None or report.state not in tuple(State):
        return ()
    transitions = profile.states[State(report.state)].transitions
    is_edited = [transition.check.text for transition in transitions] != [
        transition.expression for transition in report.transitions
    ]
    return () if is_edited else tuple(zip(transitions, report.transitions, strict=True))


def choose(offered: Sequence[Offer], *, profile: str = "", check: str = "") -> Offer:
    """Return the offer that is meant; without the name of a check, only what is an approval. Raises `ApprovalError`."""
    candidates = [offer for offer in offered if profile in ("", offer.profile)]
    found = [offer for offer in candidates if offer.checks == (check,)] or [
        offer for offer in candidates if check in offer.checks
    ]
    if not check:
        found = [offer for offer in candidates if offer.is_approval]
    # The same wish may let it go several ways: the first of them counts.
    distinct = list({(offer.profile, offer.changes): offer for offer in reversed(found)}.values())[::-1]
    if len(distinct) == 1:
        return distinct[0]
    if distinct:
        raise ApprovalError(f"which one? There are {_format_offers(distinct)}. Name it with --profile and --check")
    raise ApprovalError(
        _not_found_message(profile, check)
        + (f"; --check could name {_format_offers(candidates)}" if candidates else "")
    )


def _not_found_message(profile: str, check: str) -> str:
    if check:
        of = f" of profile {profile}" if profile else ""
        return f"check {check}{of} waits for nothing that a person can set"
    return f"profile {profile} waits for no approval" if profile else "no profile waits for an approval"


def patch(changes: Iterable[MetadataChange]) -> RawObject:
    """Return a merge patch of a node."""
    found: dict[str, dict[str, str | None]] = {}
    for change in changes:
        found.setdefault("labels" if change.field is MetadataField.LABEL else "annotations", {})[change.key] = (
            change.value
        )
    return {"metadata": found}


def command(node: Node, changes: Iterable[MetadataChange]) -> str:
    """Return what does the same, for a shell."""
    return " && ".join(change.command(node) for change in changes)


def _format_offers(found: Iterable[Offer]) -> str:
    return "; ".join(map(str, found))


def _remedies(transition: Transition, transition_report: TransitionReport) -> tuple[Remedy, ...]:
    values = {name: check.result.passed for name, check in transition_report.checks.items()}
    return remedies(transition.check.evaluate, values)


def _offer(remedy: Remedy, transition: Transition, report: ProfileReport, by: str) -> Offer | None:
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
