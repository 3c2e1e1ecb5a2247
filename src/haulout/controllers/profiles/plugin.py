"""The plugin API: a plugin is a frozen value that is both configuration and behaviour, and has no side effects.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class HasLabel(Check):
        '''Passes if the node has a label and, if a value is given, this value.'''

        type = "hasLabel"
        example = "key: example.com/ready"
        key: str = option("The label's key.")
        value: str = option("The value it must have. Without it, any value passes.", default="")

        def evaluate(self, context: PluginContext) -> CheckResult: …

All plugins are pure. A check evaluates a context and returns a result with a reason, and the time at which the result
may change without an event. A trigger returns actions on its node, or a `Wait`. Data that the context does not contain
comes from an `ExternalQuery`, which runs outside the decision. So every decision can be repeated, explained and
simulated.

A node is requeued by any change of the node itself, at the `requeue_at` of a result, and by changes of the topics of
its checks, such as a label of any node. A plugin that depends on anything else is never evaluated again.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.notification_events import InvolvedObject, ObjectEvent
from haulout.api.objects import Lease, Node, RawObject
from haulout.api.workloads import EvictedWorkload, WorkloadRecord
from haulout.budget import unavailable_nodes
from haulout.budget.limits import Budget
from haulout.controllers.profiles.view.scheduling import NodeCapacity
from haulout.kube.rbac import Permission
from haulout.kube.recorder import ObjectReference

if TYPE_CHECKING:
    from haulout.controllers.profiles.external.smtp import Envelope  # with the SMTP client: only mails need it

STATE_LABEL = unavailable_nodes.STATE_LABEL
PROFILE_LABEL = "cloud.sap/maintenance-profile"
LOG_DETAILS_LABEL = "cloud.sap/maintenance-log-details"
DATA_ANNOTATION = "cloud.sap/maintenance-data"
DEFAULT_PROFILE = "default"
PROFILE_SEPARATOR = "--"


class State(StrEnum):
    """The state of a profile on a node. The values are those of the SAP maintenance-controller."""

    OPERATIONAL = "operational"
    REQUIRED = "maintenance-required"
    IN_MAINTENANCE = unavailable_nodes.IN_MAINTENANCE


class Need(StrEnum):
    """What informers must watch for a plugin; nodes are always watched."""

    PODS = "pods"
    LEASES = "leases"
    HYPERVISORS = "hypervisors"
    FREE_CAPACITY = "room"  # allocatable resources of nodes, and the requests of their pods
    DAEMON_SETS = "daemonsets"
    NOTICES = "notices"  # of announced maintenance
    WORKLOADS = "workloads"  # the actual and desired number of pods per workload


# Check results


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether a check passes, and why.

    `passed` is None if the result is unknown: a chain that depends on it does not pass.
    """

    passed: bool | None
    reason: str = ""  # for people; a sentence without a full stop
    info: Mapping[str, Any] = field(default_factory=dict)  # for programs; the JSON API shows it
    requeue_at: datetime | None = None  # when the result may change without an event
    error: str = ""  # why the check could not be evaluated


def passes(reason: str = "", /, *, requeue_at: datetime | None = None, **info: Any) -> CheckResult:
    return CheckResult(True, reason, info, requeue_at)


def fails(reason: str = "", /, *, requeue_at: datetime | None = None, **info: Any) -> CheckResult:
    """Return a result that does not pass."""
    return CheckResult(False, reason, info, requeue_at)


def unknown(reason: str, /, *, requeue_at: datetime | None = None, **info: Any) -> CheckResult:
    """Return an unknown result: the data is not available."""
    return CheckResult(None, reason, info, requeue_at)


def check_error(error: str, /, **info: Any) -> CheckResult:
    """Return the result of a check that could not be evaluated."""
    return CheckResult(None, error, info, error=error)


# Plugin input


class ExternalQuery(Hashable, Protocol):
    """A query to an external system; hashable, since equal queries are sent once."""

    @property
    def max_age(self) -> timedelta | None:
        """The maximum age of a cached result; None: as configured."""
        ...

    async def fetch(self, external: Any) -> Any:
        """Send the query and return its result. Raise if it fails."""
        ...


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a query: `value` or `problem`, and when it was sent."""

    asked_at: datetime
    value: Any = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileStatus:
    """The status of one profile in the data annotation of a node."""

    current: str
    previous: str
    transition: datetime | None
    # set by the SAP maintenance-controller: see `haulout.controllers.profiles.machine.data_annotation`
    is_from_smc: bool = False


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node with the statuses of its profiles, as checks that compare nodes see it."""

    node: Node
    statuses: Mapping[str, ProfileStatus]  # by profile
    problem: str = ""  # why the data annotation cannot be read

    @property
    def profiles(self) -> tuple[str, ...]:
        """The names in the profile label; empty without the label."""
        label = self.node.metadata.labels.get(PROFILE_LABEL, "")
        return tuple(label.split(PROFILE_SEPARATOR)) if label else ()

    @property
    def state(self) -> str:
        """The value of the state label; empty without the label."""
        return self.node.metadata.labels.get(STATE_LABEL, "")


class ClusterView(Protocol):
    """The observed state of the cluster. Includes Haulout's own writes that the watch has not delivered yet."""

    def nodes(self) -> Collection[ObservedNode]: ...

    def nodes_in(self, state: State) -> Collection[ObservedNode]:
        """Return the nodes whose state label is `state`; for in-maintenance also those that hold a slot for it."""
        ...

    def nodes_with(self, label: str) -> Collection[ObservedNode]: ...

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
        """Return the free capacity of a node, None if the node does not exist (`Need.FREE_CAPACITY`)."""
        ...

    def daemon_sets(self) -> Collection[RawObject]:
        """Return all DaemonSets (`Need.DAEMON_SETS`)."""
        ...

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        """Return the maintenance notices for a node (`Need.NOTICES`)."""
        ...

    def workloads_on(self, node: str) -> WorkloadRecord:
        """Return the workloads that have pods on a node now (`Need.WORKLOADS`)."""
        ...

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        """Return the workloads whose pods were evicted from a node since it was last operational (`Need.WORKLOADS`)."""
        ...

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the cached result of a query; None: no result yet, the query is sent from now on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContext:
    """The input of a plugin: one node and one of its profiles at one instant."""

    now: datetime
    node: Node  # with the changes of this reconcile
    profile: str
    state: State
    status: ProfileStatus
    is_in_maintenance: bool  # whether any profile of the node is in maintenance
    logs_details: bool
    cluster: ClusterView
    requeue: timedelta  # default maximum age of a query result
    held_leases: frozenset[tuple[str, str]] = frozenset()  # taken for a transition that has not happened yet
    chain_started_at: datetime | None = None  # when the chain of triggers started, if it has to wait
    checks_still_pass: bool = True  # whether the checks of the pending transition still pass
    would_lead_here: Callable[[Callable[["Check"], bool | None]], bool] = lambda _: False  # see `Profile.is_reachable`


# Plugin types


class NamedFile(NamedTuple):
    """A file named by the configuration: its key, its path, and a parser that raises `ConfigError`."""

    key: str
    path: str
    read: Callable[[bytes], object]


class Plugin:
    """What all plugins have in common. The docstring of a plugin becomes its description in the reference."""

    __slots__ = ()

    type: ClassVar[str]
    example: ClassVar[str] = ""  # YAML of an instance
    needs: ClassVar[frozenset[Need]] = frozenset()
    object_options: ClassVar[frozenset[str]] = frozenset()  # fields with the names of the objects of `permissions`

    @property
    def needs_workload_record(self) -> bool:
        """Whether the plugin compares evicted workloads; if so, an annotation on nodes records their workloads."""
        return False

    def lease_namespaces(self) -> tuple[str, ...]:
        """Return the namespaces of the leases that the plugin reads (`Need.LEASES`)."""
        return ()

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        """Return the permissions that the operator needs for the plugin, beside those to watch `needs`.

        `namespace` is the operator's namespace.
        """
        del namespace
        return ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield configuration errors: the key, and what is wrong with it."""
        yield from ()

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield configuration that is valid but probably not intended: the key, and why."""
        yield from ()

    def files(self) -> Iterator["NamedFile"]:
        """Yield the files that the plugin reads. An invalid file is reported when the configuration is loaded."""
        yield from ()


class Check(Plugin):
    """Decides whether a transition may happen."""

    __slots__ = ()

    def evaluate(self, context: PluginContext) -> CheckResult:
        raise NotImplementedError

    def topics(self, node: str) -> tuple[str, ...]:
        """Return the topics that requeue `node` besides its own changes; see `controllers.profiles.view.topics`."""
        del node
        return ()

    def claims(self, context: PluginContext) -> tuple["Claim", ...]:
        """Return the claims to take before a transition that depends on this check may happen."""
        del context
        return ()

    def problems_in(self, state: State) -> Iterator[str]:
        """Yield why this check makes no sense in a state."""
        del state
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseClaim:
    """A lease to take by compare-and-swap. If another holder takes it first, the transition does not happen."""

    namespace: str
    name: str
    resource_version: str  # as observed; empty: the lease is created
    holder: str
    duration: timedelta
    transitions: int | None


class Scope(Protocol):
    """The nodes that share a limit; hashable. See `haulout.controllers.profiles.plugins.checks.max_maintenance`."""

    def counts(self, observed: ObservedNode, now: datetime) -> bool:
        """Return whether a node in maintenance counts, or one on its way there whose label does not show it yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotClaim:
    """A slot that lets the node be in maintenance while fewer than `limit` other nodes in the scope are.

    It is recorded in the slot ledger by compare-and-swap; `haulout.budget.slots` explains why the limit is exact. Only
    a transition into maintenance takes a slot.
    """

    limit: int
    scope: Scope


@dataclass(frozen=True, slots=True)
class BudgetClaim:
    """A slot of the budget that all causes of maintenance share: see `haulout.budget`."""

    budget: Budget


Claim = LeaseClaim | SlotClaim | BudgetClaim


# Actions of triggers


@dataclass(frozen=True, slots=True)
class SetLabel:
    """Set a label; a value of None removes it."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class SetAnnotation:
    """Set an annotation; a value of None removes it."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Add or remove a finalizer."""

    name: str
    present: bool


@dataclass(frozen=True, slots=True)
class Cordon:
    """Cordon the node with the profile as owner."""


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Remove the profile as owner of the cordon; the node is uncordoned when no owner is left."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain the node, which must be cordoned. The chain continues when it is empty. `policy` is a `DrainPolicy`."""

    policy: Any


@dataclass(frozen=True, slots=True)
class PatchHypervisor:
    """Patch the spec of the hypervisor that has the node's name."""

    spec: RawObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceMachine:
    """Request a replacement for the node's Machine. Executed only after the node records the transition."""

    machine: str
    instance: str
    surge: bool | None = None  # create the replacement first; None: the default of the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Let the chain wait until `until` at the latest; a change of `topics` requeues the node earlier."""

    reason: str
    until: datetime
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Emit a Warning event for the node, and continue."""

    reason: str
    note: str


ExternalAction = PatchHypervisor | ReplaceMachine
Action = SetLabel | SetAnnotation | SetFinalizer | Cordon | Uncordon | Drain | Wait | Warn | ExternalAction


class Trigger(Plugin):
    """Acts during a transition, or on entering a state."""

    __slots__ = ()

    @property
    def may_cordon(self) -> bool:
        """Whether it may cordon a node; if so, a copy of the cordon annotation is kept outside the node."""
        return False

    @property
    def only_waits(self) -> bool:
        """Whether it only waits, for a limited time; such a trigger is exempt from permission checks."""
        return False

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return the actions to take, in order. They must be idempotent."""
        raise NotImplementedError


# Notifications


class ExternalClient(Protocol):
    """Access to external systems, with timeouts; shared by all plugins."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = timedelta(seconds=10),
    ) -> "HttpResponse":
        """Send an HTTP request; return the response, whatever its status. Raise `ExternalError` if there is none."""
        ...

    async def read_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return the decoded data of a Secret in the cluster. Raise `ExternalError` if it cannot be read."""
        ...

    async def read_file(self, path: str) -> bytes:
        """Return the content of a file. Raise `ExternalError` if it cannot be read."""
        ...

    async def send_mail(self, envelope: "Envelope") -> None:
        """Send a mail through its SMTP server. Raise `ExternalError` if it fails."""
        ...


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response to a request, whatever its status. The body is limited in size."""

    status: int
    body: bytes
    headers: Mapping[str, str]  # names in lower case


class Notification(Plugin):
    """Sends messages to people, in the background: it may wait and fail without an effect on the node."""

    __slots__ = ()

    async def send(self, message: "Message", external: ExternalClient) -> None:
        """Send a message. Raise `ExternalError` if it fails."""
        raise NotImplementedError

    def template_problems(self) -> Iterator[tuple[str, str]]:
        """Yield template errors: the key, and the problem with its position."""
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The content of a notification, which its templates can use."""

    raw_node: RawObject
    state: str  # of the profile; for an object event, the new state of the object
    profile: str
    is_in_maintenance: bool
    last_transition: datetime | None
    logs_details: bool
    current_profile: str
    last_profile: str
    now: datetime
    client: Any  # of the cluster, for plugins that keep a lease
    event: ObjectEvent | None = None  # what happened to an object; None: the message is about a profile's state
    involved: InvolvedObject | None = None
    regarding: ObjectReference | None = None

    @property
    def node(self) -> str:
        return str(self.raw_node.get("metadata", {}).get("name", ""))

    @property
    def text(self) -> str:
        if self.event is not None:
            return self.event.message
        return f"node {self.node} is now {self.state} by profile {self.profile}"


@dataclass(frozen=True, slots=True)
class SendDecision:
    """Whether a notification is due now, and if not, when to evaluate the schedule again."""

    is_due: bool
    requeue_at: datetime | None = None


class Schedule(Plugin):
    """Decides when a notification is sent. Pure, like a check."""

    __slots__ = ()

    def due(self, *, status: ProfileStatus, last_sent: datetime | None, now: datetime) -> SendDecision:
        """Return whether a notification is due. `last_sent` is None if it was never sent for this node."""
        raise NotImplementedError
