"""What a scenario says: pools of machines, what runs on them, and what happens when.

These structs are the format: each field is a key of the YAML file, in camelCase. docs/reference/sandbox-scenarios.md
tells what they mean; a test sees to it that it names each of them.
"""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from haulout.core import quantity
from haulout.core.yaml_decoder import TextFormat
from haulout_sandbox import limits

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, as Kubernetes wants most names
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
Manifest = dict[str, Any]  # an object; or, with the one key `file`, the name of a file of objects


class ScenarioStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What all of them have in common."""


class Taint(ScenarioStruct, frozen=True, kw_only=True):
    """What keeps pods off a node."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"


class Pool(ScenarioStruct, frozen=True, kw_only=True):
    """Machines that are alike."""

    name: Name
    count: Annotated[int, Meta(ge=0, le=limits.MAX_NODES)] = 1
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
    esx_hosts: Annotated[int, Meta(ge=1, le=limits.MAX_NODES)] | None = None
    provider_id: Pattern | None = msgspec.field(name="providerID", default=None)


class MachinePool(Pool, frozen=True, kw_only=True):
    """Machines of Cluster API that are alike: a MachineDeployment; on BareMetalHosts of Metal3, if it says so."""

    machine_labels: Labels = {}
    bare_metal: bool = False


class Budget(ScenarioStruct, frozen=True, kw_only=True):
    """A PodDisruptionBudget for the pods of a workload; one of the first two."""

    min_available: Share | None = None
    max_unavailable: Share | None = None
    unhealthy_pod_eviction_policy: Literal["IfHealthyBudget", "AlwaysAllow"] | None = None


class Workload(ScenarioStruct, frozen=True, kw_only=True):
    """Something that runs: one of it, `copies` of it, or as many as its `share` of all pods makes."""

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
    """A workload cluster of Cluster API, which the cluster of the scenario manages."""

    name: Name
    namespace: Name = "default"
    labels: Labels = {}
    pods_per_node: Annotated[int, Meta(ge=1, le=limits.MAX_PODS_PER_NODE)] = 10
    pools: tuple[MachinePool, ...] = ()
    workloads: tuple[Workload, ...] = ()

    @property
    def key(self) -> str:
        """How it is spoken of: `namespace/name`."""
        return f"{self.namespace}/{self.name}"


# Which ones


class NodeSelector(ScenarioStruct, frozen=True, kw_only=True):
    """Nodes by what they are, and by pods that do not run on them; `count` of them by chance, or all."""

    pool: Name | None = None
    zone: Name | None = None
    labels: Labels = {}
    without: Labels = {}
    count: Count | None = None


Nodes = str | tuple[str, ...] | NodeSelector


class NodeAction(ScenarioStruct, frozen=True, kw_only=True):
    """Something that befalls nodes."""

    nodes: Nodes


class TemporaryAction(ScenarioStruct, frozen=True, kw_only=True):
    """Something that may end by itself."""

    for_: timedelta | None = msgspec.field(name="for", default=None)


class TemporaryNodeAction(NodeAction, frozen=True, kw_only=True):
    """Something that befalls nodes and may end by itself."""

    for_: timedelta | None = msgspec.field(name="for", default=None)


class WorkloadSelector(ScenarioStruct, frozen=True, kw_only=True):
    """Workloads by what they are; `count` of them by chance, or all."""

    kind: Literal["Deployment", "StatefulSet", "DaemonSet"] = "Deployment"
    name: str = ""
    namespace: str = ""
    labels: Labels = {}
    count: Count | None = None


class PodSelector(ScenarioStruct, frozen=True, kw_only=True):
    """Pods by what they are; `count` of them by chance, or all."""

    namespace: str = ""
    name: str = ""
    node: str = ""
    labels: Labels = {}
    count: Count | None = None


class ObjectReference(ScenarioStruct, frozen=True, kw_only=True):
    """One object of any kind that the cluster serves."""

    kind: str
    name: str
    api_version: str = ""
    namespace: str = ""


class ClientFault(TemporaryAction, frozen=True, kw_only=True):
    """Whose requests: of these components and users, or of all."""

    clients: tuple[str, ...] = ()


class RequestFault(ClientFault, frozen=True, kw_only=True):
    """Which of their requests: with this method, with this in their path, this share of them."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] | None = None
    path: str = ""
    chance: Annotated[float, Meta(ge=0, le=1)] = 1.0


# What happens


class Reboot(NodeAction, frozen=True, kw_only=True):
    """Machines that go down and come back, without what ran on them."""

    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=2))


class NotReady(TemporaryNodeAction, frozen=True, kw_only=True):
    """Kubelets that say that their node is not ready."""

    problem: str = "the network plugin is not ready"


class AddNodes(ScenarioStruct, frozen=True, kw_only=True):
    """New machines in a pool."""

    pool: Name
    count: Count = 1


class TaintNodes(TemporaryNodeAction, frozen=True, kw_only=True):
    """A taint on nodes."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"


class UntaintNodes(NodeAction, frozen=True, kw_only=True):
    """No taint of this key on nodes."""

    key: str


class LabelNodes(TemporaryNodeAction, frozen=True, kw_only=True):
    """Labels on nodes; null takes one away."""

    labels: dict[str, str | None]


class Scale(WorkloadSelector, frozen=True, kw_only=True):
    """Another number of pods."""

    replicas: Annotated[int, Meta(ge=0, le=100_000)]


class Patch(ObjectReference, frozen=True, kw_only=True):
    """A merge patch of an object: keys are set, null takes one away."""

    patch: dict[str, Any]
    subresource: Literal["", "status", "scale"] = ""


class Pause(TemporaryAction, frozen=True, kw_only=True):
    """Components of the cluster that do nothing."""

    components: tuple[str, ...]


class Resume(ScenarioStruct, frozen=True, kw_only=True):
    """Components that go on."""

    components: tuple[str, ...]


class Refuse(RequestFault, frozen=True, kw_only=True):
    """Requests that are answered with an error and take no effect."""

    code: Annotated[int, Meta(ge=400, le=599)] = 503
    retry_after: Annotated[int, Meta(ge=0, le=3600)] = 0


class LoseAnswers(RequestFault, frozen=True, kw_only=True):
    """Requests that take effect, but whose answer is lost with the connection."""


class Slow(RequestFault, frozen=True, kw_only=True):
    """Requests that take longer."""

    by: timedelta


class Compact(ScenarioStruct, frozen=True, kw_only=True):
    """The server forgets its history: whoever goes on from an old revision gets 410."""


class RestartServer(ScenarioStruct, frozen=True, kw_only=True):
    """All connections break; nobody is answered for a while."""

    for_: timedelta = msgspec.field(name="for", default=timedelta(seconds=5))


# What clouds do


class Announce(NodeAction, frozen=True, kw_only=True):
    """A cloud says what it will do to machines, and does it when the time has come."""

    kind: Literal["Reboot", "Stop", "Terminate", "Migrate", "Freeze"] = "Reboot"
    in_: timedelta = msgspec.field(name="in", default=timedelta(minutes=20))
    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=2))
    name: Name | None = None
    movable: bool = True


class AnnouncementReference(ScenarioStruct, frozen=True, kw_only=True):
    """What was announced under a name, the last time."""

    name: Name


class Move(AnnouncementReference, frozen=True, kw_only=True):
    """Another time for it."""

    in_: timedelta = msgspec.field(name="in")


class AwsAction(NodeAction, frozen=True, kw_only=True):
    """Something that only AWS does."""


# What happens between a management cluster and its workload clusters


class WorkloadClusterAction(ScenarioStruct, frozen=True, kw_only=True):
    """A workload cluster, as `namespace/name`."""

    cluster: str


class RollOut(WorkloadClusterAction, frozen=True, kw_only=True):
    """Another version for all Machines of a pool: they are replaced one by one."""

    pool: Name


class MachineSelector(WorkloadClusterAction, frozen=True, kw_only=True):
    """Machines of a workload cluster, of one pool or of any; `count` of them by chance."""

    pool: Name | None = None
    count: Count = 1


class Maintain(MachineSelector, frozen=True, kw_only=True):
    """Maintenance of Machines is requested; once it is approved it takes `for`, and the request is withdrawn."""

    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=3))


class CutOff(WorkloadClusterAction, frozen=True, kw_only=True):
    """A workload cluster cannot be reached from its management cluster, for a while."""

    how: Literal["hang", "refuse", "slow"] = "hang"
    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=5))


# What happens to ESX hosts


class EsxMaintenance(ScenarioStruct, frozen=True, kw_only=True):
    """An ESX host that is put into maintenance, and stays there for a while once nothing runs on it."""

    host: str
    for_: timedelta = msgspec.field(name="for", default=timedelta(minutes=10))


class EsxAlarm(TemporaryAction, frozen=True, kw_only=True):
    """An alarm on an ESX host."""

    host: str
    alarm: str = "Host memory usage"


class TimelineEntry(ScenarioStruct, frozen=True, kw_only=True):
    """What happens, and when, counted from when the cluster is there for people: one `at`, or `every`, `until`."""

    at: timedelta | None = None
    every: timedelta | None = None
    until: timedelta | None = None
    reboot: Reboot | None = None
    kill: TemporaryNodeAction | None = None
    revive: NodeAction | None = None
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
    refuse: Refuse | None = None
    lose_answers: LoseAnswers | None = None
    slow: Slow | None = None
    disconnect: ClientFault | None = None
    silence: ClientFault | None = None
    compact: Compact | None = None
    restart_server: RestartServer | None = None
    announce: Announce | None = None
    move: Move | None = None
    cancel: AnnouncementReference | None = None
    begin: AnnouncementReference | None = None
    end: AnnouncementReference | None = None
    interrupt: AwsAction | None = None
    rebalance: AwsAction | None = None
    scale_in: AwsAction | None = None
    roll_out: RollOut | None = None
    delete_machines: MachineSelector | None = None
    maintain: Maintain | None = None
    cut_off: CutOff | None = None
    rotate_kubeconfig: WorkloadClusterAction | None = None
    esx_maintenance: EsxMaintenance | None = None
    esx_alarm: EsxAlarm | None = None


class Scenario(ScenarioStruct, frozen=True, kw_only=True):
    """A cluster and its story."""

    description: str = ""
    youth: timedelta = timedelta(minutes=5)
    heartbeat: timedelta = timedelta(seconds=10)
    pods_per_node: Annotated[int, Meta(ge=1, le=limits.MAX_PODS_PER_NODE)] = 10
    pools: tuple[Pool, ...] = ()
    workloads: tuple[Workload, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    clusters: tuple[WorkloadCluster, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()

    @property
    def has_machines(self) -> bool:
        """Tell whether nodes of it are Machines of OpenShift."""
        return any(pool.machines for pool in self.pools)
