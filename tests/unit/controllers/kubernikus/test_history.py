"""The history of a node that is marked for deletion."""

from datetime import timedelta

from haulout.api.maintenancerecord import custom_resource_definition
from haulout.controllers.kubernikus.labels import CORDON_OWNER
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout_sandbox.nodes import Delays
from support.clouds.openstack import OpenStackCloud
from support.clusters.cluster_plan import a_cluster
from support.expectations.history_entries import entries_about, is_consistent, transition_texts
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.platforms.kubernikus import (
    a_kubernikus_cluster_on_the_sandbox,
    is_cordoned,
    kubernikus_controller,
    request_deletion,
)

SOON = timedelta(seconds=5)


async def test_history_records_order_drain_and_deletion(clock: Clock) -> None:
    plan = a_cluster(clock).with_crd(custom_resource_definition()).with_deployment("shop/cart", replicas=4)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=2) as (cluster, cloud):
        cloud.ends_within = timedelta(minutes=1)
        cluster.run(kubernikus_controller(cloud, keeps_history=True))
        left = len(cluster.pods_on("pool-1"))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: transition_texts(cluster, "pool-1", CORDON_OWNER)[-1:] == ["ServerDeleted"])
        assert transition_texts(cluster, "pool-1", CORDON_OWNER) == ["→ Running", "Drained", "ServerDeleted"]
        began, drained, _ = entries_about(cluster, "pool-1", CORDON_OWNER)
        assert "label cloud.sap/delete-node is set: the node is cordoned and drained" in began.reason
        assert drained.drain is not None
        assert drained.drain.pods == left > 0
        assert transition_texts(cluster, "pool-2", CORDON_OWNER) == []


async def test_history_records_an_order_that_is_withdrawn_and_repeated(clock: Clock) -> None:
    plan = a_cluster(clock).with_crd(custom_resource_definition()).with_deployment("shop/cart", replicas=1, budget=1)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud, keeps_history=True))
        for value in ("true", None, "true"):
            await request_deletion(cluster, "pool-1", value=value)
            await cluster.pass_time(seconds=10)
        assert transition_texts(cluster, "pool-1", CORDON_OWNER) == ["→ Running", "Running → Ended", "→ Running"]


def test_history_is_consistent_after_a_crash_at_any_write() -> None:
    clouds: list[OpenStackCloud] = []

    async def operate(client: Client) -> None:
        await kubernikus_controller(clouds[-1], keeps_history=True)(client)

    async def story(run: CrashRun) -> None:
        plan = a_cluster(run.clock).with_crd(custom_resource_definition()).with_delays(Delays.zero())
        plan = plan.with_deployment("shop/cart", replicas=1, budget=1)
        async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
            clouds.append(cloud)
            run.start_operator(cluster.cluster)
            await request_deletion(cluster, "pool-1")
            await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
            await cluster.pass_time(seconds=10)
            await request_deletion(cluster, "pool-1", value=None)
            await cluster.eventually(
                lambda: transition_texts(cluster, "pool-1", CORDON_OWNER)[-1:] == ["Running → Ended"]
            )
            assert is_consistent(entries_about(cluster, "pool-1", CORDON_OWNER))

    assert_survives_crashes(story, operator=operate, compare=lambda _: None)
