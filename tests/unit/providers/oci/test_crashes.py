"""The source is killed before and after each of its writes and calls of OCI; the final notices are the same."""

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


async def scenario(clock: Clock, points: CrashPoints, *, stream_only: bool) -> dict[str, Any]:
    """Run several maintenances; return the final state of each. With `stream_only`, Compute is not available."""
    async with an_oci_world(clock, idle_pause=20 * SECOND) as world:
        world.transport = CrashPointTransport(world.transport, points)
        world.cloud.faults.on_call = points.call
        world.compartments = () if stream_only else (COMPARTMENT,)
        for call in _OF_COMPUTE if stream_only else ():
            world.cloud.faults.fail(call, status=404, times=None)
        points.kill = lambda: _kill_and_restart(world)
        cloud, now = world.cloud, clock.now()
        machines = [cloud.launch(f"w{number}") for number in range(3)]
        await world.create_node("n0", machines[0])
        ended, moved = (cloud.schedule(item, start=now + DAY) for item in machines[:2])
        world.start()
        await clock.sleep(30 * SECOND)
        cloud.reschedule(moved, now + 2 * DAY)
        cancelled = cloud.schedule(machines[2], start=now + HOUR, silent=not stream_only)
        cloud.publish_bytes(b"nonsense")
        await clock.sleep(MINUTE)
        cloud.start_maintenance(ended)
        await clock.sleep(5 * MINUTE)
        cloud.end_maintenance(ended)
        cloud.end_maintenance(cancelled, state="CANCELED", silent=not stream_only)
        await clock.sleep(6 * MINUTE)
        for event, phase in (
            (ended, NoticePhase.COMPLETED),
            (moved, NoticePhase.PLANNED),
            (cancelled, NoticePhase.CANCELLED),
        ):
            await world.wait_for_phase(event, phase, within=6 * MINUTE)
        points.crash_at = 0
        await clock.sleep(MINUTE)  # by now a successor is running
        return {item.name: _known(item) for item in await world.notices()}


def _known(notice: Any) -> tuple[Any, ...]:
    spec = notice.spec
    return (spec.kind, spec.start, spec.deadline, spec.stage, spec.provider_id, spec.machine_name, notice.status.phase)


def _kill_and_restart(world: OciWorld) -> None:
    world.kill()
    world.tasks.create_task(_restart_later(world))


async def _restart_later(world: OciWorld) -> None:
    await world.clock.sleep(timedelta(seconds=40))  # longer than a reservation in the group is kept
    world.start()


def run_with_crash_at(at: int = 0, *, stream_only: bool) -> tuple[dict[str, Any], CrashPoints]:
    points = CrashPoints(
        at, sampled_calls=(*SAMPLED_CALLS, "GetInstance") if stream_only else SAMPLED_CALLS
    )  # without Compute it gets no response anyway

    async def run() -> dict[str, Any]:
        return await scenario(VirtualClock(), points, stream_only=stream_only)

    return run_virtual(run()), points


@pytest.mark.parametrize("stream_only", [False, True], ids=["stream and Compute", "the stream alone"])
def test_notices_are_the_same_after_a_crash_at_any_step(*, stream_only: bool) -> None:
    expected, uninterrupted = run_with_crash_at(stream_only=stream_only)
    assert len(expected) == 3
    wanted = {"after POST", "after PATCH", "before ConsumerCommit", "after ConsumerCommit"}
    assert wanted | (set() if stream_only else {"after GetInstanceMaintenanceEvent", "after GetInstance"}) <= set(
        uninterrupted.reached
    )
    for number, what in CRASH_SAMPLING.select([*enumerate(uninterrupted.reached, start=1)]):
        found, points = run_with_crash_at(number, stream_only=stream_only)
        assert points.reached[number - 1] == what
        assert found == expected, f"killed {what}, point {number}"
