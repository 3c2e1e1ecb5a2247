"""What wakes the controller of MachineMaintenances, and how soon it acts."""

from datetime import timedelta

from haulout.core.clock import Clock
from haulout.kinds.machinemaintenance import NAMESPACE
from haulout.kinds.openshift import MACHINE_NAMESPACE
from haulout.machines.timing import Terms
from haulout_sandbox.openshift import Paces
from support.clusters import a_cluster
from support.live import SandboxCluster
from support.openshift import BRISK, claim_on, machine_api, node_of, openshift, with_control_plane, with_machine_set
from support.replacing import PLURAL, message, operate, operating, order, phase

SHORTLY = timedelta(seconds=3)
SLOW = Paces(instance=timedelta(minutes=20), node=timedelta(seconds=1), termination=timedelta(seconds=3))


async def test_a_record_that_is_deleted_during_its_surge_frees_its_set_at_once(clock: Clock) -> None:
    """The new Machine takes 20 minutes, so that no other event wakes the set."""
    plan = openshift(a_cluster(clock))
    async with plan.on_the_sandbox() as cluster, machine_api(cluster, paces=SLOW):
        first, _ = await with_machine_set(cluster, "workers", replicas=2)
        cluster.run(operating(Terms(surge=True)))
        await order(cluster, first)
        await cluster.eventually(lambda: phase(cluster, first), becomes="Surging")
        await cluster.pass_time(minutes=1)
        await cluster.delete(PLURAL, f"{NAMESPACE}/mm-{first}")
        await cluster.eventually(lambda: claim_on(cluster, "workers"), becomes="", within=SHORTLY)
        assert cluster.get("machinesets", f"{MACHINE_NAMESPACE}/workers")["spec"]["replicas"] == 2


async def test_a_status_that_may_not_be_written_yet_is_written_before_the_next_look(clock: Clock) -> None:
    """The next look is days ahead."""
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        [machine] = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(operating(Terms(lead=timedelta(days=1))))
        start = clock.now() + timedelta(days=9)
        await order(cluster, machine, notbefore=start.isoformat())
        await cluster.eventually(lambda: phase(cluster, machine), becomes="Planned")
        before = message(cluster, machine)
        moved = (start + timedelta(days=3)).isoformat()
        await cluster.change(PLURAL, f"{NAMESPACE}/mm-{machine}", spec={"notbefore": moved})
        await cluster.eventually(lambda: message(cluster, machine) != before, within=SHORTLY)


async def test_a_heartbeat_of_a_control_plane_node_costs_no_request(clock: Clock) -> None:
    def requests(cluster: SandboxCluster) -> int:
        return len(cluster.line().asked(path="/controlplanemachinesets"))

    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        first, *_ = await with_control_plane(cluster)
        node = node_of(cluster, first)
        cluster.run(operate)
        await cluster.pass_time(minutes=1)
        before, version = requests(cluster), cluster.get("nodes", node)["metadata"]["resourceVersion"]
        await cluster.pass_time(minutes=30)
        assert cluster.get("nodes", node)["metadata"]["resourceVersion"] != version, "no heartbeat"
        assert requests(cluster) == before
        cluster.kubelets.ail(node, "the disk is broken")
        await cluster.eventually(lambda: requests(cluster) > before)
