"""Events that trigger a reconcile of MachineMaintenances, and its delay."""

from datetime import timedelta

from haulout.api.hold import ANNOTATION as HOLD
from haulout.api.machinemaintenance import NAMESPACE
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.core.clock import Clock
from haulout_sandbox.openshift.machine import MachineApiDelays
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.platforms.machinemaintenance import (
    PLURAL,
    create_machinemaintenance,
    machinemaintenance_operator,
    message,
    phase,
    run_operator,
    warning_reasons,
)
from support.platforms.openshift import (
    SHORT_DELAYS,
    claimed_machine,
    create_control_plane,
    create_machine_set,
    machine_api,
    node_of,
    terminating_machines,
    with_openshift,
)

SHORTLY = timedelta(seconds=3)
SLOW = MachineApiDelays(
    instance=timedelta(minutes=20), node_join=timedelta(seconds=1), termination=timedelta(seconds=3)
)


async def test_machinemaintenance_deleted_during_its_surge_releases_its_machine_set_at_once(clock: Clock) -> None:
    """The new Machine takes 20 minutes, so that no other event wakes the set."""
    plan = with_openshift(a_cluster(clock))
    async with plan.on_the_sandbox() as cluster, machine_api(cluster, delays=SLOW):
        first, _ = await create_machine_set(cluster, "workers", replicas=2)
        cluster.run(machinemaintenance_operator(ReplacementPolicy(surge=True)))
        await create_machinemaintenance(cluster, first)
        await cluster.eventually(lambda: phase(cluster, first), becomes="Surging")
        await cluster.pass_time(minutes=1)
        await cluster.delete(PLURAL, f"{NAMESPACE}/mm-{first}")
        await cluster.eventually(lambda: claimed_machine(cluster, "workers"), becomes="", within=SHORTLY)
        assert cluster.get("machinesets", f"{MACHINE_NAMESPACE}/workers")["spec"]["replicas"] == 2


async def test_rate_limited_status_is_written_before_the_next_requeue(clock: Clock) -> None:
    """The next requeue is days ahead."""
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        [machine] = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(machinemaintenance_operator(ReplacementPolicy(lead=timedelta(days=1))))
        start = clock.now() + timedelta(days=9)
        await create_machinemaintenance(cluster, machine, notbefore=start.isoformat())
        await cluster.eventually(lambda: phase(cluster, machine), becomes="Planned")
        before = message(cluster, machine)
        moved = (start + timedelta(days=3)).isoformat()
        await cluster.patch(PLURAL, f"{NAMESPACE}/mm-{machine}", spec={"notbefore": moved})
        await cluster.eventually(lambda: message(cluster, machine) != before, within=SHORTLY)


async def test_heartbeat_of_a_control_plane_node_costs_no_request(clock: Clock) -> None:
    def requests(cluster: SandboxCluster) -> int:
        return len(cluster.transport().sent_requests(path="/controlplanemachinesets"))

    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        first, *_ = await create_control_plane(cluster)
        node = node_of(cluster, first)
        cluster.run(run_operator)
        await cluster.pass_time(minutes=1)
        before, version = requests(cluster), cluster.get("nodes", node)["metadata"]["resourceVersion"]
        await cluster.pass_time(minutes=30)
        assert cluster.get("nodes", node)["metadata"]["resourceVersion"] != version, "no heartbeat"
        assert requests(cluster) == before
        cluster.kubelets.set_not_ready(node, "the disk is broken")
        await cluster.eventually(lambda: requests(cluster) > before)


async def test_a_record_that_somebody_changed_unseen_is_read_again_at_once(clock: Clock) -> None:
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        [machine] = await create_machine_set(cluster, "workers", replicas=1)
        await cluster.patch("nodes", node_of(cluster, machine), metadata={"annotations": {HOLD: "a migration"}})
        cluster.run(run_operator)
        await create_machinemaintenance(cluster, machine)
        await cluster.eventually(lambda: phase(cluster, machine), becomes="Waiting")
        await cluster.pass_time(minutes=1)
        cluster.transport().faults.delay_event(timedelta(minutes=30), path=f"/{PLURAL}", times=None)
        await cluster.patch(PLURAL, f"{NAMESPACE}/mm-{machine}", metadata={"annotations": {"ticket": "42"}})
        await cluster.patch("nodes", node_of(cluster, machine), metadata={"annotations": {HOLD: None}})
        await cluster.eventually(lambda: machine in terminating_machines(cluster), within=SHORTLY)


async def test_a_record_whose_set_cannot_be_read_says_so_until_it_can(clock: Clock) -> None:
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        first, *_ = await create_control_plane(cluster)
        cluster.run(run_operator)
        await cluster.pass_time(minutes=1)
        faults = cluster.transport().faults
        refusal = faults.fail_before_effect(method="GET", path="/controlplanemachinesets", response=403, times=None)
        await create_machinemaintenance(cluster, first)
        await cluster.eventually(lambda: "controlplanemachinesets" in message(cluster, first))
        assert phase(cluster, first) == "Waiting"
        await cluster.eventually(lambda: warning_reasons(cluster, first), becomes=["Failed"])
        faults.remove(refusal)
        await cluster.eventually(lambda: first in terminating_machines(cluster), within=timedelta(minutes=2))
