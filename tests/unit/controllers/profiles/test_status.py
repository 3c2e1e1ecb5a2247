"""The latest statuses of nodes, and their subscribers."""

from haulout.controllers.profiles.status import NodeProfilesStatus, NodeStatuses
from support.fakes.cluster_view import NOW


def test_subscribers_are_notified_once_of_a_deleted_node() -> None:
    info, deleted = NodeStatuses(), list[str]()
    info.store(NodeProfilesStatus("n1", {}, (), NOW, None))
    info.subscribe(deleted.append)
    info.forget("n1")
    assert deleted == ["n1"]
    assert info.get("n1") is None
    info.forget("n1")
    assert deleted == ["n1"]
