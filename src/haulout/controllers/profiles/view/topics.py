"""Topics: names of changes that may affect other nodes, to which checks subscribe.

A change requeues the nodes whose checks have named its topic.
"""

from collections.abc import Iterable

NODE_COUNT = "nodes"  # a node was created or deleted
MAINTENANCE_ROOM = "budget"  # a node left maintenance, or a node in maintenance changed
AVAILABILITY = "available"  # an unavailable node may be available again
STATES = "states"  # the state of any profile of any node changed
CAPACITY = "capacity"  # allocatable resources of nodes or requests of pods changed; published at most every few seconds
DAEMON_SETS = "daemonsets"  # a DaemonSet was created or deleted, or its template changed
POD_PREFERENCE = "pod-preference"  # a pod that prefers operational nodes came to or left a node: see `transform`


def label(key: str) -> str:
    """Return the topic of a label on any node."""
    return f"label {key}"


def pods(node: str) -> str:
    return f"pods {node}"


def lease(namespace: str, name: str) -> str:
    return f"lease {namespace}/{name}"


def hypervisor(name: str) -> str:
    return f"hypervisor {name}"


def notices(node: str) -> str:
    """Return the topic of the maintenance notices for a node."""
    return f"notices {node}"


def evicted(node: str) -> str:
    """Return the topic of the workloads that were evicted from a node, and of their status."""
    return f"evicted {node}"


_DESCRIPTIONS = {
    NODE_COUNT: "a node is created or deleted",
    MAINTENANCE_ROOM: "a node leaves maintenance",
    AVAILABILITY: "a node becomes available, or a waiting request is withdrawn",
    STATES: "the state of any node changes",
    CAPACITY: "pods or the capacity of nodes change",
    DAEMON_SETS: "DaemonSets change",
    POD_PREFERENCE: "pods that prefer operational nodes appear or leave",
}
_DESCRIPTIONS_BY_KIND = {
    "label": "label {} of any node changes",
    "pods": "pods on node {} change",
    "lease": "lease {} changes",
    "notices": "MaintenanceNotices for node {} change",
    "hypervisor": "hypervisor {} changes",
    "evicted": "workloads that were evicted from node {} change",
}


def describe(topic: str) -> str:
    """Return a description of the change, for people."""
    kind, _, what = topic.partition(" ")
    return _DESCRIPTIONS.get(topic) or _DESCRIPTIONS_BY_KIND.get(kind, f"{topic} changes").format(what)


class TopicSubscriptions:
    """Maps topics to the nodes whose checks depend on them.

    A change requeues only the nodes that subscribe to one of its topics, so that the cost depends on the number of
    dependent nodes, not on the size of the cluster.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, None]] = {}  # a set in insertion order, so that runs are reproducible
        self._topics: dict[str, frozenset[str]] = {}

    def set(self, node: str, topics: frozenset[str]) -> None:
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
        self.set(node, frozenset())

    def subscribers(self, topics: Iterable[str]) -> list[str]:
        """Return the nodes that subscribe to any of these topics, without duplicates, in a stable order."""
        return list(dict.fromkeys(node for topic in sorted(topics) for node in self._nodes.get(topic, ())))
