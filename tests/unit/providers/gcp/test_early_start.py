"""Starting a maintenance early, once its node is empty."""

from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import MaintenanceNotice, NoticePhase, NoticeStage
from haulout.core.clock import Clock
from haulout.errors import CloudError, RescheduleRefused
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.clouds.gcp import GcpWorld, a_gcp_world

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


async def a_notice(world: GcpWorld, *, can_start_early: bool = True) -> MaintenanceNotice:
    node = await world.join_node("n1")
    world.cloud.schedule(node, start=world.clock.now() + DAY, can_start_early=can_start_early)
    world.start()
    await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.PLANNED)
    return await world.only_notice()


async def test_early_start_request_starts_the_maintenance_and_is_detected_soon(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        await world.start_early(await a_notice(world))
        await world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE, within=MINUTE)
        assert world.cloud.operations.performed == ["n1"]
        world.cloud.end_maintenance("n1")
        await world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED)


async def test_repeated_early_start_is_idempotent(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        notice = await a_notice(world)
        await world.start_early(notice)
        await world.start_early(notice)
        assert world.cloud.operations.performed == ["n1"]


@pytest.mark.parametrize("operation", ["PerformMaintenance", "WaitOperation"])
async def test_early_start_is_retried_after_a_lost_response_and_performed_once(clock: Clock, operation: str) -> None:
    async with a_gcp_world(clock) as world:
        notice = await a_notice(world)
        world.cloud.faults.fail(operation, status=0, after=True)
        await world.start_early(notice)
        assert world.cloud.operations.performed == ["n1"]


async def test_long_running_operation_counts_as_agreed(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        notice = await a_notice(world)
        world.cloud.faults.hang("WaitOperation")
        before = clock.now()
        await world.start_early(notice)
        assert clock.now() - before < 2 * MINUTE


async def test_early_start_not_allowed_by_google_is_refused_without_a_call(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        notice = await a_notice(world, can_start_early=False)
        with pytest.raises(RescheduleRefused, match="Google does not let it begin early"):
            await world.start_early(notice)
        world.cloud.cancel_maintenance("n1")
        with pytest.raises(RescheduleRefused, match="Google plans no maintenance of n1 any more"):
            await world.start_early(notice)
        world.cloud.launch("n1")
        with pytest.raises(RescheduleRefused, match="the machine is gone, and another has its name"):
            await world.start_early(notice)
        world.cloud.remove("n1")
        with pytest.raises(RescheduleRefused, match="was not found"):
            await world.start_early(notice)
        assert "PerformMaintenance" not in world.cloud.faults.calls


async def test_early_start_of_a_preemption_is_refused(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        await world.join_node("n1", spot=True)
        world.cloud.preempt("n1")
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.stop()
        world.agent_on = ""
        world.start()
        await clock.sleep(SECOND)
        with pytest.raises(RescheduleRefused, match="it begins at once anyway"):
            await world.start_early(await world.only_notice())


async def test_refusal_of_google_is_reported_with_its_message(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        notice = await a_notice(world)
        world.cloud.faults.fail("PerformMaintenance", status=403, code="forbidden", message="no permission")
        with pytest.raises(RescheduleRefused, match=r"no permission \(the role of this account does not allow it\)"):
            await world.start_early(notice)
        world.cloud.operations.failure_message = "the host is busy"
        with pytest.raises(RescheduleRefused, match="Google does not begin it: the host is busy"):
            await world.start_early(notice)


async def test_transient_errors_of_early_start_are_raised_for_a_retry(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        notice = await a_notice(world)
        for status, code in ((503, ""), (403, "rateLimitExceeded"), (401, "authError")):
            rule = world.cloud.faults.fail("PerformMaintenance", status=status, code=code, times=None)
            with pytest.raises(CloudError):
                await world.start_early(notice)
            world.cloud.faults.remove(rule)
        await world.start_early(notice)
        assert world.cloud.operations.performed == ["n1"]


async def empty_node(world: GcpWorld) -> None:
    """Drain the node of a maintenance that is due."""
    node = await world.join_node("n1")
    world.cloud.schedule(node, start=world.clock.now() + 14 * MINUTE)
    world.start()
    await world.clock.sleep(10 * SECOND)
    await world.mark_drained(node)
    await world.clock.sleep(3 * MINUTE)


async def test_maintenance_starts_early_once_its_node_is_empty(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        node = await world.join_node("n1")
        world.cloud.schedule(node, start=clock.now() + 14 * MINUTE)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.DUE)
        await clock.sleep(2 * MINUTE)
        assert world.cloud.operations.performed == []
        await world.mark_drained(node)
        await world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE, within=MINUTE)
        assert world.cloud.operations.performed == ["n1"]


async def test_maintenance_that_ends_right_after_its_early_start_has_ended(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:

        async def quick(operation: str, after: bool) -> None:  # noqa: FBT001 - as faults call it
            if operation == "PerformMaintenance" and after:
                world.cloud.end_maintenance("n1")

        world.cloud.faults.on_call = quick
        await empty_node(world)
        assert (await world.only_notice()).spec.stage == NoticeStage.ENDED


def test_early_start_is_performed_once_after_an_operator_crash_at_any_step() -> None:
    async def run_scenario(crash_at: int | None) -> tuple[list[str], list[str], str]:
        async with a_gcp_world(VirtualClock(), crash_at=crash_at) as world:
            await empty_node(world)
            return world.steps, world.cloud.operations.performed, (await world.only_notice()).spec.stage

    steps, performed, stage = run_virtual(run_scenario(None))
    assert (performed, stage) == (["n1"], NoticeStage.STARTED)
    assert "after PerformMaintenance" in steps
    outcomes = {number: run_virtual(run_scenario(number))[1:] for number in range(1, len(steps) + 1)}
    assert {number: row for number, row in outcomes.items() if row != (["n1"], NoticeStage.STARTED)} == {}
