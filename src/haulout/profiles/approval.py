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

from haulout.errors import HauloutError
from haulout.kube.objects import Node, RawObject
from haulout.profiles.model import Configuration, Member, Transition
from haulout.profiles.plugin import Check, State
from haulout.profiles.plugins.checks.has_annotation import HasAnnotation
from haulout.profiles.plugins.checks.has_label import HasLabel
from haulout.profiles.remedies import Change, Remedy, remedies, said
from haulout.profiles.steps import ProfileReport, TransitionReport

ANY = "true"  # for a check that takes any value


class ApprovalError(HauloutError):
    """What is to be approved is not there, or not clear."""


class Where(StrEnum):
    """What of a node's metadata a check looks at."""

    LABEL = "label"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A label or an annotation that is to be set; a value of None takes it off."""

    where: Where
    key: str
    value: str | None

    def __str__(self) -> str:
        return f"no {self.where} {self.key}" if self.value is None else f"{self.where} {self.key}={self.value}"

    def is_true_of(self, node: Node) -> bool:
        """Tell whether a node is so already."""
        return self._of(node).get(self.key) == self.value

    def command(self, node: Node) -> str:
        """Return what to type, for a shell."""
        verb = "label" if self.where is Where.LABEL else "annotate"
        setting = f"{self.key}-" if self.value is None else f"{self.key}={self.value}"
        overwrite = " --overwrite" if self.value is not None and self.key in self._of(node) else ""
        return f"kubectl {verb} node {shlex.quote(node.name)} {shlex.quote(setting)}{overwrite}"

    def _of(self, node: Node) -> Mapping[str, str]:
        return node.metadata.labels if self.where is Where.LABEL else node.metadata.annotations


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What lets a profile go on, as far as a person can bring that about."""

    profile: str
    state: State
    target: State
    checks: tuple[str, ...]  # the instances that would say something else
    would: str  # the same, in words
    wishes: tuple[Wish, ...]
    waits_for: str = ""  # what else has to come, which nobody can set

    @property
    def is_approval(self) -> bool:
        """Whether it lets a node into maintenance that waits for it."""
        return self.state is State.REQUIRED and self.target is State.IN_MAINTENANCE

    def __str__(self) -> str:
        return f"{self.profile}: {' and '.join(self.checks)} ({', '.join(map(str, self.wishes))})"


def satisfying(check: Check, *, passed: bool = True, by: str = "") -> Wish | None:
    """Return what makes a check pass, or not pass; None: that is not a person's to set on a node.

    An annotation that may have any value says who set it, if that is told. A label cannot: names do not fit.
    """
    match check:
        case HasLabel(key=key, value=value):
            return Wish(where=Where.LABEL, key=key, value=(value or ANY) if passed else None)
        case HasAnnotation(key=key, value=value):
            return Wish(where=Where.ANNOTATION, key=key, value=(value or by or ANY) if passed else None)
    return None


def offers(reports: Iterable[ProfileReport], configuration: Configuration, *, by: str = "") -> tuple[Offer, ...]:
    """Return what the profiles of a node wait for that a person, `by` name, can set, in their order."""
    found = (
        offer
        for report in reports
        for way, told in ways_of(report, configuration)
        if not told.chain_passed
        for remedy in _remedies(way, told)
        if (offer := _offer(remedy, way, report, by)) is not None
    )
    return tuple(dict.fromkeys(found))


def ways_of(report: ProfileReport, configuration: Configuration) -> tuple[tuple[Transition, TransitionReport], ...]:
    """Return the ways out of the state that a profile is in, with what was said about each."""
    profile = configuration.profiles.get(report.name)
    if profile is None or report.state not in tuple(State):
        return ()
    ways = profile.states[State(report.state)].transitions
    is_edited = [it.check.text for it in ways] != [it.expression for it in report.transitions]
    return () if is_edited else tuple(zip(ways, report.transitions, strict=True))


def choose(offered: Sequence[Offer], *, profile: str = "", check: str = "") -> Offer:
    """Return the offer that is meant; without the name of a check, only what is an approval. Raises `ApprovalError`."""
    among = [it for it in offered if profile in ("", it.profile)]
    found = [it for it in among if it.checks == (check,)] or [it for it in among if check in it.checks]
    if not check:
        found = [it for it in among if it.is_approval]
    # The same wish may let it go several ways: the first of them counts.
    distinct = list({(it.profile, it.wishes): it for it in reversed(found)}.values())[::-1]
    if len(distinct) == 1:
        return distinct[0]
    if distinct:
        raise ApprovalError(f"which one? There are {_listed(distinct)}. Name it with --profile and --check")
    raise ApprovalError(_nothing(profile, check) + (f"; --check could name {_listed(among)}" if among else ""))


def _nothing(profile: str, check: str) -> str:
    if check:
        of = f" of profile {profile}" if profile else ""
        return f"check {check}{of} waits for nothing that a person can set"
    return f"profile {profile} waits for no approval" if profile else "no profile waits for an approval"


def patch(wishes: Iterable[Wish]) -> RawObject:
    """Return a merge patch of a node."""
    found: dict[str, dict[str, str | None]] = {}
    for it in wishes:
        found.setdefault("labels" if it.where is Where.LABEL else "annotations", {})[it.key] = it.value
    return {"metadata": found}


def command(node: Node, wishes: Iterable[Wish]) -> str:
    """Return what does the same, for a shell."""
    return " && ".join(it.command(node) for it in wishes)


def _listed(found: Iterable[Offer]) -> str:
    return "; ".join(map(str, found))


def _remedies(way: Transition, told: TransitionReport) -> tuple[Remedy, ...]:
    values = {name: it.verdict.passed for name, it in told.checks.items()}
    return remedies(way.check.evaluate, values)


def _offer(remedy: Remedy, way: Transition, report: ProfileReport, by: str) -> Offer | None:
    members = {it.name: it for it in way.check.members}
    ours = dict(_settable(remedy, members, by))
    if not ours:
        return None
    return Offer(
        profile=report.name,
        state=State(report.state),
        target=way.next,
        checks=tuple(it.name for it in ours),
        would=said(tuple(ours)),
        wishes=tuple(ours.values()),
        waits_for=said(tuple(it for it in remedy if it not in ours)),
    )


def _settable(remedy: Remedy, members: Mapping[str, Member[Check]], by: str) -> Iterator[tuple[Change, Wish]]:
    for it in remedy:
        member = members.get(it.name)
        wish = None if member is None else satisfying(member.plugin, passed=it.passed, by=by)
        if wish is not None:
            yield it, wish
