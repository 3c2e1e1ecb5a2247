"""The event source is killed at each of its steps in turn, and the final notices are the same.

A step is a call of the Compute API, or a write of a notice, before and after it takes effect. The steps are those of
one run that nothing disturbs. Each is tried in a run of its own.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import NoticeStage
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.clouds.gcp import GcpWorld, a_gcp_world
from support.faults.crash_test import CRASH_SAMPLING

MINUTE = timedelta(minutes=1)

Scenario = Callable[[GcpWorld], Awaitable[None]]


async def reschedule_and_finish(world: GcpWorld) -> None:
    """Schedule a maintenance that is rescheduled and ends."""
    node, start = await world.join_node("n1"), world.clock.now().replace(microsecond=0) + 10 * MINUTE
    world.start()
    world.cloud.schedule(node, start=start)
    await world.clock.sleep(6 * MINUTE)
    world.cloud.reschedule(node, start=start + 10 * MINUTE)
    await world.clock.sleep(16 * MINUTE)
    world.cloud.start_maintenance(node)
    await world.clock.sleep(10 * MINUTE)
    world.cloud.end_maintenance(node)
    await world.clock.sleep(10 * MINUTE)


async def cancel_and_plan_again(world: GcpWorld) -> None:
    """Schedule a maintenance that is cancelled, and later another, which starts early."""
    node, start = await world.join_node("n1"), world.clock.now().replace(microsecond=0) + 60 * MINUTE
    world.start()
    world.cloud.schedule(node, start=start)
    await world.clock.sleep(6 * MINUTE)
    world.cloud.cancel_maintenance(node)
    await world.clock.sleep(10 * MINUTE)
    world.cloud.schedule(node, start=start)
    await world.clock.sleep(10 * MINUTE)
    world.cloud.start_maintenance(node)
    await world.clock.sleep(10 * MINUTE)
    world.cloud.end_maintenance(node)
    await world.clock.sleep(10 * MINUTE)


async def migrate_and_preempt(world: GcpWorld) -> None:
    """Live-migrate a machine, then preempt it and start it again."""
    node = await world.join_node("n1", migrates=True)
    world.start()
    await world.clock.sleep(MINUTE)
    world.cloud.announce_live_migration(node)
    await world.clock.sleep(MINUTE)
    world.cloud.clear_maintenance_event(node)
    await world.clock.sleep(MINUTE)
    world.cloud.preempt(node)
    await world.clock.sleep(MINUTE)
    world.cloud.set_status(node, "RUNNING")
    await world.clock.sleep(10 * MINUTE)


def run_scenario(
    scenario: Scenario, agent_on: str, crash_at: int | None = None
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return the final notices of a scenario, and its steps."""

    async def run() -> tuple[list[tuple[str, str, str]], list[str]]:
        async with a_gcp_world(VirtualClock(), agent_on=agent_on, crash_at=crash_at) as world:
            await scenario(world)
            return await world.notice_summaries(), world.steps

    return run_virtual(run())


@pytest.mark.parametrize(
    ("scenario", "agent_on"),
    [
        (reschedule_and_finish, ""),
        (reschedule_and_finish, "n1"),
        (cancel_and_plan_again, ""),
        (cancel_and_plan_again, "n1"),
        (migrate_and_preempt, "n1"),
    ],
)
def test_notices_are_the_same_after_a_crash_at_any_step(scenario: Scenario, agent_on: str) -> None:
    expected, steps = run_scenario(scenario, agent_on)
    # Polls that find nothing new are equivalent: of each series of them only the first is tested.
    tried = [number for number, step in enumerate(steps, 1) if "List" not in step or steps[number - 3] != step]
    wrong = {}
    for number in CRASH_SAMPLING.select(tried):
        outcome, _ = run_scenario(scenario, agent_on, crash_at=number)
        if outcome != expected:
            wrong[f"{number}: {steps[number - 1]}"] = outcome
    assert wrong == {}
    assert expected
    assert all(stage in (NoticeStage.ENDED, NoticeStage.CANCELLED) for _, _, stage in expected)
    assert len(tried) >= 8
