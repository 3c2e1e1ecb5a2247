"""A source is killed at each of its steps in turn, and the end is the same.

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

Story = Callable[[GcpWorld], Awaitable[None]]


async def reschedule_and_finish(world: GcpWorld) -> None:
    """Announce a maintenance that is moved and ends."""
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
    """Announce a maintenance that is cancelled, and later another, which begins early."""
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
    """Have a machine move, and then taken back and run again."""
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


def play(story: Story, agent_on: str, crash_at: int | None = None) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return what a story comes to, and the steps on the way."""

    async def run() -> tuple[list[tuple[str, str, str]], list[str]]:
        async with a_gcp_world(VirtualClock(), agent_on=agent_on, crash_at=crash_at) as world:
            await story(world)
            return await world.notice_summaries(), world.steps

    return run_virtual(run())


@pytest.mark.parametrize(
    ("story", "agent_on"),
    [
        (reschedule_and_finish, ""),
        (reschedule_and_finish, "n1"),
        (cancel_and_plan_again, ""),
        (cancel_and_plan_again, "n1"),
        (migrate_and_preempt, "n1"),
    ],
)
def test_wherever_a_source_is_killed_the_end_is_the_same(story: Story, agent_on: str) -> None:
    expected, steps = play(story, agent_on)
    # Looks that find nothing new are all the same: of each run of them the first is tried.
    tried = [number for number, step in enumerate(steps, 1) if "List" not in step or steps[number - 3] != step]
    wrong = {}
    for number in CRASH_SAMPLING.select(tried):
        outcome, _ = play(story, agent_on, crash_at=number)
        if outcome != expected:
            wrong[f"{number}: {steps[number - 1]}"] = outcome
    assert wrong == {}
    assert expected
    assert all(stage in (NoticeStage.ENDED, NoticeStage.CANCELLED) for _, _, stage in expected)
    assert len(tried) >= 8
