"""What is counted about profiles, for `/metrics`: how often pods are moved, what fails, and how nodes stand.

    tallies.record_shuffle(moved(pods, owners), profile="os")
    tallies.failures.add("os")

Names, labels and meaning of what the SAP maintenance-controller counts are its own. The label of an owner has no
namespace: equal names in different namespaces share a series. Counters are the process's, and outlive its leadership.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from haulout.core.metering import OTHERS, Kind, Metric, Tally
from haulout.kube.objects import Base, Object
from haulout.kube.queue import Run

CONTROLLER = "node"  # what the Go controller's queue is called
_MOST_SERIES = 10_000


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
_WHO_HAS_IT = "only the replica that sees to profiles has it"

SHUFFLES = Metric(
    "maintenance_controller_pod_shuffle_count",
    "How many pods of an owner were on nodes that went into maintenance.",
    _OWNER_AND_PROFILE,
    most=_MOST_SERIES,
)
SHUFFLES_PER_REPLICA = Metric(
    "maintenance_controller_pod_shuffles_per_replica",
    "The same, divided by the number of pods that the owner has.",
    _OWNER_AND_PROFILE,
    most=_MOST_SERIES,
)
FAILURES = Metric(
    "maintenance_controller_transition_failure_count",
    "How often something went wrong on the way from one state to the next.",
    ("profile",),
)
LOOKS = Metric(
    "controller_runtime_reconcile_total",
    "How often a node was looked at.",
    ("controller", "result"),
    more="`controller` is `node`; `result` is `success` or `error`",
)
FAILED_LOOKS = Metric(
    "controller_runtime_reconcile_errors_total",
    "How often that failed as a whole.",
    ("controller",),
    more="the node could not be written",
)
DEPTH = Metric(
    "workqueue_depth",
    "How many nodes are due to be looked at, or being looked at.",
    ("controller", "name"),
    kind=Kind.GAUGE,
    more="both labels are `node`",
)
NODES = Metric(
    "haulout_profiles_nodes",
    "How many nodes have a profile in a state.",
    ("profile", "state"),
    kind=Kind.GAUGE,
    more=_WHO_HAS_IT,
)
TROUBLED = Metric(
    "haulout_profiles_nodes_in_trouble",
    "How many nodes are left alone, as their data cannot be read or the server refuses to change them.",
    kind=Kind.GAUGE,
    more="`/api/v1/info` says why",
)
CONFIGURATION_GOOD = Metric(
    "haulout_profiles_configuration_good",
    "1 if the configuration file makes sense, 0 if an earlier one is in force.",
    kind=Kind.GAUGE,
)
WAITED = Metric(
    "haulout_profiles_waited_seconds_total",
    "How long nodes that were due waited until they were looked at, all together.",
    unit="seconds",
)
WORKED = Metric("haulout_profiles_worked_seconds_total", "How long looks at nodes took, all together.", unit="seconds")
METRICS = (
    *(SHUFFLES, SHUFFLES_PER_REPLICA, FAILURES, LOOKS, FAILED_LOOKS, DEPTH),
    *(NODES, TROUBLED, CONFIGURATION_GOOD, WAITED, WORKED),
)


class Tallies:
    """All that is counted."""

    def __init__(self) -> None:
        self.shuffles = Tally(SHUFFLES)
        self.shuffles_per_replica = Tally(SHUFFLES_PER_REPLICA)
        self.failures = Tally(FAILURES)
        self.looks = Tally(LOOKS)
        self.failed_looks = Tally(FAILED_LOOKS)
        self.waited = Tally(WAITED)
        self.worked = Tally(WORKED)
        self.depth = Tally(DEPTH)
        self.nodes = Tally(NODES)
        self.troubled = Tally(TROUBLED)
        self.configuration_is_good = Tally(CONFIGURATION_GOOD)

    def all(self) -> tuple[Tally, ...]:
        """Return all of them."""
        return (
            *(self.shuffles, self.shuffles_per_replica, self.failures),
            *(self.looks, self.failed_looks, self.waited, self.worked),
            *(self.depth, self.nodes, self.troubled, self.configuration_is_good),
        )

    def know(self, profiles: Iterable[str]) -> None:
        """Let the series exist that count what has not happened yet, so that the first time is seen as a rise."""
        for name in profiles:
            self.failures.add(name, amount=0)
        for result in ("success", "error"):
            self.looks.add(CONTROLLER, result, amount=0)
        self.failed_looks.add(CONTROLLER, amount=0)
        self.waited.add(amount=0)
        self.worked.add(amount=0)

    def count_look(self, run: Run[str]) -> None:
        """Count a look at a node."""
        self.looks.add(CONTROLLER, "success" if run.error is None else "error")
        self.failed_looks.add(CONTROLLER, amount=run.error is not None)
        self.waited.add(amount=run.lag.total_seconds())
        self.worked.add(amount=run.took.total_seconds())

    def record_shuffle(self, moved: Iterable["Moved"], *, profile: str) -> None:
        """Count pods of a node that goes into maintenance by a profile."""
        for it in moved:
            self._shuffle(it, profile, times=1)

    def touch(self, moved: Iterable["Moved"], *, profile: str) -> None:
        """Let the series of these pods exist, before anything is counted."""
        for it in moved:
            self._shuffle(it, profile, times=0)

    def _shuffle(self, it: "Moved", profile: str, *, times: int) -> None:
        series = it.owner, profile
        if series not in self.shuffles.values and len(self.shuffles.values) >= _MOST_SERIES:
            series = OTHERS, profile
        self.shuffles.add(*series, amount=times)
        self.shuffles_per_replica.add(*series, amount=it.share if times else 0)


@dataclass(frozen=True, slots=True)
class Moved:
    """A pod of an owner: which part of all its pods that is."""

    owner: str
    share: float


def moved(pods: Iterable[Object], owners: Owners) -> tuple[Moved, ...]:
    """Return whose pods these are; one whose owner is not known counts for nobody."""
    return tuple(it for pod in pods for it in _moved(pod, owners))


def _moved(pod: Object, owners: Owners) -> Iterator[Moved]:
    for reference in pod.metadata.owner_references:
        if reference.kind not in ("DaemonSet", "StatefulSet", "ReplicaSet"):
            continue
        owner = owners(pod.namespace, reference.kind, reference.name)
        if owner is None:
            continue
        match reference.kind:
            case "DaemonSet":
                yield Moved(f"daemon_set_{owner.name}", _share(owner.status.number_ready))
            case "StatefulSet":
                yield Moved(f"stateful_set_{owner.name}", _share_of(owner))
            case "ReplicaSet":
                yield from _of_replica_set(owner, owners)


def _of_replica_set(replica_set: Owner, owners: Owners) -> Iterator[Moved]:
    deployment = next((it for it in replica_set.metadata.owner_references if it.kind == "Deployment"), None)
    if deployment is None:  # nobody's, or of something that we know nothing of: an Argo Rollout has no replicas for us
        yield Moved(f"replica_set_{replica_set.name}", _share_of(replica_set))
        return
    owner = owners(replica_set.namespace, "Deployment", deployment.name)
    if owner is not None:
        yield Moved(f"deployment_{owner.name}", _share_of(owner))


def _share_of(owner: Owner) -> float:
    return _share(1 if owner.spec.replicas is None else owner.spec.replicas)


def _share(number: int) -> float:
    return math.inf if number == 0 else 1 / number
