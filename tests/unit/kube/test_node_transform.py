"""Compacted nodes share equal strings: they equal the originals and need less memory."""

import msgspec

from haulout.api.objects import Node
from haulout.kube.transforms import Interner, compact_nodes
from support.builders.objects import a_node

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}


def decoded(name: str, **annotations: str) -> Node:
    """Return a node as decoded from a response: it shares no strings."""
    node = a_node(name, labels={"topology.kubernetes.io/zone": "zone-1"}).annotated(annotations)
    status = {"conditions": [READY], "allocatable": {"cpu": "31850m"}}
    return msgspec.json.decode(msgspec.json.encode({**node, "status": status}), type=Node)


def test_compacted_node_equals_the_original() -> None:
    long = "x" * 1000
    compact = compact_nodes()
    for node in (decoded("n1", note=long), Node()):
        assert compact(node) == node


def test_equal_strings_of_two_nodes_are_shared() -> None:
    compact = compact_nodes()
    one, two = compact(decoded("n1", note="a")), compact(decoded("n2", note="b"))
    assert list(map(id, texts(one))) == list(map(id, texts(two)))


def test_long_annotations_are_shared_only_if_configured() -> None:
    compact = compact_nodes(shared_annotations=("rules",))
    one, two = (compact(decoded(name, rules="r" * 1000, note="n" * 1000)) for name in ("n1", "n2"))
    assert one.metadata.annotations["rules"] is two.metadata.annotations["rules"]
    assert one.metadata.annotations["note"] is not two.metadata.annotations["note"]


def texts(node: Node) -> list[str]:
    """Return the strings that nodes may share."""
    condition = node.status.conditions[0]
    pairs = [pair for each in (node.metadata.labels, node.status.allocatable) for pair in each.items()]
    return [*(text for pair in pairs for text in pair), *node.metadata.annotations, condition.reason, condition.message]


def test_interner_keeps_a_bounded_number_of_strings() -> None:
    shared = Interner(limit=3)
    for number in range(100):
        shared(str(number))
    assert len(shared._known) <= 3
