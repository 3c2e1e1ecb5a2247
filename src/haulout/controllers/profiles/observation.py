"""What a step of a node rests on, and what comes of it: values.

`haulout.controllers.profiles.decision` makes one of the other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto

from haulout.api.objects import Node
from haulout.budget.budget_check import BudgetCheck
from haulout.controllers.profiles.machine.node_draft import NodeDraft
from haulout.controllers.profiles.machine.pending_transitions import PendingTransition
from haulout.controllers.profiles.plugin import (
    CheckResult,
    Claim,
    ClusterView,
    ExternalAction,
    ProfileStatus,
    State,
    Warn,
)
from haulout.drain.cordon import Cordon
from haulout.drain.policy import DrainPolicy


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """How it stands with a drain on behalf of a profile."""

    is_done: bool
    message: str  # what it waits for
    problem: str = ""  # it has ended without the node being empty


@dataclass(frozen=True, slots=True)
class Deferral:
    """Why something was not to be had, and when it may be though nothing happens."""

    reason: str
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A node, and all that a step must know about it."""

    node: Node
    statuses: Mapping[str, ProfileStatus]  # by profile: its data
    last_sent: Mapping[str, datetime | None]  # by instance: when it was sent last
    pending: Mapping[str, PendingTransition]  # by profile: a transition that has begun
    drains: Mapping[str, DrainStatus] = field(default_factory=dict)  # by profile
    held_leases: frozenset[tuple[str, str]] = frozenset()  # leases that were taken for what then did not happen
    deferred: Mapping[tuple[str, int], Deferral] = field(default_factory=dict)  # by `Decision.claimed_transitions`
    failed_actions: Mapping[str, str] = field(
        default_factory=dict
    )  # by profile: why nothing could be changed elsewhere
    throttled: Mapping[tuple[str, State], Deferral] = field(
        default_factory=dict
    )  # by profile and state: see `loop_backoff`
    cluster: ClusterView
    requeue: timedelta
    now: datetime
    logs_details: bool = False
    budget: BudgetCheck | None = None  # that profiles share with others; None: there is none
    cordon_copy: Cordon | None = None  # of the mark on the node, kept outside the node
    is_recorded: bool = True  # what happened to it is in its history, if there is one


# What comes of it


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check said."""

    type: str
    result: CheckResult


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
    is_throttled: bool = False  # it is that its profile goes in circles


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """How it stands with one profile."""

    name: str
    state: str
    next: str
    transitions: tuple[TransitionReport, ...] = ()
    error: str = ""
    waits_for: str = ""  # a chain that has begun and is not done yet
    failed_part: str = ""  # which part went wrong, in the words of events


@dataclass(frozen=True, slots=True)
class NotificationRequest:
    """A notification that is to be sent."""

    instance: str
    profile: str
    state: State


class DataUpdate(Enum):
    """What a step leaves on a node beside what its plugins want."""

    WRITE = auto()  # where its profiles stand
    REMOVE = auto()  # nothing: the last profile has left it
    NONE = auto()  # what there is: no profile is on it, nor was


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done about a node."""

    draft: NodeDraft
    statuses: Mapping[str, ProfileStatus]
    last_sent: Mapping[str, datetime | None]
    pending: Mapping[str, PendingTransition]
    reports: tuple[ProfileReport, ...]
    claims: tuple[tuple[str, Claim], ...] = ()  # with the profile that they are for
    claimed_transitions: Mapping[str, int] = field(default_factory=dict)  # by profile: for which of its transitions
    external_actions: tuple[
        tuple[str, ExternalAction], ...
    ] = ()  # what is not the node's, with the profile that wants it
    drains: Mapping[str, DrainPolicy] = field(default_factory=dict)  # by profile: those that must run
    notifications: tuple[NotificationRequest, ...] = ()
    requeue_at: datetime | None = None
    topics: frozenset[str] = frozenset()
    attached_profiles: tuple[
        str, ...
    ] = ()  # the profiles that the node has, in order; also those that are not configured
    data_update: DataUpdate = DataUpdate.WRITE
    warnings: tuple[Warn, ...] = ()  # what plugins tell people of
    tampering: str = ""  # what somebody has done to our mark on the node, which is written again
    unmanaged_states: tuple[str, ...] = ()  # where profiles stand that others see to

    @property
    def state(self) -> State:
        """The state of the node as a whole."""
        return aggregate_state(report.next for report in self.reports)


def aggregate_state(states: Iterable[str]) -> State:
    """Return the state of a node by those of its profiles."""
    known = set(states)
    return next((state for state in (State.IN_MAINTENANCE, State.REQUIRED) if state in known), State.OPERATIONAL)
