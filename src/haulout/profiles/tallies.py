"""What is counted about profiles, for `/metrics`: how often pods are moved, and how often a transition fails.

    tallies.record_shuffle(moved(pods, owners), profile="os")
    tallies.failures.add("os")

Names, labels and meaning are those of the SAP maintenance-controller. The label of an owner has no namespace: equal
names in different namespaces share a series.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from haulout.errors import HauloutError
from haulout.kube.objects import RawObject

Owners = Callable[[str, str, str], RawObject | None]
"""Returns the owner of a kind in a namespace by its name; None if there is none."""


class OwnerUnknown(HauloutError):
    """Whose pod it is cannot be found out, so nothing is recorded."""


@dataclass(slots=True)
class Tally:
    """A number for each combination of labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["counter", "gauge"] = "counter"
    values: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, *labels: str, amount: float = 1) -> None:
        """Add to the number with these labels."""
        self.values[labels] = self.values.get(labels, 0) + amount

    def set(self, *labels: str, to: float) -> None:
        """Set the number with these labels."""
        self.values[labels] = to


class Tallies:
    """All that is counted."""

    def __init__(self) -> None:
        owner_and_profile = ("owner", "profile")
        self.shuffles = Tally(
            "maintenance_controller_pod_shuffle_count",
            "How many pods of an owner were on nodes that went into maintenance.",
            owner_and_profile,
        )
        self.shuffles_per_replica = Tally(
            "maintenance_controller_pod_shuffles_per_replica",
            "The same, divided by the number of pods that the owner has.",
            owner_and_profile,
        )
        self.failures = Tally(
            "maintenance_controller_transition_failure_count",
            "How often something went wrong on the way from one state to the next.",
            ("profile",),
        )
        self.configuration_is_good = Tally(
            "haulout_profiles_configuration_good",
            "1 if the configuration file makes sense, 0 if an earlier one is in force.",
            kind="gauge",
        )

    def all(self) -> tuple[Tally, ...]:
        """Return all of them."""
        return self.shuffles, self.shuffles_per_replica, self.failures, self.configuration_is_good

    def record_shuffle(self, moved: Iterable["Moved"], *, profile: str) -> None:
        """Count pods of a node that goes into maintenance by a profile."""
        for it in moved:
            self.shuffles.add(it.owner, profile)
            self.shuffles_per_replica.add(it.owner, profile, amount=it.share)

    def touch(self, moved: Iterable["Moved"], *, profile: str) -> None:
        """Let the series of these pods exist, before anything is counted."""
        for it in moved:
            self.shuffles.add(it.owner, profile, amount=0)
            self.shuffles_per_replica.add(it.owner, profile, amount=0)


@dataclass(frozen=True, slots=True)
class Moved:
    """A pod of an owner: which part of all its pods that is."""

    owner: str
    share: float


def moved(pods: Iterable[RawObject], owners: Owners) -> tuple[Moved, ...]:
    """Return whose pods these are; raises `OwnerUnknown` if that cannot be told of one, and then of none."""
    return tuple(it for pod in pods for it in _moved(pod, owners))


def _moved(pod: RawObject, owners: Owners) -> Iterator[Moved]:
    metadata = pod["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        name = str(reference.get("name", ""))

        def find(kind: str, name: str = name) -> RawObject:
            return _found(owners, metadata.get("namespace", ""), kind, name)

        match reference.get("kind"):
            case "DaemonSet":
                yield Moved(f"daemon_set_{name}", _share(_number(find("DaemonSet"), "status", "numberReady", 0)))
            case "StatefulSet":
                yield Moved(f"stateful_set_{name}", _share(_replicas(find("StatefulSet"))))
            case "ReplicaSet":
                yield _of_replica_set(find("ReplicaSet"), find)


def _of_replica_set(replica_set: RawObject, find: Callable[[str, str], RawObject]) -> Moved:
    name = replica_set["metadata"]["name"]
    references = replica_set["metadata"].get("ownerReferences") or ()
    if not references:
        return Moved(f"replica_set_{name}", _share(_replicas(replica_set)))
    deployment = next((it for it in references if it.get("kind") == "Deployment"), None)
    if deployment is None:
        raise OwnerUnknown(f"ReplicaSet {name} belongs to no Deployment")
    return Moved(f"deployment_{deployment['name']}", _share(_replicas(find("Deployment", deployment["name"]))))


def _found(owners: Owners, namespace: str, kind: str, name: str) -> RawObject:
    found = owners(namespace, kind, name)
    if found is None:
        raise OwnerUnknown(f"there is no {kind} {namespace}/{name}")
    return found


def _replicas(owner: RawObject) -> int:
    return _number(owner, "spec", "replicas", 1)


def _number(owner: RawObject, part: str, key: str, default: int) -> int:
    found: Mapping[str, object] = owner.get(part) or {}
    value = found.get(key)
    return value if isinstance(value, int) else default


def _share(number: int) -> float:
    return math.inf if number == 0 else 1 / number
