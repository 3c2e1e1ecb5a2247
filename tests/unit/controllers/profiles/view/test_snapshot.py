"""A snapshot of a cluster for checks, without watches."""

from haulout.api.resources import PODS
from haulout.controllers.profiles.view import snapshot
from support.builders.objects import a_node, a_pod


def test_pods_are_found_by_node() -> None:
    pods = (a_pod("shop/a", on="n1"), a_pod("shop/b", on="n2"), a_pod("shop/c", on="n1"), a_pod("shop/pending"))
    view = snapshot.snapshot_of([a_node("n1"), a_node("n2"), a_node("n3")], {str(PODS): pods})
    found = {node: [pod["metadata"]["name"] for pod in view.pods_on(node)] for node in ("n1", "n2", "n3")}
    assert found == {"n1": ["a", "c"], "n2": ["b"], "n3": []}
