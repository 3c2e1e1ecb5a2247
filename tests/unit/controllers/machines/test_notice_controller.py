"""Records that are written from notices, when somebody else writes them at the same time."""

from datetime import datetime, timedelta

from haulout.api.machinemaintenance import NAMESPACE
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.core.clock import Clock
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.platforms.machine_notices import machine_notice_operator, report_event
from support.platforms.machinemaintenance import PLURAL, machinemaintenance_of, phase
from support.platforms.openshift import (
    SHORT_DELAYS,
    create_machine_set,
    instance_of,
    machine_api,
    terminating_machines,
    with_openshift,
)

DAY = timedelta(days=1)
LATE = ReplacementPolicy(lead=DAY)


def starts_at(cluster: SandboxCluster, name: str) -> datetime:
    return datetime.fromisoformat(machinemaintenance_of(cluster, name)["spec"]["notbefore"])


async def test_rescheduled_event_updates_its_record_after_a_conflict(clock: Clock) -> None:
    start = clock.now() + 10 * DAY
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        [machine] = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(machine_notice_operator(replacement_policy=LATE))
        await report_event(cluster, machine, event="1", start=start)
        await cluster.eventually(lambda: phase(cluster, f"{machine}-1"), becomes="Planned")
        conflict = cluster.transport().faults.fail_before_effect(method="PATCH", path=f"/{PLURAL}/", response=409)
        await report_event(cluster, machine, event="1", start=start + DAY)
        await cluster.eventually(lambda: starts_at(cluster, f"{machine}-1"), becomes=start + DAY)
        assert conflict.hits == 1


async def test_rescheduled_event_does_not_update_the_record_of_a_machine_that_was_just_deleted(clock: Clock) -> None:
    """The operator reads from a stale cache that the Machine is still to be deleted."""
    start = clock.now() + 10 * DAY
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        [machine] = await create_machine_set(cluster, "workers", replicas=1)
        instance = instance_of(cluster, machine)
        cluster.run(machine_notice_operator(replacement_policy=LATE))
        await report_event(cluster, machine, event="1", start=start)
        await cluster.eventually(lambda: phase(cluster, f"{machine}-1"), becomes="Planned")
        cluster.transport().faults.delay_event(timedelta(minutes=2), path=f"/{PLURAL}", times=None)
        await cluster.patch(PLURAL, f"{NAMESPACE}/mm-{machine}-1", spec={"maintenancescheduled": True})
        await report_event(cluster, machine, event="1", instance=instance, start=start + DAY)
        await cluster.pass_time(minutes=10)
        requested_paths = [
            request.path for request in cluster.transport().sent_requests(method="PATCH", path=f"/{PLURAL}/")
        ]
        assert any(request.endswith(f"/mm-{machine}-1") for request in requested_paths), "it sent no request"
        assert starts_at(cluster, f"{machine}-1") == start
        assert terminating_machines(cluster) == []
