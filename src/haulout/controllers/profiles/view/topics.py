"""Names of what may change and concern other nodes: a check names its topics, and a change wakes those who did."""

NODE_COUNT = "nodes"  # one came or went
MAINTENANCE_ROOM = "room"  # a node left maintenance, or something about one that is in maintenance changed
AVAILABILITY = "service"  # a node that was out of service for any reason may be back
STATES = "states"  # the state of some profile of some node changed
CAPACITY = "capacity"  # what nodes have to give or what pods take changed anywhere; told at most every few seconds
DAEMON_SETS = "daemonsets"  # one came, went or got another template
POD_PREFERENCE = "preferring"  # a pod that prefers operational nodes came to a node or left it: see `pod_preference`


def label(key: str) -> str:
    """Return the topic of a label of any node."""
    return f"label {key}"


def pods(node: str) -> str:
    """Return the topic of the pods on a node."""
    return f"pods {node}"


def lease(namespace: str, name: str) -> str:
    """Return the topic of a lease."""
    return f"lease {namespace}/{name}"


def hypervisor(name: str) -> str:
    """Return the topic of a hypervisor."""
    return f"hypervisor {name}"


def notices(node: str) -> str:
    """Return the topic of what is announced for a node."""
    return f"notices {node}"


def evicted(node: str) -> str:
    """Return the topic of the workloads that were evicted from a node: which these are, and how they are."""
    return f"evicted {node}"


_DESCRIPTIONS = {
    NODE_COUNT: "a node comes or goes",
    MAINTENANCE_ROOM: "a node leaves maintenance",
    AVAILABILITY: "a node returns to service, or an order that waits is withdrawn",
    STATES: "the state of any node changes",
    CAPACITY: "pods or the capacity of nodes change",
    DAEMON_SETS: "DaemonSets change",
    POD_PREFERENCE: "pods that prefer operational nodes come or go",
}
_DESCRIPTIONS_BY_KIND = {
    "label": "label {} of any node changes",
    "pods": "pods on node {} change",
    "lease": "lease {} changes",
    "notices": "something else is announced for node {}",
    "hypervisor": "hypervisor {} changes",
    "evicted": "workloads that were evicted from node {} change",
}


def describe(topic: str) -> str:
    """Return what must happen, for people."""
    kind, _, what = topic.partition(" ")
    return _DESCRIPTIONS.get(topic) or _DESCRIPTIONS_BY_KIND.get(kind, f"{topic} changes").format(what)
