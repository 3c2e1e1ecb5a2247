"""Objects as they are, but with everything in common that they have in common.

    cache = Cache(client, Selection(NODES), row=compact_nodes())

Nodes carry the same few dozen strings again and again: keys and values of labels, types and reasons of conditions,
quantities. Decoding makes each of them anew. With one string for all equal ones a node takes less than half the room,
and is the very same `Node` to whoever reads it.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from haulout.api.objects import Condition, Node, NodeStatus
from haulout.kube.pod_transform import Interner

_MAX_INTERNED_LENGTH = 256  # characters: longer ones are seldom alike
_MAX_LONG_VALUES = 256  # of those that are: many kilobytes each, and edited now and then


def compact_nodes(*, shared_annotations: Collection[str] = ()) -> Callable[[Node], Node]:
    """Return a function that makes nodes small; those of one such function share what they have in common.

    Values of annotations are mostly each node's own, save for those whose keys are `shared_annotations`.
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
