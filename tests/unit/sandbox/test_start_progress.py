"""What people see while a large sandbox starts."""

from datetime import timedelta

from haulout.core.clock import Clock
from haulout_sandbox.running_sandbox import StartProgress
from support.clusters.cluster_plan import a_cluster


async def test_the_start_is_reported_twice_a_second_with_what_there_is(clock: Clock) -> None:
    texts: list[str] = []
    async with a_cluster(clock).with_nodes(3).with_deployment("shop/cart", replicas=4).on_the_sandbox() as cluster:
        progress = StartProgress(cluster.cluster, clock, texts.append)
        for _ in range(100):
            await clock.sleep(timedelta(seconds=0.1))
            progress.update()
    assert texts == ["3 nodes, 4 of 4 pods running, 0.0 min still to simulate"] * 20
