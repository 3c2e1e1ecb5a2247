"""Nodes that share what they have in common are the same nodes, only smaller."""

import msgspec

from haulout.api.objects import Node
from haulout.kube.transforms import compact_nodes
from support.builders.objects import a_node

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}


def decoded(name: str, **annotations: str) -> Node:
    """Return a node as it comes over a wire: nothing of it is shared."""
    node = a_node(name, labels={"topology.kubernetes.io/zone": "zone-1"}).annotated(annotations)
    status = {"conditions": [READY], "allocatable": {"cpu": "31850m"}}
    return msgspec.json.decode(msgspec.json.encode({**node, "status": status}), type=Node)


def test_a_compact_node_is_equal_to_what_it_was() -> None:
    long = "x" * 1000
    compact = compact_nodes()
    for node in (decoded("n1", note=long), Node()):
        assert compact(node) == node


def test_equal_texts_of_two_nodes_are_one() -> None:
    compact = compact_nodes()
    one, two = compact(decoded("n1", note="a")), compact(decoded("n2", note="b"))
    assert list(map(id, texts(one))) == list(map(id, texts(two)))


def test_long_annotations_are_one_only_if_they_are_said_to_be_alike() -> None:
    compact = compact_nodes(shared_annotations=("rules",))
    one, two = (compact(decoded(name, rules="r" * 1000, note="n" * 1000)) for name in ("n1", "n2"))
    assert one.metadata.annotations["rules"] is two.metadata.annotations["rules"]
    assert one.metadata.annotations["note"] is not two.metadata.annotations["note"]


def texts(node: Node) -> list[str]:
    """Return what nodes have in common."""
    condition = node.status.conditions[0]
    pairs = [pair for each in (node.metadata.labels, node.status.allocatable) for pair in each.items()]
    return [*(text for pair in pairs for text in pair), *node.metadata.annotations, condition.reason, condition.message]
