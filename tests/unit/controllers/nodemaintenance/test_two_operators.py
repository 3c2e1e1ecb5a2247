"""Two operators: faults of the leader, and two that both believe they lead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest

from haulout.api.leases import LEADER_LEASE
from haulout.api.objects import RawObject
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.nodemaintenance.node_lease import HOLDER
from haulout.core.clock import Clock
from support.builders.objects import a_namespace, a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.clusters.process import Process
from support.faults.named_faults import FAULTS, Fault, fault_mixture
from support.invariants import DeadProcessesReleaseAll, Invariant, ProcessDeath
from support.operators.nodemaintenance import (
    PLURAL,
    a_lease,
    assert_converges,
    create_maintenance,
    end_maintenance,
    event_reasons,
    has_lease,
    has_maintenance_marks,
    invariants,
    is_released,
    run_controller,
    status,
    wait_for_success,
    with_nodemaintenance_crd,
)

HOME = "haulout"
BOTH = ("a", "b")
WITHIN = timedelta(seconds=15 + 9)  # a lease duration and two checks of it
TRANSPORT_FAULTS = (
    "cut off",
    "silence",
    "503 on everything",
    "latency",
    "killed and started again",
    "history forgotten",
)


@asynccontextmanager
async def a_shop(clock: Clock) -> AsyncIterator[SandboxCluster]:
    """Run a cluster in which the pods of a node take some time to leave."""
    pods = [a_pod(f"shop/slow-{number}", on="n1", behaviour={"stop-seconds": "20"}) for number in range(2)]
    plan = with_nodemaintenance_crd(a_cluster(clock)).with_nodes(3).with_objects(a_namespace(HOME), *pods)
    plan = plan.with_deployment("shop/cart", replicas=3, budget="60%")
    async with plan.with_invariants(*_invariants()).on_the_sandbox() as cluster:
        yield cluster


def _invariants() -> tuple[Invariant, ...]:
    return invariants(*BOTH, *(f"{name}-2" for name in BOTH), max_silence=timedelta(minutes=2), knows_time=False)


def electing(cluster: SandboxCluster) -> dict[str, Process]:
    """Run two operators of which one leads."""
    return {
        name: cluster.run(partial(run_operator, settings=OperatorSettings(namespace=HOME, identity=name)), name=name)
        for name in BOTH
    }


def leader(cluster: SandboxCluster) -> str:
    found = cluster.get("leases", f"{HOME}/{LEADER_LEASE}")
    return str(found["spec"]["holderIdentity"])


@pytest.mark.parametrize("fault", [it for it in FAULTS if it.name in TRANSPORT_FAULTS], ids=str)
async def test_fault_of_the_leader_does_not_prevent_a_maintenance_from_completing(clock: Clock, fault: Fault) -> None:
    async with a_shop(clock) as cluster:
        electing(cluster)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await cluster.inject_fault(fault, process=leader(cluster))
        await assert_converges(cluster)
        assert status(cluster)["evictionPods"] >= 2
        await end_maintenance(cluster)
        await cluster.eventually(lambda: is_released(cluster, "n1"))


async def test_successor_takes_over_from_a_dead_leader_within_the_lease_duration(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        operators = electing(cluster)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        dead = ProcessDeath(who=leader(cluster), at=clock.now())
        operators[dead.who].kill()
        await assert_converges(cluster)
        assert leader(cluster) != dead.who
        held = {"leases": _holder}
        cluster.assert_invariants(DeadProcessesReleaseAll(deaths=(dead,), holders=held, lease=WITHIN))


def _holder(lease: RawObject) -> list[str]:
    return [str(lease["spec"].get("holderIdentity"))]


@pytest.mark.parametrize("apart", [0.0, 0.001, 0.5, 7.0])
async def test_two_leaders_reach_the_same_end(clock: Clock, apart: float) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller, name="a")
        await cluster.pass_time(seconds=apart)
        cluster.run(run_controller, name="b")
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert has_maintenance_marks(cluster, "n1")
        assert status(cluster)["evictionPods"] == status(cluster)["totalpods"]
        await cluster.pass_time(minutes=2)
        assert "lastError" not in status(cluster)
        quiet_since = cluster.revision
        await cluster.pass_time(minutes=5)
        assert _writes_to(cluster, PLURAL, since=quiet_since) == 0, "they do not contradict each other"
        await end_maintenance(cluster)
        await cluster.eventually(lambda: is_released(cluster, "n1"))
        assert not has_lease(cluster, "n1")
        assert set(event_reasons(cluster)) == {"BeginMaintenance", "SucceedMaintenance", "RemovedMaintenance"}


@pytest.mark.parametrize("seed", [3000, 3009, 3013, 3017, 3023, 3113])
async def test_two_leaders_with_different_caches_do_not_race(clock: Clock, seed: int) -> None:
    """In some seeds their clocks differ, or their caches contain different pods or nodes."""
    async with a_shop(clock) as cluster:
        for name in BOTH:
            cluster.run(run_controller, name=name)
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault_mixture(seed, count=6), process="a", seed=seed))
            await create_maintenance(cluster, "n1")
        await assert_converges(cluster)
        assert _writes_to(cluster, PLURAL, since=0) + _writes_to(cluster, "leases", since=0) < 1000
        await end_maintenance(cluster)
        await cluster.eventually(lambda: is_released(cluster, "n1"))


@pytest.mark.parametrize("dies", ["who takes", "who ends"])
@pytest.mark.parametrize("is_leased", [False, True])
async def test_node_cordoned_after_its_maintenance_ended_is_released(
    clock: Clock, dies: str, *, is_leased: bool
) -> None:
    """One leader ends the maintenance while the patch of the other is still in flight."""
    async with a_shop(clock) as cluster:
        taking = cluster.run(run_controller, name="a")
        await cluster.pass_time(seconds=1)
        if is_leased:
            await cluster.create(a_lease("n1", holder=HOLDER, now=clock.now()))
        taking.transport.faults.delay_effect(timedelta(seconds=20), method="PATCH", path="nodes/n1")
        await create_maintenance(cluster, "n1")
        await cluster.pass_time(seconds=1)
        assert has_lease(cluster, "n1")
        if dies == "who takes":
            taking.kill()
        ending = cluster.run(run_controller, name="b")
        await end_maintenance(cluster)
        if dies == "who ends":
            ending.kill()
        await cluster.eventually(
            lambda: any(it.username == "a" and it.kind.plural == "nodes" for it in cluster.history)
        )
        await cluster.eventually(lambda: is_released(cluster, "n1"))
        assert not has_lease(cluster, "n1")
        assert "OrphanedCordon" not in event_reasons(cluster, "n1", kind="Node")


def _writes_to(cluster: SandboxCluster, plural: str, *, since: int) -> int:
    later = [it for it in cluster.history if it.revision > since and it.username in BOTH]
    return sum(it.kind.plural == plural for it in later)
