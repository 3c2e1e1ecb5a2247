"""The transform of node informers: nodes small enough to cache all of a cluster.

    informer = Informer(client, ListWatch(NODES), transform=compact_nodes())

Nodes repeat the same few dozen strings: keys and values of labels, types and reasons of conditions, quantities. The
decoder creates each of them anew. With shared strings a node takes less than half the memory, and it remains an
ordinary `Node` for its readers.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import msgspec

from haulout.api.objects import Condition, Node, NodeStatus

S = TypeVar("S")


_MAX_INTERNED_LENGTH = 256  # characters; longer strings are rarely equal
_MAX_LONG_VALUES = 256  # of the shared annotation values, which have many kilobytes each and change rarely


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
