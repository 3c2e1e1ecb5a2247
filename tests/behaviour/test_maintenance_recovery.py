"""A NodeMaintenance with `spec.recovery` ends when the workloads that it evicted are available again."""

from datetime import timedelta
from pathlib import Path

from haulout.budget.away import RECOVERING
from support.clusters import ClusterPlan, Plans
from support.live import LiveCluster
from support.maintaining import (
    PLURAL,
    countermand,
    entitled,
    events,
    invariants,
    is_given_back,
    is_gone,
    last_error,
    operate,
    order,
    status,
    succeeded,
)
from support.profiled import a_file, annotation, operating
from support.profiling import is_cordoned

SHORT = "evicted from node n1 and not fully available again: Deployment shop/cart (0 of 1)"
BUDGET = """
intervals: {requeue: 1m}
budget: [{max: 1}]
"""


def pinned(plan: ClusterPlan) -> ClusterPlan:
    """Run a Deployment that wants node n1."""
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    return plan.with_nodes(2).with_deployment("shop/cart", replicas=1, pods=pods)


async def misplace(cluster: LiveCluster, name: str = "elsewhere") -> None:
    """Let node n1 say that it is another host, so that the Deployment finds none that it wants."""
    await cluster.change("nodes", "n1", metadata={"labels": {"kubernetes.io/hostname": name}})


async def recovering(cluster: LiveCluster, **recovery: str) -> None:
    """Order a maintenance of node n1, end it, and see it wait for the Deployment."""
    await order(cluster, "n1", recovery=recovery)
    await succeeded(cluster)
    await misplace(cluster)
    await countermand(cluster)


async def waits(cluster: LiveCluster) -> None:
    """Wait until the maintenance says that it waits for the Deployment."""
    await cluster.eventually(lambda: last_error(cluster).startswith(SHORT), within=timedelta(minutes=2))


async def test_it_uncordons_the_node_and_ends_when_workloads_are_available(a_cluster: Plans) -> None:
    async with pinned(entitled(a_cluster())).upholding(*invariants()).running() as cluster:
        cluster.run(operate)
        await recovering(cluster)
        await waits(cluster)
        assert not is_cordoned(cluster, "n1")
        assert annotation(cluster, "n1", RECOVERING) == "patch"
        assert status(cluster)["waitsFor"] == "node n1 to recover"
        assert status(cluster)["blockers"][0]["kind"] == "Recovery"
        await misplace(cluster, "n1")
        await cluster.eventually(lambda: is_gone(cluster))
        assert cluster.ready("shop/cart") == 1
        assert is_given_back(cluster, "n1")
        await cluster.eventually(lambda: "WorkloadsRecovered" in events(cluster))


async def test_a_successor_waits_for_the_same_workloads(a_cluster: Plans) -> None:
    async with pinned(entitled(a_cluster())).upholding(*invariants()).running() as cluster:
        operator = cluster.run(operate)
        await order(cluster, "n1", recovery={})
        await succeeded(cluster)
        operator.kill()
        await misplace(cluster)
        await countermand(cluster)
        operator.start()
        await waits(cluster)
        operator.kill()
        operator.start()
        await misplace(cluster, "n1")
        await cluster.eventually(lambda: is_gone(cluster))
        assert cluster.ready("shop/cart") == 1
        assert is_given_back(cluster, "n1")


async def test_it_never_waits_longer_than_it_was_told_to(a_cluster: Plans) -> None:
    async with pinned(entitled(a_cluster())).upholding(*invariants()).running() as cluster:
        cluster.run(operate)
        await recovering(cluster, timeout="3s")
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_given_back(cluster, "n1")
        await cluster.eventually(lambda: "RecoveryTimedOut" in events(cluster))


async def test_it_ends_at_once_when_nobody_asks_for_recovery_any_more(a_cluster: Plans) -> None:
    async with pinned(entitled(a_cluster())).upholding(*invariants()).running() as cluster:
        cluster.run(operate)
        await recovering(cluster)
        await waits(cluster)
        await cluster.change(PLURAL, "patch", spec={"recovery": None})
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_given_back(cluster, "n1")


async def test_another_maintenance_of_the_node_does_not_wait(a_cluster: Plans) -> None:
    async with pinned(entitled(a_cluster())).running() as cluster:
        cluster.run(operate)
        await recovering(cluster)
        await waits(cluster)
        await order(cluster, "n1", name="next")
        await cluster.eventually(lambda: is_gone(cluster))
        await succeeded(cluster, "next")
        assert annotation(cluster, "n1", RECOVERING) is None


async def test_without_the_field_it_ends_as_ever(a_cluster: Plans) -> None:
    async with pinned(entitled(a_cluster())).upholding(*invariants()).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        await misplace(cluster)
        await countermand(cluster)
        await cluster.eventually(lambda: is_gone(cluster))
        assert cluster.ready("shop/cart") == 0
        assert not any(RECOVERING in str(it.after) for it in cluster.history)


async def test_the_budget_waits_for_recovery(a_cluster: Plans, tmp_path: Path) -> None:
    async with pinned(entitled(a_cluster())).running() as cluster:
        cluster.run(operating(a_file(tmp_path, BUDGET)))
        await recovering(cluster)
        await waits(cluster)
        await order(cluster, "n2", name="next")
        await cluster.eventually(lambda: "workloads recover" in last_error(cluster, "next"))
        assert not is_cordoned(cluster, "n2")
        await misplace(cluster, "n1")
        await cluster.eventually(lambda: is_gone(cluster))
        await succeeded(cluster, "next")
