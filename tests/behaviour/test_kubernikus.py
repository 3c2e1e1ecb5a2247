"""Nodes of Kubernikus are labelled, emptied and deleted as users of the SAP maintenance-controller know it.

The ids in names are those of the acceptance cases in the specification.
"""

import pytest

from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION
from support.clusters.cluster_plan import PlanFactory
from support.expectations.cordon_copies import cordon_copies
from support.platforms.kubernikus import (
    a_kubernikus_cluster,
    event_notes,
    is_cordoned,
    kubernikus_controller,
    needs_update,
    noted_server,
    request_deletion,
    server_names,
)


@pytest.mark.parametrize(
    ("kubelet", "expected"),
    [
        pytest.param("v1.35.9", "true", id="an old kubelet"),
        pytest.param("v1.36.3", "false", id="the same version"),
        pytest.param("v1.37.0", "true", id="a newer kubelet"),
        pytest.param("v1.36.3+vendor.1", "false", id="build metadata does not count"),
        pytest.param("v1.36.3-rc.1", "true", id="a release candidate"),
    ],
)
async def test_node_label_shows_whether_the_kubelet_has_the_server_version(
    a_cluster: PlanFactory, kubelet: str, expected: str
) -> None:
    """U01, U02, U03."""
    async with a_kubernikus_cluster(a_cluster(), nodes=1, kubelet_version=kubelet) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await cluster.eventually(lambda: needs_update(cluster, "pool-1"), becomes=expected)


@pytest.mark.parametrize("kubelet", ["", "unknown", "v1.36", "v"])
async def test_node_with_an_unknown_kubelet_version_is_reported_and_can_be_deleted(
    a_cluster: PlanFactory, kubelet: str
) -> None:
    async with a_kubernikus_cluster(a_cluster(), nodes=2, kubelet_version=kubelet) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await cluster.eventually(lambda: "KubeletVersionUnknown" in event_notes(cluster, "pool-1"))
        assert needs_update(cluster, "pool-1") is None
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: not cluster.has("nodes", "pool-1"))


async def test_u04_node_to_delete_is_cordoned_and_drained_before_its_server_is_deleted(
    a_cluster: PlanFactory,
) -> None:
    plan = a_cluster().with_deployment("shop/cart", replicas=4)
    async with a_kubernikus_cluster(plan, nodes=3) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        servers = {server.name: server.id for server in cloud.all_servers.values()}
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        await cluster.eventually(lambda: noted_server(cluster, "pool-1"), becomes=servers["pool-1"])
        assert not [server for server in cluster.pods_on("pool-1") if "cart" in server]
        await cluster.eventually(lambda: not cluster.has("nodes", "pool-1"))
        assert {"pool-2", "pool-3"} <= set(server_names(cloud))
        await cluster.eventually(lambda: len(cluster.by_key("nodes")), becomes=3)  # Kubernikus has made another
        assert {"DeletionOrdered", "ServerDeleted"} <= set(event_notes(cluster, "pool-1"))
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=4)


async def test_only_the_server_with_the_exact_node_name_is_deleted(a_cluster: PlanFactory) -> None:
    """12.9: Kubernikus VM deletion."""
    """Nova matches names as patterns: who asks for pool-1 hears of pool-10."""
    async with a_kubernikus_cluster(a_cluster(), nodes=10) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: not cluster.has("nodes", "pool-1"))
        await cluster.eventually(lambda: len(cluster.by_key("nodes")), becomes=10)
        assert {f"pool-{number}" for number in range(2, 11)} < set(server_names(cloud))


async def test_withdrawn_deletion_restores_the_node(a_cluster: PlanFactory) -> None:
    plan = a_cluster().with_deployment("shop/cart", replicas=1, budget=1)
    async with a_kubernikus_cluster(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        await request_deletion(cluster, "pool-1", value="false")
        await cluster.eventually(lambda: not cluster.get("nodes", "pool-1")["spec"].get("unschedulable"))
        assert not is_cordoned(cluster, "pool-1")
        await cluster.pass_time(seconds=1)
        assert server_names(cloud) == ["pool-1"]
        await cluster.eventually(lambda: "DeletionWithdrawn" in event_notes(cluster, "pool-1"))


async def test_withdrawn_deletion_keeps_a_user_cordon(a_cluster: PlanFactory) -> None:
    plan = a_cluster().with_deployment("shop/cart", replicas=1, budget=1)
    async with a_kubernikus_cluster(plan, nodes=1) as (cluster, cloud):
        await cluster.cordon("pool-1")
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        await request_deletion(cluster, "pool-1", value=None)
        await cluster.eventually(lambda: not is_cordoned(cluster, "pool-1"))
        assert cluster.get("nodes", "pool-1")["spec"]["unschedulable"] is True


async def test_held_node_is_not_deleted(a_cluster: PlanFactory) -> None:
    async with a_kubernikus_cluster(a_cluster(), nodes=1) as (cluster, cloud):
        held = {"annotations": {"haulout.dev/hold": "by=alice; it is being looked at"}}
        await cluster.patch("nodes", "pool-1", metadata=held)
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: "held by alice" in event_notes(cluster, "pool-1").get("Held", ""))
        assert not cluster.get("nodes", "pool-1")["spec"].get("unschedulable")
        await cluster.patch("nodes", "pool-1", metadata={"annotations": {"haulout.dev/hold": None}})
        await cluster.eventually(lambda: "pool-1" not in server_names(cloud))


@pytest.mark.parametrize("was_cordoned", [False, True])
async def test_withdrawn_deletion_restores_a_node_that_lost_both_annotations(
    a_cluster: PlanFactory, *, was_cordoned: bool
) -> None:
    pods = {"nodeSelector": {"kubernetes.io/hostname": "pool-1"}}
    plan = a_cluster().with_deployment("shop/cart", replicas=1, budget=1, pods=pods)
    async with a_kubernikus_cluster(plan, nodes=2) as (cluster, cloud):
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=1)
        if was_cordoned:
            await cluster.cordon("pool-1")
        operator = cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: cordon_copies(cluster, "default"))
        operator.kill()
        await cluster.patch(
            "nodes", "pool-1", metadata={"annotations": {CORDON_ANNOTATION: None, CORDON_BACKUP_ANNOTATION: None}}
        )
        await cluster.eventually(lambda: not is_cordoned(cluster, "pool-1"))
        operator.start()
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        await request_deletion(cluster, "pool-1", value=None)
        await cluster.eventually(lambda: not is_cordoned(cluster, "pool-1"))
        assert bool(cluster.get("nodes", "pool-1")["spec"].get("unschedulable")) == was_cordoned
        await cluster.eventually(lambda: cordon_copies(cluster, "default"), becomes={})
