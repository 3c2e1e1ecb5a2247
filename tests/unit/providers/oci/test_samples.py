"""The sample event that ONMH's README has its users send: its `eventTime` is of 2023, and it is sent repeatedly."""

from typing import Any

import pytest

from haulout.api.maintenancenotice import MaintenanceNotice, NoticePhase
from haulout.core.clock import Clock
from haulout_sandbox.clouds.oci.cloud import COMPARTMENT
from support.clouds.oci import DAY, HOUR, MINUTE, SECOND, OciWorld, an_oci_world
from support.clouds.oci_events import ENDED, SAMPLE_EVENT, SCHEDULED, STARTED, sample
from support.expectations.eventually import eventually


def a_sample(world: OciWorld, machine: str, *, kind: str = SCHEDULED, minutes: float = 10) -> dict[str, Any]:
    start = world.clock.now() + minutes * MINUTE
    return sample(machine, start=f"{start:%Y-%m-%dT%H:%M:%S.000Z}", kind=kind)


async def a_machine(world: OciWorld) -> str:
    machine = world.cloud.launch("oke-1")
    await world.create_node("n1", machine)
    world.compartments = (COMPARTMENT,)
    world.start()
    await world.clock.sleep(MINUTE)
    return machine


async def phases(world: OciWorld) -> list[str]:
    found = sorted(await world.notices(), key=_creation_order)
    return [notice.status.phase for notice in found]


def _creation_order(notice: MaintenanceNotice) -> tuple[float, str]:
    assert notice.metadata.creation_timestamp is not None
    return notice.metadata.creation_timestamp.timestamp(), notice.name


async def phases_become(world: OciWorld, *expected: NoticePhase) -> None:
    await eventually(world.clock, lambda: phases(world), becomes=list(expected), within=MINUTE, every=SECOND)


async def test_sample_event_of_2023_is_due_and_cancelled_after_a_quarter_of_an_hour(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.cloud.publish(a_sample(world, await a_machine(world)))
        await phases_become(world, NoticePhase.DUE)
        await clock.sleep(14 * MINUTE)
        assert await phases(world) == [NoticePhase.DUE]
        await clock.sleep(7 * MINUTE)
        assert await phases(world) == [NoticePhase.CANCELLED]


async def test_lifetime_of_a_sample_event_counts_from_when_it_is_read(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = await a_machine(world)
        world.kill()
        world.cloud.publish(a_sample(world, machine, minutes=70))
        await clock.sleep(HOUR)
        world.start()
        await phases_become(world, NoticePhase.DUE)
        await clock.sleep(13 * MINUTE)
        assert await phases(world) == [NoticePhase.DUE]


async def test_sample_event_sent_again_is_another_due_notice(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = await a_machine(world)
        world.cloud.publish(a_sample(world, machine))
        await phases_become(world, NoticePhase.DUE)
        await clock.sleep(30 * MINUTE)
        for _ in range(2):  # the second one is about an open notice
            world.cloud.publish(a_sample(world, machine))
            await phases_become(world, NoticePhase.CANCELLED, NoticePhase.DUE)
            await clock.sleep(10 * MINUTE)
        await clock.sleep(30 * MINUTE)
        assert await phases(world) == [NoticePhase.CANCELLED, NoticePhase.CANCELLED]


async def test_sample_event_and_its_end_work_repeatedly(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = await a_machine(world)
        for times in range(1, 13):
            world.cloud.publish(a_sample(world, machine))
            await phases_become(world, *([NoticePhase.COMPLETED] * (times - 1)), NoticePhase.DUE)
            world.cloud.publish(a_sample(world, machine, kind=ENDED))
            await phases_become(world, *([NoticePhase.COMPLETED] * times))


async def test_sample_event_its_end_and_a_repetition_may_be_in_one_batch(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = await a_machine(world)
        world.kill()
        for kind in (SCHEDULED, ENDED, SCHEDULED):
            world.cloud.publish(a_sample(world, machine, kind=kind))
        world.start()
        await eventually(
            clock, lambda: _sorted_phases(world), becomes=[NoticePhase.COMPLETED, NoticePhase.DUE], within=MINUTE
        )


async def _sorted_phases(world: OciWorld) -> list[str]:
    return sorted(await phases(world))


@pytest.mark.parametrize("partitions", [1, 3])
async def test_rereading_the_stream_from_its_start_changes_no_notice(clock: Clock, partitions: int) -> None:
    async with an_oci_world(clock, partitions=partitions) as world:
        machine = await a_machine(world)
        for kind in (SCHEDULED, ENDED) * 2:
            world.cloud.publish(a_sample(world, machine, kind=kind))
            await clock.sleep(MINUTE)
        before = {notice.name: notice.spec for notice in await world.notices()}
        world.kill()
        await clock.sleep(MINUTE)
        world.cloud.stream._groups.clear()  # an unused group is deleted with its offsets
        world.start()
        await clock.sleep(5 * MINUTE)
        assert await phases(world) == [NoticePhase.COMPLETED, NoticePhase.COMPLETED]
        assert {notice.name: notice.spec for notice in await world.notices()} == before


async def test_later_of_two_messages_with_the_same_event_time_applies(clock: Clock) -> None:
    """Whatever their sort order would be otherwise, and for any number of messages."""
    async with an_oci_world(clock) as world:
        machine = await a_machine(world)
        for hours in (30, 40, 20, 50, 25):
            document = a_sample(world, machine, minutes=hours * 60)
            world.cloud.publish(document)
            start = clock.now() + hours * HOUR
            await eventually(clock, lambda: world.start_time_of(SAMPLE_EVENT), becomes=start.replace(microsecond=0))


async def test_messages_of_one_batch_with_the_same_event_time_apply_in_order(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = await a_machine(world)
        world.kill()
        for hours in (30, 40, 20):
            world.cloud.publish(a_sample(world, machine, minutes=hours * 60))
        start = (clock.now() + 20 * HOUR).replace(microsecond=0)
        world.start()
        await eventually(clock, lambda: world.start_time_of(SAMPLE_EVENT), becomes=start, within=MINUTE)


async def test_late_begin_event_does_not_reopen_a_completed_notice(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = await a_machine(world)
        event = world.cloud.schedule(machine, start=clock.now() + DAY)
        await world.wait_for_phase(event, NoticePhase.PLANNED)
        begin_event = world.cloud.event_document(event, ".begin")
        world.cloud.start_maintenance(event)
        world.cloud.end_maintenance(event)
        await world.wait_for_phase(event, NoticePhase.COMPLETED)
        world.cloud.publish(begin_event)
        await clock.sleep(HOUR)
        assert await phases(world) == [NoticePhase.COMPLETED]


@pytest.mark.parametrize("late", [True, False])
async def test_begin_event_is_ignored_only_if_older_than_the_end_without_compute_access(
    clock: Clock, *, late: bool
) -> None:
    async with an_oci_world(clock) as world:
        machine = await a_machine(world)
        for call in ("ListInstanceMaintenanceEvents", "GetInstanceMaintenanceEvent", "GetInstance"):
            world.cloud.faults.fail(call, status=404, code="NotAuthorizedOrNotFound", times=None)
        world.cloud.publish(a_sample(world, machine))
        await phases_become(world, NoticePhase.DUE)
        world.cloud.publish(a_sample(world, machine, kind=ENDED))
        await phases_become(world, NoticePhase.COMPLETED)
        again = a_sample(world, machine, kind=STARTED)
        world.cloud.publish(again | {"eventTime": "2023-08-18T11:59:59.000Z"} if late else again)
        await clock.sleep(HOUR)
        assert await phases(world) == ([NoticePhase.COMPLETED] if late else [NoticePhase.COMPLETED, NoticePhase.ACTIVE])
