"""The workloads whose pods a drain evicts: their availability before the drain, and whether they have recovered.

    before = record_workloads(pods, find)                          # before the first eviction
    evicted_workloads(before, present=uids, find=find)     # workloads that have lost a pod since, as they are now

The record is kept on an object in the API server, so that another process waits for the same workloads: profiles use an
annotation of the node, a NodeMaintenance its status. The size of a record is bounded, and its content is not trusted: a
record that cannot be decoded raises `InvalidWorkloadRecord`, and counts as unknown.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from haulout.api import annotations
from haulout.api.objects import Base, Node, Object
from haulout.api.resources import Resource
from haulout.errors import HauloutError

WORKLOADS_ANNOTATION = annotations.WORKLOADS_BEFORE
MAX_BYTES = 64 * 1024  # of a record; Kubernetes allows 256 KiB for all annotations of an object
# Among some hundreds of pods a collision of 32 bits is negligible. It would only end the wait for one workload early.
_HASH_BYTES = 4


class InvalidWorkloadRecord(HauloutError):
    """A record of workloads is invalid, so the evicted workloads are unknown."""


class _Spec(Base, frozen=True):
    replicas: int = 1


class _Status(Base, frozen=True):
    available_replicas: int = 0


class ScaledWorkload(Object, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet, reduced to its numbers of replicas."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


class WorkloadReference(NamedTuple):
    """The kind and key of a workload."""

    kind: str
    key: str

    def __str__(self) -> str:
        """Return the workload for users: `Deployment shop/cart`."""
        return f"{self.kind} {self.key}"


DEPLOYMENT, REPLICA_SET, STATEFUL_SET = "Deployment", "ReplicaSet", "StatefulSet"
WORKLOAD_KINDS = {
    DEPLOYMENT: Resource("apps", "v1", "deployments", DEPLOYMENT, namespaced=True, model=ScaledWorkload),
    REPLICA_SET: Resource("apps", "v1", "replicasets", REPLICA_SET, namespaced=True, model=ScaledWorkload),
    STATEFUL_SET: Resource("apps", "v1", "statefulsets", STATEFUL_SET, namespaced=True, model=ScaledWorkload),
}

FindWorkload = Callable[[WorkloadReference], ScaledWorkload | None]


class ControlledPod(NamedTuple):
    """A pod: its UID, and its controller."""

    uid: str
    owner: WorkloadReference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictedWorkload:
    """A workload that lost pods to an eviction from a node."""

    name: str  # for users: `Deployment shop/cart`
    desired: int  # desired number of pods
    available: int  # available pods now
    available_before: int  # available pods before the first eviction

    @property
    def is_degraded(self) -> bool:
        """Return whether it has fewer available pods than desired, and fewer than before."""
        return self.available < min(self.desired, self.available_before)

    def __str__(self) -> str:
        """Return the workload and its available pods for users: `Deployment shop/cart (1 of 3)`."""
        return f"{self.name} ({self.available} of {min(self.desired, self.available_before)})"


class WorkloadBefore(Base, frozen=True):
    """A workload before the drain: its available pods, and which of its pods were on the node."""

    kind: str
    namespace: str
    name: str
    available: int
    pods: tuple[str, ...]  # hashes of their UIDs

    @property
    def reference(self) -> WorkloadReference:
        return WorkloadReference(self.kind, f"{self.namespace}/{self.name}")


class WorkloadRecord(Base, frozen=True):
    """The workloads that had pods on a node. `omitted` counts those that did not fit."""

    workloads: tuple[WorkloadBefore, ...] = ()
    omitted: int = 0


def record_workloads(pods: Iterable[ControlledPod], find: FindWorkload) -> WorkloadRecord:
    """Return the workloads of the pods on a node, with the number of their available pods now."""
    on_node: dict[WorkloadReference, list[str]] = {}
    for pod in pods:
        workload = _owning_workload(pod.owner, find)
        if workload is not None:
            on_node.setdefault(workload, []).append(_hash_uid(pod.uid))
    found = [
        (reference, scaled, uids)
        for reference, uids in sorted(on_node.items())
        if (scaled := find(reference)) is not None
    ]
    return _bounded_record(
        WorkloadBefore(
            kind=reference.kind,
            namespace=scaled.namespace,
            name=scaled.name,
            available=scaled.status.available_replicas,
            pods=tuple(sorted(uids)),
        )
        for reference, scaled, uids in found
    )


def evicted_workloads(
    before: WorkloadRecord, *, present: Collection[str], find: FindWorkload
) -> Iterator[EvictedWorkload]:
    """Yield the workloads that have lost a pod on the node, in their current state.

    `present` are the UIDs of the pods on the node.
    """
    for workload in without_unaffected_workloads(before, present=present).workloads:
        scaled = find(workload.reference)
        if scaled is not None:
            yield EvictedWorkload(
                name=str(workload.reference),
                desired=scaled.spec.replicas,
                available=scaled.status.available_replicas,
                available_before=workload.available,
            )


def without_unaffected_workloads(before: WorkloadRecord, *, present: Collection[str]) -> WorkloadRecord:
    """Return a record without the workloads that have lost no pod on the node.

    `present` are the UIDs of the pods on the node.
    """
    present_hashes = set(map(_hash_uid, present))
    return msgspec.structs.replace(
        before,
        workloads=tuple(workload for workload in before.workloads if not present_hashes.issuperset(workload.pods)),
    )


def decode_annotation(node: Node) -> WorkloadRecord | None:
    """Return the record in a node's annotation; None if there is none.

    Raise `InvalidWorkloadRecord` if it is invalid.
    """
    text = node.metadata.annotations.get(WORKLOADS_ANNOTATION)
    if text is None:
        return None
    # Before decoding: anybody who may edit nodes can write the annotation.
    if len(text) > MAX_BYTES:
        raise _invalid_record(node, f"it has {len(text)} characters, expected at most {MAX_BYTES}")
    try:
        found = msgspec.json.decode(text, type=WorkloadRecord)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise _invalid_record(node, str(error)) from None
    unknown_kind = next((workload.kind for workload in found.workloads if workload.kind not in WORKLOAD_KINDS), None)
    if unknown_kind is not None:
        raise _invalid_record(node, f"kind is {unknown_kind!r:.60}, expected one of {', '.join(WORKLOAD_KINDS)}")
    # An annotation that is incomplete would end the wait too early for the omitted ones.
    if found.omitted:
        raise _invalid_record(node, f"it omits {found.omitted} workloads that did not fit")
    return found


def encode_annotation(found: WorkloadRecord) -> str:
    return msgspec.json.encode(found).decode()


def _invalid_record(node: Node, reason: str) -> InvalidWorkloadRecord:
    return InvalidWorkloadRecord(
        f"cannot tell which workloads were evicted from node {node.name}: "
        f"annotation {WORKLOADS_ANNOTATION} is invalid "
        f"({reason}); remove it to continue without waiting for them"
    )


def _owning_workload(owner: WorkloadReference | None, find: FindWorkload) -> WorkloadReference | None:
    """Return the workload of a pod: the Deployment of its ReplicaSet, or else its controller."""
    if owner is None or owner.kind not in WORKLOAD_KINDS:
        return None
    scaled = find(owner) if owner.kind == REPLICA_SET else None
    namespace = owner.key.partition("/")[0]
    for owner_reference in () if scaled is None else scaled.metadata.owner_references:
        if owner_reference.controller and owner_reference.kind == DEPLOYMENT:
            return WorkloadReference(DEPLOYMENT, f"{namespace}/{owner_reference.name}")
    return owner


def _bounded_record(found: Iterable[WorkloadBefore]) -> WorkloadRecord:
    """Return a record of at most `MAX_BYTES`."""
    kept: list[WorkloadBefore] = []
    size = len(msgspec.json.encode(WorkloadRecord(omitted=MAX_BYTES)))
    omitted = 0
    for workload in found:
        size += len(msgspec.json.encode(workload)) + 1
        if size > MAX_BYTES:
            omitted += 1
        else:
            kept.append(workload)
    return WorkloadRecord(workloads=tuple(kept), omitted=omitted)


def _hash_uid(uid: str) -> str:
    """Return a short hash of a UID: a node may have hundreds of pods, and every watch of nodes receives the record."""
    return hashlib.blake2s(uid.encode(), digest_size=_HASH_BYTES).hexdigest()
