"""The file format of scenarios: pools of machines, workloads, and a timeline.

Each field of these structs is a key of the YAML file, in camelCase. docs/reference/sandbox-scenarios.md describes them;
a test checks that it mentions each of them.
"""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from haulout.core import quantity
from haulout.core.yaml_decoder import TextFormat

# What one process can hold, and what names and addresses allow.
MAX_NODES = 5_000
MAX_PODS_PER_NODE = 100  # a node has room for 110
MAX_ZONES = 26  # zones are named by letters
MAX_SPEED = 3_600  # one hour per second
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, the format of most names in Kubernetes
_SHARE = re.compile(r"[0-9]{1,9}%?")
_PATTERN_FIELDS = ("name", "pool", "number", "zone", "region")


def _check_name(text: str) -> None:
    if not _LABEL.fullmatch(text):
        raise ValueError


def _check_share(text: str) -> None:
    if not _SHARE.fullmatch(text):
        raise ValueError


def _check_pattern(text: str) -> None:
    try:
        text.format(**dict.fromkeys(_PATTERN_FIELDS, "") | {"number": 1})
    except (KeyError, IndexError, ValueError, AttributeError):
        raise ValueError from None


Name = Annotated[str, TextFormat("a name of a-z, 0-9 and -, at most 63 of them, - not at an end", _check_name).meta]
Quantity = Annotated[str, TextFormat("a quantity such as 500m or 4Gi", quantity.parse, accepts_numbers=True).meta]
Share = Annotated[str, TextFormat("a number of pods, or a share such as 50%", _check_share, accepts_numbers=True).meta]
Pattern = Annotated[
    str, TextFormat(f"text, with {', '.join(f'{{{it}}}' for it in _PATTERN_FIELDS)} in it", _check_pattern).meta
]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
Cloud = Literal["oci", "aws", "azure", "gcp"]
MachineSetKind = Literal["MachineSet", "ControlPlaneMachineSet"]  # of OpenShift
Labels = dict[str, str]
Manifest = dict[str, Any]  # an object, or only the key `file` with the name of a file of objects


class ScenarioStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all structs."""


class Taint(ScenarioStruct, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Effect = "NoSchedule"


class Pool(ScenarioStruct, frozen=True, kw_only=True):
    name: Name
    count: Annotated[int, Meta(ge=0, le=MAX_NODES)] = 1
    zones: tuple[Name, ...] = ("a",)
    region: str = ""
    cpu: Quantity = "8"
    memory: Quantity = "32Gi"
    pods: Annotated[int, Meta(ge=1, le=254)] = 110
    labels: Labels = {}
    annotations: Labels = {}
    taints: tuple[Taint, ...] = ()
    instance_type: str = ""
    cloud: Cloud | None = None
    machines: MachineSetKind | None = None
    esx_hosts: Annotated[int, Meta(ge=1, le=MAX_NODES)] | None = None
    provider_id: Pattern | None = msgspec.field(name="providerID", default=None)


class MachinePool(Pool, frozen=True, kw_only=True):
    """A pool of Cluster API Machines: a MachineDeployment, optionally on BareMetalHosts of Metal3."""

    machine_labels: Labels = {}
    bare_metal: bool = False


class Budget(ScenarioStruct, frozen=True, kw_only=True):
    """A PodDisruptionBudget for the pods of a workload; has either of the first two fields."""

    min_available: Share | None = None
    max_unavailable: Share | None = None
    unhealthy_pod_eviction_policy: Literal["IfHealthyBudget", "AlwaysAllow"] | None = None


class Workload(ScenarioStruct, frozen=True, kw_only=True):
    """A workload: one, a number of `copies`, or as many as its `share` of all pods allows."""

    kind: Literal["Deployment", "StatefulSet", "DaemonSet", "Job", "Pod"]
    name: Name
    namespace: Name = "default"
    replicas: Annotated[int, Meta(ge=0, le=100_000)] = 1
    copies: Count | None = None
    share: Annotated[float, Meta(ge=0)] | None = None
    labels: Labels = {}
    cpu: Quantity = "50m"
    memory: Quantity = "64Mi"
    priority: Annotated[int, Meta(ge=-2_000_000_000, le=1_000_000_000)] | None = None
    spread: Literal["zone", "node"] | None = None
    node_selector: Labels = {}
    tolerate_all: bool = False
    budget: Budget | None = None
    start: timedelta | None = None
    ready: timedelta | None = None
    runs: timedelta | None = None
    exit_code: Annotated[int, Meta(ge=0, le=255)] = 0
    stop: timedelta | None = None
    grace: timedelta = timedelta(seconds=30)
    hang: bool = False


class WorkloadCluster(ScenarioStruct, frozen=True, kw_only=True):
    """A workload cluster of Cluster API, managed by the scenario's cluster."""

    name: Name
    namespace: Name = "default"
    labels: Labels = {}
    pods_per_node: Annotated[int, Meta(ge=1, le=MAX_PODS_PER_NODE)] = 10
    pools: tuple[MachinePool, ...] = ()
    workloads: tuple[Workload, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


# Selectors


class NodeSelector(ScenarioStruct, frozen=True, kw_only=True):
    """Selects nodes by their properties and by pods that must not run on them; `count` random ones, or all."""

    pool: Name | None = None
    zone: Name | None = None
    labels: Labels = {}
    without: Labels = {}
    count: Count | None = None


Nodes = str | tuple[str, ...] | NodeSelector


class NodeAction(ScenarioStruct, frozen=True, kw_only=True):
    nodes: Nodes


class TemporaryAction(ScenarioStruct, frozen=True, kw_only=True):
    """An action that may end after a duration."""

    for_: timedelta | None = msgspec.field(name="for", default=None)


class TemporaryNodeAction(NodeAction, frozen=True, kw_only=True):
    """An action on nodes that may end after a duration."""

    for_: timedelta | None = msgspec.field(name="for", default=None)


class WorkloadSelector(ScenarioStruct, frozen=True, kw_only=True):
    """Selects workloads by their properties; `count` random ones, or all."""

    kind: Literal["Deployment", "StatefulSet", "DaemonSet"] = "Deployment"
    name: str = ""
    namespace: str = ""
    labels: Labels = {}
    count: Count | None = None


class PodSelector(ScenarioStruct, frozen=True, kw_only=True):
    """Selects pods by their properties; `count` random ones, or all."""

    namespace: str = ""
    name: str = ""
    node: str = ""
    labels: Labels = {}
    count: Count | None = None


class ObjectReference(ScenarioStruct, frozen=True, kw_only=True):
    """A reference to an object of any kind that the cluster serves."""

    kind: str
    name: str
    api_version: str = ""
    namespace: str = ""


class ClientFault(TemporaryAction, frozen=True, kw_only=True):
    """A fault for the requests of these components and users, or of all."""

    clients: tuple[str, ...] = ()


class RequestFault(ClientFault, frozen=True, kw_only=True):
    """A fault for requests with this method and path substring, and for this share of them."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] | None = None
    path: str = ""
    chance: Annotated[float, Meta(ge=0, le=1)] = 1.0


# Actions


class Reboot(NodeAction, frozen=True, kw_only=True):
    """Reboots machines; their containers are lost."""

    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=2))


class NotReady(TemporaryNodeAction, frozen=True, kw_only=True):
    """Makes kubelets report that their nodes are not ready."""

    problem: str = "the network plugin is not ready"


class AddNodes(ScenarioStruct, frozen=True, kw_only=True):
    pool: Name
    count: Count = 1


class TaintNodes(TemporaryNodeAction, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Effect = "NoSchedule"


class UntaintNodes(NodeAction, frozen=True, kw_only=True):
    """Removes the taints with a key from nodes."""

    key: str


class LabelNodes(TemporaryNodeAction, frozen=True, kw_only=True):
    """Sets labels of nodes; null removes a label."""

    labels: dict[str, str | None]


class Scale(WorkloadSelector, frozen=True, kw_only=True):
    replicas: Annotated[int, Meta(ge=0, le=100_000)]


class Patch(ObjectReference, frozen=True, kw_only=True):
    """Applies a merge patch to an object: sets keys; null removes one."""

    patch: dict[str, Any]
    subresource: Literal["", "status", "scale"] = ""


class Pause(TemporaryAction, frozen=True, kw_only=True):
    components: tuple[str, ...]


class Resume(ScenarioStruct, frozen=True, kw_only=True):
    components: tuple[str, ...]


class FailRequests(RequestFault, frozen=True, kw_only=True):
    """Answers requests with an error and without effect."""

    code: Annotated[int, Meta(ge=400, le=599)] = 503
    retry_after: Annotated[int, Meta(ge=0, le=3600)] = 0


class DropResponses(RequestFault, frozen=True, kw_only=True):
    """Lets requests take effect, but breaks the connection before the response."""


class DelayRequests(RequestFault, frozen=True, kw_only=True):
    by: timedelta


class Compact(ScenarioStruct, frozen=True, kw_only=True):
    """Compacts the server's history: a watch from an old revision gets 410 Gone."""


class RestartServer(ScenarioStruct, frozen=True, kw_only=True):
    """Breaks all connections; the server does not answer for a while."""

    for_: timedelta = msgspec.field(name="for", default=timedelta(seconds=5))


# Actions of clouds


class Announce(NodeAction, frozen=True, kw_only=True):
    """Announces maintenance of machines, and carries it out at its time."""

    kind: Literal["Reboot", "Stop", "Terminate", "Migrate", "Freeze"] = "Reboot"
    in_: timedelta = msgspec.field(name="in", default=timedelta(minutes=20))
    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=2))
    name: Name | None = None
    can_reschedule: bool = True


class AnnouncementReference(ScenarioStruct, frozen=True, kw_only=True):
    """A reference to the latest announcement with a name."""

    name: Name


class Reschedule(AnnouncementReference, frozen=True, kw_only=True):
    in_: timedelta = msgspec.field(name="in")


class AwsAction(NodeAction, frozen=True, kw_only=True):
    """An action that only AWS supports."""


# Actions of Cluster API


class WorkloadClusterAction(ScenarioStruct, frozen=True, kw_only=True):
    """An action on a workload cluster, given as `namespace/name`."""

    cluster: str


class RollOut(WorkloadClusterAction, frozen=True, kw_only=True):
    """Changes the version of a pool, which replaces its Machines one by one."""

    pool: Name


class MachineSelector(WorkloadClusterAction, frozen=True, kw_only=True):
    """Selects Machines of a workload cluster, of one pool or all; `count` random ones."""

    pool: Name | None = None
    count: Count = 1


class RequestMaintenance(MachineSelector, frozen=True, kw_only=True):
    """Requests maintenance of Machines; after approval it takes `for`, and the request is withdrawn."""

    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=3))


class ClusterOutage(WorkloadClusterAction, frozen=True, kw_only=True):
    """Makes a workload cluster unreachable from its management cluster for a while."""

    how: Literal["hang", "refuse", "slow"] = "hang"
    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=5))


# Actions on ESX hosts


class EsxMaintenance(ScenarioStruct, frozen=True, kw_only=True):
    """Puts an ESX host into maintenance mode, for a duration after its last machine has left."""

    host: str
    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=10))


class EsxAlarm(TemporaryAction, frozen=True, kw_only=True):
    """Raises an alarm on an ESX host."""

    host: str
    alarm: str = "Host memory usage"


class TimelineEntry(ScenarioStruct, frozen=True, kw_only=True):
    """An action and its time after the start of the timeline: once `at`, or `every` interval, `until`."""

    at: timedelta | None = None
    every: timedelta | None = None
    until: timedelta | None = None
    reboot: Reboot | None = None
    stop_kubelet: TemporaryNodeAction | None = None
    start_kubelet: NodeAction | None = None
    not_ready: NotReady | None = None
    add_nodes: AddNodes | None = None
    remove_nodes: NodeAction | None = None
    cordon: TemporaryNodeAction | None = None
    uncordon: NodeAction | None = None
    taint: TaintNodes | None = None
    untaint: UntaintNodes | None = None
    label: LabelNodes | None = None
    restart: WorkloadSelector | None = None
    scale: Scale | None = None
    delete_pods: PodSelector | None = None
    evict_pods: PodSelector | None = None
    apply: Manifest | None = None
    delete: ObjectReference | None = None
    patch: Patch | None = None
    pause: Pause | None = None
    resume: Resume | None = None
    fail_requests: FailRequests | None = None
    drop_responses: DropResponses | None = None
    delay_requests: DelayRequests | None = None
    break_connections: ClientFault | None = None
    stall_connections: ClientFault | None = None
    compact: Compact | None = None
    restart_server: RestartServer | None = None
    announce: Announce | None = None
    reschedule: Reschedule | None = None
    cancel_maintenance: AnnouncementReference | None = None
    start_maintenance: AnnouncementReference | None = None
    end_maintenance: AnnouncementReference | None = None
    interrupt: AwsAction | None = None
    rebalance: AwsAction | None = None
    scale_in: AwsAction | None = None
    roll_out: RollOut | None = None
    delete_machines: MachineSelector | None = None
    request_maintenance: RequestMaintenance | None = None
    cluster_outage: ClusterOutage | None = None
    rotate_kubeconfig: WorkloadClusterAction | None = None
    esx_maintenance: EsxMaintenance | None = None
    esx_alarm: EsxAlarm | None = None


class Scenario(ScenarioStruct, frozen=True, kw_only=True):
    description: str = ""
    age: timedelta = timedelta(minutes=5)
    heartbeat: timedelta = timedelta(seconds=10)
    pods_per_node: Annotated[int, Meta(ge=1, le=MAX_PODS_PER_NODE)] = 10
    pools: tuple[Pool, ...] = ()
    workloads: tuple[Workload, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    clusters: tuple[WorkloadCluster, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()

    @property
    def has_machines(self) -> bool:
        """Return whether nodes of the cluster are OpenShift Machines."""
        return any(pool.machines for pool in self.pools)
