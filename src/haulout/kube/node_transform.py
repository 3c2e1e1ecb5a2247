"""The transform of node informers: nodes that share equal strings.

    informer = Informer(client, ListWatch(NODES), transform=compact_nodes())

Nodes repeat the same few dozen strings: keys and values of labels, types and reasons of conditions, quantities. The
decoder creates each of them anew. With shared strings a node takes less than half the memory, and it remains an
ordinary `Node` for its readers.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from haulout.api.objects import Condition, Node, NodeStatus
from haulout.kube.pod_transform import Interner

_MAX_INTERNED_LENGTH = 256  # characters; longer strings are rarely equal
_MAX_LONG_VALUES = 256  # of the shared annotation values, which have many kilobytes each and change rarely


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
