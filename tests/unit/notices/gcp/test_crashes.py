"""A source is killed at each of its steps in turn, and the end is the same.

A step is a call of the Compute API, or a write of a notice, before and after it takes effect. The steps are those of
one run that nothing disturbs. Each is tried in a run of its own.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from haulout.kinds.notice import Stage
from haulout_sandbox.event_loops.virtual import VirtualClock, run_virtual
from support.crashes import THOROUGHNESS
from support.gcp_world import World, a_world

MINUTE = timedelta(minutes=1)

Story = Callable[[World], Awaitable[None]]


async def moved_and_finished(world: World) -> None:
    """Announce a maintenance that is moved and ends."""
    node, start = await world.join("n1"), world.clock.now().replace(microsecond=0) + 10 * MINUTE
    world.start()
    world.cloud.schedule(node, start=start)
    await world.clock.sleep(6 * MINUTE)
    world.cloud.reschedule(node, start=start + 10 * MINUTE)
    await world.clock.sleep(16 * MINUTE)
    world.cloud.begin(node)
    await world.clock.sleep(10 * MINUTE)
    world.cloud.end(node)
    await world.clock.sleep(10 * MINUTE)


async def cancelled_and_planned_again(world: World) -> None:
    """Announce a maintenance that is cancelled, and later another, which begins early."""
    node, start = await world.join("n1"), world.clock.now().replace(microsecond=0) + 60 * MINUTE
    world.start()
    world.cloud.schedule(node, start=start)
    await world.clock.sleep(6 * MINUTE)
    world.cloud.cancel(node)
    await world.clock.sleep(10 * MINUTE)
    world.cloud.schedule(node, start=start)
    await world.clock.sleep(10 * MINUTE)
    world.cloud.begin(node)
    await world.clock.sleep(10 * MINUTE)
    world.cloud.end(node)
    await world.clock.sleep(10 * MINUTE)


async def migrated_and_taken_back(world: World) -> None:
    """Have a machine move, and then taken back and run again."""
    node = await world.join("n1", migrates=True)
    world.start()
    await world.clock.sleep(MINUTE)
    world.cloud.migrate(node)
    await world.clock.sleep(MINUTE)
    world.cloud.settle(node)
    await world.clock.sleep(MINUTE)
    world.cloud.preempt(node)
    await world.clock.sleep(MINUTE)
    world.cloud.change(node, "RUNNING")
    await world.clock.sleep(10 * MINUTE)


def played(story: Story, agent_on: str, crash_at: int | None = None) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return what a story comes to, and the steps on the way."""

    async def run() -> tuple[list[tuple[str, str, str]], list[str]]:
        async with a_world(VirtualClock(), agent_on=agent_on, crash_at=crash_at) as world:
            await story(world)
            return await world.outcome(), world.steps

    return run_virtual(run())


@pytest.mark.parametrize(
    ("story", "agent_on"),
    [
        (moved_and_finished, ""),
        (moved_and_finished, "n1"),
        (cancelled_and_planned_again, ""),
        (cancelled_and_planned_again, "n1"),
        (migrated_and_taken_back, "n1"),
    ],
)
def test_wherever_a_source_is_killed_the_end_is_the_same(story: Story, agent_on: str) -> None:
    expected, steps = played(story, agent_on)
    # Looks that find nothing new are all the same: of each run of them the first is tried.
    tried = [number for number, step in enumerate(steps, 1) if "List" not in step or steps[number - 3] != step]
    wrong = {}
    for number in THOROUGHNESS.chosen(tried):
        outcome, _ = played(story, agent_on, crash_at=number)
        if outcome != expected:
            wrong[f"{number}: {steps[number - 1]}"] = outcome
    assert wrong == {}
    assert expected
    assert all(stage in (Stage.ENDED, Stage.CANCELLED) for _, _, stage in expected)
    assert len(tried) >= 8
