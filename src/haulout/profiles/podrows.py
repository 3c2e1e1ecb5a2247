"""Pods and DaemonSets made small enough to keep all of them, and still in the shape in which plugins look at them.

Kept of a pod are its name, labels and owners, whether it is being deleted or mirrors a static pod; its node, what it
asks of a node (requests, host ports, selector, node affinity, tolerations), its phase and whether it is Ready. All else
is skipped by the decoder. What pods have in common, mostly the replicas of one workload, is one object for all of them:
labels, owners, status, and what they ask for, which is worked out once. (So `spec` has no `nodeName`: who asks for the
pods of a node knows it.) None of it is ever changed.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from haulout.kube.objects import Base, Object, RawObject
from haulout.kube.rows import MIRROR_ANNOTATION
from haulout.profiles.fitting import Wish, has_ended, wish_of
from haulout.profiles.preference import prefers_operational

T = TypeVar("T")

_MOST_SHARED = 50_000
_READY = "Ready"


class _Container(Base, frozen=True):
    resources: RawObject | None = None
    ports: list[RawObject] | None = None
    restart_policy: str = ""


class _PodSpec(Base, frozen=True):
    """What a pod asks of a node."""

    affinity: RawObject | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[RawObject] | None = None
    resources: RawObject | None = None
    overhead: RawObject | None = None
    host_network: bool = False
    node_name: str = ""


class _Condition(Base, frozen=True):
    type: str = ""
    status: str = ""


class _PodStatus(Base, frozen=True):
    phase: str = ""
    conditions: list[_Condition] | None = None


class PodFields(Object, frozen=True):
    """What is read of a pod."""

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _Template(Base, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DaemonSetSpec(Base, frozen=True):
    template: _Template = _Template()


class DaemonSetFields(Object, frozen=True):
    """What is read of a DaemonSet."""

    spec: _DaemonSetSpec = _DaemonSetSpec()


class Asking:
    """What pods ask of a node; one for all that ask for the same."""

    __slots__ = ("_prefers", "_wish", "spec")

    def __init__(self, spec: RawObject) -> None:
        self.spec = spec
        self._wish: Wish | None = None
        self._prefers: bool | None = None

    @property
    def wish(self) -> Wish:
        """What decides where they fit."""
        if self._wish is None:
            self._wish = wish_of(self.spec)
        return self._wish

    @property
    def prefers_operational(self) -> bool:
        """Whether they would rather run on operational nodes."""
        if self._prefers is None:
            self._prefers = prefers_operational({"spec": self.spec})
        return self._prefers


class RawRow:
    """An object as plugins see it, in a cache."""

    __slots__ = ("key", "raw", "resource_version", "uid")

    def __init__(self, obj: Object, raw: RawObject) -> None:
        self.key = obj.key
        self.uid = obj.uid
        self.resource_version = obj.resource_version
        self.raw = raw


class PodRow(RawRow):
    """A pod as plugins see it, in a cache."""

    __slots__ = ("asking", "node")

    def __init__(self, pod: PodFields, raw: RawObject, *, node: str, asking: Asking) -> None:
        super().__init__(pod, raw)
        self.node = node
        self.asking = asking

    @property
    def takes_room(self) -> bool:
        """Whether it takes anything of its node."""
        return not has_ended(self.raw)

    @property
    def is_leaving(self) -> bool:
        """Whether it is being deleted."""
        return "deletionTimestamp" in self.raw["metadata"]


def pod_rows() -> Callable[[PodFields], PodRow]:
    """Return a function that makes rows of pods, which share what they have in common."""
    asked: _Shared[Asking] = _Shared(Asking)
    parts: _Shared[Any] = _Shared(lambda part: part)
    names: dict[str, str] = {}  # of nodes

    def row(pod: PodFields) -> PodRow:
        node = names.setdefault(pod.spec.node_name, pod.spec.node_name)
        spec = msgspec.structs.replace(pod.spec, node_name="")
        asking = asked.of(msgspec.to_builtins(spec))
        metadata = _metadata(pod)
        for key in metadata.keys() & {"namespace", "labels", "ownerReferences"}:
            metadata[key] = parts.of(metadata[key])
        raw = {"metadata": metadata, "spec": asking.spec, "status": parts.of(_status(pod.status))}
        return PodRow(pod, raw, node=node, asking=asking)

    return row


class _Shared(Generic[T]):
    """Makes one and the same thing of equal values."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._known: dict[bytes, T] = {}

    def of(self, value: Any) -> T:
        mark = msgspec.json.encode(value)
        known = self._known.get(mark)
        if known is None:
            if len(self._known) >= _MOST_SHARED:
                self._known.clear()  # what was handed out stays valid
            known = self._known[mark] = self._make(value)
        return known


def daemon_set_row(daemon_set: DaemonSetFields) -> RawRow:
    """Return the row of a DaemonSet."""
    raw = {"metadata": _metadata(daemon_set), "spec": msgspec.to_builtins(daemon_set.spec)}
    return RawRow(daemon_set, raw)


def raw_row(raw: RawObject) -> RawRow:
    """Return the row of an object that is kept as it is."""
    return RawRow(msgspec.convert(raw, Object), raw)


def _status(status: _PodStatus) -> RawObject:
    raw: RawObject = {"phase": status.phase}
    ready = [{"type": it.type, "status": it.status} for it in status.conditions or () if it.type == _READY]
    return {**raw, "conditions": ready} if ready else raw


def _metadata(obj: Object) -> RawObject:
    metadata = obj.metadata
    raw: dict[str, Any] = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
    if metadata.labels:
        raw["labels"] = metadata.labels
    if MIRROR_ANNOTATION in metadata.annotations:
        raw["annotations"] = {MIRROR_ANNOTATION: metadata.annotations[MIRROR_ANNOTATION]}
    if metadata.owner_references:
        raw["ownerReferences"] = [msgspec.to_builtins(it) for it in metadata.owner_references]
    if metadata.deletion_timestamp is not None:
        raw["deletionTimestamp"] = msgspec.to_builtins(metadata.deletion_timestamp)
    return raw
