"""Whose pods were evicted from a node, and whether these workloads have recovered.

When a node stops being operational, or a transition of it has begun, nothing has been evicted yet: it is noted then
which pods are on it, which workloads they belong to, and how many pods of these are available. Whoever has lost one of
the noted pods was evicted. This ends when the node is operational again.

It is memory: a process that starts while a node is in maintenance notes what is there then, and does not know of the
pods that have left before.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from haulout.kube.objects import Base, Object, OwnerReference, RawObject
from haulout.kube.resources import Resource
from haulout.profiles import topics
from haulout.profiles.plugin import Workload
from haulout.profiles.podrows import PodRow


class _Spec(Base, frozen=True):
    replicas: int = 1


class _Status(Base, frozen=True):
    available_replicas: int = 0


class Scaled(Object, frozen=True):
    """Something that runs a number of pods."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


class Reference(NamedTuple):
    """A workload, by its kind and its key."""

    kind: str
    key: str

    def __str__(self) -> str:
        """Return it for people: `Deployment shop/cart`."""
        return f"{self.kind} {self.key}"


DEPLOYMENT, REPLICA_SET, STATEFUL_SET = "Deployment", "ReplicaSet", "StatefulSet"
KINDS = {
    DEPLOYMENT: Resource("apps", "v1", "deployments", DEPLOYMENT, namespaced=True, model=Scaled),
    REPLICA_SET: Resource("apps", "v1", "replicasets", REPLICA_SET, namespaced=True, model=Scaled),
    STATEFUL_SET: Resource("apps", "v1", "statefulsets", STATEFUL_SET, namespaced=True, model=Scaled),
}

Find = Callable[[Reference], Scaled | None]


@dataclass(frozen=True, slots=True)
class _Record:
    """What was on a node before anything was evicted."""

    pods: dict[str, Reference]  # by uid
    before: dict[Reference, int]  # how many pods of a workload were available


class Evictions:
    """What is known of the nodes that are not operational; `find` finds a workload, `tell` hears topics."""

    def __init__(self, *, find: Find, tell: Callable[[frozenset[str]], object]) -> None:
        self._find = find
        self._tell = tell
        self._records: dict[str, _Record] = {}
        self._nodes: dict[Reference, dict[str, None]] = {}  # which records have a workload

    def begin(self, node: str, pods: Iterable[PodRow]) -> None:
        """Note what is on a node that is not operational any more, unless it has been noted."""
        if node in self._records:
            return
        found = {it.uid: owner for it in pods if (owner := self._workload_of(it)) is not None}
        before = {it: scaled.status.available_replicas for it in found.values() if (scaled := self._find(it))}
        self._records[node] = _Record(found, before)
        for reference in before:
            self._nodes.setdefault(reference, {})[node] = None

    def end(self, node: str) -> None:
        """Forget what was on a node that is operational."""
        record = self._records.pop(node, None)
        for reference in () if record is None else record.before:
            self._nodes[reference].pop(node, None)
            if not self._nodes[reference]:
                del self._nodes[reference]

    def clear(self) -> None:
        """Forget all."""
        self._records.clear()
        self._nodes.clear()

    def evicted(self, node: str, pods: Iterable[PodRow]) -> Iterator[Workload]:
        """Yield the workloads that have lost a pod on a node; `pods` are those on it now."""
        record = self._records.get(node)
        if record is None:
            return
        there = {it.uid for it in pods if not it.is_leaving}
        gone = dict.fromkeys(reference for uid, reference in record.pods.items() if uid not in there)
        for reference in gone:
            scaled = self._find(reference)
            if scaled is not None and reference in record.before:
                yield Workload(
                    name=str(reference),
                    wanted=scaled.spec.replicas,
                    available=scaled.status.available_replicas,
                    before=record.before[reference],
                )

    def note_pod(self, old: PodRow | None, new: PodRow | None) -> None:
        """Tell if a pod that was noted has left, or is about to."""
        if old is None or (new is not None and not new.is_leaving):
            return
        record = self._records.get(old.node)
        if record is not None and old.uid in record.pods:
            self._tell(frozenset({topics.evicted(old.node)}))

    def note_workload(self, old: Scaled | None, new: Scaled | None, *, kind: str) -> None:
        """Tell if a workload changed that was noted."""
        seen = new or old
        if seen is None or (old is not None and new is not None and (old.spec, old.status) == (new.spec, new.status)):
            return
        nodes = self._nodes.get(Reference(kind, seen.key), {})
        if nodes:
            self._tell(frozenset(map(topics.evicted, nodes)))

    def _workload_of(self, pod: PodRow) -> Reference | None:
        """Return what a pod belongs to: that of its owners which somebody wrote, or the nearest that is known."""
        namespace = pod.raw["metadata"]["namespace"]
        owner = _controller(pod.raw, namespace)
        if owner is None or owner.kind not in KINDS:
            return None
        scaled = self._find(owner) if owner.kind == REPLICA_SET else None
        for above in () if scaled is None else scaled.metadata.owner_references:
            if above.controller and above.kind == DEPLOYMENT:
                return _reference(above, namespace)
        return owner


def _controller(pod: RawObject, namespace: str) -> Reference | None:
    for owner in pod["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            return Reference(owner["kind"], f"{namespace}/{owner['name']}")
    return None


def _reference(owner: OwnerReference, namespace: str) -> Reference:
    return Reference(owner.kind, f"{namespace}/{owner.name}")
