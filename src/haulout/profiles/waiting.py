"""Who waits for what: nodes by the topics that their checks have named.

A change wakes those who wait for one of its topics, and nobody else. So its cost does not depend on how many nodes
there are, but on how many could care.
"""

from collections.abc import Iterable


class Waiting:
    """Nodes by topic."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, None]] = {}  # a set with an order, so that runs repeat themselves
        self._topics: dict[str, frozenset[str]] = {}

    def set(self, node: str, topics: frozenset[str]) -> None:
        """Let a node wait for these topics, and for no others."""
        before = self._topics.get(node, frozenset())
        if before == topics:
            return
        for topic in before - topics:
            self._nodes[topic].pop(node, None)
            if not self._nodes[topic]:
                del self._nodes[topic]
        for topic in sorted(topics - before):
            self._nodes.setdefault(topic, {})[node] = None
        self._topics[node] = topics
        if not topics:
            del self._topics[node]

    def forget(self, node: str) -> None:
        """Let a node wait for nothing."""
        self.set(node, frozenset())

    def for_any(self, topics: Iterable[str]) -> list[str]:
        """Return who waits for any of these topics."""
        return list(dict.fromkeys(node for topic in sorted(topics) for node in self._nodes.get(topic, ())))
