"""Two operators at once: one leads and the other takes over; and if both believe that they lead, nobody is hurt."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest

from haulout.app.operator import LEADER_LEASE, OperatorSettings, run_operator
from haulout.core.clock import Clock
from haulout.sandbox.faults import FAULTS, Fault
from haulout.sandbox.invariants import EndsOrExplains, Invariant
from haulout.sandbox.processes import Process
from support.builders import a_namespace, a_pod
from support.clusters import a_cluster
from support.live import SandboxCluster
from support.maintaining import (
    PLURAL,
    events,
    has_lease,
    invariants,
    is_given_back,
    is_taken,
    maintained,
    operate,
    order,
    over,
    status,
    succeeded,
)

HOME = "haulout"
BOTH = ("a", "b")
TAKEN_OVER_WITHIN = timedelta(seconds=30)  # the lease of leaders lasts 15 s
ON_THE_LINE = ("cut off", "silence", "503 on everything", "latency", "killed and started again", "history forgotten")


@asynccontextmanager
async def a_shop(clock: Clock) -> AsyncIterator[SandboxCluster]:
    """Run a cluster in which the pods of a node take some time to leave."""
    pods = [a_pod(f"shop/slow-{number}", on="n1", act={"stop-seconds": "20"}) for number in range(2)]
    plan = maintained(a_cluster(clock)).with_nodes(3).with_objects(a_namespace(HOME), *pods)
    plan = plan.with_deployment("shop/cart", replicas=3, budget="60%")
    async with plan.upholding(*_invariants()).on_the_sandbox() as cluster:
        yield cluster


def _invariants() -> tuple[Invariant, ...]:
    held = invariants(*BOTH, *(f"{name}-2" for name in BOTH), silent_for=timedelta(minutes=3))
    return tuple(it for it in held if not isinstance(it, EndsOrExplains))


def electing(cluster: SandboxCluster) -> dict[str, Process]:
    """Run two operators of which one leads."""
    return {
        name: cluster.run(partial(run_operator, settings=OperatorSettings(namespace=HOME, identity=name)), name=name)
        for name in BOTH
    }


def leader(cluster: SandboxCluster) -> str:
    found = cluster.get("leases", f"{HOME}/{LEADER_LEASE}")
    return str(found["spec"]["holderIdentity"])


def writers(cluster: SandboxCluster, *, since: int = 0) -> set[str]:
    """Return who has written to maintenances."""
    writes = [it for it in cluster.history if it.kind.plural == PLURAL and it.revision > since]
    return {it.who for it in writes if it.who in BOTH}


async def test_only_the_leader_works_and_who_waits_takes_over_when_it_dies(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        operators = electing(cluster)
        await order(cluster, "n1")
        await cluster.eventually(lambda: status(cluster)["drain"]["leaving"], becomes=2)
        first = leader(cluster)
        assert writers(cluster) == {first}
        operators[first].kill()
        died_at = cluster.revision
        await cluster.eventually(lambda: writers(cluster, since=died_at), within=TAKEN_OVER_WITHIN)
        await succeeded(cluster)
        assert writers(cluster, since=died_at) == set(BOTH) - {first}
        operators[first].start()
        await over(cluster)
        await cluster.eventually(lambda: is_given_back(cluster, "n1"))
        assert not has_lease(cluster, "n1")


@pytest.mark.parametrize("fault", [it for it in FAULTS if it.name in ON_THE_LINE], ids=str)
async def test_what_befalls_the_leader_does_not_keep_a_maintenance_from_its_end(clock: Clock, fault: Fault) -> None:
    async with a_shop(clock) as cluster:
        electing(cluster)
        await order(cluster, "n1")
        await cluster.eventually(lambda: is_taken(cluster, "n1"))
        await cluster.suffer(fault, process=leader(cluster))
        await succeeded(cluster)
        assert status(cluster)["evictionPods"] >= 2
        await over(cluster)
        await cluster.eventually(lambda: is_given_back(cluster, "n1"))


async def test_a_leader_gives_way_before_its_own_node_is_drained(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        for name in BOTH:
            settings = OperatorSettings(namespace=HOME, identity=name, node="n1" if name == "a" else "n2")
            cluster.run(partial(run_operator, settings=settings), name=name)
            await cluster.eventually(lambda: leader(cluster))
        assert leader(cluster) == "a"
        await order(cluster, "n1")
        await succeeded(cluster)
        assert leader(cluster) == "b"
        evictors = {it.who for it in cluster.history if it.kind.plural == "pods" and it.who in BOTH}
        assert evictors == {"b"}


@pytest.mark.parametrize("apart", [0.0, 0.001, 0.5, 7.0])
async def test_two_that_both_believe_they_lead_come_to_the_same_end(clock: Clock, apart: float) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(operate, name="a")
        await cluster.pass_time(seconds=apart)
        cluster.run(operate, name="b")
        await order(cluster, "n1")
        await succeeded(cluster)
        assert is_taken(cluster, "n1")
        assert status(cluster)["evictionPods"] == status(cluster)["totalpods"]
        await cluster.pass_time(minutes=2)
        assert "lastError" not in status(cluster)
        quiet_since = cluster.revision
        await cluster.pass_time(minutes=5)
        assert _writes_to(cluster, PLURAL, since=quiet_since) == 0, "they do not contradict each other"
        await over(cluster)
        await cluster.eventually(lambda: is_given_back(cluster, "n1"))
        assert not has_lease(cluster, "n1")
        assert set(events(cluster)) == {"BeginMaintenance", "SucceedMaintenance", "RemovedMaintenance"}


def _writes_to(cluster: SandboxCluster, plural: str, *, since: int) -> int:
    later = [it for it in cluster.history if it.revision > since and it.who in BOTH]
    return sum(it.kind.plural == plural for it in later)
