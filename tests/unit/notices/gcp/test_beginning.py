"""Having a maintenance begin early, once its node is empty."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.errors import CannotMove, CloudError
from haulout.kinds.notice import MaintenanceNotice, Phase, Stage
from haulout_sandbox.event_loops.virtual import VirtualClock, run_virtual
from support.gcp_world import World, a_world

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


async def a_notice(world: World, *, can_begin_early: bool = True) -> MaintenanceNotice:
    node = await world.join("n1")
    world.cloud.schedule(node, start=world.clock.now() + DAY, can_begin_early=can_begin_early)
    world.start()
    await world.becomes(Stage.SCHEDULED, phase=Phase.PLANNED)
    return await world.the()


async def test_a_maintenance_begins_when_google_is_told_to_and_is_seen_soon(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.compute_begins(await a_notice(world))
        await world.becomes(Stage.STARTED, phase=Phase.ACTIVE, within=MINUTE)
        assert world.cloud.operations.begun == ["n1"]
        world.cloud.end("n1")
        await world.becomes(Stage.ENDED, phase=Phase.COMPLETED)


async def test_telling_it_twice_is_harmless(clock: Clock) -> None:
    async with a_world(clock) as world:
        notice = await a_notice(world)
        await world.compute_begins(notice)
        await world.compute_begins(notice)
        assert world.cloud.operations.begun == ["n1"]


@pytest.mark.parametrize("operation", ["PerformMaintenance", "WaitOperation"])
async def test_an_answer_that_was_lost_is_asked_for_again_and_it_begins_once(clock: Clock, operation: str) -> None:
    async with a_world(clock) as world:
        notice = await a_notice(world)
        world.cloud.faults.fail(operation, status=0, after=True)
        await world.compute_begins(notice)
        assert world.cloud.operations.begun == ["n1"]


async def test_what_goes_on_for_long_has_been_agreed_to(clock: Clock) -> None:
    async with a_world(clock) as world:
        notice = await a_notice(world)
        world.cloud.faults.hang("WaitOperation")
        before = clock.now()
        await world.compute_begins(notice)
        assert clock.now() - before < 2 * MINUTE


async def test_what_google_does_not_let_begin_early_is_said_without_asking_for_it(clock: Clock) -> None:
    async with a_world(clock) as world:
        notice = await a_notice(world, can_begin_early=False)
        with pytest.raises(CannotMove, match="Google does not let it begin early"):
            await world.compute_begins(notice)
        world.cloud.cancel("n1")
        with pytest.raises(CannotMove, match="Google plans no maintenance of n1 any more"):
            await world.compute_begins(notice)
        world.cloud.launch("n1")
        with pytest.raises(CannotMove, match="the machine is gone, and another has its name"):
            await world.compute_begins(notice)
        world.cloud.drop("n1")
        with pytest.raises(CannotMove, match="was not found"):
            await world.compute_begins(notice)
        assert "PerformMaintenance" not in world.cloud.faults.calls


async def test_what_begins_by_itself_is_not_asked_for(clock: Clock) -> None:
    async with a_world(clock, agent_on="n1") as world:
        await world.join("n1", spot=True)
        world.cloud.preempt("n1")
        world.start()
        await world.becomes(Stage.SCHEDULED)
        await world.stop()
        world.agent_on = ""
        world.start()
        await clock.sleep(SECOND)
        with pytest.raises(CannotMove, match="it begins at once by itself"):
            await world.compute_begins(await world.the())


async def test_a_no_is_told_in_googles_words(clock: Clock) -> None:
    async with a_world(clock) as world:
        notice = await a_notice(world)
        world.cloud.faults.fail("PerformMaintenance", status=403, code="forbidden", message="no permission")
        with pytest.raises(CannotMove, match=r"no permission \(the role of this account does not allow it\)"):
            await world.compute_begins(notice)
        world.cloud.operations.problem = "the host is busy"
        with pytest.raises(CannotMove, match="Google does not begin it: the host is busy"):
            await world.compute_begins(notice)


async def test_who_says_nothing_is_to_be_asked_again(clock: Clock) -> None:
    async with a_world(clock) as world:
        notice = await a_notice(world)
        for status, code in ((503, ""), (403, "rateLimitExceeded"), (401, "authError")):
            rule = world.cloud.faults.fail("PerformMaintenance", status=status, code=code, times=None)
            with pytest.raises(CloudError):
                await world.compute_begins(notice)
            world.cloud.faults.lift(rule)
        await world.compute_begins(notice)
        assert world.cloud.operations.begun == ["n1"]


async def emptied(world: World) -> None:
    """Have the node of a maintenance that is due be empty."""
    node = await world.join("n1")
    world.cloud.schedule(node, start=world.clock.now() + 14 * MINUTE)
    world.start()
    await world.clock.sleep(10 * SECOND)
    await world.empty(node)
    await world.clock.sleep(3 * MINUTE)


async def test_it_begins_once_its_node_is_empty_and_not_before(clock: Clock) -> None:
    async with a_world(clock) as world:
        node = await world.join("n1")
        world.cloud.schedule(node, start=clock.now() + 14 * MINUTE)
        world.start()
        await world.becomes(Stage.SCHEDULED, phase=Phase.DUE)
        await clock.sleep(2 * MINUTE)
        assert world.cloud.operations.begun == []
        await world.empty(node)
        await world.becomes(Stage.STARTED, phase=Phase.ACTIVE, within=MINUTE)
        assert world.cloud.operations.begun == ["n1"]


async def test_what_was_over_at_once_after_it_was_told_to_begin_has_ended(clock: Clock) -> None:
    async with a_world(clock) as world:

        async def quick(operation: str, after: bool) -> None:  # noqa: FBT001 - as faults call it
            if operation == "PerformMaintenance" and after:
                world.cloud.end("n1")

        world.cloud.faults.watcher = quick
        await emptied(world)
        assert (await world.the()).spec.stage == Stage.ENDED


def test_wherever_the_operator_is_killed_it_begins_once() -> None:
    async def played(crash_at: int | None) -> tuple[list[str], list[str], str]:
        async with a_world(VirtualClock(), crash_at=crash_at) as world:
            await emptied(world)
            return world.steps, world.cloud.operations.begun, (await world.the()).spec.stage

    steps, begun, stage = run_virtual(played(None))
    assert (begun, stage) == (["n1"], Stage.STARTED)
    assert "after PerformMaintenance" in steps
    outcomes = {number: run_virtual(played(number))[1:] for number in range(1, len(steps) + 1)}
    assert {number: it for number, it in outcomes.items() if it != (["n1"], Stage.STARTED)} == {}
