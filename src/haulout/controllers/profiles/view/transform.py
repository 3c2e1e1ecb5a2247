"""Transforms pods and DaemonSets into rows small enough to cache all of them, in the JSON shape that plugins read.

Of a pod it keeps name, labels, owners, the mirror annotation of static pods and whether the pod is being deleted; its
node, its requirements (requests, host ports, selector, node affinity, tolerations), its phase and whether it is Ready.
The decoder skips everything else. Values that pods share, mostly replicas of one workload, are interned: labels,
owners, status, and requirements, which are parsed once. For this reason `spec` has no `nodeName`; a caller that asks
for the pods of a node knows the node. Rows are never modified.

A pod with a preferred node affinity to operational nodes takes part in the `affinity` check (`prefers_operational`).
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from haulout.api.objects import MIRROR_ANNOTATION, Base, Object, RawObject
from haulout.controllers.profiles.plugin import STATE_LABEL, State
from haulout.controllers.profiles.view.scheduling import PodRequirements, has_ended, requirements_of

T = TypeVar("T")

# Bounds the pool of a cluster in which no two pods are equal, for example with a Job's index in a label.
_MAX_SHARED = 50_000
_READY = "Ready"

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class _Container(Base, frozen=True):
    resources: RawObject | None = None
    ports: list[RawObject] | None = None
    restart_policy: str = ""


class _PodSpec(Base, frozen=True):
    """The fields of a pod spec that decide where the pod fits."""

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
    """The fields of a pod that are decoded. The others of the object are skipped, and cost no memory."""

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _Template(Base, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DaemonSetSpec(Base, frozen=True):
    template: _Template = _Template()


class DaemonSetFields(Object, frozen=True):
    """The fields of a DaemonSet that are decoded: those that decide on which nodes it should run."""

    spec: _DaemonSetSpec = _DaemonSetSpec()


class PodScheduling:
    """The scheduling requirements of pods; shared by all pods with equal ones."""

    __slots__ = ("_prefers_operational", "_requirements", "spec")

    def __init__(self, spec: RawObject) -> None:
        self.spec = spec
        self._requirements: PodRequirements | None = None
        self._prefers_operational: bool | None = None

    @property
    def requirements(self) -> PodRequirements:
        if self._requirements is None:
            self._requirements = requirements_of(self.spec)
        return self._requirements

    @property
    def prefers_operational(self) -> bool:
        if self._prefers_operational is None:
            self._prefers_operational = prefers_operational({"spec": self.spec})
        return self._prefers_operational


class CachedObject:
    """A cached object in the shape that plugins read."""

    __slots__ = ("key", "raw", "resource_version", "uid")

    def __init__(self, obj: Object, raw: RawObject) -> None:
        self.key = obj.key
        self.uid = obj.uid
        self.resource_version = obj.resource_version
        self.raw = raw


class CachedPod(CachedObject):
    """A cached pod in the shape that plugins read."""

    __slots__ = ("node", "scheduling")

    def __init__(self, pod: PodFields, raw: RawObject, *, node: str, scheduling: PodScheduling) -> None:
        super().__init__(pod, raw)
        self.node = node
        self.scheduling = scheduling

    @property
    def uses_capacity(self) -> bool:
        """Whether the pod uses resources of its node."""
        return not has_ended(self.raw)

    @property
    def is_leaving(self) -> bool:
        return "deletionTimestamp" in self.raw["metadata"]


def pod_transform() -> Callable[[PodFields], CachedPod]:
    """Return a transform for pods whose rows share equal parts."""
    scheduling_pool: _InternPool[PodScheduling] = _InternPool(PodScheduling)
    part_pool: _InternPool[Any] = _InternPool(lambda part: part)
    names: dict[str, str] = {}  # of nodes, interned

    def row(pod: PodFields) -> CachedPod:
        node = names.setdefault(pod.spec.node_name, pod.spec.node_name)
        # Without the node name the requirements of all replicas of a workload are equal, and shared.
        spec = msgspec.structs.replace(pod.spec, node_name="")
        scheduling = scheduling_pool.intern(msgspec.to_builtins(spec))
        metadata = _metadata(pod)
        for key in metadata.keys() & {"namespace", "labels", "ownerReferences"}:
            metadata[key] = part_pool.intern(metadata[key])
        raw = {"metadata": metadata, "spec": scheduling.spec, "status": part_pool.intern(_status(pod.status))}
        return CachedPod(pod, raw, node=node, scheduling=scheduling)

    return row


class _InternPool(Generic[T]):
    """Returns the same object for equal values."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._pool: dict[bytes, T] = {}

    def intern(self, value: Any) -> T:
        # The encoded form is the key because dicts are not hashable. It distinguishes key orders, which only costs a
        # second copy.
        encoded = msgspec.json.encode(value)
        interned = self._pool.get(encoded)
        if interned is None:
            if len(self._pool) >= _MAX_SHARED:
                self._pool.clear()  # objects in use stay valid
            interned = self._pool[encoded] = self._make(value)
        return interned


def transform_daemon_set(daemon_set: DaemonSetFields) -> CachedObject:
    raw = {"metadata": _metadata(daemon_set), "spec": msgspec.to_builtins(daemon_set.spec)}
    return CachedObject(daemon_set, raw)


def transform_raw(raw: RawObject) -> CachedObject:
    """Return the row of an object of which all fields are kept."""
    return CachedObject(msgspec.convert(raw, Object), raw)


def _status(status: _PodStatus) -> RawObject:
    raw: RawObject = {"phase": status.phase}
    ready = [
        {"type": condition.type, "status": condition.status}
        for condition in status.conditions or ()
        if condition.type == _READY
    ]
    return {**raw, "conditions": ready} if ready else raw


def _metadata(obj: Object) -> RawObject:
    metadata = obj.metadata
    raw: dict[str, Any] = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
    if metadata.labels:
        raw["labels"] = metadata.labels
    if MIRROR_ANNOTATION in metadata.annotations:
        raw["annotations"] = {MIRROR_ANNOTATION: metadata.annotations[MIRROR_ANNOTATION]}
    if metadata.owner_references:
        raw["ownerReferences"] = [msgspec.to_builtins(owner) for owner in metadata.owner_references]
    if metadata.deletion_timestamp is not None:
        raw["deletionTimestamp"] = msgspec.to_builtins(metadata.deletion_timestamp)
    return raw


def prefers_operational(pod: RawObject) -> bool:
    """Return whether a pod prefers nodes by their state label, whatever the weight and other preferences."""
    affinity = _child(_child(_child(pod, "spec"), "affinity"), "nodeAffinity")
    return any(
        _is_operational_expression(expression)
        for term in _dicts_in(affinity.get(_PREFERRED))
        for expression in _dicts_in(_child(term, "preference").get("matchExpressions"))
    )


def _is_operational_expression(expression: RawObject) -> bool:
    found = expression.get("key"), expression.get("operator"), expression.get("values")
    return found == (STATE_LABEL, "In", [State.OPERATIONAL])


def _child(of: RawObject, key: str) -> RawObject:
    found = of.get(key)
    return found if isinstance(found, dict) else {}


def _dicts_in(value: Any) -> list[RawObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
