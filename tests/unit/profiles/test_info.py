"""The latest decisions about nodes, and who is told of them."""

from haulout.profiles.info import Info, NodeInfo
from support.scenes import NOW


def test_subscribers_are_told_once_that_a_node_is_gone() -> None:
    info, told = Info(), list[str]()
    info.note(NodeInfo("n1", {}, (), NOW, None))
    info.subscribe(told.append)
    info.forget("n1")
    assert told == ["n1"]
    assert info.get("n1") is None
    info.forget("n1")
    assert told == ["n1"]
