"""The workloads whose pods a drain evicts: how they were before, and whether they are available again.

    before = record(pods, find)                  # before anything is evicted
    evicted_of(before, present=uids, find=find)     # those that have lost a pod since, and how they are now

Who drains a node keeps `before` on an object in the API server: profiles in an annotation of the node, a
NodeMaintenance in its status. So a successor waits for the same workloads. What is kept is bounded, and what is read is
not trusted: a record that cannot be read raises `UnreadableRecord`, and counts as unknown.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from haulout.errors import HauloutError
from haulout.kube.objects import Base, Node, Object
from haulout.kube.resources import Resource

ANNOTATION = "haulout.dev/workloads-before"
MOST_BYTES = 64 * 1024  # of a record; Kubernetes allows 256 KiB for all annotations of an object
_HASH_BYTES = 4


class UnreadableRecord(HauloutError):
    """Which workloads were evicted is not known."""


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


class Controlled(NamedTuple):
    """A pod: its uid, and the controller that its owner references name."""

    uid: str
    owner: Reference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Something that runs pods, some of which were evicted from a node."""

    name: str  # for people: `Deployment shop/cart`
    wanted: int  # how many pods it should have
    available: int  # how many of them serve
    before: int  # how many did before the first of them was evicted

    @property
    def is_short(self) -> bool:
        """Whether it has fewer available pods than it wants, and than it had before."""
        return self.available < min(self.wanted, self.before)

    def __str__(self) -> str:
        """Return it for people, with how many pods are available: `Deployment shop/cart (1 of 3)`."""
        return f"{self.name} ({self.available} of {min(self.wanted, self.before)})"


class WorkloadBefore(Base, frozen=True):
    """A workload before the drain: how many of its pods were available, and which of them were on the node."""

    kind: str
    namespace: str
    name: str
    available: int
    pods: tuple[str, ...]  # hashes of their uids

    @property
    def reference(self) -> Reference:
        """Return which workload it is."""
        return Reference(self.kind, f"{self.namespace}/{self.name}")


class Record(Base, frozen=True):
    """The workloads that had pods on a node; `omitted` counts those for which there was no room."""

    workloads: tuple[WorkloadBefore, ...] = ()
    omitted: int = 0


def record(pods: Iterable[Controlled], find: Find) -> Record:
    """Return the workloads of the pods that are on a node, and how many pods of them are available now."""
    on_node: dict[Reference, list[str]] = {}
    for pod in pods:
        workload = _workload_of(pod.owner, find)
        if workload is not None:
            on_node.setdefault(workload, []).append(_hashed(pod.uid))
    found = [(it, scaled, uids) for it, uids in sorted(on_node.items()) if (scaled := find(it)) is not None]
    return _bounded(
        WorkloadBefore(
            kind=it.kind,
            namespace=scaled.namespace,
            name=scaled.name,
            available=scaled.status.available_replicas,
            pods=tuple(sorted(uids)),
        )
        for it, scaled, uids in found
    )


def evicted_of(before: Record, *, present: Collection[str], find: Find) -> Iterator[Workload]:
    """Yield the workloads that have lost a pod on a node, as they are now; `present` are the uids of pods on it."""
    for each in reduced(before, present=present).workloads:
        scaled = find(each.reference)
        if scaled is not None:
            yield Workload(
                name=str(each.reference),
                wanted=scaled.spec.replicas,
                available=scaled.status.available_replicas,
                before=each.available,
            )


def reduced(before: Record, *, present: Collection[str]) -> Record:
    """Return a record without the workloads that have lost no pod on a node; `present` are the uids of pods on it."""
    there = set(map(_hashed, present))
    return msgspec.structs.replace(
        before, workloads=tuple(it for it in before.workloads if not there.issuperset(it.pods))
    )


def read(node: Node) -> Record | None:
    """Return what is recorded on a node; None if nothing is. Raises `UnreadableRecord`."""
    text = node.metadata.annotations.get(ANNOTATION)
    if text is None:
        return None
    if len(text) > MOST_BYTES:
        raise _unreadable(node, f"it has {len(text)} characters, expected at most {MOST_BYTES}")
    try:
        found = msgspec.json.decode(text, type=Record)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise _unreadable(node, str(error)) from None
    strange = next((it.kind for it in found.workloads if it.kind not in KINDS), None)
    if strange is not None:
        raise _unreadable(node, f"kind is {strange!r:.60}, expected one of {', '.join(KINDS)}")
    if found.omitted:
        raise _unreadable(node, f"it has no room for {found.omitted} workloads")
    return found


def write(found: Record) -> str:
    """Return the annotation."""
    return msgspec.json.encode(found).decode()


def _unreadable(node: Node, why: str) -> UnreadableRecord:
    return UnreadableRecord(
        f"which workloads were evicted from node {node.name} is not known: annotation {ANNOTATION} cannot be used "
        f"({why}); remove it to go on without"
    )


def _workload_of(owner: Reference | None, find: Find) -> Reference | None:
    """Return what a pod belongs to: the Deployment above its ReplicaSet, or else its controller."""
    if owner is None or owner.kind not in KINDS:
        return None
    scaled = find(owner) if owner.kind == REPLICA_SET else None
    namespace = owner.key.partition("/")[0]
    for above in () if scaled is None else scaled.metadata.owner_references:
        if above.controller and above.kind == DEPLOYMENT:
            return Reference(DEPLOYMENT, f"{namespace}/{above.name}")
    return owner


def _bounded(found: Iterable[WorkloadBefore]) -> Record:
    """Return a record that is not larger than what is read again."""
    kept: list[WorkloadBefore] = []
    size = len(msgspec.json.encode(Record(omitted=MOST_BYTES)))
    omitted = 0
    for each in found:
        size += len(msgspec.json.encode(each)) + 1
        if size > MOST_BYTES:
            omitted += 1
        else:
            kept.append(each)
    return Record(workloads=tuple(kept), omitted=omitted)


def _hashed(uid: str) -> str:
    """Return a short hash of a uid: a node may have hundreds of pods, and all who watch nodes receive the record."""
    return hashlib.blake2s(uid.encode(), digest_size=_HASH_BYTES).hexdigest()
