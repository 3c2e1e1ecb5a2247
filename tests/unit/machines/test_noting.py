"""Records that are written from notices, when somebody else writes them at the same time."""

from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout.kinds.machinemaintenance import NAMESPACE
from haulout.machines.timing import Terms
from support.clusters import a_cluster
from support.live import SandboxCluster
from support.openshift import BRISK, instance_of, leaving, machine_api, openshift, with_machine_set
from support.replacing import PLURAL, phase, record
from support.telling import hear, noting

DAY = timedelta(days=1)
LATE = Terms(lead=DAY)


def starts_at(cluster: SandboxCluster, name: str) -> datetime:
    return datetime.fromisoformat(record(cluster, name)["spec"]["notbefore"])


async def test_a_moved_event_moves_its_record_though_somebody_else_changed_the_record(clock: Clock) -> None:
    start = clock.now() + 10 * DAY
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        [machine] = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(noting(terms=LATE))
        await hear(cluster, machine, event="1", start=start)
        await cluster.eventually(lambda: phase(cluster, f"{machine}-1"), becomes="Planned")
        conflict = cluster.line().faults.before(method="PATCH", path=f"/{PLURAL}/", answer=409)
        await hear(cluster, machine, event="1", start=start + DAY)
        await cluster.eventually(lambda: starts_at(cluster, f"{machine}-1"), becomes=start + DAY)
        assert conflict.hits == 1


async def test_a_moved_event_does_not_move_a_record_whose_machine_was_just_deleted(clock: Clock) -> None:
    """The operator reads from a stale cache that the Machine is still to be deleted."""
    start = clock.now() + 10 * DAY
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        [machine] = await with_machine_set(cluster, "workers", replicas=1)
        instance = instance_of(cluster, machine)
        cluster.run(noting(terms=LATE))
        await hear(cluster, machine, event="1", start=start)
        await cluster.eventually(lambda: phase(cluster, f"{machine}-1"), becomes="Planned")
        cluster.line().faults.late(timedelta(minutes=2), path=f"/{PLURAL}", times=None)
        await cluster.change(PLURAL, f"{NAMESPACE}/mm-{machine}-1", spec={"maintenancescheduled": True})
        await hear(cluster, machine, event="1", instance=instance, start=start + DAY)
        await cluster.pass_time(minutes=10)
        asked = [it.path for it in cluster.line().asked(method="PATCH", path=f"/{PLURAL}/")]
        assert any(it.endswith(f"/mm-{machine}-1") for it in asked), "it has not tried"
        assert starts_at(cluster, f"{machine}-1") == start
        assert leaving(cluster) == []
