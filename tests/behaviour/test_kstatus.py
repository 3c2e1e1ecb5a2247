"""How Flux, and others that go by kstatus, see a NodeMaintenance: not as done before its node is empty."""

from datetime import timedelta
from itertools import pairwise

import pytest

from haulout.drain.lasting import STALLED_AFTER
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from support.argocd import health
from support.clusters import Plans
from support.kstatus import CURRENT, FAILED, IN_PROGRESS, TERMINATING, kstatus
from support.live import RESOURCES, LiveCluster
from support.maintaining import (
    NAME,
    PLURAL,
    blocked_on,
    countermand,
    entitled,
    invariants,
    is_blocked,
    operate,
    order,
    phases,
    says,
    status,
    succeeded,
)

MINUTE = timedelta(minutes=1)


def maintenance(cluster: LiveCluster) -> RawObject:
    return cluster.get(PLURAL, NAME)


async def test_a_maintenance_that_nobody_has_looked_at_is_in_progress(a_cluster: Plans) -> None:
    """The operator may be down: by its conditions alone, kstatus would take the object for current."""
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        await order(cluster, "n1")
        await cluster.eventually(lambda: cluster.has(PLURAL, NAME))
        assert status(cluster) == {"observedGeneration": -1}
        assert kstatus(maintenance(cluster)) == IN_PROGRESS
        assert health(maintenance(cluster))[0] == "Progressing"


async def test_it_is_current_when_the_node_is_empty_and_not_before(a_cluster: Plans) -> None:
    plan = entitled(a_cluster()).with_nodes(2).with_deployment("shop/cart", replicas=2).upholding(*invariants())
    async with plan.running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        assert says(cluster, "Ready") == ("True", "DrainCompleted")
        assert health(maintenance(cluster))[0] == "Healthy"
        told = (it.after for it in cluster.history if it.kind.plural == PLURAL and it.after is not None)
        *before, last = (it for it in told if "status" in it)  # the sandbox stores a new object without its defaults
        assert kstatus(last) == CURRENT
        assert {kstatus(it) for it in before} == {IN_PROGRESS}
        assert {health(it)[0] for it in before} == {"Progressing"}


async def test_one_that_names_another_node_is_in_progress_until_that_is_empty(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(2).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        await cluster.change(PLURAL, NAME, spec={"nodeName": "n2"})
        await cluster.eventually(lambda: phases(cluster), becomes=["Running", "Succeeded", "", "Running", "Succeeded"])
        told = [it.after for it in cluster.history if it.kind.plural == PLURAL and it.after is not None]
        *between, last = (it for it in told if it["spec"]["nodeName"] == "n2")
        assert {kstatus(it) for it in between} == {IN_PROGRESS}
        assert kstatus(last) == CURRENT


async def test_what_cannot_be_done_has_failed(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(operate)
        await order(cluster, "missing")
        await cluster.eventually(lambda: says(cluster, "Stalled"), becomes=("True", "NodeMissing"))
        assert kstatus(maintenance(cluster)) == FAILED
        assert health(maintenance(cluster)) == ("Degraded", 'nodes "missing" not found')


async def test_one_that_is_deleted_while_it_is_blocked_is_terminating(a_cluster: Plans) -> None:
    async with blocked_on(entitled(a_cluster()).with_nodes(1), "n1").running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        assert kstatus(maintenance(cluster)) == IN_PROGRESS
        guard = merge_patch({"metadata": {"finalizers": [*maintenance(cluster)["metadata"]["finalizers"], "a.b/stay"]}})
        await cluster.me.patch(RESOURCES[PLURAL], NAME, guard)
        await countermand(cluster)
        await cluster.eventually(lambda: "deletionTimestamp" in maintenance(cluster)["metadata"])
        assert kstatus(maintenance(cluster)) == TERMINATING
        await cluster.me.patch(RESOURCES[PLURAL], NAME, merge_patch({"metadata": {"finalizers": None}}))


# Only on simulated time


@pytest.fixture(name="simulated")
def a_simulated_cluster(a_cluster: Plans, request: pytest.FixtureRequest) -> Plans:
    if request.config.getoption("--backend") == "real":
        pytest.skip(f"it would take {STALLED_AFTER}")
    return a_cluster


async def test_a_drain_that_is_blocked_for_long_has_failed_until_it_goes_on(simulated: Plans) -> None:
    async with blocked_on(entitled(simulated()).with_nodes(2), "n1").running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        await cluster.pass_time(minutes=29)
        assert kstatus(maintenance(cluster)) == IN_PROGRESS
        await cluster.pass_time(minutes=2)
        assert says(cluster, "Stalled") == ("True", "Blocked")
        assert kstatus(maintenance(cluster)) == FAILED
        assert health(maintenance(cluster))[0] == "Degraded"
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await succeeded(cluster)
        assert kstatus(maintenance(cluster)) == CURRENT


async def test_a_successor_of_a_killed_operator_does_not_forget_that_a_drain_has_stalled(simulated: Plans) -> None:
    async with blocked_on(entitled(simulated()).with_nodes(1), "n1").running() as cluster:
        first = cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        await cluster.eventually(lambda: kstatus(maintenance(cluster)), becomes=FAILED, within=STALLED_AFTER + MINUTE)
        since = _since(cluster)
        first.kill()
        cluster.run(operate, name="successor")
        for _ in range(20):
            await cluster.pass_time(seconds=5)
            assert kstatus(maintenance(cluster)) == FAILED
        assert _since(cluster) == since


def _since(cluster: LiveCluster) -> str:
    (stalled,) = (it for it in status(cluster)["conditions"] if it["type"] == "Stalled")
    return str(stalled["lastTransitionTime"])


async def test_only_that_a_drain_stalls_costs_a_write(simulated: Plans) -> None:
    """Whatever else these conditions say is written with what the others say."""
    async with blocked_on(entitled(simulated()).with_nodes(2), "n1").running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        await cluster.pass_time(hours=1)
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await succeeded(cluster)
        said = [_otherwise(it.after) for it in cluster.history if it.kind.plural == PLURAL and it.after is not None]
        alone = [now for before, now in pairwise(said) if now == before]
        assert len(said) > 60
        assert len(alone) <= 1


def _otherwise(obj: RawObject) -> RawObject:
    """Return an object without what kstatus reads, and without when it was written."""
    told = obj.get("status", {})
    conditions = [it for it in told.get("conditions", ()) if it["type"] not in ("Ready", "Reconciling", "Stalled")]
    metadata = {name: value for name, value in obj["metadata"].items() if name in ("finalizers", "deletionTimestamp")}
    return {"metadata": metadata, "status": told | {"conditions": conditions, "lastUpdate": ""}}
