"""CronJobs of the OCI Node Maintenance Handler are adopted: none is lost and none is duplicated."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticePhase, NoticeStage
from haulout.api.resources import NAMESPACES, NODES
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout.providers.oci.handler_cronjobs import (
    ADOPTED_FROM_ANNOTATION,
    ADOPTED_LABEL,
    CRON_JOBS,
    NOTICE_ANNOTATION,
    CronJob,
)
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.builders.objects import a_namespace, a_node
from support.clouds.oci import DAY, HOUR, MINUTE, SECOND, OciWorld, an_oci_world
from support.clouds.oci_handler_cronjob import LEAD_TIME, NAMESPACE, a_drain_cronjob
from support.expectations.eventually import eventually
from support.faults.crash_points import CrashPoints, CrashPointTransport
from support.faults.injected_responses import ResponseInjector

NODE = "10.0.10.109"


@asynccontextmanager
async def a_world(clock: Clock) -> AsyncIterator[tuple[OciWorld, str]]:
    """Yield a world in which the handler has run, with the machine of its node."""
    async with an_oci_world(clock, idle_pause=10 * MINUTE) as world:
        world.adopts_cronjobs = True
        await world.client.create(NAMESPACES, a_namespace(NAMESPACE))
        machine = world.cloud.launch("oke-c1-n1-s1-0")
        await world.create_node(NODE, f"oci://{machine}")
        yield world, machine


async def plan(world: OciWorld, start: datetime, *, node: str = NODE, **changed: Any) -> CronJob:
    """Create the CronJob of a drain, as the handler does."""
    return await world.client.create(CRON_JOBS, a_drain_cronjob(node, start=start, **changed), namespace=NAMESPACE)


async def jobs(world: OciWorld) -> dict[str, bool]:
    """Return the CronJobs, and whether each is suspended."""
    return {notice.name: notice.spec.suspend for notice in (await world.client.list(CRON_JOBS)).items}


async def suspended(world: OciWorld) -> list[bool]:
    return list((await jobs(world)).values())


async def starts(world: OciWorld) -> list[datetime | None]:
    """Return the starts of the open notices."""
    over = (NoticeStage.CANCELLED, NoticeStage.ENDED)
    return [notice.spec.start for notice in await world.notices() if notice.spec.stage not in over]


def problems_of(world: OciWorld) -> str:
    assert world.source is not None
    return "\n".join(problem for problem in world.source.problems() if "CronJob" in problem)


async def test_case_33_adopted_cronjob_is_the_notice_of_its_oci_event(clock: Clock) -> None:
    async with a_world(clock) as (world, machine):
        start = clock.now() + 3 * DAY
        event = world.cloud.schedule(machine, start=start, silent=True)
        job = await plan(world, start)
        world.start()
        await world.wait_for_phase(event, NoticePhase.PLANNED)
        assert (await world.notice(event)).status.node_name == NODE
        await eventually(clock, lambda: suspended(world), becomes=[True])
        kept = (await world.client.get(CRON_JOBS, job.name, namespace=NAMESPACE)).metadata
        assert (kept.labels[ADOPTED_LABEL], kept.annotations[NOTICE_ANNOTATION]) == ("true", f"oci-{event}")
        await clock.sleep(2 * HOUR)
        assert [notice.spec.notice_id for notice in await world.notices()] == [event]


async def test_case_24_adopted_cronjob_is_deleted_at_its_time_without_running(clock: Clock) -> None:
    async with a_world(clock) as (world, machine):
        start = clock.now() + HOUR
        event = world.cloud.schedule(machine, start=start, silent=True)
        await plan(world, start)
        world.start()
        await clock.sleep(HOUR - MINUTE)
        assert await suspended(world) == [True]
        await clock.sleep(2 * MINUTE)
        assert await jobs(world) == {}
        assert await world.phase_of(event) == NoticePhase.DUE


async def test_case_17_only_the_new_time_of_a_rescheduled_maintenance_is_kept(clock: Clock) -> None:
    async with a_world(clock) as (world, machine):
        start = clock.now() + 3 * DAY
        event = world.cloud.schedule(machine, start=start, silent=True)
        await plan(world, start - DAY)
        await plan(world, start, clock_time="093000")
        world.start()
        await eventually(clock, lambda: suspended(world), becomes=[True, True])
        assert [(notice.spec.notice_id, notice.spec.start) for notice in await world.notices()] == [(event, start)]


async def test_cronjob_unknown_to_oci_is_adopted_as_planned_and_later_cancelled(clock: Clock) -> None:
    """Such as one from a manually written message. A maintenance that OCI does not list for long is cancelled."""
    async with a_world(clock) as (world, machine):
        start = (clock.now() + 3 * DAY).replace(second=0, microsecond=0)
        job = await plan(world, start)
        world.start()
        notice = await world.wait_for_phase(machine, NoticePhase.PLANNED)
        assert notice.spec.start == start
        assert notice.metadata.annotations[ADOPTED_FROM_ANNOTATION] == job.key
        assert await suspended(world) == [True]
        await world.wait_for_phase(machine, NoticePhase.CANCELLED, within=25 * MINUTE)


@pytest.mark.parametrize("status", [429, 503, 0, 401, 404])
async def test_cronjob_is_not_adopted_until_near_its_time_while_oci_fails(clock: Clock, status: int) -> None:
    async with a_world(clock) as (world, machine):
        start = (clock.now() + 3 * HOUR).replace(second=0, microsecond=0)
        world.cloud.faults.fail("GetInstance", status=status, times=None)
        await plan(world, start)
        world.start()
        await clock.sleep(start - LEAD_TIME - HOUR - clock.now() - MINUTE)
        assert await suspended(world) == [False]
        assert await world.notices() == []
        assert f"oci: CronJob wd/scheduled-drain-{NODE}-081531 is not adopted yet" in problems_of(world)
        await world.wait_for_phase(machine, NoticePhase.PLANNED, within=10 * MINUTE)
        assert await starts(world) == [start]
        await eventually(clock, lambda: suspended(world), becomes=[True])
        assert problems_of(world) == ""


async def test_notice_adopted_as_planned_is_replaced_by_the_later_oci_event(clock: Clock) -> None:
    async with a_world(clock) as (world, machine):
        start = (clock.now() + HOUR).replace(second=0, microsecond=0)
        event = world.cloud.schedule(machine, start=start, silent=True)
        problem = world.cloud.faults.fail("GetInstance", status=503, times=None)
        await plan(world, start)
        world.start()
        await world.wait_for_phase(machine, NoticePhase.PLANNED)
        world.cloud.faults.remove(problem)
        world.cloud.reschedule(event, start)  # any next event
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=11 * MINUTE)
        await world.wait_for_phase(machine, NoticePhase.CANCELLED, within=25 * MINUTE)
        assert await starts(world) == [start]


async def test_notice_of_an_adopted_cronjob_is_missed_after_a_day_without_oci(clock: Clock) -> None:
    async with a_world(clock) as (world, machine):
        for call in ("GetInstance", "GetInstanceMaintenanceEvent", "ListInstanceMaintenanceEvents"):
            world.cloud.faults.fail(call, status=404, times=None)
        await plan(world, clock.now() + HOUR)
        world.start()
        await world.wait_for_phase(machine, NoticePhase.PLANNED)
        await clock.sleep(DAY)
        assert await world.phase_of(machine) == NoticePhase.DUE
        await world.wait_for_phase(machine, NoticePhase.MISSED, within=2 * HOUR)


async def test_case_23_cronjob_whose_minute_has_passed_is_due_now(clock: Clock) -> None:
    """Its minute had begun when the handler created it."""
    async with a_world(clock) as (world, machine):
        await clock.sleep(20 * SECOND)
        start = clock.now() + LEAD_TIME + 10 * SECOND
        await plan(world, start)
        world.start()
        await world.wait_for_phase(machine, NoticePhase.DUE, within=MINUTE)


async def test_long_expired_cronjob_is_deleted_without_a_notice(clock: Clock) -> None:
    async with a_world(clock) as (world, _):
        await plan(world, clock.now() + HOUR)
        await clock.sleep(3 * HOUR)
        world.start()
        await eventually(clock, lambda: jobs(world), becomes={})
        assert await world.notices() == []


async def test_cronjob_with_an_active_job_is_deleted_only_after_the_job(clock: Clock) -> None:
    async with a_world(clock) as (world, _):
        job = await plan(world, clock.now() + HOUR)
        at_work = merge_patch(
            {"status": {"active": [{"kind": "Job", "name": f"{job.name}-1", "namespace": NAMESPACE}]}}
        )
        await world.client.patch(CRON_JOBS, job.name, at_work, namespace=NAMESPACE, subresource="status")
        await clock.sleep(2 * HOUR)
        world.start()
        await clock.sleep(MINUTE)
        assert await suspended(world) == [False]
        done = merge_patch({"status": {"active": None}})
        await world.client.patch(CRON_JOBS, job.name, done, namespace=NAMESPACE, subresource="status")
        await eventually(clock, lambda: jobs(world), becomes={})


async def test_cronjobs_created_while_the_operator_runs_are_adopted(clock: Clock) -> None:
    async with a_world(clock) as (world, machine):
        world.start()
        await clock.sleep(HOUR)
        start = clock.now() + 3 * DAY
        event = world.cloud.schedule(machine, start=start, silent=True)
        await plan(world, start)
        await world.wait_for_phase(event, NoticePhase.PLANNED)
        await eventually(clock, lambda: suspended(world), becomes=[True])


async def test_foreign_or_manually_suspended_cronjobs_are_not_adopted(clock: Clock) -> None:
    async with a_world(clock) as (world, machine):
        world.cloud.schedule(machine, start=clock.now() + HOUR, silent=True)
        await plan(world, clock.now() + HOUR, schedule="45 1 * * 6")
        await plan(world, clock.now() + HOUR, clock_time="100000", suspend=True)
        world.start()
        await clock.sleep(3 * HOUR)
        assert sorted(await suspended(world)) == [False, True]
        assert await world.notices() == []


async def test_cronjob_restored_by_a_rollback_is_adopted_again(clock: Clock) -> None:
    async with a_world(clock) as (world, machine):
        start = clock.now() + 3 * DAY
        event = world.cloud.schedule(machine, start=start, silent=True)
        job = await plan(world, start)
        world.start()
        await eventually(clock, lambda: suspended(world), becomes=[True])
        world.kill()
        back = merge_patch({"metadata": {"labels": {ADOPTED_LABEL: None}}, "spec": {"suspend": False}})
        await world.client.patch(CRON_JOBS, job.name, back, namespace=NAMESPACE)
        await world.client.delete(MAINTENANCE_NOTICES, f"oci-{event}")
        await clock.sleep(HOUR)
        world.start()
        await world.wait_for_phase(event, NoticePhase.PLANNED)
        await eventually(clock, lambda: suspended(world), becomes=[True])


async def test_adoption_waits_for_a_missing_node(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with a_world(clock) as (world, _):
        start = (clock.now() + 3 * DAY).replace(second=0, microsecond=0)
        await plan(world, start, node="10.0.10.211")
        world.start()
        await eventually(clock, lambda: "there is no node 10.0.10.211" in caplog.text)
        await world.client.create(NODES, a_node("10.0.10.211"))  # which has no provider ID
        await eventually(clock, lambda: starts(world), becomes=[start])
        await eventually(clock, lambda: suspended(world), becomes=[True])
        (notice,) = await world.notices()
        assert notice.spec.node_name == "10.0.10.211"
        assert problems_of(world) == ""


async def test_cronjob_is_not_adopted_under_the_name_of_a_finished_notice(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(clock) as (world, machine):
        first = await plan(world, clock.now() + 3 * DAY)
        world.start()
        await world.wait_for_phase(machine, NoticePhase.CANCELLED, within=25 * MINUTE)
        await world.client.delete(CRON_JOBS, first.name, namespace=NAMESPACE)
        await plan(world, clock.now() + 2 * DAY, clock_time="100000")
        await eventually(clock, lambda: f"MaintenanceNotice oci-{machine} is over" in caplog.text)
        assert await suspended(world) == [False]  # it still drains by itself


async def test_missing_permission_to_read_cronjobs_is_reported_and_events_are_processed(clock: Clock) -> None:
    async with a_world(clock) as (world, machine):
        answers = ResponseInjector()
        answers.inject(403, matches=lambda request: "cronjobs" in request.path)
        world.transport = answers.wrap_transport(world.transport)
        world.start()
        event = world.cloud.schedule(machine, start=clock.now() + DAY)
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=11 * MINUTE)
        assert "CronJobs cannot be read, retrying: watching cronjobs.batch" in problems_of(world)


# Crashes


async def scenario(clock: Clock, points: CrashPoints) -> tuple[Any, ...]:
    """Adopt two drains, of which OCI knows one; return the final notices."""
    async with a_world(clock) as (world, machine):
        world.transport = CrashPointTransport(world.transport, points)

        async def calls(operation: str, after: bool) -> None:  # noqa: FBT001 - as the fake cloud calls it
            if operation == "GetInstance":  # other calls are tested elsewhere
                await points.call(operation, after)

        world.cloud.faults.on_call = calls
        points.kill = lambda: _kill_and_restart(world)
        start = (clock.now() + HOUR).replace(second=0, microsecond=0)
        event = world.cloud.schedule(machine, start=start, silent=True)
        await world.client.create(NODES, a_node("10.0.10.211"))
        await plan(world, start)
        await plan(world, start, node="10.0.10.211")
        world.start()
        for _ in range(20):
            await clock.sleep(10 * SECOND)
            await _assert_suspended_cronjobs_have_notices(world)
        assert await suspended(world) == [True, True]
        await clock.sleep(start - clock.now() + 2 * MINUTE)
        points.crash_at = 0
        assert await jobs(world) == {}
        return event, sorted((notice.name, notice.spec.start, notice.status.phase) for notice in await world.notices())


async def _assert_suspended_cronjobs_have_notices(world: OciWorld) -> None:
    """Assert that each suspended CronJob has a notice."""
    there = {notice.name for notice in await world.notices()}
    for job in (await world.client.list(CRON_JOBS)).items:
        assert not job.spec.suspend or job.metadata.annotations[NOTICE_ANNOTATION] in there


def _kill_and_restart(world: OciWorld) -> None:
    world.kill()
    world.tasks.create_task(_restart_later(world))


async def _restart_later(world: OciWorld) -> None:
    await world.clock.sleep(timedelta(seconds=40))
    world.start()


def run_with_crash_at(at: int = 0) -> tuple[tuple[Any, ...], CrashPoints]:
    points = CrashPoints(at)

    async def run() -> tuple[Any, ...]:
        return await scenario(VirtualClock(), points)

    return run_virtual(run()), points


def test_adoption_is_the_same_after_a_crash_at_any_step() -> None:
    expected, uninterrupted = run_with_crash_at()
    assert len(expected[1]) == 2
    assert {"after POST", "before PATCH", "after PATCH", "after DELETE", "after GetInstance"} <= set(
        uninterrupted.reached
    )
    for number, what in enumerate(uninterrupted.reached, start=1):
        found, _ = run_with_crash_at(number)
        assert found == expected, f"killed {what}, point {number}"
