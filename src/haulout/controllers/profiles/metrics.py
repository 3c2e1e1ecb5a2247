"""What is counted about profiles, for `/metrics`: how often pods are moved, what fails, and how nodes stand.

    tallies.record_shuffle(moved(pods, owners), profile="os")
    tallies.failures.add("os")

Names, labels and meaning of what the SAP maintenance-controller counts are its own. The label of an owner has no
namespace: equal names in different namespaces share a series. Counters are the process's, and outlive its leadership.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from haulout.api.objects import Base, Object
from haulout.core.metrics import OVERFLOW_LABEL, Metric, MetricKind, MetricVec
from haulout.kube.workqueue import CompletedRun

CONTROLLER = "node"  # what the Go controller's queue is called
_MAX_SERIES = 10_000


class _Spec(Base, frozen=True):
    replicas: int | None = None


class _Status(Base, frozen=True):
    number_ready: int = 0


class Owner(Object, frozen=True):
    """Whatever pods belong to: a DaemonSet, StatefulSet, ReplicaSet or Deployment."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


Owners = Callable[[str, str, str], Owner | None]
"""Returns the owner of a kind in a namespace by its name; None if it is not known."""


_OWNER_AND_PROFILE = ("owner", "profile")
_LEADER_ONLY = "only the replica that sees to profiles has it"

SHUFFLES = Metric(
    "maintenance_controller_pod_shuffle_count",
    "How many pods of an owner were on nodes that went into maintenance.",
    _OWNER_AND_PROFILE,
    max_series=_MAX_SERIES,
)
SHUFFLES_PER_REPLICA = Metric(
    "maintenance_controller_pod_shuffles_per_replica",
    "The same, divided by the number of pods that the owner has.",
    _OWNER_AND_PROFILE,
    max_series=_MAX_SERIES,
)
FAILURES = Metric(
    "maintenance_controller_transition_failure_count",
    "How often something went wrong on the way from one state to the next.",
    ("profile",),
)
RECONCILES = Metric(
    "controller_runtime_reconcile_total",
    "How often a node was looked at.",
    ("controller", "result"),
    details="`controller` is `node`; `result` is `success` or `error`",
)
RECONCILE_ERRORS = Metric(
    "controller_runtime_reconcile_errors_total",
    "How often that failed as a whole.",
    ("controller",),
    details="the node could not be written",
)
DEPTH = Metric(
    "workqueue_depth",
    "How many nodes are due to be looked at, or being looked at.",
    ("controller", "name"),
    kind=MetricKind.GAUGE,
    details="both labels are `node`",
)
NODES = Metric(
    "haulout_profiles_nodes",
    "How many nodes have a profile in a state.",
    ("profile", "state"),
    kind=MetricKind.GAUGE,
    details=_LEADER_ONLY,
)
SKIPPED = Metric(
    "haulout_profiles_nodes_in_trouble",
    "How many nodes are left alone, as their data cannot be read or the server refuses to change them.",
    kind=MetricKind.GAUGE,
    details="`/api/v1/info` says why",
)
CONFIGURATION_VALID = Metric(
    "haulout_profiles_configuration_good",
    "1 if the configuration file makes sense, 0 if an earlier one is in force.",
    kind=MetricKind.GAUGE,
)
QUEUE_SECONDS = Metric(
    "haulout_profiles_waited_seconds_total",
    "How long nodes that were due waited until they were looked at, all together.",
    unit="seconds",
)
RECONCILE_SECONDS = Metric(
    "haulout_profiles_worked_seconds_total", "How long looks at nodes took, all together.", unit="seconds"
)
METRICS = (
    *(SHUFFLES, SHUFFLES_PER_REPLICA, FAILURES, RECONCILES, RECONCILE_ERRORS, DEPTH),
    *(NODES, SKIPPED, CONFIGURATION_VALID, QUEUE_SECONDS, RECONCILE_SECONDS),
)


class ProfileMetrics:
    """All that is counted."""

    def __init__(self) -> None:
        self.shuffles = MetricVec(SHUFFLES)
        self.shuffles_per_replica = MetricVec(SHUFFLES_PER_REPLICA)
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
        """Return all of them."""
        return (
            *(self.shuffles, self.shuffles_per_replica, self.failures),
            *(self.reconciles, self.reconcile_errors, self.queue_seconds, self.reconcile_seconds),
            *(self.depth, self.nodes, self.skipped, self.configuration_is_valid),
        )

    def initialize_series(self, profiles: Iterable[str]) -> None:
        """Let the series exist that count what has not happened yet, so that the first time is seen as a rise."""
        for name in profiles:
            self.failures.add(name, amount=0)
        for result in ("success", "error"):
            self.reconciles.add(CONTROLLER, result, amount=0)
        self.reconcile_errors.add(CONTROLLER, amount=0)
        self.queue_seconds.add(amount=0)
        self.reconcile_seconds.add(amount=0)

    def record_reconcile(self, run: CompletedRun[str]) -> None:
        """Count a look at a node."""
        self.reconciles.add(CONTROLLER, "success" if run.error is None else "error")
        self.reconcile_errors.add(CONTROLLER, amount=run.error is not None)
        self.queue_seconds.add(amount=run.lag.total_seconds())
        self.reconcile_seconds.add(amount=run.took.total_seconds())

    def record_shuffle(self, shuffles: Iterable["ShuffledPod"], *, profile: str) -> None:
        """Count pods of a node that goes into maintenance by a profile."""
        for shuffle in shuffles:
            self._add_shuffle(shuffle, profile, times=1)

    def initialize_shuffles(self, shuffles: Iterable["ShuffledPod"], *, profile: str) -> None:
        """Let the series of these pods exist, before anything is counted."""
        for shuffle in shuffles:
            self._add_shuffle(shuffle, profile, times=0)

    def _add_shuffle(self, shuffle: "ShuffledPod", profile: str, *, times: int) -> None:
        series = shuffle.owner, profile
        if series not in self.shuffles.values and len(self.shuffles.values) >= _MAX_SERIES:
            series = OVERFLOW_LABEL, profile
        self.shuffles.add(*series, amount=times)
        self.shuffles_per_replica.add(*series, amount=shuffle.share if times else 0)


@dataclass(frozen=True, slots=True)
class ShuffledPod:
    """A pod of an owner: which part of all its pods that is."""

    owner: str
    share: float


def shuffled_pods(pods: Iterable[Object], owners: Owners) -> tuple[ShuffledPod, ...]:
    """Return whose pods these are; one whose owner is not known counts for nobody."""
    return tuple(shuffled for pod in pods for shuffled in _shuffled(pod, owners))


def _shuffled(pod: Object, owners: Owners) -> Iterator[ShuffledPod]:
    for reference in pod.metadata.owner_references:
        if reference.kind not in ("DaemonSet", "StatefulSet", "ReplicaSet"):
            continue
        owner = owners(pod.namespace, reference.kind, reference.name)
        if owner is None:
            continue
        match reference.kind:
            case "DaemonSet":
                yield ShuffledPod(f"daemon_set_{owner.name}", _share(owner.status.number_ready))
            case "StatefulSet":
                yield ShuffledPod(f"stateful_set_{owner.name}", _share_of(owner))
            case "ReplicaSet":
                yield from _shuffled_of_replica_set(owner, owners)


def _shuffled_of_replica_set(replica_set: Owner, owners: Owners) -> Iterator[ShuffledPod]:
    deployment = next(
        (
            owner_reference
            for owner_reference in replica_set.metadata.owner_references
            if owner_reference.kind == "Deployment"
        ),
        None,
    )
    if deployment is None:  # nobody's, or of something that we know nothing of: an Argo Rollout has no replicas for us
        yield ShuffledPod(f"replica_set_{replica_set.name}", _share_of(replica_set))
        return
    owner = owners(replica_set.namespace, "Deployment", deployment.name)
    if owner is not None:
        yield ShuffledPod(f"deployment_{owner.name}", _share_of(owner))


def _share_of(owner: Owner) -> float:
    return _share(1 if owner.spec.replicas is None else owner.spec.replicas)


def _share(number: int) -> float:
    return math.inf if number == 0 else 1 / number
