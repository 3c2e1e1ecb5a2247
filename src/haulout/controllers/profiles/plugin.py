"""What a plugin is: a value that is both its configuration and its behaviour, and that touches nothing itself.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class HasLabel(Check):
        '''Passes if the node has a label and, if a value is given, this value.'''

        type = "hasLabel"
        example = "key: example.com/ready"
        key: str = option("The label's key.")
        value: str = option("The value it must have. Without it, being there is enough.", default="")

        def look(self, scene: Scene) -> Verdict: …

All plugins are pure. A check looks at a scene and gives a verdict with its reason, and the instant at which it may be
another one though nothing happens. A trigger returns changes to its node, or says what it waits for. What is not in the
scene is asked for by a `ExternalQuery`, and answered outside. So each decision can be repeated, explained and
simulated.

What wakes a node: any change of itself; the instant that a verdict names; and the topics of its checks, such as a label
of any node. A plugin that depends on anything else would sleep for ever.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Protocol

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.notification_events import InvolvedObject, ObjectEvent
from haulout.api.objects import Lease, Node, RawObject
from haulout.api.workloads import EvictedWorkload, WorkloadRecord
from haulout.budget import unavailable_nodes
from haulout.budget.limits import Budget
from haulout.controllers.profiles.external.smtp import Envelope
from haulout.controllers.profiles.view.scheduling import NodeCapacity
from haulout.kube.rbac import Permission
from haulout.kube.recorder import ObjectReference

STATE_LABEL = unavailable_nodes.STATE_LABEL
PROFILE_LABEL = "cloud.sap/maintenance-profile"
LOG_DETAILS_LABEL = "cloud.sap/maintenance-log-details"
DATA_ANNOTATION = "cloud.sap/maintenance-data"
DEFAULT_PROFILE = "default"
PROFILE_SEPARATOR = "--"


class State(StrEnum):
    """Where a profile stands with a node."""

    OPERATIONAL = "operational"
    REQUIRED = "maintenance-required"
    IN_MAINTENANCE = unavailable_nodes.IN_MAINTENANCE


class Need(StrEnum):
    """What must be followed so that a plugin can look at it; nodes always are."""

    PODS = "pods"
    LEASES = "leases"
    HYPERVISORS = "hypervisors"
    FREE_CAPACITY = "room"  # what nodes have to give, and what the pods on them take
    DAEMON_SETS = "daemonsets"
    NOTICES = "notices"  # of maintenance that somebody announced
    WORKLOADS = "workloads"  # how many pods of a workload are there, and how many should be


# What a check says


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether a check passes, and why.

    `passed_states` is None if that cannot be told: a chain with it does not pass.
    """

    passed: bool | None
    reason: str = ""  # a sentence without an end mark, for people
    info: Mapping[str, Any] = field(default_factory=dict)  # for programs: what the JSON API shows
    requeue_at: datetime | None = None  # when it may be another one though nothing happens
    error: str = ""  # what is wrong, if the check could not be made


def passes(reason: str = "", /, *, requeue_at: datetime | None = None, **info: Any) -> CheckResult:
    """Return that a check passes."""
    return CheckResult(True, reason, info, requeue_at)


def fails(reason: str = "", /, *, requeue_at: datetime | None = None, **info: Any) -> CheckResult:
    """Return that a check does not pass."""
    return CheckResult(False, reason, info, requeue_at)


def unknown(reason: str, /, *, requeue_at: datetime | None = None, **info: Any) -> CheckResult:
    """Return that there is no data to tell by."""
    return CheckResult(None, reason, info, requeue_at)


def check_error(error: str, /, **info: Any) -> CheckResult:
    """Return that a check could not be made."""
    return CheckResult(None, error, info, error=error)


# What plugins see


class ExternalQuery(Hashable, Protocol):
    """Something to ask the outside world; hashable, since equal ones are asked once."""

    @property
    def max_age(self) -> timedelta | None:
        """How old an answer may be; None: as old as the configuration says."""
        ...

    async def fetch(self, external: Any) -> Any:
        """Ask, and return the answer; raises what is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What came of a question: `value`, or what is wrong; and when it was asked."""

    asked_at: datetime
    value: Any = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileStatus:
    """What a node's data says about one profile."""

    current: str
    previous: str
    transition: datetime | None
    # the SAP maintenance-controller has brought it there: see `haulout.controllers.profiles.machine.data_annotation`
    is_from_smc: bool = False


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node as checks that compare nodes see it."""

    node: Node
    statuses: Mapping[str, ProfileStatus]  # by profile
    problem: str = ""  # why its data cannot be read

    @property
    def profiles(self) -> tuple[str, ...]:
        """The names in its profile label; none if it has no such label."""
        label = self.node.metadata.labels.get(PROFILE_LABEL, "")
        return tuple(label.split(PROFILE_SEPARATOR)) if label else ()

    @property
    def state(self) -> str:
        """Its state label."""
        return self.node.metadata.labels.get(STATE_LABEL, "")


class ClusterView(Protocol):
    """What is known of the cluster; our own writes already count."""

    def nodes(self) -> Collection[ObservedNode]:
        """Return all nodes."""
        ...

    def nodes_in(self, state: State) -> Collection[ObservedNode]:
        """Return the nodes whose state label says so; in maintenance are also those that have taken a slot for it."""
        ...

    def nodes_with(self, label: str) -> Collection[ObservedNode]:
        """Return the nodes that have a label."""
        ...

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return the pods on a node (`Need.PODS`)."""
        ...

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return a lease (`Need.LEASES`)."""
        ...

    def hypervisor(self, name: str) -> RawObject | None:
        """Return a hypervisor (`Need.HYPERVISORS`)."""
        ...

    def free_capacity(self, node: str) -> NodeCapacity | None:
        """Return what a node has left for pods, None if it is gone (`Need.FREE_CAPACITY`); see `fitting.room_of`."""
        ...

    def daemon_sets(self) -> Collection[RawObject]:
        """Return all DaemonSets (`Need.DAEMON_SETS`)."""
        ...

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        """Return what is announced for a node (`Need.NOTICES`)."""
        ...

    def workloads_on(self, node: str) -> WorkloadRecord:
        """Return the workloads that have pods on a node, as they are now (`Need.WORKLOADS`)."""
        ...

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        """Return whose pods were evicted from a node since it was last operational (`Need.WORKLOADS`)."""
        ...

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the answer to a question; None: it was not asked yet, and is from now on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContext:
    """What a plugin looks at: one node and one of its profiles, at one moment."""

    now: datetime
    node: Node  # with the changes of this very step
    profile: str
    state: State
    status: ProfileStatus
    is_in_maintenance: bool  # by any of its profiles
    logs_details: bool
    cluster: ClusterView
    requeue: timedelta  # how old an answer from outside may be
    held_leases: frozenset[tuple[str, str]] = frozenset()  # leases taken for the node, for a transition still to happen
    chain_started_at: datetime | None = None  # when the chain of triggers began, if it has to wait
    checks_still_pass: bool = True  # the checks of the transition that has begun pass still
    would_lead_here: Callable[[Callable[["Check"], bool | None]], bool] = lambda _: False  # see `Profile.leads_to`


# What plugins are


class NamedFile(NamedTuple):
    """A file that a configuration names: the key, the path, and what reads it or raises `ConfigError`."""

    key: str
    path: str
    read: Callable[[bytes], object]


class Plugin:
    """What all have in common."""

    __slots__ = ()

    type: ClassVar[str]
    example: ClassVar[str] = ""  # YAML of a `loader`
    needs: ClassVar[frozenset[Need]] = frozenset()

    @property
    def needs_workload_record(self) -> bool:
        """Whether it asks who was evicted: then nodes carry a record of the workloads that they had."""
        return False

    def lease_namespaces(self) -> tuple[str, ...]:
        """Return where the leases are that it looks at (`Need.LEASES`)."""
        return ()

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        """Return what the operator must be allowed for it, beside seeing what `needs` names.

        `namespace` is the operator's namespace.
        """
        del namespace
        return ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense in the configuration: the key, and what is wrong with it."""
        yield from ()

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what is allowed and will not do what was probably meant: the key, and why."""
        yield from ()

    def files(self) -> Iterator["NamedFile"]:
        """Yield the files that it will ask for, so that one that is broken is told as soon as it is named."""
        yield from ()


class Check(Plugin):
    """Says whether a transition may happen."""

    __slots__ = ()

    def evaluate(self, context: PluginContext) -> CheckResult:
        """Return the verdict."""
        raise NotImplementedError

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes `node` beside its own changes: see `haulout.controllers.profiles.view.topics`."""
        del node
        return ()

    def claims(self, context: PluginContext) -> tuple["Claim", ...]:
        """Return what must be taken before a transition that rests on this check may happen."""
        del context
        return ()

    def problems_in(self, state: State) -> Iterator[str]:
        """Yield why it makes no sense to use this check in a state."""
        del state
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseClaim:
    """A lease that is taken by compare-and-swap; if somebody was quicker the transition does not happen."""

    namespace: str
    name: str
    resource_version: str  # the resource version that it was seen with; empty: it is created
    holder: str
    duration: timedelta
    transitions: int | None


class Scope(Protocol):
    """Which nodes share a limit; hashable. See `haulout.controllers.profiles.plugins.checks.max_maintenance`."""

    def counts(self, observed: ObservedNode, now: datetime) -> bool:
        """Tell whether a node counts that is in maintenance or, if its label does not say so yet, is on its way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotClaim:
    """Leave for the node to be in maintenance while fewer than `limit` others that the scope counts are.

    It is noted in a ledger by compare-and-swap. `haulout.budget.slots` tells what makes that exact. Only a
    transition into maintenance takes it.
    """

    limit: int
    scope: Scope


@dataclass(frozen=True, slots=True)
class BudgetClaim:
    """Leave for the node to be out of service by the budget that all causes share: see `haulout.budget`."""

    budget: Budget


Claim = LeaseClaim | SlotClaim | BudgetClaim


# What a trigger does


@dataclass(frozen=True, slots=True)
class SetLabel:
    """Set a label; None takes it off."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class SetAnnotation:
    """Set an annotation; None takes it off."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Add a finalizer, or take it off."""

    name: str
    present: bool


@dataclass(frozen=True, slots=True)
class Cordon:
    """Keep pods off the node, on behalf of the profile."""


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Let the node take pods again, as far as the profile is concerned."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Empty the node, which must be cordoned; the chain goes on when it is empty. `policy` is a `drain.Policy`."""

    policy: Any


@dataclass(frozen=True, slots=True)
class PatchHypervisor:
    """Change the spec of the hypervisor that has the node's name."""

    spec: RawObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceMachine:
    """Ask for another Machine in place of the node's; never before the transition stands on the node."""

    machine: str
    instance: str
    surge: bool | None = None  # another Machine first; None: as is usual here


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Let the chain wait, until `until` at most; a change of `topics` wakes the node before."""

    reason: str
    until: datetime
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Tell people of something by an event about the node, and go on."""

    reason: str
    note: str


ExternalAction = PatchHypervisor | ReplaceMachine
Action = SetLabel | SetAnnotation | SetFinalizer | Cordon | Uncordon | Drain | Wait | Warn | ExternalAction


class Trigger(Plugin):
    """Does something on the way into a state, or in it."""

    __slots__ = ()

    @property
    def may_cordon(self) -> bool:
        """Whether it may cordon a node: then a copy of the cordon's mark is kept."""
        return False

    @property
    def only_waits(self) -> bool:
        """Whether it does nothing else than to wait, and not for ever: then it is not barred without permissions."""
        return False

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return what is to be done, in order; doing it again must do no harm."""
        raise NotImplementedError


# What a notification is


class ExternalClient(Protocol):
    """The way to the outside world, with time-outs; shared by all."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = timedelta(seconds=10),
    ) -> tuple[int, bytes]:
        """Send an HTTP request; return the status and the body. Raises `OutsideError`."""
        ...

    async def exchange(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> "HttpResponse":
        """Do the same where the headers of the answer matter."""
        ...

    async def read_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return the data of a Secret in the cluster, decoded. Raises `OutsideError`."""
        ...

    async def read_file(self, path: str) -> bytes:
        """Return the content of a file. Raises `OutsideError`."""
        ...

    async def send_mail(self, envelope: Envelope) -> None:
        """Hand a letter to its mail server. Raises `OutsideError`."""
        ...


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer over HTTP."""

    status: int
    body: bytes
    headers: Mapping[str, str]  # their names in lower case


class Notification(Plugin):
    """Tells somebody."""

    __slots__ = ()

    async def send(self, message: "Message", external: ExternalClient) -> None:
        """Send it; raises `OutsideError` with what went wrong."""
        raise NotImplementedError

    def template_problems(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with its templates: the key, and the problem with its position."""
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a notification is about: what its templates can use."""

    raw_node: RawObject  # the node
    state: str  # of a profile or, of an object, what has become of it
    profile: str
    is_in_maintenance: bool
    last_transition: datetime | None
    logs_details: bool
    current_profile: str
    last_profile: str
    now: datetime
    client: Any  # of the cluster, for those that keep a lease
    event: ObjectEvent | None = None  # what happened to an object; None: it is about a profile's state
    involved: InvolvedObject | None = None
    regarding: ObjectReference | None = None

    @property
    def node(self) -> str:
        """The name of the node."""
        return str(self.raw_node.get("metadata", {}).get("name", ""))

    @property
    def text(self) -> str:
        """The message in a sentence."""
        if self.event is not None:
            return self.event.message
        return f"node {self.node} is now {self.state} by profile {self.profile}"


@dataclass(frozen=True, slots=True)
class SendDecision:
    """Whether a notification is to be sent now, and otherwise when to ask again."""

    is_due: bool
    requeue_at: datetime | None = None


class Schedule(Plugin):
    """Says when a notification is sent."""

    __slots__ = ()

    def due(self, *, status: ProfileStatus, last_sent: datetime | None, now: datetime) -> SendDecision:
        """Return whether it is due; `last_profile` is when it was sent last for this node, None if never."""
        raise NotImplementedError
