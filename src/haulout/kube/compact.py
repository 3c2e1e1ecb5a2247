"""Objects as they are, but with everything in common that they have in common.

    cache = Cache(client, Selection(NODES), row=compact_nodes())

Nodes carry the same few dozen strings again and again: keys and values of labels, types and reasons of conditions,
quantities. Decoding makes each of them anew. With one string for all equal ones a node takes less than half the room,
and is the very same `Node` to whoever reads it.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from haulout.kube.objects import Condition, Node, NodeStatus
from haulout.kube.rows import Shared

_LONGEST = 256  # characters: longer ones are seldom alike
_MOST_LONG = 256  # of those that are: many kilobytes each, and edited now and then


def compact_nodes(*, alike: Collection[str] = ()) -> Callable[[Node], Node]:
    """Return a function that makes nodes small; those of one such function share what they have in common.

    Values of annotations are mostly each node's own, save for those whose keys are `alike`.
    """
    shared, long = Shared(), Shared(limit=_MOST_LONG)

    def text(value: str) -> str:
        return shared(value) if len(value) <= _LONGEST else value

    def texts(values: Mapping[str, str]) -> dict[str, str]:
        return {text(key): text(value) for key, value in values.items()}

    def annotations(values: Mapping[str, str]) -> dict[str, str]:
        return {text(key): long(value) if key in alike else value for key, value in values.items()}

    def condition(it: Condition) -> Condition:
        return Condition(
            type=text(it.type),
            status=text(it.status),
            reason=text(it.reason),
            message=text(it.message),
            last_transition_time=shared(it.last_transition_time) if it.last_transition_time else None,
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
                node_info=shared(status.node_info),
            ),
        )

    return compact
