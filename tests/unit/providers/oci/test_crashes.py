"""The source is killed before and after each of its writes and each of its calls of OCI: the same comes out."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import NoticePhase
from haulout.core.clock import Clock
from haulout_sandbox.clouds.oci.cloud import COMPARTMENT
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.clouds.oci import DAY, HOUR, MINUTE, SECOND, OciWorld, an_oci_world
from support.faults.crash_points import SAMPLED_CALLS, CrashPoints, CrashPointTransport
from support.faults.crash_test import CRASH_SAMPLING

_OF_COMPUTE = ("ListInstanceMaintenanceEvents", "GetInstanceMaintenanceEvent", "GetInstance")


async def story(clock: Clock, points: CrashPoints, *, blind: bool) -> dict[str, Any]:
    """Live through several maintenances; return what is known of each in the end. Who is blind has only the stream."""
    async with an_oci_world(clock, idle_pause=20 * SECOND) as world:
        world.transport = CrashPointTransport(world.transport, points)
        world.cloud.faults.on_call = points.call
        world.compartments = () if blind else (COMPARTMENT,)
        for call in _OF_COMPUTE if blind else ():
            world.cloud.faults.fail(call, status=404, times=None)
        points.kill = lambda: _die(world)
        cloud, now = world.cloud, clock.now()
        machines = [cloud.launch(f"w{number}") for number in range(3)]
        await world.create_node("n0", machines[0])
        ended, moved = (cloud.schedule(item, start=now + DAY) for item in machines[:2])
        world.start()
        await clock.sleep(30 * SECOND)
        cloud.reschedule(moved, now + 2 * DAY)
        cancelled = cloud.schedule(machines[2], start=now + HOUR, silent=not blind)
        cloud.publish_bytes(b"nonsense")
        await clock.sleep(MINUTE)
        cloud.start_maintenance(ended)
        await clock.sleep(5 * MINUTE)
        cloud.end_maintenance(ended)
        cloud.end_maintenance(cancelled, state="CANCELED", silent=not blind)
        await clock.sleep(6 * MINUTE)
        for event, phase in (
            (ended, NoticePhase.COMPLETED),
            (moved, NoticePhase.PLANNED),
            (cancelled, NoticePhase.CANCELLED),
        ):
            await world.wait_for_phase(event, phase, within=6 * MINUTE)
        points.crash_at = 0
        await clock.sleep(MINUTE)  # by now a successor runs
        return {item.name: _known(item) for item in await world.notices()}


def _known(notice: Any) -> tuple[Any, ...]:
    spec = notice.spec
    return (spec.kind, spec.start, spec.deadline, spec.stage, spec.provider_id, spec.machine_name, notice.status.phase)


def _die(world: OciWorld) -> None:
    world.kill()
    world.tasks.create_task(_revive(world))


async def _revive(world: OciWorld) -> None:
    await world.clock.sleep(timedelta(seconds=40))  # longer than a place in the group is kept
    world.start()


def run_with_crash_at(at: int = 0, *, blind: bool) -> tuple[dict[str, Any], CrashPoints]:
    points = CrashPoints(
        at, sampled_calls=(*SAMPLED_CALLS, "GetInstance") if blind else SAMPLED_CALLS
    )  # who is blind gets no answer anyway

    async def run() -> dict[str, Any]:
        return await story(VirtualClock(), points, blind=blind)

    return run_virtual(run()), points


@pytest.mark.parametrize("blind", [False, True], ids=["stream and Compute", "the stream alone"])
def test_wherever_the_source_dies_its_successor_comes_to_the_same_end(*, blind: bool) -> None:
    expected, calm = run_with_crash_at(blind=blind)
    assert len(expected) == 3
    wanted = {"after POST", "after PATCH", "before ConsumerCommit", "after ConsumerCommit"}
    assert wanted | (set() if blind else {"after GetInstanceMaintenanceEvent", "after GetInstance"}) <= set(
        calm.reached
    )
    for number, what in CRASH_SAMPLING.select([*enumerate(calm.reached, start=1)]):
        found, points = run_with_crash_at(number, blind=blind)
        assert points.reached[number - 1] == what
        assert found == expected, f"killed {what}, point {number}"
