"""Metrics of profiles: pods of nodes in maintenance, failures, reconciles, and nodes by state.

    metrics.record_rescheduled(rescheduled_pods(pods, owners), profile="os")
    metrics.failures.add("os")

Metrics of the SAP maintenance-controller keep its names, labels and meaning. The owner label has no namespace, so equal
names in different namespaces share a series. Counters belong to the process and survive a loss of leadership.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from haulout.api.objects import Base, Object
from haulout.core.metrics import OVERFLOW_LABEL, MetricVec, counter, gauge
from haulout.kube.workqueue import CompletedRun

CONTROLLER = "node"  # the name of the Go controller's queue
_MAX_SERIES = 10_000


class _Spec(Base, frozen=True):
    replicas: int | None = None


class _Status(Base, frozen=True):
    number_ready: int = 0


class Owner(Object, frozen=True):
    """A controller of pods: a DaemonSet, StatefulSet, ReplicaSet or Deployment."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


# Returns the owner of a kind in a namespace by its name; None if it is not known.
Owners = Callable[[str, str, str], Owner | None]


_LEADER_ONLY = "only the replica that runs the profiles exports it"

RESCHEDULED = counter(
    "maintenance_controller_pod_shuffle_count",
    "How many pods of an owner were on nodes that went into maintenance.",
    "owner",
    "profile",
    max_series=_MAX_SERIES,
)
RESCHEDULED_PER_REPLICA = counter(
    "maintenance_controller_pod_shuffles_per_replica",
    "How many pods of an owner were on nodes that went into maintenance, divided by the pods that it has.",
    "owner",
    "profile",
    max_series=_MAX_SERIES,
)
FAILURES = counter(
    "maintenance_controller_transition_failure_count",
    "How often a transition of a profile from one state to the next failed.",
    "profile",
)
RECONCILES = counter(
    "controller_runtime_reconcile_total",
    "How many reconciles of nodes ran.",
    "controller",
    "result",
    details="`controller` is `node`; `result` is `success` or `error`",
)
RECONCILE_ERRORS = counter(
    "controller_runtime_reconcile_errors_total",
    "How many reconciles of nodes failed.",
    "controller",
    details="the node could not be written",
)
DEPTH = gauge(
    "workqueue_depth",
    "How many nodes are queued or being reconciled.",
    "controller",
    "name",
    details="both labels are `node`",
)
NODES = gauge(
    "haulout_profiles_nodes", "How many nodes have a profile in a state.", "profile", "state", details=_LEADER_ONLY
)
SKIPPED = gauge(
    "haulout_profiles_nodes_skipped",
    "How many nodes are not managed: their data cannot be read, or the API server refuses to change them.",
    details="`/api/v1/info` says why",
)
CONFIGURATION_VALID = gauge(
    "haulout_profiles_configuration_valid",
    "1 if the configuration file is valid, 0 if an earlier version stays in use.",
)
QUEUE_SECONDS = counter(
    "haulout_profiles_queue_seconds_total", "Total time that nodes waited in the work queue until they were reconciled."
)
RECONCILE_SECONDS = counter("haulout_profiles_reconcile_seconds_total", "Total time spent in reconciles of nodes.")
METRICS = (
    *(RESCHEDULED, RESCHEDULED_PER_REPLICA, FAILURES, RECONCILES, RECONCILE_ERRORS, DEPTH),
    *(NODES, SKIPPED, CONFIGURATION_VALID, QUEUE_SECONDS, RECONCILE_SECONDS),
)


class ProfileMetrics:
    """The metrics of the profiles controller. Each process has its own; Prometheus adds them up."""

    def __init__(self) -> None:
        self.rescheduled = MetricVec(RESCHEDULED)
        self.rescheduled_per_replica = MetricVec(RESCHEDULED_PER_REPLICA)
        self.failures = MetricVec(FAILURES)
        self.reconciles = MetricVec(RECONCILES)
        self.reconcile_errors = MetricVec(RECONCILE_ERRORS)
        self.queue_seconds = MetricVec(QUEUE_SECONDS)
        self.reconcile_seconds = MetricVec(RECONCILE_SECONDS)
        self.depth = MetricVec(DEPTH)
        self.nodes = MetricVec(NODES)
        self.skipped = MetricVec(SKIPPED)
        self.configuration_is_valid = MetricVec(CONFIGURATION_VALID)

    def all(self) -> tuple[MetricVec, ...]:
        return (
            *(self.rescheduled, self.rescheduled_per_replica, self.failures),
            *(self.reconciles, self.reconcile_errors, self.queue_seconds, self.reconcile_seconds),
            *(self.depth, self.nodes, self.skipped, self.configuration_is_valid),
        )

    def initialize_series(self, profiles: Iterable[str]) -> None:
        """Create series with value 0 for what has not happened yet: otherwise Prometheus misses the first increase."""
        for name in profiles:
            self.failures.add(name, amount=0)
        for result in ("success", "error"):
            self.reconciles.add(CONTROLLER, result, amount=0)
        self.reconcile_errors.add(CONTROLLER, amount=0)
        self.queue_seconds.add(amount=0)
        self.reconcile_seconds.add(amount=0)

    def record_reconcile(self, run: CompletedRun[str]) -> None:
        self.reconciles.add(CONTROLLER, "success" if run.error is None else "error")
        self.reconcile_errors.add(CONTROLLER, amount=run.error is not None)
        self.queue_seconds.add(amount=run.lag.total_seconds())
        self.reconcile_seconds.add(amount=run.took.total_seconds())

    def record_rescheduled(self, pods: Iterable["RescheduledPod"], *, profile: str) -> None:
        """Count the pods of a node that a profile takes into maintenance."""
        for pod in pods:
            self._add_rescheduled(pod, profile, times=1)

    def initialize_rescheduled(self, pods: Iterable["RescheduledPod"], *, profile: str) -> None:
        """Create the series of these pods with value 0."""
        for pod in pods:
            self._add_rescheduled(pod, profile, times=0)

    def _add_rescheduled(self, pod: "RescheduledPod", profile: str, *, times: int) -> None:
        series = pod.owner, profile
        if series not in self.rescheduled.values and len(self.rescheduled.values) >= _MAX_SERIES:
            series = OVERFLOW_LABEL, profile
        self.rescheduled.add(*series, amount=times)
        self.rescheduled_per_replica.add(*series, amount=pod.share if times else 0)


@dataclass(frozen=True, slots=True)
class RescheduledPod:
    """A pod with its owner, and its share of the owner's pods."""

    owner: str
    share: float


def rescheduled_pods(pods: Iterable[Object], owners: Owners) -> tuple[RescheduledPod, ...]:
    """Return the pods with their owners; a pod whose owner is unknown is skipped."""
    return tuple(found for pod in pods for found in _rescheduled(pod, owners))


def _rescheduled(pod: Object, owners: Owners) -> Iterator[RescheduledPod]:
    for reference in pod.metadata.owner_references:
        if reference.kind not in ("DaemonSet", "StatefulSet", "ReplicaSet"):
            continue
        owner = owners(pod.namespace, reference.kind, reference.name)
        if owner is None:
            continue
        match reference.kind:
            case "DaemonSet":
                yield RescheduledPod(f"daemon_set_{owner.name}", _share(owner.status.number_ready))
            case "StatefulSet":
                yield RescheduledPod(f"stateful_set_{owner.name}", _share_of(owner))
            case "ReplicaSet":
                yield from _rescheduled_of_replica_set(owner, owners)


def _rescheduled_of_replica_set(replica_set: Owner, owners: Owners) -> Iterator[RescheduledPod]:
    deployment = next(
        (
            owner_reference
            for owner_reference in replica_set.metadata.owner_references
            if owner_reference.kind == "Deployment"
        ),
        None,
    )
    if deployment is None:  # no owner, or one of another kind, such as an Argo Rollout, whose replicas are unknown
        yield RescheduledPod(f"replica_set_{replica_set.name}", _share_of(replica_set))
        return
    owner = owners(replica_set.namespace, "Deployment", deployment.name)
    if owner is not None:
        yield RescheduledPod(f"deployment_{owner.name}", _share_of(owner))


def _share_of(owner: Owner) -> float:
    # The API server defaults `replicas` to 1.
    return _share(1 if owner.spec.replicas is None else owner.spec.replicas)


def _share(number: int) -> float:
    # In Go, a division of floats by zero is +Inf. The SAP maintenance-controller exports it for a DaemonSet without a
    # ready pod.
    return math.inf if number == 0 else 1 / number
