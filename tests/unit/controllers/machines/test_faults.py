"""With any fault and several operators, one Machine is replaced at a time, and all replacements complete."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from haulout.api.machinemaintenance import NAMESPACE
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.core.clock import Clock
from haulout_sandbox.apiserver import Write
from haulout_sandbox.openshift.machine import MachineApiDelays
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.faults.named_faults import Fault, fault_mixture
from support.faults.selection import faults_for_turn
from support.platforms.machinemaintenance import (
    create_machinemaintenance,
    is_deletion_scheduled,
    machinemaintenance_operator,
    message,
    phase,
    run_operator,
    wait_until_completed,
)
from support.platforms.openshift import (
    SHORT_DELAYS,
    TIMEOUT,
    claimed_machine,
    create_control_plane,
    create_machine_set,
    machine_api,
    machines,
    ready_machines,
    terminating_machines,
    with_openshift,
)

WORKERS = f"{MACHINE_NAMESPACE}/workers"


def most_deleting(history: Sequence[Write]) -> int:
    """Return the maximum of Machines that were terminating at once."""
    gone: set[str] = set()
    most = 0
    for write in history:
        if write.kind.plural == "machines":
            is_leaving = "deletionTimestamp" in (write.after or {}).get("metadata", {})
            gone = gone | {write.key} if is_leaving else gone - {write.key}
            most = max(most, len(gone))
    return most


def most_desired(history: Sequence[Write]) -> int:
    """Return the maximum replicas of the MachineSet."""
    found = [item.after for item in history if item.kind.plural == "machinesets" and item.after is not None]
    return max(int(item["spec"]["replicas"]) for item in found)


async def all_replaced(cluster: SandboxCluster, old: list[str]) -> None:
    for name in old:
        await wait_until_completed(cluster, name)
        assert is_deletion_scheduled(cluster, name)
    await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=len(old), within=TIMEOUT)
    await cluster.eventually(lambda: claimed_machine(cluster, "workers"), becomes="", within=TIMEOUT)
    assert len(machines(cluster)) == len(old)
    assert not set(old) & set(machines(cluster))
    assert most_deleting(cluster.history) == 1


OTHERS = ("pod events late", "the scheduler pauses")  # there are no pods


@pytest.mark.parametrize(
    "fault", [*(it for it in faults_for_turn(0) if it.name not in OTHERS), *map(fault_mixture, range(3))], ids=str
)
async def test_replacement_completes_despite_any_fault(clock: Clock, fault: Fault) -> None:
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        old = await create_machine_set(cluster, "workers", replicas=2)
        cluster.run(run_operator)
        for name in old:
            await create_machinemaintenance(cluster, name)
        await cluster.pass_time(seconds=0.004)
        await cluster.inject_fault(fault)
        await all_replaced(cluster, old)


@pytest.mark.parametrize("terms", [ReplacementPolicy(), ReplacementPolicy(surge=True)], ids=["plainly", "with a surge"])
async def test_two_leaders_replace_one_machine_at_a_time(clock: Clock, terms: ReplacementPolicy) -> None:
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        old = await create_machine_set(cluster, "workers", replicas=3)
        for name in ("one", "two"):
            cluster.run(machinemaintenance_operator(terms), name=name)
        for name in old:
            await create_machinemaintenance(cluster, name)
        await all_replaced(cluster, old)
        assert most_desired(cluster.history) == (4 if terms.surge else 3)


async def test_operator_with_a_stale_cache_does_not_replace_a_second_machine(clock: Clock) -> None:
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        old = await create_machine_set(cluster, "workers", replicas=3)
        cluster.run(run_operator, name="stale")
        await cluster.pass_time(seconds=1)
        cluster.transport("stale").faults.delay_event(timedelta(minutes=2), path="machine.openshift.io", times=None)
        cluster.run(run_operator, name="fresh")
        await create_machinemaintenance(cluster, old[0])
        await cluster.eventually(lambda: terminating_machines(cluster), becomes=[old[0]])
        for name in old[1:]:
            await create_machinemaintenance(cluster, name)
        await all_replaced(cluster, old)


async def test_claim_is_acquired_by_one_of_two_operators(clock: Clock) -> None:
    """The claim requires the resource version of the set: a stale operator cannot overwrite another claim."""
    paces = MachineApiDelays(instance=timedelta(), node_join=timedelta(seconds=1), termination=timedelta(hours=1))
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=paces):
        first, second = await create_machine_set(cluster, "workers", replicas=2)
        cluster.run(machinemaintenance_operator(namespace=""), name="fresh")
        cluster.run(machinemaintenance_operator(namespace="later"), name="stale")  # it does not know the first record
        await cluster.pass_time(seconds=1)
        cluster.transport("stale").faults.delay_event(
            timedelta(minutes=2), path="/apis/machine.openshift.io", times=None
        )
        await create_machinemaintenance(cluster, first)
        await cluster.eventually(lambda: terminating_machines(cluster), becomes=[first])
        claimed = claimed_machine(cluster, "workers")
        await create_machinemaintenance(cluster, second, namespace="later")
        await cluster.pass_time(minutes=1)
        requested = [request.request for request in cluster.processes["stale"].transport.requests]
        assert any(request.method == "PATCH" and "/machinesets/" in request.path for request in requested), (
            "it sent no request"
        )
        assert terminating_machines(cluster) == [first]
        assert claimed_machine(cluster, "workers") == claimed
        await cluster.pass_time(minutes=5)
        assert terminating_machines(cluster) == [first]


async def test_refused_deletion_is_reported_and_retried(clock: Clock) -> None:
    """Case 4."""
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        old = await create_machine_set(cluster, "workers", replicas=1)
        cluster.transport().faults.fail_before_effect(method="DELETE", path="machines", response=500, times=3)
        cluster.run(run_operator)
        await create_machinemaintenance(cluster, old[0])
        await cluster.eventually(lambda: "is to be deleted: deleting machines" in message(cluster, old[0]))
        assert terminating_machines(cluster) == []
        await all_replaced(cluster, old)


async def test_next_control_plane_machine_follows_as_soon_as_the_previous_one_is_gone(clock: Clock) -> None:
    """The new node exists first: no event follows the end of the old one."""
    paces = MachineApiDelays(instance=timedelta(), node_join=timedelta(seconds=1), termination=timedelta(seconds=10))
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=paces):
        old = await create_control_plane(cluster)
        cluster.run(run_operator)
        for name in old:
            await create_machinemaintenance(cluster, name)
        await cluster.eventually(lambda: not set(old) & set(machines(cluster)), within=timedelta(minutes=1))


async def test_hostile_record_delays_no_other(clock: Clock) -> None:
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        old = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(run_operator)
        hostile = {"machinelink": "../../nodes/x", "machineid": "%00", "eventid": "x" * 5000}
        kind = {"apiVersion": "machinemaintenance.managed.openshift.io/v1alpha1", "kind": "MachineMaintenance"}
        meta = {"name": "hostile", "namespace": NAMESPACE}
        await cluster.create(kind | {"metadata": meta, "spec": {"maintenancescheduled": False, **hostile}})
        await create_machinemaintenance(cluster, old[0])
        await all_replaced(cluster, old)
        assert phase(cluster, "hostile") == "Refused"


async def test_an_idle_operator_writes_nothing(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        old = await create_machine_set(cluster, "workers", replicas=2)
        cluster.run(machinemaintenance_operator(ReplacementPolicy(lead=timedelta(days=1))))
        later = (clock.now() + timedelta(days=9)).isoformat()
        await create_machinemaintenance(cluster, old[0], notbefore=later)
        await cluster.eventually(lambda: phase(cluster, old[0]), becomes="Planned")
        write_count = len([write for write in cluster.history if write.username == "operator"])
        await cluster.pass_time(hours=1)
        assert (
            len([write for write in cluster.history if write.username == "operator"]) <= write_count + 1
        )  # its event may come late
        assert [write.getMessage() for write in caplog.records if write.levelname in ("WARNING", "ERROR")] == []
