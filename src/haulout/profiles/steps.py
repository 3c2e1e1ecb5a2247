"""What a step of a node rests on, and what comes of it: values. `haulout.profiles.machine` makes one of the other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto

from haulout.budget.room import View
from haulout.drain.cordon import Cordon
from haulout.drain.policy import Policy
from haulout.kube.objects import Node
from haulout.profiles.begun import Begun
from haulout.profiles.draft import Draft
from haulout.profiles.plugin import Claim, Elsewhere, Entry, Sights, State, Verdict, Warn


@dataclass(frozen=True, slots=True)
class DrainSeen:
    """How it stands with a drain on behalf of a profile."""

    is_done: bool
    words: str  # what it waits for
    problem: str = ""  # it has ended without the node being empty


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something was not to be had, and when it may be though nothing happens."""

    why: str
    again_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A node, and all that a step must know about it."""

    node: Node
    entries: Mapping[str, Entry]  # by profile: its data
    notified: Mapping[str, datetime | None]  # by instance: when it was sent last
    pending: Mapping[str, Begun]  # by profile: a transition that has begun
    drains: Mapping[str, DrainSeen] = field(default_factory=dict)  # by profile
    in_hand: frozenset[tuple[str, str]] = frozenset()  # leases that were taken for what then did not happen
    refused: Mapping[tuple[str, int], Refusal] = field(default_factory=dict)  # by `Result.claiming`
    failed: Mapping[str, str] = field(default_factory=dict)  # by profile: why nothing could be changed elsewhere
    slowed: Mapping[tuple[str, State], Refusal] = field(default_factory=dict)  # by profile and state: see `pace`
    sights: Sights
    requeue: timedelta
    now: datetime
    logs_details: bool = False
    budget: View | None = None  # that profiles share with others; None: there is none
    cordon_copy: Cordon | None = None  # of the mark on the node, kept outside the node
    is_recorded: bool = True  # what happened to it is in its history, if there is one


# What comes of it


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check said."""

    type: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionReport:
    """How it stands with one transition."""

    target: State
    expression: str
    chain_passed: bool
    passed: bool  # and nothing else stands in its way
    checks: Mapping[str, CheckReport]  # by instance
    error: str = ""
    veto: str = ""  # what else stands in its way
    is_slowed: bool = False  # it is that its profile goes in circles


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """How it stands with one profile."""

    name: str
    state: str
    next: str
    transitions: tuple[TransitionReport, ...] = ()
    error: str = ""
    waits_for: str = ""  # a chain that has begun and is not done yet
    failed: str = ""  # which part went wrong, in the words of events


@dataclass(frozen=True, slots=True)
class Sending:
    """A notification that is to be sent."""

    instance: str
    profile: str
    state: State


class Trace(Enum):
    """What a step leaves on a node beside what its plugins want."""

    KEPT = auto()  # where its profiles stand
    ERASED = auto()  # nothing: the last profile has left it
    UNTOUCHED = auto()  # what there is: no profile is on it, nor was


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is to be done about a node."""

    draft: Draft
    entries: Mapping[str, Entry]
    notified: Mapping[str, datetime | None]
    pending: Mapping[str, Begun]
    reports: tuple[ProfileReport, ...]
    claims: tuple[tuple[str, Claim], ...] = ()  # with the profile that they are for
    claiming: Mapping[str, int] = field(default_factory=dict)  # by profile: for which of its transitions
    elsewhere: tuple[tuple[str, Elsewhere], ...] = ()  # what is not the node's, with the profile that wants it
    drains: Mapping[str, Policy] = field(default_factory=dict)  # by profile: those that must run
    sendings: tuple[Sending, ...] = ()
    wakes_at: datetime | None = None
    topics: frozenset[str] = frozenset()
    attached: tuple[str, ...] = ()  # the profiles that the node has, in order; also those that are not configured
    trace: Trace = Trace.KEPT
    warnings: tuple[Warn, ...] = ()  # what plugins tell people of
    tampering: str = ""  # what somebody has done to our mark on the node, which is written again
    beside: tuple[str, ...] = ()  # where profiles stand that others see to

    @property
    def state(self) -> State:
        """The state of the node as a whole."""
        return aggregate(report.next for report in self.reports)


def aggregate(states: Iterable[str]) -> State:
    """Return the state of a node by those of its profiles."""
    known = set(states)
    return next((it for it in (State.IN_MAINTENANCE, State.REQUIRED) if it in known), State.OPERATIONAL)
