"""The operator crashes at each write, and its successor completes the replacement."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.machinemaintenance import NAMESPACE
from haulout.api.maintenancenotice import NoticeStage as Stages
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import Write
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.faults.crash_test import CrashRun, assert_survives_crashes, counts_as_write
from support.platforms.machine_notices import machine_notice_operator, report_event
from support.platforms.machinemaintenance import (
    PLURAL,
    create_machinemaintenance,
    is_deletion_scheduled,
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
    instance_of,
    machine_api,
    machines,
    ready_machines,
    terminating_machines,
    with_openshift,
)

WORKERS = f"{MACHINE_NAMESPACE}/workers"
Run = Callable[[CrashRun], Awaitable[None]]
Counts = Callable[[Request], bool]


def ends(history: Sequence[Write]) -> Any:
    """Return the deleted Machines, the final phases, and the replicas of the MachineSets."""
    gone, deletion_requested, wanted = set(), {}, {}
    for write in history:
        if write.kind.plural == "machines" and "deletionTimestamp" in (write.after or {}).get("metadata", {}):
            gone.add(write.key)
        if write.kind.plural == PLURAL and write.after is not None:
            deletion_requested[write.key] = (
                write.after.get("status", {}).get("phase"),
                write.after["spec"]["maintenancescheduled"],
            )
        if write.kind.plural == "machinesets" and write.after is not None:
            wanted[write.key] = write.after["spec"]["replicas"], write.after["metadata"].get("annotations")
    return gone, deletion_requested, wanted


async def wait_until_settled(cluster: SandboxCluster, count: int) -> None:
    await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=count, within=TIMEOUT)
    await cluster.eventually(lambda: len(machines(cluster)), becomes=count, within=TIMEOUT)
    await cluster.eventually(lambda: claimed_machine(cluster, "workers"), becomes="")
    assert cluster.get("machinesets", WORKERS)["spec"]["replicas"] == count


async def one_by_one(crash_run: CrashRun) -> None:
    """Replace both Machines of a set."""
    async with (
        with_openshift(a_cluster(crash_run.clock)).on_the_sandbox() as cluster,
        machine_api(cluster, delays=SHORT_DELAYS),
    ):
        old = await create_machine_set(cluster, "workers", replicas=2)
        crash_run.start_operator(cluster.cluster)
        for name in old:
            await create_machinemaintenance(cluster, name)
        for name in old:
            await wait_until_completed(cluster, name)
            assert is_deletion_scheduled(cluster, name)
        await wait_until_settled(cluster, 2)


async def one(crash_run: CrashRun) -> None:
    """Replace one Machine."""
    async with (
        with_openshift(a_cluster(crash_run.clock)).on_the_sandbox() as cluster,
        machine_api(cluster, delays=SHORT_DELAYS),
    ):
        old = await create_machine_set(cluster, "workers", replicas=2)
        crash_run.start_operator(cluster.cluster)
        await create_machinemaintenance(cluster, old[0])
        await wait_until_completed(cluster, old[0])
        assert is_deletion_scheduled(cluster, old[0])
        await wait_until_settled(cluster, 2)
        assert old[1] in machines(cluster)


async def cancelled_surge(crash_run: CrashRun) -> None:
    """Cancel a surge before the new node exists."""
    async with (
        with_openshift(a_cluster(crash_run.clock)).on_the_sandbox() as cluster,
        machine_api(cluster, delays=SHORT_DELAYS),
    ):
        old = await create_machine_set(cluster, "workers", replicas=2)
        crash_run.start_operator(cluster.cluster)
        await create_machinemaintenance(cluster, old[0])
        await cluster.eventually(lambda: phase(cluster, old[0]), becomes="Surging")
        change = {"description": "[Canceled] degraded hardware"}
        await cluster.patch(PLURAL, f"{NAMESPACE}/mm-{old[0]}", spec=change)
        await cluster.eventually(lambda: phase(cluster, old[0]), becomes="Cancelled")
        await wait_until_settled(cluster, 2)
        assert machines(cluster) == sorted(old)
        assert terminating_machines(cluster) == []


async def control_plane_machines(crash_run: CrashRun) -> None:
    """Replace two Machines of the control plane."""
    async with (
        with_openshift(a_cluster(crash_run.clock)).on_the_sandbox() as cluster,
        machine_api(cluster, delays=SHORT_DELAYS),
    ):
        old = await create_control_plane(cluster)
        crash_run.start_operator(cluster.cluster)
        for name in old[:2]:
            await create_machinemaintenance(cluster, name)
        for name in old[:2]:
            await wait_until_completed(cluster, name)
            assert is_deletion_scheduled(cluster, name)
        await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=3, within=TIMEOUT)
        assert old[2] in machines(cluster)


async def two_events_of_one_instance(crash_run: CrashRun) -> None:
    """Report two events of one instance, and cancel one of them."""
    async with (
        with_openshift(a_cluster(crash_run.clock)).on_the_sandbox() as cluster,
        machine_api(cluster, delays=SHORT_DELAYS),
    ):
        old = await create_machine_set(cluster, "workers", replicas=2)
        instance = instance_of(cluster, old[0])
        crash_run.start_operator(cluster.cluster)
        soon = crash_run.clock.now() + timedelta(minutes=6)
        await report_event(cluster, old[0], event="1", start=soon)
        await report_event(cluster, old[0], event="2", start=soon)
        await cluster.eventually(lambda: len(cluster.by_key(PLURAL)), becomes=2)
        await report_event(cluster, old[0], event="2", instance=instance, stage=Stages.CANCELLED)
        await cluster.eventually(lambda: phase(cluster, f"{old[0]}-2"), becomes="Cancelled")
        await report_event(cluster, old[0], event="1", instance=instance, start=soon - timedelta(minutes=2))
        await wait_until_completed(cluster, f"{old[0]}-1")
        await wait_until_settled(cluster, 2)
        assert old[1] in machines(cluster)


def counted_writes(*parts: str) -> Counts:
    """Count writes to these paths except status; other writes belong to another scenario."""

    def counts(request: Request) -> bool:
        is_status = request.path.endswith("/status")
        return counts_as_write(request) and not is_status and any(part in request.path for part in parts)

    return counts


STORIES: dict[str, tuple[Run, ReplacementPolicy, Counts, int]] = {
    "one": (one, ReplacementPolicy(), counts_as_write, 7),
    "one after the other": (one_by_one, ReplacementPolicy(), counted_writes("/machinesets"), 5),
    "with a surge": (one, ReplacementPolicy(surge=True), counts_as_write, 11),
    "a surge called off": (cancelled_surge, ReplacementPolicy(surge=True), counts_as_write, 5),
    "of the control plane": (
        control_plane_machines,
        ReplacementPolicy(),
        counted_writes("/controlplanemachinesets", "/machines/"),
        7,
    ),
    "heard of": (
        two_events_of_one_instance,
        ReplacementPolicy(lead=timedelta(minutes=2)),
        counted_writes("/machinemaintenances", "/v1/namespaces"),
        8,
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_replacement_survives_a_crash_at_any_write(story: str) -> None:
    run, terms, counts, writes = STORIES[story]
    found = assert_survives_crashes(
        run,
        operator=machine_notice_operator(replacement_policy=terms),
        compare=ends,
        counts=counts,
        writes_only_to_api=story != "one",
    )
    assert found >= writes


def test_restarted_operator_recognizes_that_the_deleted_machine_was_its_own_deletion() -> None:
    found = assert_survives_crashes(
        one, operator=run_operator, compare=ends, restart_delay=timedelta(minutes=1), writes_only_to_api=True
    )
    assert found >= 6
