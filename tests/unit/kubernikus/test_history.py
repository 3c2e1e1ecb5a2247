"""What stays in the history of a node that somebody ordered to be deleted, for as long as there is the node."""

from datetime import timedelta

from haulout.core.clock import Clock
from haulout.history.record import definition
from haulout.kube.client import Client
from haulout.kubernikus.keys import OWNER
from haulout_sandbox.nodes import Delays
from support.clusters import a_cluster
from support.crashes import Stage, survives_crashes
from support.kubernikus import is_cordoned, kubernikus_on_the_sandbox, order, seeing_to
from support.openstack import OpenStackCloud
from support.remembering import remembered, replays, words

SOON = timedelta(seconds=5)


async def test_the_order_the_drain_and_the_deletion(clock: Clock) -> None:
    plan = a_cluster(clock).with_definition(definition()).with_deployment("shop/cart", replicas=4)
    async with kubernikus_on_the_sandbox(plan, nodes=2) as (cluster, cloud):
        cloud.ends_within = timedelta(minutes=1)
        cluster.run(seeing_to(cloud, remembers=True))
        left = len(cluster.pods_on("pool-1"))
        await order(cluster, "pool-1")
        await cluster.eventually(lambda: words(cluster, "pool-1", OWNER)[-1:] == ["ServerDeleted"])
        assert words(cluster, "pool-1", OWNER) == ["→ Running", "Drained", "ServerDeleted"]
        began, drained, _ = remembered(cluster, "pool-1", OWNER)
        assert "by label cloud.sap/delete-node it is cordoned and drained" in began.why
        assert drained.drain is not None
        assert drained.drain.pods == left > 0
        assert words(cluster, "pool-2", OWNER) == []


async def test_an_order_that_is_withdrawn_and_given_again(clock: Clock) -> None:
    plan = a_cluster(clock).with_definition(definition()).with_deployment("shop/cart", replicas=1, budget=1)
    async with kubernikus_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(seeing_to(cloud, remembers=True))
        for value in ("true", None, "true"):
            await order(cluster, "pool-1", value=value)
            await cluster.pass_time(seconds=10)
        assert words(cluster, "pool-1", OWNER) == ["→ Running", "Running → Ended", "→ Running"]


def test_a_crash_at_any_write_leaves_a_history_that_leads_to_its_end() -> None:
    clouds: list[OpenStackCloud] = []

    async def operate(client: Client) -> None:
        await seeing_to(clouds[-1], remembers=True)(client)

    async def story(stage: Stage) -> None:
        plan = a_cluster(stage.clock).with_definition(definition()).with_delays(Delays.none())
        plan = plan.with_deployment("shop/cart", replicas=1, budget=1)
        async with kubernikus_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
            clouds.append(cloud)
            stage.begin(cluster.cluster)
            await order(cluster, "pool-1")
            await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
            await cluster.pass_time(seconds=10)
            await order(cluster, "pool-1", value=None)
            await cluster.eventually(lambda: words(cluster, "pool-1", OWNER)[-1:] == ["Running → Ended"])
            assert replays(remembered(cluster, "pool-1", OWNER))

    survives_crashes(story, operator=operate, compare=lambda _: None)
