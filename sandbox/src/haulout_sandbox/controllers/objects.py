"""What the sandbox's controllers read of Kubernetes objects.

As in `haulout.api.objects` a struct names only what something here reads. Templates and statuses stay plain JSON: a
template is copied, never looked into, and a status is compared with the one that is wanted. A field that a server
would have defaulted has that default here, so that the same controllers serve a server that defaults nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from haulout.api import objects, resources
from haulout.api.objects import Base, EvictionResponder, NodeSpec, NodeStatus, RawObject
from haulout.api.resources import Resource
from haulout_sandbox.controllers.cached_property import cached_property

IntOrPercent = int | str

_FINISHED_PHASES = ("Succeeded", "Failed")


class OwnerReference(objects.OwnerReference, frozen=True):
    """Who an object belongs to, and whether the owner waits for its end."""

    block_owner_deletion: bool | None = None


class ObjectMeta(objects.ObjectMeta, frozen=True):
    """What every object has."""

    owner_references: tuple[OwnerReference, ...] = ()


class OwnedObject(objects.Object, frozen=True, gc=True, dict=True):
    """Any object that may belong to another; what is asked of it again and again is found out once."""

    metadata: ObjectMeta = ObjectMeta()

    @cached_property
    def key(self) -> str:
        """`namespace/name`, or just the name of a cluster-scoped object."""
        return objects.object_key(self.metadata.name, self.metadata.namespace)

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.metadata.labels

    @property
    def is_being_deleted(self) -> bool:
        """Whether its deletion has begun."""
        return self.metadata.deletion_timestamp is not None

    @cached_property
    def controller(self) -> OwnerReference | None:
        """Return the one owner that manages it."""
        for owner in self.metadata.owner_references:
            if owner.controller:
                return owner
        return None

    @cached_property
    def controller_uid(self) -> str:
        """Return the uid of the owner that manages it, empty if there is none."""
        owner = self.controller
        return "" if owner is None else owner.uid

    @cached_property
    def creation_order(self) -> tuple[float, str]:
        """Sorts older before newer, and those of the same second by name."""
        created = self.metadata.creation_timestamp
        return 0.0 if created is None else created.timestamp(), self.name


O = TypeVar("O", bound=OwnedObject)  # noqa: E741 - an object of any kind


# Selecting


class LabelSelectorRequirement(Base, frozen=True):
    """One expression of a selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return _compare_numbers(value, self.operator, self.values)
            case _:
                return False


def _compare_numbers(value: str | None, operator: str, bounds: tuple[str, ...]) -> bool:
    if value is None or len(bounds) != 1:
        return False
    try:
        difference = int(value) - int(bounds[0])
    except ValueError:
        return False
    return difference > 0 if operator == "Gt" else difference < 0


class LabelSelector(Base, frozen=True):
    """Selects by labels; without any requirement it selects everything."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    @property
    def selects_all(self) -> bool:
        """Whether it has no requirement, which no workload may have."""
        return not self.match_labels and not self.match_expressions

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` are selected."""
        if not self.match_labels.items() <= labels.items():
            return False
        return not self.match_expressions or all(requirement.matches(labels) for requirement in self.match_expressions)

    def filter(self, objs: Iterable[O]) -> list[O]:
        """Return those that are selected; there may be many, so that this takes no call for each."""
        wanted_labels = self.match_labels.items()
        matching = [obj for obj in objs if wanted_labels <= obj.metadata.labels.items()]
        if not self.match_expressions:
            return matching
        return [
            obj for obj in matching if all(requirement.matches(obj.labels) for requirement in self.match_expressions)
        ]


# Where pods may run


class NodeSelectorTerm(Base, frozen=True):
    """Requirements on a node's labels and fields, all of which must be met."""

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(Base, frozen=True):
    """Terms, one of which must be met."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Base, frozen=True):
    """Which nodes a pod must have."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Base, frozen=True):
    """Of a pod's affinities only that to nodes."""

    node_affinity: NodeAffinity | None = None


class Toleration(Base, frozen=True):
    """A taint that a pod can live with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Node(OwnedObject, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# Pods


class ContainerStateTerminated(Base, frozen=True):
    """The end of a container."""

    exit_code: int = 0
    finished_at: datetime | None = None


class ContainerState(Base, frozen=True):
    """What a container does; of interest is only that it ended."""

    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Base, frozen=True):
    """How a container is."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodSpec(Base, frozen=True):
    """What is wanted of a pod."""

    node_name: str = ""
    affinity: Affinity | None = None
    eviction_responders: tuple[EvictionResponder, ...] = ()
    scheduling_group: RawObject | None = None


class PodCondition(Base, frozen=True):
    """One of a pod's conditions; nobody here asks why."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class PodStatus(Base, frozen=True):
    """How a pod is."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(OwnedObject, frozen=True):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        """Whether it has run to its end, well or not."""
        return self.status.phase in _FINISHED_PHASES

    @cached_property
    def is_active(self) -> bool:
        """Whether it runs, or will, and nobody has asked it to stop."""
        return self.status.phase not in _FINISHED_PHASES and self.metadata.deletion_timestamp is None

    @cached_property
    def is_ready(self) -> bool:
        """Whether it serves."""
        condition = self.condition("Ready")
        return condition is not None and condition.status == "True"

    @property
    def max_restart_count(self) -> int:
        """How often the container that restarted most did so."""
        return max((container.restart_count for container in self.status.container_statuses), default=0)

    def condition(self, condition_type: str) -> PodCondition | None:
        """Return the condition of this type."""
        for condition in self.status.conditions:
            if condition.type == condition_type:
                return condition
        return None

    def available_at(self, min_ready_seconds: int) -> datetime | None:
        """Return when it is, or was, ready for long enough; None while it is not ready."""
        condition = self.condition("Ready")
        if condition is None or condition.status != "True":
            return None
        ready_since = condition.last_transition_time or self.metadata.creation_timestamp
        return None if ready_since is None else ready_since + timedelta(seconds=min_ready_seconds)

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        """Tell whether it has been ready for long enough."""
        if not min_ready_seconds:
            return self.is_ready
        available_at = self.available_at(min_ready_seconds)
        return available_at is not None and available_at <= now


# Workloads


class ReplicaSetSpec(Base, frozen=True):
    """What is wanted of a replica set."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: RawObject = msgspec.field(default_factory=dict)


class ReplicaSet(OwnedObject, frozen=True):
    """A replica set."""

    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class RollingUpdateDeployment(Base, frozen=True):
    """How far a rolling update may stray from the wanted number of pods."""

    max_surge: IntOrPercent = "25%"
    max_unavailable: IntOrPercent = "25%"


class DeploymentStrategy(Base, frozen=True):
    """How pods are replaced."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDeployment = RollingUpdateDeployment()


class DeploymentSpec(Base, frozen=True):
    """What is wanted of a deployment."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: RawObject = msgspec.field(default_factory=dict)
    strategy: DeploymentStrategy = DeploymentStrategy()
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False


class Deployment(OwnedObject, frozen=True):
    """A deployment."""

    spec: DeploymentSpec = DeploymentSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class StatefulSetOrdinals(Base, frozen=True):
    """Where the numbers of a stateful set begin."""

    start: int = 0


class RollingUpdateStatefulSetStrategy(Base, frozen=True):
    """From which number on pods are updated."""

    partition: int = 0


class StatefulSetUpdateStrategy(Base, frozen=True):
    """How pods are replaced."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdateStatefulSetStrategy = RollingUpdateStatefulSetStrategy()


class StatefulSetSpec(Base, frozen=True):
    """What is wanted of a stateful set."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: RawObject = msgspec.field(default_factory=dict)
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: StatefulSetUpdateStrategy = StatefulSetUpdateStrategy()
    revision_history_limit: int = 10
    ordinals: StatefulSetOrdinals = StatefulSetOrdinals()
    volume_claim_templates: tuple[RawObject, ...] = ()


class StatefulSet(OwnedObject, frozen=True):
    """A stateful set."""

    spec: StatefulSetSpec = StatefulSetSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class RollingUpdateDaemonSet(Base, frozen=True):
    """On how many nodes at a time pods are replaced."""

    max_surge: IntOrPercent = 0
    max_unavailable: IntOrPercent = 1


class DaemonSetUpdateStrategy(Base, frozen=True):
    """How pods are replaced."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDaemonSet = RollingUpdateDaemonSet()


class DaemonSetSpec(Base, frozen=True):
    """What is wanted of a daemon set."""

    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: RawObject = msgspec.field(default_factory=dict)
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    revision_history_limit: int = 10


class DaemonSet(OwnedObject, frozen=True):
    """A daemon set."""

    spec: DaemonSetSpec = DaemonSetSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class PodFailurePolicyOnPodConditionsPattern(Base, frozen=True):
    """A condition that a failed pod has."""

    type: str = ""
    status: str = "True"


class PodFailurePolicyOnExitCodesRequirement(Base, frozen=True):
    """Exit codes that a failed pod's container has, or has not."""

    container_name: str = ""
    operator: str = "In"
    values: tuple[int, ...] = ()


class PodFailurePolicyRule(Base, frozen=True):
    """What a certain failure means to a job."""

    action: str = "Count"
    on_pod_conditions: tuple[PodFailurePolicyOnPodConditionsPattern, ...] = ()
    on_exit_codes: PodFailurePolicyOnExitCodesRequirement | None = None


class PodFailurePolicy(Base, frozen=True):
    """What failures mean to a job: the first rule that fits."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class JobSpec(Base, frozen=True):
    """What is wanted of a job."""

    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    pod_replacement_policy: str = ""
    pod_failure_policy: PodFailurePolicy | None = None
    selector: LabelSelector | None = None
    template: RawObject = msgspec.field(default_factory=dict)


class Job(OwnedObject, frozen=True):
    """A job."""

    spec: JobSpec = JobSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class ControllerRevision(OwnedObject, frozen=True):
    """A template as it once was."""

    revision: int = 0
    data: RawObject = msgspec.field(default_factory=dict)


class PodDisruptionBudgetSpec(Base, frozen=True):
    """What a disruption budget asks for."""

    min_available: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None
    selector: LabelSelector | None = None


class PodDisruptionBudget(OwnedObject, frozen=True):
    """A PodDisruptionBudget."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class NamespaceSpec(Base, frozen=True):
    """Who must agree before a namespace goes."""

    finalizers: tuple[str, ...] = ()


class Namespace(OwnedObject, frozen=True):
    """A namespace."""

    spec: NamespaceSpec = NamespaceSpec()
    status: RawObject = msgspec.field(default_factory=dict)


PODS = resources.PODS.with_model(Pod)
NODES = resources.NODES.with_model(Node)
NAMESPACES = resources.NAMESPACES.with_model(Namespace)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=OwnedObject)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, model=OwnedObject)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True, model=OwnedObject
)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True, model=ReplicaSet)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True, model=Deployment)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True, model=StatefulSet)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True, model=DaemonSet)
CONTROLLER_REVISIONS = Resource(
    "apps", "v1", "controllerrevisions", "ControllerRevision", namespaced=True, model=ControllerRevision
)
JOBS = Resource("batch", "v1", "jobs", "Job", namespaced=True, model=Job)
POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True, model=PodDisruptionBudget
)
