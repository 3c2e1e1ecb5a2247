"""The input and output of a reconcile: `Observation` and `Decision`, both frozen values.

`haulout.controllers.profiles.decision` derives one from the other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto

from haulout.api.objects import Node
from haulout.budget.budget_check import BudgetCheck
from haulout.controllers.profiles.machine.node_draft import NodeDraft
from haulout.controllers.profiles.machine.transitions import PendingTransition
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
from haulout.runtime.freezes import Freezes


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """The state of a drain on behalf of a profile."""

    is_done: bool
    message: str  # what the drain waits for
    problem: str = ""  # why the drain ended although the node is not empty


@dataclass(frozen=True, slots=True)
class Deferral:
    """Why something was refused, and when to retry even without a change."""

    reason: str
    retry_at: datetime | None = None
    is_budget_exhausted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A node, and everything that a decision about it depends on."""

    node: Node
    statuses: Mapping[str, ProfileStatus]  # by profile
    last_sent: Mapping[str, datetime | None]  # by instance
    pending: Mapping[str, PendingTransition]  # by profile: transitions that have started
    drains: Mapping[str, DrainStatus] = field(default_factory=dict)  # by profile
    held_leases: frozenset[tuple[str, str]] = frozenset()  # leases taken for a transition that has not happened yet
    deferred: Mapping[tuple[str, int], Deferral] = field(default_factory=dict)  # by `claimed_transitions`
    failed_actions: Mapping[str, str] = field(default_factory=dict)  # by profile: why an external action failed
    throttled: Mapping[tuple[str, State], Deferral] = field(default_factory=dict)  # see `loop_backoff`
    cluster: ClusterView
    requeue: timedelta
    now: datetime
    logs_details: bool = False
    budget: BudgetCheck | None = None  # shared by all profiles and causes; None: no budget
    cordon_copy: Cordon | None = None  # copy of the cordon annotation, kept outside the node
    freezes: Freezes = field(default_factory=Freezes)
    is_recorded: bool = True  # whether the history of the node is complete


# Decision


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of one check, with the type of the plugin for users."""

    type: str
    result: CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionReport:
    """The evaluation of one transition. All transitions of a state are evaluated, also after one that passes."""

    target: State
    expression: str
    chain_passed: bool
    passed: bool  # the checks pass and there is no veto
    checks: Mapping[str, CheckReport]  # by instance
    error: str = ""
    veto: str = ""  # why the transition is blocked although its checks pass
    is_budget_exhausted: bool = False  # whether the veto is that of the budget
    is_throttled: bool = False  # whether the veto is the backoff of a profile that loops


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """The evaluation of one profile. Status, history, events and metrics are derived from it."""

    name: str
    state: str
    next: str
    transitions: tuple[TransitionReport, ...] = ()
    error: str = ""
    waits_for: str = ""  # why a chain that has started waits
    failed_part: str = ""  # which part failed, as event messages name it


@dataclass(frozen=True, slots=True)
class NotificationRequest:
    """A notification to send after the write, which records it as sent."""

    instance: str
    profile: str
    state: State


class DataUpdate(Enum):
    """What to do with the data annotations of a node."""

    WRITE = auto()  # write the states of its profiles
    REMOVE = auto()  # remove them: the last profile has left the node
    NONE = auto()  # leave them as they are: the node has no managed profile and had none


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about a node. The executor adds nothing to it, except for the data annotation."""

    draft: NodeDraft
    statuses: Mapping[str, ProfileStatus]
    last_sent: Mapping[str, datetime | None]
    pending: Mapping[str, PendingTransition]
    reports: tuple[ProfileReport, ...]
    claims: tuple[tuple[str, Claim], ...] = ()  # with the profile that needs each
    claimed_transitions: Mapping[str, int] = field(default_factory=dict)  # by profile: transition number
    external_actions: tuple[
        tuple[str, ExternalAction], ...
    ] = ()  # on other objects, with the profile that requests each
    drains: Mapping[str, DrainPolicy] = field(default_factory=dict)  # by profile: drains that must run
    notifications: tuple[NotificationRequest, ...] = ()
    requeue_at: datetime | None = None
    topics: frozenset[str] = frozenset()
    attached_profiles: tuple[str, ...] = ()  # in order; includes profiles that are not configured
    data_update: DataUpdate = DataUpdate.WRITE
    warnings: tuple[Warn, ...] = ()  # from plugins, emitted as events
    tampering: str = ""  # how another writer damaged our cordon annotation, which this write restores
    unmanaged_states: tuple[str, ...] = ()  # states of profiles that another controller manages

    @property
    def state(self) -> State:
        return aggregate_state(report.next for report in self.reports)

    def __str__(self) -> str:
        """Return which profiles change state, for messages: the fields are too long."""
        changes = [f"{item.name} from {item.state} to {item.next}" for item in self.reports if item.next != item.state]
        return f"to change profile {', '.join(changes)}" if changes else "to change no profile"


def aggregate_state(states: Iterable[str]) -> State:
    """Return in maintenance if any profile is, else maintenance required if any is, else operational."""
    known = set(states)
    return next((state for state in (State.IN_MAINTENANCE, State.REQUIRED) if state in known), State.OPERATIONAL)
