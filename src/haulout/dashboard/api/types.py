"""Requests and responses of `/api/v2`: values, and nothing else. The OpenAPI document is generated from them.

    GET  /api/v2/summary                 Summary: counts, budgets, banners, the leader
    GET  /api/v2/nodes                   Fleet: a tile for each node; filters: ?state= &zone= &pool= &profile= &q=
    GET  /api/v2/nodes/NAME              NodeDetail: all details of one node
    GET  /api/v2/timeline                Timeline; ?from= &to= and the filters of nodes
    GET  /api/v2/notices                 NoticeList
    GET  /api/v2/clusters                ClusterList: of a hub, the workload clusters
    GET  /api/v2/configuration           Configuration: the file in force, and errors in the current one
    POST /api/v2/configuration/check     Edit -> WhatIf: what would change with another file; changes nothing
    GET  /api/v2/health                  Health of the leader
    GET  /api/v2/session                 Session: the user, and the allowed actions
    POST /api/v2/session                 Login -> Session: log a browser in
    DELETE /api/v2/session               Session: log a browser out
    POST /api/v2/acts                    Act -> Done
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


class Tile(ApiType, frozen=True):
    """A node on the map."""

    name: str
    state: NodeState
    since: datetime | None = None  # when the node entered the state, as far as known
    why: str = ""  # in a line: what happens, or what the node waits for, and what blocks it
    at: datetime | None = None  # the next relevant instant: a start, a deadline, a reconcile
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


class Fleet(ApiType, frozen=True):
    """All nodes, or the selected ones."""

    revision: str  # the state that later events change
    total: int  # number of all nodes
    nodes: tuple[Tile, ...]


class Hello(ApiType, frozen=True):
    """The event `hello`, the first of a stream: later events are changes to this state."""

    revision: str
    time: datetime | None = None  # the current time of the server
    mode: Mode = Mode.CLUSTER


class NodesChanged(ApiType, frozen=True):
    """The event `nodes`: changes to a `Fleet`."""

    revision: str
    changed: tuple[Tile, ...] = ()
    gone: tuple[str, ...] = ()


# The header of every page


class Level(StrEnum):
    """Severity."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Banner(ApiType, frozen=True):
    """A message on every page: an invalid configuration, no leader, an unreachable cloud."""

    level: Level
    text: str
    page: str = ""  # the page with details: `configuration`, `health`, `notices`, `clusters`


class BudgetUse(ApiType, frozen=True):
    """The usage of a budget."""

    name: str
    used: int
    limit: int
    text: str = ""  # the limit, in words
    holders: tuple[str, ...] = ()  # nodes that hold slots; of a hub, clusters
    waiting: tuple[str, ...] = ()  # nodes on the waiting list; of a hub, clusters


class Replica(ApiType, frozen=True):
    """The leader."""

    identity: str = ""  # empty: there is no leader
    since: datetime | None = None
    is_asked: bool = False  # whether the replica that got the request is the leader


class Summary(ApiType, frozen=True):
    """The state of the fleet as a whole."""

    version: str
    cluster: str = ""  # display name
    leader: Replica = Replica()
    total: int = 0
    counts: Mapping[NodeState, int] = {}
    zones: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    budgets: tuple[BudgetUse, ...] = ()
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
    why: str = ""
    act: "Act | None" = None  # the same as a request, if the dashboard offers it


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
    waits_for: str = ""  # a chain of triggers that has begun and not finished
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
    advice: str = ""
    since: datetime | None = None


class Drain(ApiType, frozen=True):
    """A drain, running or finished."""

    by: str  # initiator, as in annotations: `profile/os`, `NodeMaintenance/patch-n1`
    started: datetime | None = None
    deadline: datetime | None = None
    total: int = 0
    gone: int = 0
    leaving: int = 0
    is_done: bool = False
    words: str = ""  # what the drain waits for
    pending: tuple[str, ...] = ()  # pods that have not left yet
    blockers: tuple[Blocker, ...] = ()


class Order(ApiType, frozen=True):
    """A NodeMaintenance."""

    name: str
    node: str
    reason: str = ""
    phase: str = ""
    by: str = ""
    created: datetime | None = None
    is_ending: bool = False
    error: str = ""
    place: int = 0  # in the waiting list of the budget


class Happening(ApiType, frozen=True):
    """An entry of the history."""

    time: datetime
    what: str
    by: str = ""
    before: str = ""
    after: str = ""
    since: datetime | None = None
    why: str = ""
    result: str = ""
    seconds: float | None = None  # duration of a drain
    pods: int | None = None


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
    on_time: str = ""  # the reason, in words
    reschedulable: bool = False
    rescheduled: str = ""
    history: tuple[Happening, ...] = ()


class NodeFact(ApiType, frozen=True):
    """A condition of a node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class NodeDetail(ApiType, frozen=True):
    """All details of a node."""

    tile: Tile
    uid: str = ""
    provider_id: str = msgspec.field(name="providerID", default="")
    kubelet: str = ""
    created: datetime | None = None
    labels: Mapping[str, str] = {}
    taints: tuple[str, ...] = ()
    conditions: tuple[NodeFact, ...] = ()
    profiles: tuple[ProfileState, ...] = ()
    problem: str = ""  # why profiles do nothing about the node
    next_look: datetime | None = None
    wakes_on: tuple[str, ...] = ()  # in words
    drains: tuple[Drain, ...] = ()
    orders: tuple[Order, ...] = ()
    notices: tuple[Notice, ...] = ()
    history: tuple[Happening, ...] = ()  # the newest first
    history_problem: str = ""  # why there is no history
    commands: tuple[Command, ...] = ()


# The clusters of a hub


class ClusterReach(StrEnum):
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


class MachineWhy(StrEnum):
    """Why a Machine is maintained."""

    DELETION = "deletion"
    MAINTENANCE = "maintenance"


class MachineTile(ApiType, frozen=True):
    """A Machine with requested or running maintenance."""

    name: str
    why: MachineWhy
    node: str = ""
    is_approved: bool = False  # its node is ready
    reason: str = ""  # in a line: what it waits for, and what blocks it
    since: datetime | None = None  # when it was requested, as far as known
    until: datetime | None = None  # the timeout of the approval
    commands: tuple[Command, ...] = ()


class ClusterTile(ApiType, frozen=True):
    """A workload cluster with enabled Machines."""

    key: str  # `namespace/name`
    reach: ClusterReach
    state: ClusterState
    why: str = ""  # why it is unreachable
    since: datetime | None = None  # of this reach
    heard: datetime | None = None  # the last response
    server: str = ""  # URL of its API server
    version: str = ""  # of Kubernetes
    machines: int = 0
    enabled: int = 0  # number of enabled Machines
    nodes: int = 0  # number of known nodes
    is_leaving: bool = False  # it is being deleted
    active_count: int = 0  # number of Machines with requested or running maintenance
    active: tuple[MachineTile, ...] = ()  # the first 50 of them, by name
    waits_for: str = ""  # why its maintenance must not begin yet
    budgets: tuple[str, ...] = ()  # names of budgets in which it holds a slot
    commands: tuple[Command, ...] = ()


class ClusterList(ApiType, frozen=True):
    """All workload clusters of a hub."""

    revision: str
    total: int
    clusters: tuple[ClusterTile, ...]


class ClustersChanged(ApiType, frozen=True):
    """The event `clusters`: changes to a `ClusterList`."""

    revision: str
    changed: tuple[ClusterTile, ...] = ()
    gone: tuple[str, ...] = ()  # keys


# The timeline


class SpanKind(StrEnum):
    """The kind of a span."""

    NOTICE = "notice"
    PROFILE = "profile"  # a profile was in a state other than operational
    ORDER = "order"  # a NodeMaintenance
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
    why: str = ""


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


class HistoryEntry(Happening, frozen=True, kw_only=True):
    """A history entry with its node."""

    node: str
    is_deleted: bool = False  # the node no longer exists
    deleted: datetime | None = None  # when the node was deleted, if known


class HistoryList(ApiType, frozen=True):
    """The history of all nodes."""

    entries: tuple[HistoryEntry, ...]  # the newest first
    total: int = 0  # number of entries without the limit


class NoticeList(ApiType, frozen=True):
    """All notices: current ones first, by their start."""

    revision: str
    notices: tuple[Notice, ...]


class NoticesChanged(ApiType, frozen=True):
    """The event `notices`: changes to a `NoticeList`."""

    revision: str
    changed: tuple[Notice, ...] = ()
    gone: tuple[str, ...] = ()


# The configuration


class Finding(ApiType, frozen=True):
    """An error or warning in a file, with its location."""

    message: str
    line: int = 0  # 0: unknown
    key: str = ""
    level: Level = Level.CRITICAL


class ProfileText(ApiType, frozen=True):
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
    profiles: tuple[ProfileText, ...] = ()


class Edit(ApiType, frozen=True, forbid_unknown_fields=True):
    """Another content of the file."""

    text: str


class Change(ApiType, frozen=True):
    """A difference for some nodes."""

    text: str
    profile: str = ""
    nodes: tuple[str, ...] = ()
    count: int = 0


class WhatIf(ApiType, frozen=True):
    """The effects of an edit."""

    is_good: bool
    findings: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    looked_at: int = 0  # number of nodes evaluated
    profiles: tuple[ProfileText, ...] = ()


# Health


class WatchHealth(ApiType, frozen=True):
    """The health of an informer."""

    resource: str
    is_synced: bool
    objects: int = 0
    heard: datetime | None = None
    problem: str = ""
    misfits: Mapping[str, str] = {}


class QueueHealth(ApiType, frozen=True):
    """The depth and lag of a work queue."""

    name: str
    depth: int
    worst_lag_seconds: float = 0  # recently


class CallHealth(ApiType, frozen=True):
    """Latency and errors of API server requests."""

    verb: str
    resource: str
    count: int
    errors: int = 0
    median_seconds: float = 0
    worst_seconds: float = 0  # recently


class PartHealth(ApiType, frozen=True):
    """A component of the operator that fails alone: profiles, notices, a source."""

    name: str
    is_well: bool
    text: str = ""
    heard: datetime | None = None


class Trouble(ApiType, frozen=True):
    """A logged warning or error."""

    time: datetime
    level: Level
    text: str
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
    calls: tuple[CallHealth, ...] = ()
    parts: tuple[PartHealth, ...] = ()
    troubles: tuple[Trouble, ...] = ()  # the newest first


# Users and actions


class ActKind(StrEnum):
    """An action in the dashboard."""

    APPROVE = "approve"  # give a node the label or annotation that a check of a profile waits for
    HOLD = "hold"  # keep new maintenance off the node
    RELEASE = "release"  # end the hold
    START = "start"  # create a NodeMaintenance
    CANCEL = "cancel"  # delete a NodeMaintenance, which returns the node to service; or cancel a notice of a user


class Act(ApiType, frozen=True, forbid_unknown_fields=True):
    """A requested action."""

    act: ActKind
    node: str = ""
    profile: str = ""  # for approve
    check: str = ""  # for approve: the instance
    maintenance: str = ""  # for cancel
    notice: str = ""  # for cancel
    reason: str = ""
    until: datetime | None = None  # for hold


class Done(ApiType, frozen=True):
    """The result of an action."""

    text: str
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
    acts: tuple[ActKind, ...] = ()  # allowed actions, as far as known in advance
    csrf: str = ""  # CSRF token to send with each action, as the header X-Haulout-Csrf
