"""Binding a pod to a node; tests/cluster compares all of it with a real API server."""

from typing import Any

import pytest

from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from support.apiserver.requests import NODES, PODS, a_node, a_pod, request_json

PATH = f"{PODS}/cart-0/binding"


def a_binding(node: str = "n1", **meta: Any) -> dict[str, Any]:
    target = {"kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "cart-0", **meta}, "target": target}


@pytest.fixture
async def pending(cluster: ApiServer) -> dict[str, Any]:
    """Return a pod without a node."""
    return cluster.put(a_pod(phase="Pending", ready=False, node=""))


async def test_a_pod_gets_its_node_its_condition_and_the_labels_of_its_zone(
    cluster: ApiServer, api: InProcessTransport, pending: dict[str, Any]
) -> None:
    node = a_node()
    node["metadata"]["labels"] = {"topology.kubernetes.io/zone": "z1", "other": "label"}
    await request_json(api, "POST", NODES, node)
    status, answer = await request_json(api, "POST", PATH, a_binding(uid=pending["metadata"]["uid"]))
    assert (status, answer["status"]) == (201, "Success")
    bound = cluster.get("pods", "cart-0", "shop")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["labels"] == {"app": "cart", "topology.kubernetes.io/zone": "z1"}
    assert [
        condition["status"] for condition in bound["status"]["conditions"] if condition["type"] == "PodScheduled"
    ] == ["True"]
    assert cluster.history[-1].verb == "bind"


@pytest.mark.usefixtures("pending")
async def test_a_bound_pod_is_not_bound_again(cluster: ApiServer, api: InProcessTransport) -> None:
    await request_json(api, "POST", PATH, a_binding())
    status, answer = await request_json(api, "POST", PATH, a_binding("n2"))
    assert (status, answer["reason"]) == (409, "Conflict")
    assert answer["message"].endswith('pod cart-0 is already assigned to node "n1"')
    assert cluster.get("pods", "cart-0", "shop")["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(("meta", "code"), [({"uid": "another"}, 409), ({"resourceVersion": "1"}, 409)])
@pytest.mark.usefixtures("pending")
async def test_a_binding_that_means_another_pod_is_refused(
    cluster: ApiServer, api: InProcessTransport, meta: dict[str, str], code: int
) -> None:
    status, _ = await request_json(api, "POST", PATH, a_binding(**meta))
    assert status == code
    assert "nodeName" not in {key for key, value in cluster.get("pods", "cart-0", "shop")["spec"].items() if value}


@pytest.mark.usefixtures("pending")
async def test_a_dry_run_binds_nothing(cluster: ApiServer, api: InProcessTransport) -> None:
    revision = cluster.revision
    status, _ = await request_json(api, "POST", PATH, a_binding(), dryRun="All")
    assert (status, cluster.revision) == (201, revision)


async def test_only_a_post_binds_and_only_pods_are_bound(api: InProcessTransport) -> None:
    assert (await request_json(api, "GET", PATH))[0] == 405
    assert (await request_json(api, "POST", f"{NODES}/n1/binding", a_binding()))[0] == 404
    assert (await request_json(api, "POST", PATH, a_binding()))[0] == 404
