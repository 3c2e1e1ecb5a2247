"""The event source is killed at each of its steps in turn, and the final notices are the same.

A step is a call of AWS, or a write of a notice, before and after it takes effect. The steps are those of one run that
nothing disturbs. Each is tried in a run of its own.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import NoticeStage
from haulout.api.resources import NODES
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.clouds.aws import AwsWorld, an_aws_world
from support.faults.crash_test import CRASH_SAMPLING

MINUTE = timedelta(minutes=1)

Scenario = Callable[[AwsWorld], Awaitable[None]]


async def reschedule_and_finish(world: AwsWorld) -> None:
    """Schedule two maintenances; one is rescheduled and ends, the other is cancelled."""
    one, two = await world.join_node("n1"), await world.join_node("n2")
    start = world.clock.now().replace(microsecond=0) + 10 * MINUTE
    world.start()
    first = world.cloud.schedule(one, start=start)
    second = world.cloud.schedule(two, "instance-retirement", start=start)
    await world.clock.sleep(MINUTE)
    world.cloud.reschedule(one, first, start=start + 10 * MINUTE)
    world.cloud.cancel_event(two, second)
    await world.clock.sleep(25 * MINUTE)
    world.cloud.complete_event(one, first)
    await world.clock.sleep(10 * MINUTE)


async def terminate_by_auto_scaling(world: AwsWorld) -> None:
    """Have Auto Scaling terminate an instance, whose node is drained some minutes later."""
    instance = await world.join_node("n1")
    world.start()
    world.cloud.start_lifecycle_action(instance)
    await world.clock.sleep(3 * MINUTE)
    await world.set_condition("n1", "Drained")
    await world.clock.sleep(2 * MINUTE)
    await world.client.delete(NODES, "n1")
    await world.clock.sleep(10 * MINUTE)
    assert len(world.cloud.auto_scaling.completed) == 1
    assert world.cloud.auto_scaling.expired == []


async def interrupt_spot_and_restart(world: AwsWorld) -> None:
    """Interrupt a spot instance, while another is stopped and started again."""
    spot, stopped = await world.join_node("n1"), await world.join_node("n2")
    world.start()
    world.cloud.recommend_rebalance(spot)
    world.cloud.interrupt_spot(spot)
    world.cloud.set_state(stopped, "stopping")
    await world.clock.sleep(2 * MINUTE)
    world.cloud.set_state(spot, "terminated")
    world.cloud.set_state(stopped, "running")
    await world.client.delete(NODES, "n1")
    await world.clock.sleep(15 * MINUTE)


def run_scenario(scenario: Scenario, crash_at: int | None = None) -> tuple[list[tuple[str, str, str, str]], list[str]]:
    """Return the final notices of a scenario, and its steps."""

    async def run() -> tuple[list[tuple[str, str, str, str]], list[str]]:
        async with an_aws_world(VirtualClock(), crash_at=crash_at) as world:
            await scenario(world)
            assert world.cloud.queue.messages == []
            return await world.notice_summaries(), world.steps

    return run_virtual(run())


@pytest.mark.parametrize("scenario", [reschedule_and_finish, terminate_by_auto_scaling, interrupt_spot_and_restart])
def test_notices_are_the_same_after_a_crash_at_any_step(scenario: Scenario) -> None:
    expected, steps = run_scenario(scenario)
    # Long polls that find nothing are equivalent: of each series of them only the first is tested.
    tried = [
        number for number, step in enumerate(steps, 1) if "ReceiveMessage" not in step or steps[number - 3] != step
    ]
    wrong = {}
    for number in CRASH_SAMPLING.select(tried):
        outcome, _ = run_scenario(scenario, crash_at=number)
        if [item[:3] for item in outcome] != [item[:3] for item in expected]:
            wrong[f"{number}: {steps[number - 1]}"] = outcome
    assert wrong == {}
    assert all(stage in (NoticeStage.ENDED, NoticeStage.CANCELLED) for _, _, stage, _ in expected)
    assert len(tried) > 10
