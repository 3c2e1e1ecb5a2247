"""Objects made small enough to keep all of them.

A cluster has a hundred times more pods than nodes, and a pod as JSON is some ten kilobytes. A row keeps what decisions
about nodes need to know of a pod, flat, and shares what pods have in common: the names of nodes, namespaces and owners,
and whole sets of labels, which all replicas of a workload carry alike.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from haulout.api.objects import Pod

S = TypeVar("S")

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
Labels = tuple[tuple[str, str], ...]


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller that an object belongs to."""

    kind: str
    name: str
    uid: str


class PodSummary(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What decisions about nodes need to know of a pod."""

    key: str
    uid: str
    resource_version: str
    namespace: str
    node: str
    phase: str
    labels: Labels
    owner: Owner | None
    priority: int
    grace_seconds: int
    is_ready: bool
    is_mirror_pod: bool  # a static pod, which only its kubelet can stop
    has_local_storage: bool  # deleting it loses the data of an emptyDir
    deleted_at: datetime | None

    @property
    def name(self) -> str:
        """Its name within its namespace."""
        return self.key[len(self.namespace) + 1 :]


def summarize_pods() -> Callable[[Pod], PodSummary]:
    """Return a function that makes rows of pods; the rows of one such function share what they have in common."""
    interned = Interner()

    def summarize(pod: Pod) -> PodSummary:
        metadata, spec, status = pod.metadata, pod.spec, pod.status
        namespace = interned(metadata.namespace)
        return PodSummary(
            key=f"{namespace}/{metadata.name}",
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            namespace=namespace,
            node=interned(spec.node_name),
            phase=interned(status.phase),
            labels=interned(tuple(metadata.labels.items())),
            owner=interned(_controller(pod)),
            priority=spec.priority,
            grace_seconds=spec.termination_grace_period_seconds,
            is_ready=any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions),
            is_mirror_pod=MIRROR_ANNOTATION in metadata.annotations,
            has_local_storage=any(volume.empty_dir is not None for volume in spec.volumes),
            deleted_at=metadata.deletion_timestamp,
        )

    return summarize


def _controller(pod: Pod) -> Owner | None:
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return Owner(owner.kind, owner.name, owner.uid)
    return None


class Interner:
    """Returns one and the same object for equal values.

    Not `sys.intern`, which some Python versions never forget. When there are too many values to be worth sharing it
    starts over: what was handed out stays valid.
    """

    def __init__(self, *, limit: int = 200_000) -> None:
        self._limit = limit
        self._known: dict[Any, Any] = {}

    def __call__(self, value: S) -> S:
        """Return the one that is equal to `value`."""
        known: S | None = self._known.get(value)
        if known is not None:
            return known
        if len(self._known) >= self._limit:
            self._known.clear()
        self._known[value] = value
        return value
