"""The fields of Kubernetes objects that the sandbox's controllers read.

As in `haulout.api.objects`, a struct declares only fields that are used here. Templates and statuses stay plain JSON: a
template is copied as a whole, and a status is compared with the desired one. Fields have the defaults that a server
sets, so that the same controllers work with a server without defaulting.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from haulout.api import objects, resources
from haulout.api.objects import Base, EvictionResponder, NodeSpec, NodeStatus, RawObject
from haulout.api.resources import Resource
from haulout_sandbox.nodes.pod_spec import Affinity, LabelSelector

if TYPE_CHECKING:
    cached_property = property
else:

    class cached_property:  # noqa: N801 - a decorator, named like `property`
        """A property that is computed once per object, which needs a `__dict__`.

        Like `functools.cached_property` without its lock, which costs more than computing most of these values.
        """

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._find = compute
            self._name = compute.__name__
            self.__doc__ = compute.__doc__

        def __get__(self, obj: Any, owner: type) -> Any:
            """Compute the value and set it as an instance attribute, which from then on hides this descriptor."""
            if obj is None:
                return self
            value = obj.__dict__[self._name] = self._find(obj)
            return value


IntOrPercent = int | str

_FINISHED_PHASES = ("Succeeded", "Failed")


class OwnerReference(objects.OwnerReference, frozen=True):
    """An owner reference, with blockOwnerDeletion."""

    block_owner_deletion: bool | None = None


class ObjectMeta(objects.ObjectMeta, frozen=True):
    owner_references: tuple[OwnerReference, ...] = ()


class OwnedObject(objects.Object, frozen=True, gc=True, dict=True):
    """Any object that may have an owner; frequently used properties are cached."""

    metadata: ObjectMeta = ObjectMeta()

    @cached_property
    def key(self) -> str:
        """Return `namespace/name`, or only the name of a cluster-scoped object."""
        return objects.object_key(self.metadata.name, self.metadata.namespace)

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels

    @cached_property
    def controller(self) -> OwnerReference | None:
        """Return the owner reference with `controller: true`."""
        for owner in self.metadata.owner_references:
            if owner.controller:
                return owner
        return None

    @cached_property
    def controller_uid(self) -> str:
        """Return the uid of the controller, empty if there is none."""
        owner = self.controller
        return "" if owner is None else owner.uid

    @cached_property
    def creation_order(self) -> tuple[float, str]:
        """Return a sort key: older before newer, and objects of the same second by name."""
        created = self.metadata.creation_timestamp
        return 0.0 if created is None else created.timestamp(), self.name


class Node(OwnedObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# Pods


class ContainerStateTerminated(Base, frozen=True):
    exit_code: int = 0
    finished_at: datetime | None = None


class ContainerState(Base, frozen=True):
    """The state of a container; only termination is read."""

    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Base, frozen=True):
    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodSpec(Base, frozen=True):
    node_name: str = ""
    affinity: Affinity = Affinity()
    eviction_responders: tuple[EvictionResponder, ...] = ()


class PodCondition(Base, frozen=True):
    """A condition of a pod, without reason and message."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class PodStatus(Base, frozen=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(OwnedObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        """Return whether it has succeeded or failed."""
        return self.status.phase in _FINISHED_PHASES

    @cached_property
    def is_active(self) -> bool:
        """Return whether it is neither finished nor terminating."""
        return self.status.phase not in _FINISHED_PHASES and not self.is_being_deleted

    @cached_property
    def is_ready(self) -> bool:
        condition = self.condition("Ready")
        return condition is not None and condition.status == "True"

    @property
    def max_restart_count(self) -> int:
        """Return the highest restart count of its containers."""
        return max((container.restart_count for container in self.status.container_statuses), default=0)

    def condition(self, condition_type: str) -> PodCondition | None:
        for condition in self.status.conditions:
            if condition.type == condition_type:
                return condition
        return None

    def available_at(self, min_ready_seconds: int) -> datetime | None:
        """Return when the pod is, or was, ready for long enough; None while it is not ready."""
        condition = self.condition("Ready")
        if condition is None or condition.status != "True":
            return None
        ready_since = condition.last_transition_time or self.metadata.creation_timestamp
        return None if ready_since is None else ready_since + timedelta(seconds=min_ready_seconds)

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        """Return whether the pod has been ready for long enough."""
        if not min_ready_seconds:
            return self.is_ready
        available_at = self.available_at(min_ready_seconds)
        return available_at is not None and available_at <= now


# Workloads


class ReplicaSetSpec(Base, frozen=True):
    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: RawObject = msgspec.field(default_factory=dict)


class ReplicaSet(OwnedObject, frozen=True):
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class RollingUpdateDeployment(Base, frozen=True):
    """Limits of a rolling update: maxSurge and maxUnavailable."""

    max_surge: IntOrPercent = "25%"
    max_unavailable: IntOrPercent = "25%"


class DeploymentStrategy(Base, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDeployment = RollingUpdateDeployment()


class DeploymentSpec(Base, frozen=True):
    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: RawObject = msgspec.field(default_factory=dict)
    strategy: DeploymentStrategy = DeploymentStrategy()
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False


class Deployment(OwnedObject, frozen=True):
    spec: DeploymentSpec = DeploymentSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class StatefulSetOrdinals(Base, frozen=True):
    """The first ordinal of a stateful set."""

    start: int = 0


class RollingUpdateStatefulSetStrategy(Base, frozen=True):
    """The partition: pods below this ordinal are not updated."""

    partition: int = 0


class StatefulSetUpdateStrategy(Base, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdateStatefulSetStrategy = RollingUpdateStatefulSetStrategy()


class StatefulSetSpec(Base, frozen=True):
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
    spec: StatefulSetSpec = StatefulSetSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class RollingUpdateDaemonSet(Base, frozen=True):
    """On how many nodes at a time pods are replaced."""

    max_surge: IntOrPercent = 0
    max_unavailable: IntOrPercent = 1


class DaemonSetUpdateStrategy(Base, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDaemonSet = RollingUpdateDaemonSet()


class DaemonSetSpec(Base, frozen=True):
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: RawObject = msgspec.field(default_factory=dict)
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    revision_history_limit: int = 10


class DaemonSet(OwnedObject, frozen=True):
    spec: DaemonSetSpec = DaemonSetSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class PodFailurePolicyOnPodConditionsPattern(Base, frozen=True):
    type: str = ""
    status: str = "True"


class PodFailurePolicyOnExitCodesRequirement(Base, frozen=True):
    """Exit codes that a failed container has, or does not have."""

    container_name: str = ""
    operator: str = "In"
    values: tuple[int, ...] = ()


class PodFailurePolicyRule(Base, frozen=True):
    """What a certain failure means to a job."""

    action: str = "Count"
    on_pod_conditions: tuple[PodFailurePolicyOnPodConditionsPattern, ...] = ()
    on_exit_codes: PodFailurePolicyOnExitCodesRequirement | None = None


class PodFailurePolicy(Base, frozen=True):
    """What failures mean to a job; the first matching rule applies."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class JobSpec(Base, frozen=True):
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
    spec: JobSpec = JobSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class ControllerRevision(OwnedObject, frozen=True):
    revision: int = 0
    data: RawObject = msgspec.field(default_factory=dict)


class PodDisruptionBudgetSpec(Base, frozen=True):
    min_available: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None
    selector: LabelSelector | None = None


class PodDisruptionBudget(OwnedObject, frozen=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class NamespaceSpec(Base, frozen=True):
    finalizers: tuple[str, ...] = ()


class Namespace(OwnedObject, frozen=True):
    spec: NamespaceSpec = NamespaceSpec()
    status: RawObject = msgspec.field(default_factory=dict)


PODS = resources.PODS.with_model(Pod)
NODES = resources.NODES.with_model(Node)
NAMESPACES = resources.NAMESPACES.with_model(Namespace)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, model=OwnedObject)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=OwnedObject)
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
