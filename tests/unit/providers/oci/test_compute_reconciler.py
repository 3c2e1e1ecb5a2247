"""Reconciliation with Compute: errors never end a notice, and the state is correct once faults stop."""

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
    """Schedule two maintenances, and wait for an hour after their notices are written."""
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
async def test_compute_faults_end_no_notice_and_recovery_reconciles_all(clock: Clock, call: str, fault: str) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        kept, forgotten = await two_open(world)
        world.cloud.forget_event(forgotten)
        problem = world.cloud.faults.fail(call, **FAULTS[fault], times=None)
        await clock.sleep(HOUR)
        assert await world.phase_of(kept) == NoticePhase.PLANNED
        known_gone = call == "GetInstanceMaintenanceEvent" and fault == "not allowed"  # then it counts as not found
        assert await world.phase_of(forgotten) == (NoticePhase.CANCELLED if known_gone else NoticePhase.PLANNED)
        world.cloud.faults.remove(problem)
        await world.wait_for_phase(forgotten, NoticePhase.CANCELLED, within=11 * MINUTE)
        assert await world.phase_of(kept) == NoticePhase.PLANNED
        assert world.source is not None
        assert not world.source.problems()


async def test_incomplete_list_ends_no_notice(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        _, forgotten = await two_open(world)
        world.cloud.forget_event(forgotten)
        pages: list[int] = []

        async def break_off(operation: str, after: bool) -> None:  # noqa: FBT001 - as the fake cloud calls it
            if operation == "ListInstanceMaintenanceEvents" and not after:
                pages.append(1)
                if len(pages) % 2 == 0:
                    raise world.cloud.faults.fail(operation, status=500, times=0).error or AssertionError

        world.cloud.faults.on_call = break_off
        await clock.sleep(HOUR)
        assert await world.phase_of(forgotten) == NoticePhase.PLANNED


async def test_hanging_compute_call_times_out(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        _, forgotten = await two_open(world)
        world.cloud.forget_event(forgotten)
        for call in CALLS:
            world.cloud.faults.hang(call)
        await world.wait_for_phase(forgotten, NoticePhase.CANCELLED, within=30 * MINUTE)


async def test_recently_reported_event_is_kept_although_lists_do_not_contain_it_yet(clock: Clock) -> None:
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


async def test_malformed_list_entry_is_quarantined_and_others_are_processed(clock: Clock) -> None:
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


async def test_notice_named_after_the_instance_is_replaced_by_the_compute_event(clock: Clock) -> None:
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


async def test_failing_list_does_not_cause_a_get_for_each_event(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        await two_open(world)
        world.cloud.faults.fail("ListInstanceMaintenanceEvents", status=503, times=None)
        world.cloud.faults.calls.clear()
        await clock.sleep(HOUR)
        assert "ListInstanceMaintenanceEvents" in world.cloud.faults.calls
        assert "GetInstanceMaintenanceEvent" not in world.cloud.faults.calls


async def test_message_without_details_triggers_a_compute_poll(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.start()
        event = world.cloud.schedule(world.cloud.launch("a"), start=clock.now() + DAY, silent=True)
        hint = world.cloud.event_document(event) | {"eventType": "com.oraclecloud.computeapi.schedulemaintenance"}
        world.cloud.publish(hint)
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=MINUTE)


async def test_current_state_replaces_a_report_from_the_future(clock: Clock) -> None:
    """A report from next year would take precedence over all later reports."""
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


async def test_failed_maintenance_stays_active_until_success_or_termination(clock: Clock) -> None:
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


async def test_successor_with_failing_lists_ends_no_notice(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=MINUTE) as world:
        _, forgotten = await two_open(world)
        world.kill()
        world.cloud.forget_event(forgotten)
        world.cloud.faults.fail("ListInstanceMaintenanceEvents", status=503, times=None)
        world.start()
        await clock.sleep(HOUR)
        assert "GetInstance" in world.cloud.faults.calls
        assert await world.phase_of(forgotten) == NoticePhase.PLANNED
