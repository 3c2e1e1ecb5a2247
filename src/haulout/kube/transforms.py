"""The transforms of informers: rows small enough to cache all pods and nodes of a cluster.

Pods: a cluster has about a hundred times more pods than nodes, and a pod as JSON has some ten kilobytes. A row keeps
only the fields that decisions about nodes need, flat. Rows share equal values: names of nodes, namespaces and owners,
and whole label sets, which all replicas of a workload have in common.

Nodes share equal strings:

    informer = Informer(client, ListWatch(NODES), transform=compact_nodes())

Nodes repeat the same few dozen strings: keys and values of labels, types and reasons of conditions, quantities. The
decoder creates each of them anew. With shared strings a node takes less than half the memory, and it remains an
ordinary `Node` for its readers.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from haulout.api.objects import Condition, Node, NodeStatus, Pod

S = TypeVar("S")

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
Labels = tuple[tuple[str, str], ...]

_MAX_INTERNED_LENGTH = 256  # characters; longer strings are rarely equal
_MAX_LONG_VALUES = 256  # of the shared annotation values, which have many kilobytes each and change rarely


# gc=False: rows hold no reference cycles, and a hundred thousand objects that the collector need not visit make its
# pauses short.
class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller that owns an object: its owner reference with `controller: true`."""

    kind: str
    name: str
    uid: str


class PodSummary(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The fields of a pod that decisions about nodes need."""

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
    has_local_storage: bool  # its deletion loses the data of an emptyDir
    deleted_at: datetime | None

    @property
    def name(self) -> str:
        return self.key[len(self.namespace) + 1 :]


def summarize_pods() -> Callable[[Pod], PodSummary]:
    """Return a transform of pods to rows that share equal values with all other rows of the same transform."""
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
            # kubectl drain recognizes them by the same annotation (staging/src/k8s.io/kubectl/pkg/drain/filters.go).
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

    Not `sys.intern`: some Python versions never free its strings. When there are more values than `limit`, the interner
    starts over; objects that it has returned remain valid.
    """

    def __init__(self, *, limit: int = 200_000) -> None:
        self._limit = limit
        self._known: dict[Any, Any] = {}

    def __call__(self, value: S) -> S:
        known: S | None = self._known.get(value)
        if known is not None:
            return known
        if len(self._known) >= self._limit:
            # Not an LRU: to maintain its order costs more than to share some values anew once in a while.
            self._known.clear()
        self._known[value] = value
        return value


def compact_nodes(*, shared_annotations: Collection[str] = ()) -> Callable[[Node], Node]:
    """Return a transform that makes nodes share equal strings with all other nodes of the same transform.

    Annotation values are mostly unique to a node. Only those of the keys in `shared_annotations` are shared.
    """
    interned, interned_long = Interner(), Interner(limit=_MAX_LONG_VALUES)

    def text(value: str) -> str:
        return interned(value) if len(value) <= _MAX_INTERNED_LENGTH else value

    def texts(values: Mapping[str, str]) -> dict[str, str]:
        return {text(key): text(value) for key, value in values.items()}

    def annotations(values: Mapping[str, str]) -> dict[str, str]:
        return {
            text(key): interned_long(value) if key in shared_annotations else value for key, value in values.items()
        }

    def condition(original: Condition) -> Condition:
        return Condition(
            type=text(original.type),
            status=text(original.status),
            reason=text(original.reason),
            message=text(original.message),
            last_transition_time=interned(original.last_transition_time) if original.last_transition_time else None,
        )

    def compact(node: Node) -> Node:
        metadata, status = node.metadata, node.status
        return Node(
            metadata=msgspec.structs.replace(
                metadata, labels=texts(metadata.labels), annotations=annotations(metadata.annotations)
            ),
            spec=node.spec,
            status=NodeStatus(
                conditions=tuple(map(condition, status.conditions)),
                allocatable=texts(status.allocatable),
                node_info=interned(status.node_info),
            ),
        )

    return compact
