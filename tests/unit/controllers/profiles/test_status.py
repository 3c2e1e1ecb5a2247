"""The latest decisions about nodes, and who is told of them."""

from haulout.controllers.profiles.status import NodeStatus, NodeStatuses
from support.fakes.cluster_view import NOW


def test_subscribers_are_told_once_that_a_node_is_gone() -> None:
    info, told = NodeStatuses(), list[str]()
    info.store(NodeStatus("n1", {}, (), NOW, None))
    info.subscribe(told.append)
    info.forget("n1")
    assert told == ["n1"]
    assert info.get("n1") is None
    info.forget("n1")
    assert told == ["n1"]
