"""Requests and responses of `/api/v2`: values, and nothing else. The OpenAPI document is generated from them.

    GET  /api/v2/summary                 Summary: counts, budgets, banners, the leader
    GET  /api/v2/nodes                   NodeList: a summary of each node; filters: ?state= &zone= &pool= &profile= &q=
    GET  /api/v2/nodes/NAME              NodeDetail: all details of one node
    GET  /api/v2/timeline                Timeline; ?from= &to= and the filters of nodes
    GET  /api/v2/notices                 NoticeList
    GET  /api/v2/clusters                ClusterList: of a hub, the workload clusters
    GET  /api/v2/configuration           Configuration: the file in force, and errors in the current one
    POST /api/v2/configuration/check     ConfigurationEdit -> ConfigurationPreview: what would change with another file
    GET  /api/v2/health                  Health of the leader
    GET  /api/v2/session                 Session: the user, and the allowed actions
    POST /api/v2/session                 Login -> Session: log a browser in
    DELETE /api/v2/session               Session: log a browser out
    POST /api/v2/actions                 Action -> ActionResponse
    GET  /api/v2/events                  server-sent events: hello, summary, nodes, notices, node, clusters, reset
    GET  /api/v2/openapi.json            the OpenAPI document

Times are RFC 3339 in UTC. Values that are empty, zero or false by default are left out. An error is a `Problem`, with a
suitable status. Fields are added, never removed or given another meaning; that would need `/api/v3`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class ApiType(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of all types."""


class Problem(ApiType, frozen=True):
    """An error response."""

    error: str  # a message for users
    status: int = 0


class Mode(StrEnum):
    """What an operator manages."""

    CLUSTER = "cluster"  # the nodes of its own cluster
    MANAGEMENT = "management"  # a hub: Machines of Cluster API, and the workload clusters with their nodes


# The fleet


class NodeState(StrEnum):
    """The state of a node at a glance."""

    IDLE = "idle"
    PLANNED = "planned"  # maintenance is announced or required, and nothing was done to the node yet
    DRAINING = "draining"
    BLOCKED = "blocked"  # maintenance has begun and cannot continue by itself: a budget, a failure, invalid data
    IN_MAINTENANCE = "in-maintenance"
    RECOVERING = "recovering"  # maintenance is over, and the node is not yet back in its previous state


class NodeSummary(ApiType, frozen=True):
    """A node on the map."""

    name: str
    state: NodeState
    since: datetime | None = None  # when the node entered the state, as far as known
    message: str = ""  # in a line: what happens, or what the node waits for, and what blocks it
    next_at: datetime | None = None  # the next relevant instant: a start, a deadline, a reconcile
    progress: int | None = None  # of a drain, in percent
    zone: str = ""
    pool: str = ""
    is_ready: bool = True
    is_cordoned: bool = False
    profiles: Mapping[str, str] = {}  # state by profile
    notices: int = 0  # how many notices are not over
    maintenance: str = ""  # the NodeMaintenance of the node
    hold: str = ""  # who keeps maintenance off the node, and why
    labels: Mapping[str, str] = {}  # labels that the configuration selects for dashboards


class NodeList(ApiType, frozen=True):
    """All nodes, or the selected ones."""

    revision: str  # the state that later events change
    total: int  # number of all nodes
    nodes: tuple[NodeSummary, ...]


class Hello(ApiType, frozen=True):
    """The event `hello`, the first of a stream: later events are changes to this state."""

    revision: str
    time: datetime | None = None  # the current time of the server
    mode: Mode = Mode.CLUSTER


class NodesChanged(ApiType, frozen=True):
    """The event `nodes`: changes to a `Fleet`."""

    revision: str
    changed: tuple[NodeSummary, ...] = ()
    deleted: tuple[str, ...] = ()


# The header of every page


class Level(StrEnum):
    """Severity."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Banner(ApiType, frozen=True):
    """A message on every page: an invalid configuration, no leader, an unreachable cloud."""

    level: Level
    message: str
    page: str = ""  # the page with details: `configuration`, `health`, `notices`, `clusters`


class BudgetUsage(ApiType, frozen=True):
    """The usage of a budget."""

    name: str
    used: int
    limit: int
    text: str = ""  # the limit, in words
    holders: tuple[str, ...] = ()  # nodes that hold slots; of a hub, clusters
    waiting: tuple[str, ...] = ()  # nodes on the waiting list; of a hub, clusters


class Leader(ApiType, frozen=True):
    """The leader."""

    identity: str = ""  # empty: there is no leader
    since: datetime | None = None
    is_this_replica: bool = False  # whether the replica that got the request is the leader


class Summary(ApiType, frozen=True):
    """The state of the fleet as a whole."""

    version: str
    cluster: str = ""  # display name
    leader: Leader = Leader()
    total: int = 0
    counts: Mapping[NodeState, int] = {}
    zones: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    budgets: tuple[BudgetUsage, ...] = ()
    banners: tuple[Banner, ...] = ()
    has_history: bool = False
    has_notices: bool = False
    time: datetime | None = None  # the current time of the server, which in a sandbox may run faster; not in events
    mode: Mode = Mode.CLUSTER


# One node


class Command(ApiType, frozen=True):
    """A command that a user can run to let a node continue."""

    title: str
    command: str
    reason: str = ""
    action: "Action | None" = None  # the same as a request, if the dashboard offers it


class Check(ApiType, frozen=True):
    """The result of a check of a profile."""

    name: str
    type: str
    passed: bool | None = None  # None: unknown, or not evaluated
    reason: str = ""
    error: str = ""
    changes_at: datetime | None = None  # the result may change then without an event
    info: Mapping[str, Any] = {}


class Transition(ApiType, frozen=True):
    """A transition between two states of a profile."""

    source: str
    target: str
    expression: str = ""
    triggers: tuple[str, ...] = ()
    is_current: bool = False  # it leads out of the current state: the following fields are filled in
    passed: bool = False
    veto: str = ""
    error: str = ""
    checks: tuple[Check, ...] = ()
    remedies: tuple[str, ...] = ()  # alternatives that would make it pass, in words


class ProfileState(ApiType, frozen=True):
    """The state of a profile of a node."""

    name: str
    state: str
    since: datetime | None = None
    waiting_for: str = ""  # a chain of triggers that has begun and not finished
    error: str = ""
    notifications: tuple[str, ...] = ()  # notification instances of the current state
    transitions: tuple[Transition, ...] = ()


class Blocker(ApiType, frozen=True):
    """What blocks a pod."""

    kind: str
    pod: str
    object: str = ""
    workload: str = ""  # the workload of the pod
    reason: str = ""
    remedy: str = ""
    since: datetime | None = None


class DrainSummary(ApiType, frozen=True):
    """A drain, running or finished."""

    owner: str  # initiator, as in annotations: `profile/os`, `NodeMaintenance/patch-n1`
    started: datetime | None = None
    deadline: datetime | None = None
    total: int = 0
    removed: int = 0
    terminating: int = 0
    is_done: bool = False
    message: str = ""  # what the drain waits for
    pending_pods: tuple[str, ...] = ()  # pods that have not left yet
    blockers: tuple[Blocker, ...] = ()


class MaintenanceSummary(ApiType, frozen=True):
    """A NodeMaintenance."""

    name: str
    node: str
    reason: str = ""
    phase: str = ""
    requested_by: str = ""
    created: datetime | None = None
    is_deleting: bool = False
    error: str = ""
    queue_position: int = 0  # in the waiting list of the budget


class HistoryEntry(ApiType, frozen=True):
    """An entry of the history."""

    time: datetime
    object: str
    requested_by: str = ""
    from_: str = msgspec.field(name="from", default="")
    to: str = ""
    since: datetime | None = None
    reason: str = ""
    result: str = ""
    drain_seconds: float | None = None  # duration of a drain
    drain_pods: int | None = None


class NoticeHistoryEntry(ApiType, frozen=True):
    """A change of a notice."""

    time: datetime
    message: str
    reporter: str = ""  # the source that reported it, or `haulout`


class Notice(ApiType, frozen=True):
    """An announcement that a node will need maintenance."""

    name: str
    phase: str
    kind: str
    node: str = ""
    source: str = ""
    id: str = ""
    reason: str = ""
    description: str = ""
    start: datetime | None = None
    end: datetime | None = None
    deadline: datetime | None = None
    drain_at: datetime | None = None
    predicted_drain_seconds: int = 0
    is_on_time: bool | None = None
    on_time_message: str = ""
    reschedulable: bool = False
    rescheduled: str = ""
    history: tuple[NoticeHistoryEntry, ...] = ()


class NodeCondition(ApiType, frozen=True):
    """A condition of a node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class NodeDetail(ApiType, frozen=True):
    """All details of a node."""

    summary: NodeSummary
    uid: str = ""
    provider_id: str = msgspec.field(name="providerID", default="")
    kubelet: str = ""
    created: datetime | None = None
    labels: Mapping[str, str] = {}
    taints: tuple[str, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    profiles: tuple[ProfileState, ...] = ()
    problem: str = ""  # why profiles do nothing about the node
    next_reconcile: datetime | None = None
    requeue_on: tuple[str, ...] = ()  # in words
    drains: tuple[DrainSummary, ...] = ()
    maintenances: tuple[MaintenanceSummary, ...] = ()
    notices: tuple[Notice, ...] = ()
    history: tuple[HistoryEntry, ...] = ()  # the newest first
    history_problem: str = ""  # why there is no history
    commands: tuple[Command, ...] = ()


# The clusters of a hub


class ClusterConnection(StrEnum):
    """Whether the hub can reach a workload cluster."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"


class ClusterState(StrEnum):
    """The state of a workload cluster at a glance."""

    IDLE = "idle"
    WAITING = "waiting"  # maintenance is requested and must not begin yet: the budget across clusters
    IN_MAINTENANCE = "in-maintenance"


class MachineRequest(StrEnum):
    """Why a Machine is maintained."""

    DELETION = "deletion"
    MAINTENANCE = "maintenance"


class MachineSummary(ApiType, frozen=True):
    """A Machine with requested or running maintenance."""

    name: str
    request: MachineRequest
    node: str = ""
    is_approved: bool = False  # its node is ready
    message: str = ""  # in a line: what it waits for, and what blocks it
    since: datetime | None = None  # when it was requested, as far as known
    deadline: datetime | None = None  # the timeout of the approval
    commands: tuple[Command, ...] = ()


class ClusterSummary(ApiType, frozen=True):
    """A workload cluster with enabled Machines."""

    key: str  # `namespace/name`
    connection: ClusterConnection
    state: ClusterState
    message: str = ""  # why it is unreachable
    since: datetime | None = None  # of this reach
    last_response: datetime | None = None  # the last response
    server: str = ""  # URL of its API server
    version: str = ""  # of Kubernetes
    machines: int = 0
    enabled: int = 0  # number of enabled Machines
    nodes: int = 0  # number of known nodes
    is_deleting: bool = False  # it is being deleted
    active_count: int = 0  # number of Machines with requested or running maintenance
    active: tuple[MachineSummary, ...] = ()  # the first 50 of them, by name
    waiting_for: str = ""  # why its maintenance must not begin yet
    budgets: tuple[str, ...] = ()  # names of budgets in which it holds a slot
    commands: tuple[Command, ...] = ()


class ClusterList(ApiType, frozen=True):
    """All workload clusters of a hub."""

    revision: str
    total: int
    clusters: tuple[ClusterSummary, ...]


class ClustersChanged(ApiType, frozen=True):
    """The event `clusters`: changes to a `ClusterList`."""

    revision: str
    changed: tuple[ClusterSummary, ...] = ()
    deleted: tuple[str, ...] = ()  # keys


# The timeline


class SpanKind(StrEnum):
    """The kind of a span."""

    NOTICE = "notice"
    PROFILE = "profile"  # a profile was in a state other than operational
    MAINTENANCE = "maintenance"  # a NodeMaintenance
    DRAIN = "drain"
    WINDOW = "window"  # maintenance may begin
    BLACKOUT = "blackout"  # maintenance must not begin


class Span(ApiType, frozen=True):
    """A past, current or planned time span."""

    kind: SpanKind
    title: str
    start: datetime
    end: datetime | None = None  # None: unknown yet
    state: str = ""  # a phase of a notice, a state of a profile, a result of a drain
    message: str = ""


class TimelineRow(ApiType, frozen=True):
    """A node on the time axis."""

    node: str
    state: NodeState
    spans: tuple[Span, ...] = ()


class Timeline(ApiType, frozen=True):
    """Past, current and planned maintenance."""

    start: datetime
    end: datetime
    now: datetime
    rows: tuple[TimelineRow, ...]  # rows with spans come first
    total: int  # number of rows without the limit
    windows: tuple[Span, ...] = ()  # windows for all nodes of a profile; the title names the profile
    problem: str = ""  # why something is missing, such as the history


class NodeHistoryEntry(HistoryEntry, frozen=True, kw_only=True):
    """A history entry with its node."""

    node: str
    is_deleted: bool = False  # the node no longer exists
    deleted: datetime | None = None  # when the node was deleted, if known


class HistoryList(ApiType, frozen=True):
    """The history of all nodes."""

    entries: tuple[NodeHistoryEntry, ...]  # the newest first
    total: int = 0  # number of entries without the limit
    components: tuple[str, ...] = ()  # the values of `?object=` for components that cordon nodes


class NoticeList(ApiType, frozen=True):
    """All notices: current ones first, by their start."""

    revision: str
    notices: tuple[Notice, ...]


class NoticesChanged(ApiType, frozen=True):
    """The event `notices`: changes to a `NoticeList`."""

    revision: str
    changed: tuple[Notice, ...] = ()
    deleted: tuple[str, ...] = ()


# The configuration


class Finding(ApiType, frozen=True):
    """An error or warning in a file, with its location."""

    message: str
    line: int = 0  # 0: unknown
    key: str = ""
    level: Level = Level.CRITICAL


class ProfileDescription(ApiType, frozen=True):
    """A profile, in words."""

    name: str
    text: tuple[str, ...]


class Configuration(ApiType, frozen=True):
    """The configuration of profiles."""

    path: str = ""
    text: str = ""  # the content of the file, with secrets redacted
    is_default: bool = False  # there is no file, so the default configuration is in force
    is_in_force: bool = True  # False: `findings` say why, and `in_force` is in force instead
    in_force: str = ""  # the last valid content, if the current one is invalid
    findings: tuple[Finding, ...] = ()
    profiles: tuple[ProfileDescription, ...] = ()


class ConfigurationEdit(ApiType, frozen=True, forbid_unknown_fields=True):
    """Another content of the file."""

    text: str


class ConfigurationChange(ApiType, frozen=True):
    """A difference for some nodes."""

    text: str
    profile: str = ""
    nodes: tuple[str, ...] = ()
    count: int = 0


class ConfigurationPreview(ApiType, frozen=True):
    """The effects of an edit."""

    is_valid: bool
    findings: tuple[Finding, ...] = ()
    changes: tuple[ConfigurationChange, ...] = ()
    evaluated_nodes: int = 0  # number of nodes evaluated
    profiles: tuple[ProfileDescription, ...] = ()


# Health


class WatchHealth(ApiType, frozen=True):
    """The health of an informer."""

    resource: str
    is_synced: bool
    objects: int = 0
    last_response: datetime | None = None
    problem: str = ""
    undecodable_objects: Mapping[str, str] = {}


class QueueHealth(ApiType, frozen=True):
    """The depth and lag of a work queue."""

    name: str
    depth: int
    worst_lag_seconds: float = 0  # recently


class RequestHealth(ApiType, frozen=True):
    """Latency and errors of API server requests."""

    verb: str
    resource: str
    count: int
    errors: int = 0
    median_seconds: float = 0
    worst_seconds: float = 0  # recently


class ComponentHealth(ApiType, frozen=True):
    """A component of the operator that fails alone: profiles, notices, a source."""

    name: str
    is_healthy: bool
    message: str = ""
    last_response: datetime | None = None


class LoggedWarning(ApiType, frozen=True):
    """A logged warning or error."""

    time: datetime
    level: Level
    message: str
    count: int = 1


class LeaseHealth(ApiType, frozen=True):
    """A leader election lease."""

    name: str
    holder: str = ""
    acquired: datetime | None = None
    renewed: datetime | None = None
    transitions: int = 0


class Health(ApiType, frozen=True):
    """The health of the operator."""

    identity: str
    version: str
    started: datetime
    python: str = ""
    memory_bytes: int = 0
    cpu_seconds: float = 0
    viewers: int = 0  # open event streams
    leases: tuple[LeaseHealth, ...] = ()
    watches: tuple[WatchHealth, ...] = ()
    queues: tuple[QueueHealth, ...] = ()
    requests: tuple[RequestHealth, ...] = ()
    components: tuple[ComponentHealth, ...] = ()
    warnings: tuple[LoggedWarning, ...] = ()  # the newest first


# Users and actions


class ActionType(StrEnum):
    """An action in the dashboard."""

    APPROVE = "approve"  # give a node the label or annotation that a check of a profile waits for
    HOLD = "hold"  # keep new maintenance off the node
    RELEASE = "release"  # end the hold
    START = "start"  # create a NodeMaintenance
    CANCEL = "cancel"  # delete a NodeMaintenance, which returns the node to service; or cancel a notice of a user


class Action(ApiType, frozen=True, forbid_unknown_fields=True):
    """A requested action."""

    action: ActionType
    node: str = ""
    profile: str = ""  # for approve
    check: str = ""  # for approve: the instance
    maintenance: str = ""  # for cancel
    notice: str = ""  # for cancel
    reason: str = ""
    until: datetime | None = None  # for hold


class ActionResponse(ApiType, frozen=True):
    """The result of an action."""

    message: str
    command: str = ""  # the equivalent command


class AuthMode(StrEnum):
    """How the dashboard authenticates users."""

    OFF = "off"  # no authentication: everyone may read, and nobody may act
    TOKEN = "token"  # noqa: S105 - a mode: users send a Kubernetes token
    PROXY = "proxy"  # a proxy in front authenticates users


class Login(ApiType, frozen=True, forbid_unknown_fields=True):
    """The credentials of a login."""

    token: str  # of Kubernetes, as `kubectl create token NAME` prints it


class Session(ApiType, frozen=True):
    """The user, and the allowed actions."""

    mode: AuthMode
    user: str = ""  # empty: not authenticated
    groups: tuple[str, ...] = ()
    may_read: bool = False
    actions: tuple[ActionType, ...] = ()  # allowed actions, as far as known in advance
    csrf: str = ""  # CSRF token to send with each action, as the header X-Haulout-Csrf
