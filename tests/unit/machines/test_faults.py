"""Whatever befalls the operator, and however many there are: one Machine at a time, and all come to their end."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.kinds.machinemaintenance import NAMESPACE
from haulout.kinds.openshift import MACHINE_NAMESPACE
from haulout.machines.timing import Terms
from haulout_sandbox.apiserver import Write
from haulout_sandbox.openshift import Paces
from support.clusters import a_cluster
from support.faults import Fault, mixture
from support.live import SandboxCluster
from support.openshift import (
    BRISK,
    PATIENCE,
    claim_on,
    leaving,
    machine_api,
    machines,
    openshift,
    ready,
    with_control_plane,
    with_machine_set,
)
from support.replacing import completed, flag, message, operate, operating, order, phase
from support.suffered import faults_for

WORKERS = f"{MACHINE_NAMESPACE}/workers"


def most_leaving(history: Sequence[Write]) -> int:
    """Return how many Machines were on their way at once, at any revision."""
    gone: set[str] = set()
    most = 0
    for write in history:
        if write.kind.plural == "machines":
            is_leaving = "deletionTimestamp" in (write.after or {}).get("metadata", {})
            gone = gone | {write.key} if is_leaving else gone - {write.key}
            most = max(most, len(gone))
    return most


def most_wanted(history: Sequence[Write]) -> int:
    """Return how many Machines the set was to have, at most."""
    found = [it.after for it in history if it.kind.plural == "machinesets" and it.after is not None]
    return max(int(it["spec"]["replicas"]) for it in found)


async def all_replaced(cluster: SandboxCluster, old: list[str]) -> None:
    for name in old:
        await completed(cluster, name)
        assert flag(cluster, name)
    await cluster.eventually(lambda: len(ready(cluster)), becomes=len(old), within=PATIENCE)
    await cluster.eventually(lambda: claim_on(cluster, "workers"), becomes="", within=PATIENCE)
    assert len(machines(cluster)) == len(old)
    assert not set(old) & set(machines(cluster))
    assert most_leaving(cluster.history) == 1


OTHERS = ("pod events late", "the scheduler pauses")  # there are no pods


@pytest.mark.parametrize(
    "fault", [*(it for it in faults_for(0) if it.name not in OTHERS), *map(mixture, range(3))], ids=str
)
async def test_replacing_comes_through_any_fault(clock: Clock, fault: Fault) -> None:
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=2)
        cluster.run(operate)
        for name in old:
            await order(cluster, name)
        await cluster.pass_time(seconds=0.004)
        await cluster.suffer(fault)
        await all_replaced(cluster, old)


@pytest.mark.parametrize("terms", [Terms(), Terms(surge=True)], ids=["plainly", "with a surge"])
async def test_two_operators_that_both_believe_they_lead_replace_one_at_a_time(clock: Clock, terms: Terms) -> None:
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=3)
        for name in ("one", "two"):
            cluster.run(operating(terms), name=name)
        for name in old:
            await order(cluster, name)
        await all_replaced(cluster, old)
        assert most_wanted(cluster.history) == (4 if terms.surge else 3)


async def test_an_operator_with_a_copy_that_is_minutes_old_does_not_take_a_second_one(clock: Clock) -> None:
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=3)
        cluster.run(operate, name="stale")
        await cluster.pass_time(seconds=1)
        cluster.line("stale").faults.late(timedelta(minutes=2), path="machine.openshift.io", times=None)
        cluster.run(operate, name="fresh")
        await order(cluster, old[0])
        await cluster.eventually(lambda: leaving(cluster), becomes=[old[0]])
        for name in old[1:]:
            await order(cluster, name)
        await all_replaced(cluster, old)


async def test_of_two_who_saw_the_same_set_one_takes_it(clock: Clock) -> None:
    """The claim is bound to the state of the set: who has an old copy of it cannot write over the claim of another."""
    paces = Paces(instance=timedelta(), node=timedelta(seconds=1), termination=timedelta(hours=1))
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=paces):
        first, second = await with_machine_set(cluster, "workers", replicas=2)
        cluster.run(operating(namespace=""), name="fresh")
        cluster.run(operating(namespace="later"), name="stale")  # who has not heard of the first record
        await cluster.pass_time(seconds=1)
        cluster.line("stale").faults.late(timedelta(minutes=2), path="/apis/machine.openshift.io", times=None)
        await order(cluster, first)
        await cluster.eventually(lambda: leaving(cluster), becomes=[first])
        claimed = claim_on(cluster, "workers")
        await order(cluster, second, namespace="later")
        await cluster.pass_time(minutes=1)
        asked = [it.request for it in cluster.processes["stale"].transport.requests]
        assert any(it.method == "PATCH" and "/machinesets/" in it.path for it in asked), "it has not tried"
        assert leaving(cluster) == [first]
        assert claim_on(cluster, "workers") == claimed
        await cluster.pass_time(minutes=5)
        assert leaving(cluster) == [first]


async def test_a_deletion_that_the_server_refuses_is_told_and_tried_again(clock: Clock) -> None:
    """Case 4."""
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=1)
        cluster.line().faults.before(method="DELETE", path="machines", answer=500, times=3)
        cluster.run(operate)
        await order(cluster, old[0])
        await cluster.eventually(lambda: "is told to go: deleting machines" in message(cluster, old[0]))
        assert leaving(cluster) == []
        await all_replaced(cluster, old)


async def test_the_next_of_the_control_plane_goes_as_soon_as_the_one_before_is_gone(clock: Clock) -> None:
    """The new node is there first: nothing happens after the end of the old one that would wake anybody."""
    paces = Paces(instance=timedelta(), node=timedelta(seconds=1), termination=timedelta(seconds=10))
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=paces):
        old = await with_control_plane(cluster)
        cluster.run(operate)
        for name in old:
            await order(cluster, name)
        await cluster.eventually(lambda: not set(old) & set(machines(cluster)), within=timedelta(minutes=1))


async def test_a_hostile_record_holds_up_no_other(clock: Clock) -> None:
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(operate)
        hostile = {"machinelink": "../../nodes/x", "machineid": "%00", "eventid": "x" * 5000}
        kind = {"apiVersion": "machinemaintenance.managed.openshift.io/v1alpha1", "kind": "MachineMaintenance"}
        meta = {"name": "hostile", "namespace": NAMESPACE}
        await cluster.create(kind | {"metadata": meta, "spec": {"maintenancescheduled": False, **hostile}})
        await order(cluster, old[0])
        await all_replaced(cluster, old)
        assert phase(cluster, "hostile") == "Refused"


async def test_an_idle_operator_writes_nothing(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=2)
        cluster.run(operating(Terms(lead=timedelta(days=1))))
        later = (clock.now() + timedelta(days=9)).isoformat()
        await order(cluster, old[0], notbefore=later)
        await cluster.eventually(lambda: phase(cluster, old[0]), becomes="Planned")
        told = len([it for it in cluster.history if it.who == "operator"])
        await cluster.pass_time(hours=1)
        assert len([it for it in cluster.history if it.who == "operator"]) <= told + 1  # its event may come late
        assert [it.getMessage() for it in caplog.records if it.levelname in ("WARNING", "ERROR")] == []
