"""Objects as they are, but with everything in common that they have in common.

    cache = Cache(client, Selection(NODES), row=compact_nodes())

Nodes carry the same few dozen strings again and again: keys and values of labels, types and reasons of conditions,
quantities. Decoding makes each of them anew. With one string for all equal ones a node takes less than half the room,
and is the very same `Node` to whoever reads it.
"""

from collections.abc import Callable, Mapping

import msgspec

from haulout.kube.objects import Condition, Node, NodeStatus
from haulout.kube.rows import Shared

_LONGEST = 256  # characters: longer ones are seldom alike


def compact_nodes() -> Callable[[Node], Node]:
    """Return a function that makes nodes small; those of one such function share what they have in common."""
    shared = Shared()

    def text(value: str) -> str:
        return shared(value) if len(value) <= _LONGEST else value

    def texts(values: Mapping[str, str]) -> dict[str, str]:
        return {text(key): text(value) for key, value in values.items()}

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
                metadata, labels=texts(metadata.labels), annotations=_keyed(metadata.annotations, text)
            ),
            spec=node.spec,
            status=NodeStatus(
                conditions=tuple(map(condition, status.conditions)), allocatable=texts(status.allocatable)
            ),
        )

    return compact


def _keyed(annotations: Mapping[str, str], text: Callable[[str], str]) -> dict[str, str]:
    """Return annotations with keys in common: their values are mostly each node's own."""
    return {text(key): value for key, value in annotations.items()}
