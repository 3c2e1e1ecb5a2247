"""What `/api/v2` answers with and is asked with: values, and nothing else. The OpenAPI document is made from them.

    GET  /api/v2/summary                 Summary: counts, budgets, banners, who leads
    GET  /api/v2/nodes                   Fleet: a tile for each node; ?state= &zone= &pool= &profile= &q= narrow it
    GET  /api/v2/nodes/NAME              NodeDetail: all there is to know about one
    GET  /api/v2/timeline                Timeline; ?from= &to= and what narrows nodes
    GET  /api/v2/notices                 NoticeList
    GET  /api/v2/clusters                ClusterList: of a hub, the workload clusters
    GET  /api/v2/configuration           Configuration: the file in force, and what is wrong with the one that is not
    POST /api/v2/configuration/check     Edit -> WhatIf: what would change with another file; changes nothing
    GET  /api/v2/health                  Health of the replica that leads
    GET  /api/v2/session                 Session: who asks, and what they may do
    POST /api/v2/session                 Login -> Session: a browser logs in
    DELETE /api/v2/session               Session: it logs out
    POST /api/v2/acts                    Act -> Done
    GET  /api/v2/events                  server-sent events: hello, summary, nodes, notices, node, clusters, reset
    GET  /api/v2/openapi.json            the description of all of it

Times are RFC 3339 in UTC. What is empty, zero or false by default is left out. An error is `Problem`, with a fitting
status. Fields are added, never taken away or given another meaning; what would need that is `/api/v3`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class ApiType(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What all of them have in common."""


class Problem(ApiType, frozen=True):
    """Why there is no other answer."""

    error: str  # for people
    status: int = 0


class Mode(StrEnum):
    """What an operator is there for."""

    CLUSTER = "cluster"  # the nodes of its own cluster
    MANAGEMENT = "management"  # a hub: Machines of Cluster API, and the workload clusters that they are nodes of


# The fleet


class NodeState(StrEnum):
    """What goes on with a node, at a glance."""

    IDLE = "idle"
    PLANNED = "planned"  # somebody announced or required maintenance, and nothing was done to the node yet
    DRAINING = "draining"
    BLOCKED = "blocked"  # it was begun, and does not go on by itself: a budget, a failure, data that makes no sense
    IN_MAINTENANCE = "in-maintenance"
    RECOVERING = "recovering"  # maintenance is over, and it is not yet as it was before


class Tile(ApiType, frozen=True):
    """A node on the map."""

    name: str
    state: NodeState
    since: datetime | None = None  # when it came to that state, as far as is known
    why: str = ""  # in a line: what goes on, or what it waits for, and who is to blame
    at: datetime | None = None  # the next instant that matters: a start, a deadline, a next look
    progress: int | None = None  # of a drain, in percent
    zone: str = ""
    pool: str = ""
    is_ready: bool = True
    is_cordoned: bool = False
    profiles: Mapping[str, str] = {}  # by name: its state
    notices: int = 0  # that are not over
    maintenance: str = ""  # the NodeMaintenance that has it
    hold: str = ""  # who holds it back from maintenance, and why
    labels: Mapping[str, str] = {}  # those that the configuration has shown on dashboards


class Fleet(ApiType, frozen=True):
    """All nodes, or those that were asked for."""

    revision: str  # of what events tell the changes
    total: int  # nodes that there are
    nodes: tuple[Tile, ...]


class Hello(ApiType, frozen=True):
    """The event `hello`, the first of a stream: what is told from here on are changes of this."""

    revision: str
    time: datetime | None = None  # what time it is there
    mode: Mode = Mode.CLUSTER


class NodesChanged(ApiType, frozen=True):
    """The event `nodes`: what is to be put over a `Fleet`."""

    revision: str
    changed: tuple[Tile, ...] = ()
    gone: tuple[str, ...] = ()


# What stands above every page


class Level(StrEnum):
    """How bad it is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Banner(ApiType, frozen=True):
    """What somebody should know on every page: a broken configuration, no leader, a cloud that is not heard."""

    level: Level
    text: str
    page: str = ""  # where there is more: `configuration`, `health`, `notices`, `clusters`


class BudgetUse(ApiType, frozen=True):
    """How much of a budget is taken."""

    name: str
    used: int
    limit: int
    text: str = ""  # the rule, in words
    holders: tuple[str, ...] = ()  # nodes that count; of a hub, clusters
    waiting: tuple[str, ...] = ()  # nodes that wait in line for it; of a hub, clusters


class Replica(ApiType, frozen=True):
    """Who leads."""

    identity: str = ""  # empty: nobody does
    since: datetime | None = None
    is_asked: bool = False  # the one that was asked is the one that leads


class Summary(ApiType, frozen=True):
    """How it stands as a whole."""

    version: str
    cluster: str = ""  # how people know it
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
    time: datetime | None = None  # what time it is there, which in a sandbox may run faster; in events left out
    mode: Mode = Mode.CLUSTER


# One node


class Command(ApiType, frozen=True):
    """What a person can type to move things on."""

    title: str
    command: str
    why: str = ""
    act: "Act | None" = None  # the same as a request, where the dashboard offers it


class Check(ApiType, frozen=True):
    """What a check of a profile says."""

    name: str
    type: str
    passed: bool | None = None  # None: it cannot be told, or was not asked
    reason: str = ""
    error: str = ""
    changes_at: datetime | None = None  # it may say something else then, though nothing happens
    info: Mapping[str, Any] = {}


class Transition(ApiType, frozen=True):
    """A way from one state of a profile to another."""

    source: str
    target: str
    expression: str = ""
    triggers: tuple[str, ...] = ()
    is_current: bool = False  # it begins in the state that the profile is in: what follows is filled in
    passed: bool = False
    veto: str = ""
    error: str = ""
    checks: tuple[Check, ...] = ()
    remedies: tuple[str, ...] = ()  # any of which would let it pass, in words


class ProfileState(ApiType, frozen=True):
    """Where a profile of a node stands."""

    name: str
    state: str
    since: datetime | None = None
    waits_for: str = ""  # a chain that has begun and is not done yet
    error: str = ""
    notifications: tuple[str, ...] = ()  # instances that tell of its current state
    transitions: tuple[Transition, ...] = ()


class Blocker(ApiType, frozen=True):
    """What stands in the way of a pod."""

    kind: str
    pod: str
    object: str = ""
    workload: str = ""  # whose it is
    reason: str = ""
    advice: str = ""
    since: datetime | None = None


class Drain(ApiType, frozen=True):
    """A drain that runs, or has run."""

    by: str  # as marks name it: `profile/os`, `NodeMaintenance/patch-n1`
    started: datetime | None = None
    deadline: datetime | None = None
    total: int = 0
    gone: int = 0
    leaving: int = 0
    is_done: bool = False
    words: str = ""  # what it waits for
    pending: tuple[str, ...] = ()  # pods that are still there
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
    place: int = 0  # in the line of those that wait for the budget


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
    seconds: float | None = None  # that a drain took
    pods: int | None = None


class Notice(ApiType, frozen=True):
    """Somebody says that a node will need maintenance."""

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
    on_time: str = ""  # why, in words
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
    """All there is to know about a node."""

    tile: Tile
    uid: str = ""
    provider_id: str = msgspec.field(name="providerID", default="")
    kubelet: str = ""
    created: datetime | None = None
    labels: Mapping[str, str] = {}
    taints: tuple[str, ...] = ()
    conditions: tuple[NodeFact, ...] = ()
    profiles: tuple[ProfileState, ...] = ()
    problem: str = ""  # why nothing at all is done about it
    next_look: datetime | None = None
    wakes_on: tuple[str, ...] = ()  # in words
    drains: tuple[Drain, ...] = ()
    orders: tuple[Order, ...] = ()
    notices: tuple[Notice, ...] = ()
    history: tuple[Happening, ...] = ()  # the newest first
    history_problem: str = ""  # why there is none
    commands: tuple[Command, ...] = ()


# The clusters of a hub


class ClusterReach(StrEnum):
    """Whether a workload cluster can be spoken to."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"


class ClusterState(StrEnum):
    """What goes on with a workload cluster, at a glance."""

    IDLE = "idle"
    WAITING = "waiting"  # it is asked for, and may not begin yet: the budget across clusters
    IN_MAINTENANCE = "in-maintenance"


class MachineWhy(StrEnum):
    """What a Machine is maintained for."""

    DELETION = "deletion"
    MAINTENANCE = "maintenance"


class MachineTile(ApiType, frozen=True):
    """A Machine about which something goes on, or is asked for."""

    name: str
    why: MachineWhy
    node: str = ""
    is_approved: bool = False  # its node is ready for it
    reason: str = ""  # in a line: what it waits for, and who is to blame
    since: datetime | None = None  # when it was asked for, as far as is known
    until: datetime | None = None  # when it is not waited for any longer
    commands: tuple[Command, ...] = ()


class ClusterTile(ApiType, frozen=True):
    """A workload cluster with Machines that are enabled."""

    key: str  # `namespace/name`
    reach: ClusterReach
    state: ClusterState
    why: str = ""  # it cannot be reached
    since: datetime | None = None  # of this reach
    heard: datetime | None = None  # when it last answered
    server: str = ""  # its address
    version: str = ""  # of its Kubernetes
    machines: int = 0
    enabled: int = 0  # of its Machines
    nodes: int = 0  # that are known
    is_leaving: bool = False  # it is being deleted
    active_count: int = 0  # Machines about which something goes on
    active: tuple[MachineTile, ...] = ()  # the first 50 of them, by name
    waits_for: str = ""  # why its maintenance may not begin yet
    budgets: tuple[str, ...] = ()  # in which it counts, by their names
    commands: tuple[Command, ...] = ()


class ClusterList(ApiType, frozen=True):
    """All workload clusters of a hub."""

    revision: str
    total: int
    clusters: tuple[ClusterTile, ...]


class ClustersChanged(ApiType, frozen=True):
    """The event `clusters`: what is to be put over a `ClusterList`."""

    revision: str
    changed: tuple[ClusterTile, ...] = ()
    gone: tuple[str, ...] = ()  # keys


# The timeline


class SpanKind(StrEnum):
    """What takes a while."""

    NOTICE = "notice"
    PROFILE = "profile"  # a profile was in a state other than operational
    ORDER = "order"  # a NodeMaintenance
    DRAIN = "drain"
    WINDOW = "window"  # maintenance may begin
    BLACKOUT = "blackout"  # it may not


class Span(ApiType, frozen=True):
    """Something that took, takes or will take a while."""

    kind: SpanKind
    title: str
    start: datetime
    end: datetime | None = None  # None: nobody knows yet
    state: str = ""  # a phase of a notice, a state of a profile, a result of a drain
    why: str = ""


class TimelineRow(ApiType, frozen=True):
    """A node on the time axis."""

    node: str
    state: NodeState
    spans: tuple[Span, ...] = ()


class Timeline(ApiType, frozen=True):
    """What was, is and comes."""

    start: datetime
    end: datetime
    now: datetime
    rows: tuple[TimelineRow, ...]  # those with something to show come first
    total: int  # rows that there would be without a limit
    windows: tuple[Span, ...] = ()  # that hold for all nodes of a profile, which the title names
    problem: str = ""  # why something is missing, such as the history


class HistoryEntry(Happening, frozen=True, kw_only=True):
    """What happened to a node."""

    node: str
    is_deleted: bool = False  # the node is not there any more
    deleted: datetime | None = None  # when it was deleted, if that is known


class HistoryList(ApiType, frozen=True):
    """What happened to all nodes."""

    entries: tuple[HistoryEntry, ...]  # the newest first
    total: int = 0  # entries that there would be without a limit


class NoticeList(ApiType, frozen=True):
    """All notices: those that are not over first, by their start."""

    revision: str
    notices: tuple[Notice, ...]


class NoticesChanged(ApiType, frozen=True):
    """The event `notices`."""

    revision: str
    changed: tuple[Notice, ...] = ()
    gone: tuple[str, ...] = ()


# The configuration


class Finding(ApiType, frozen=True):
    """What is wrong with a file, and where."""

    message: str
    line: int = 0  # 0: nobody can tell
    key: str = ""
    level: Level = Level.CRITICAL


class ProfileText(ApiType, frozen=True):
    """A profile, in words."""

    name: str
    text: tuple[str, ...]


class Configuration(ApiType, frozen=True):
    """What profiles go by."""

    path: str = ""
    text: str = ""  # as it is in the file, with secrets struck out
    is_default: bool = False  # there is none, so that the one that ships is in force
    is_in_force: bool = True  # False: `findings` say why, and `in_force` is what holds instead
    in_force: str = ""  # the last good one, if another one is broken
    findings: tuple[Finding, ...] = ()
    profiles: tuple[ProfileText, ...] = ()


class Edit(ApiType, frozen=True, forbid_unknown_fields=True):
    """Another file."""

    text: str


class Change(ApiType, frozen=True):
    """What would be otherwise for some nodes."""

    text: str
    profile: str = ""
    nodes: tuple[str, ...] = ()
    count: int = 0


class WhatIf(ApiType, frozen=True):
    """What would come of an edit."""

    is_good: bool
    findings: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    looked_at: int = 0  # nodes
    profiles: tuple[ProfileText, ...] = ()


# Health


class WatchHealth(ApiType, frozen=True):
    """How well something is followed."""

    resource: str
    is_synced: bool
    objects: int = 0
    heard: datetime | None = None
    problem: str = ""
    misfits: Mapping[str, str] = {}


class QueueHealth(ApiType, frozen=True):
    """How long things wait that are due."""

    name: str
    depth: int
    worst_lag_seconds: float = 0  # of late


class CallHealth(ApiType, frozen=True):
    """How the API server answers."""

    verb: str
    resource: str
    count: int
    errors: int = 0
    median_seconds: float = 0
    worst_seconds: float = 0  # of late


class PartHealth(ApiType, frozen=True):
    """A part of the operator that breaks alone: profiles, notices, a source."""

    name: str
    is_well: bool
    text: str = ""
    heard: datetime | None = None


class Trouble(ApiType, frozen=True):
    """Something that was logged as a warning or worse."""

    time: datetime
    level: Level
    text: str
    count: int = 1


class LeaseHealth(ApiType, frozen=True):
    """A lease that replicas stand for."""

    name: str
    holder: str = ""
    acquired: datetime | None = None
    renewed: datetime | None = None
    transitions: int = 0


class Health(ApiType, frozen=True):
    """How the operator is doing."""

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


# Who asks, and acts


class ActKind(StrEnum):
    """What can be done from the dashboard."""

    APPROVE = "approve"  # give a node the label or annotation that a check of a profile waits for
    HOLD = "hold"  # no new maintenance begins on the node
    RELEASE = "release"  # the hold is over
    START = "start"  # order a NodeMaintenance, now
    CANCEL = "cancel"  # delete a NodeMaintenance, which gives the node back; or call off a notice that a person made


class Act(ApiType, frozen=True, forbid_unknown_fields=True):
    """A wish."""

    act: ActKind
    node: str = ""
    profile: str = ""  # to approve
    check: str = ""  # to approve: the instance
    maintenance: str = ""  # to cancel
    notice: str = ""  # to cancel
    reason: str = ""
    until: datetime | None = None  # to hold


class Done(ApiType, frozen=True):
    """What was done."""

    text: str
    command: str = ""  # with which it could have been done by hand


class AuthMode(StrEnum):
    """How the dashboard knows who asks."""

    OFF = "off"  # it does not: everybody may read, and nobody may act
    TOKEN = "token"  # noqa: S105 - a mode: whoever asks shows a token of Kubernetes
    PROXY = "proxy"  # a proxy in front says so


class Login(ApiType, frozen=True, forbid_unknown_fields=True):
    """With what somebody says who they are."""

    token: str  # of Kubernetes, as `kubectl create token NAME` prints one


class Session(ApiType, frozen=True):
    """Who asks, and what they may do."""

    mode: AuthMode
    user: str = ""  # empty: unknown
    groups: tuple[str, ...] = ()
    may_read: bool = False
    acts: tuple[ActKind, ...] = ()  # that they may do, as far as can be told beforehand
    csrf: str = ""  # to be sent with each act, as the header X-Haulout-Csrf
