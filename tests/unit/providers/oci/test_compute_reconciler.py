"""The comparison with Compute: an error never says that something is gone, and once faults stop all is well."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticePhase
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout_sandbox.clouds.oci.cloud import COMPARTMENT
from support.clouds.oci import DAY, HOUR, MINUTE, OciWorld, an_oci_world
from support.expectations.eventually import eventually

CALLS = ("ListInstanceMaintenanceEvents", "GetInstanceMaintenanceEvent", "GetInstance")
FAULTS: dict[str, dict[str, Any]] = {
    "throttled": {"status": 429, "code": "TooManyRequests"},
    "unavailable": {"status": 503},
    "no answer": {"status": 0},
    "credentials expired": {"status": 401, "code": "NotAuthenticated"},
    "not allowed": {"status": 404, "code": "NotAuthorizedOrNotFound"},
}


async def two_open(world: OciWorld) -> tuple[str, str]:
    """Have two maintenances that everybody knows of, for more than a while."""
    world.compartments = (COMPARTMENT,)
    world.cloud.compute_service.page_size = 1
    events = [world.cloud.schedule(world.cloud.launch(name), start=world.clock.now() + 3 * DAY) for name in ("a", "b")]
    world.start()
    for event in events:
        await world.wait_for_phase(event, NoticePhase.PLANNED)
    await world.clock.sleep(HOUR)
    return events[0], events[1]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
async def test_while_compute_is_in_trouble_nothing_is_gone_and_afterwards_everything_is_known(
    clock: Clock, call: str, fault: str
) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        kept, forgotten = await two_open(world)
        world.cloud.forget_event(forgotten)
        problem = world.cloud.faults.fail(call, **FAULTS[fault], times=None)
        await clock.sleep(HOUR)
        assert await world.phase_of(kept) == NoticePhase.PLANNED
        known_gone = (
            call == "GetInstanceMaintenanceEvent" and fault == "not allowed"
        )  # then it is not found in any case
        assert await world.phase_of(forgotten) == (NoticePhase.CANCELLED if known_gone else NoticePhase.PLANNED)
        world.cloud.faults.remove(problem)
        await world.wait_for_phase(forgotten, NoticePhase.CANCELLED, within=11 * MINUTE)
        assert await world.phase_of(kept) == NoticePhase.PLANNED
        assert world.source is not None
        assert not world.source.problems()


async def test_a_list_that_breaks_off_in_the_middle_says_nothing_about_what_is_not_in_it(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        _, forgotten = await two_open(world)
        world.cloud.forget_event(forgotten)
        pages: list[int] = []

        async def break_off(operation: str, after: bool) -> None:  # noqa: FBT001 - what the model of a cloud tells
            if operation == "ListInstanceMaintenanceEvents" and not after:
                pages.append(1)
                if len(pages) % 2 == 0:
                    raise world.cloud.faults.fail(operation, status=500, times=0).error or AssertionError

        world.cloud.faults.on_call = break_off
        await clock.sleep(HOUR)
        assert await world.phase_of(forgotten) == NoticePhase.PLANNED


async def test_a_call_of_compute_that_never_comes_back_is_given_up(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        _, forgotten = await two_open(world)
        world.cloud.forget_event(forgotten)
        for call in CALLS:
            world.cloud.faults.hang(call)
        await world.wait_for_phase(forgotten, NoticePhase.CANCELLED, within=30 * MINUTE)


async def test_what_was_told_a_moment_ago_is_not_gone_though_no_list_has_it_yet(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.compartments = (COMPARTMENT,)
        event = world.cloud.schedule(world.cloud.launch("a"), start=clock.now() + DAY)
        known = world.cloud.compute_service.events.pop(event)
        world.start()
        await world.wait_for_phase(event, NoticePhase.PLANNED)
        await clock.sleep(8 * MINUTE)
        assert await world.phase_of(event) == NoticePhase.PLANNED
        world.cloud.compute_service.events[event] = known
        await clock.sleep(HOUR)
        assert await world.phase_of(event) == NoticePhase.PLANNED


async def test_an_entry_that_makes_no_sense_is_put_aside_and_the_others_are_taken(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.compartments = (COMPARTMENT,)
        machine = world.cloud.launch("a")
        bad, good = (world.cloud.schedule(machine, start=clock.now() + DAY, silent=True) for _ in range(2))
        world.cloud.compute_service.events[bad] |= {"timeWindowStart": "soon"}
        world.start()
        await world.wait_for_phase(good, NoticePhase.PLANNED)
        assert world.source is not None
        assert "the latest at maintenance" in world.source.problems()[0]
        assert "timeWindowStart: expected an instant" in world.source.problems()[0]


async def test_an_event_without_a_name_of_its_own_gives_way_to_what_compute_calls_it(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("a")
        event = world.cloud.schedule(machine, start=clock.now() + DAY, silent=True)
        document = world.cloud.event_document(event)
        del document["data"]["resourceId"]
        world.cloud.publish(document)
        world.start()
        await world.wait_for_phase(machine, NoticePhase.PLANNED)
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=MINUTE)
        await world.wait_for_phase(machine, NoticePhase.CANCELLED, within=timedelta(minutes=25))
        assert await world.phase_of(event) == NoticePhase.PLANNED


async def test_a_list_that_fails_does_not_make_us_ask_for_each_maintenance_in_it(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        await two_open(world)
        world.cloud.faults.fail("ListInstanceMaintenanceEvents", status=503, times=None)
        world.cloud.faults.calls.clear()
        await clock.sleep(HOUR)
        assert "ListInstanceMaintenanceEvents" in world.cloud.faults.calls
        assert "GetInstanceMaintenanceEvent" not in world.cloud.faults.calls


async def test_a_message_that_says_only_that_something_happened_has_compute_asked(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.start()
        event = world.cloud.schedule(world.cloud.launch("a"), start=clock.now() + DAY, silent=True)
        hint = world.cloud.event_document(event) | {"eventType": "com.oraclecloud.computeapi.schedulemaintenance"}
        world.cloud.publish(hint)
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=MINUTE)


async def test_how_things_are_now_counts_though_a_clock_was_wrong_before(clock: Clock) -> None:
    """What was reported as of next year would outdo all later reports."""
    async with an_oci_world(clock) as world:
        event, _ = await two_open(world)
        wrong = merge_patch({"spec": {"reportedAt": "2027-01-01T00:00:00Z", "start": "2026-01-06T00:00:00Z"}})
        await world.client.patch(MAINTENANCE_NOTICES, f"oci-{event}", wrong)
        before = clock.now() - HOUR + 3 * DAY
        await clock.sleep(6 * MINUTE)
        start = await world.start_time_of(event)
        assert start is not None
        assert abs(start - before) < MINUTE
        again = clock.now() + 5 * DAY
        world.cloud.reschedule(event, again, silent=True)
        await eventually(clock, lambda: world.start_time_of(event), becomes=again, within=6 * MINUTE, every=MINUTE)


async def test_a_failure_stands_until_oci_says_that_it_is_mended_or_the_instance_is_gone(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        mended, forgotten = await two_open(world)
        for event in (mended, forgotten):
            world.cloud.start_maintenance(event)
            world.cloud.end_maintenance(event, state="FAILED")
            await world.wait_for_phase(event, NoticePhase.ACTIVE, within=2 * MINUTE)
        machine = (await world.notice(forgotten)).spec.provider_id
        world.cloud.forget_event(forgotten)
        await clock.sleep(HOUR)
        assert await world.phase_of(mended) == await world.phase_of(forgotten) == NoticePhase.ACTIVE
        world.cloud.end_maintenance(mended, silent=True)
        world.cloud.terminate(machine)
        await world.wait_for_phase(mended, NoticePhase.COMPLETED, within=6 * MINUTE)
        await world.wait_for_phase(forgotten, NoticePhase.COMPLETED, within=6 * MINUTE)


async def test_a_successor_whose_lists_fail_takes_nothing_for_gone(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        _, forgotten = await two_open(world)
        world.kill()
        world.cloud.forget_event(forgotten)
        world.cloud.faults.fail("ListInstanceMaintenanceEvents", status=503, times=None)
        world.start()
        await clock.sleep(HOUR)
        assert "GetInstance" in world.cloud.faults.calls
        assert await world.phase_of(forgotten) == NoticePhase.PLANNED
