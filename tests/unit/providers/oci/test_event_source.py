"""Maintenance in OCI and its notices, on virtual time, also during downtime."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from haulout.api.maintenancenotice import MaintenanceKind, NoticeCondition, NoticePhase
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from support.builders.objects import a_node
from support.clouds.oci import DAY, HOUR, MINUTE, SECOND, OciWorld, an_oci_world
from support.expectations.eventually import eventually

Change = Callable[[OciWorld, str], None]


async def planned(world: OciWorld, *, start: datetime | None = None) -> tuple[str, str]:
    """Create a node with a known maintenance in two weeks; return machine and maintenance event."""
    machine = world.cloud.launch("oke-c1-n1-s1-0")
    await world.create_node("10.0.10.7", machine)
    event = world.cloud.schedule(machine, start=start or world.clock.now() + 14 * DAY)
    world.start()
    await world.wait_for_phase(event, NoticePhase.PLANNED)
    return machine, event


async def test_oci_maintenance_goes_through_all_phases_of_its_notice(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=4 * MINUTE) as world:
        _, event = await planned(world, start=clock.now() + DAY)
        notice = await world.notice(event)
        assert (notice.spec.kind, notice.spec.source, notice.status.node_name) == (
            MaintenanceKind.REBOOT,
            "oci",
            "10.0.10.7",
        )
        assert notice.spec.deadline is not None
        assert notice.spec.start is not None
        assert notice.spec.deadline - notice.spec.start == DAY
        await clock.sleep(2 * HOUR)
        await world.stop_for(DAY - 3 * HOUR)  # nothing depends on a running source meanwhile
        await clock.sleep(40 * MINUTE)
        assert await world.phase_of(event) == NoticePhase.PLANNED
        await world.wait_for_phase(event, NoticePhase.DUE, within=10 * MINUTE)
        await clock.sleep(3 * HOUR)
        world.cloud.start_maintenance(event)
        await world.wait_for_phase(event, NoticePhase.ACTIVE, within=5 * MINUTE)
        world.cloud.end_maintenance(event)
        await world.wait_for_phase(event, NoticePhase.COMPLETED, within=5 * MINUTE)
        assert len(await world.notices()) == 1


@pytest.mark.parametrize("silent", [False, True], ids=["published", "not published"])
@pytest.mark.parametrize("by", [-7 * DAY, 7 * DAY], ids=["earlier", "later"])
async def test_rescheduled_maintenance_has_its_new_start(clock: Clock, by: timedelta, *, silent: bool) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        await clock.sleep(HOUR)
        start = clock.now() + 13 * DAY + by
        world.cloud.reschedule(event, start, silent=silent)
        within = 6 * MINUTE if silent else 10 * SECOND
        await eventually(clock, lambda: world.start_time_of(event), becomes=start, within=within, every=SECOND)
        assert len(await world.notices()) == 1


async def test_maintenance_rescheduled_into_the_past_is_due_at_once(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.reschedule(event, clock.now() - HOUR)
        await world.wait_for_phase(event, NoticePhase.DUE)


@pytest.mark.parametrize("silent", [False, True], ids=["published", "not published"])
async def test_case_22_cancelled_maintenance_is_never_due(clock: Clock, *, silent: bool) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.end_maintenance(event, state="CANCELED", silent=silent)
        await world.wait_for_phase(event, NoticePhase.CANCELLED, within=6 * MINUTE)
        await clock.sleep(2 * HOUR)
        assert await world.phase_of(event) == NoticePhase.CANCELLED


async def test_case_5_maintenance_that_starts_early_is_active(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.start_maintenance(event)
        await world.wait_for_phase(event, NoticePhase.ACTIVE)


async def test_unannounced_maintenance_is_active(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        await world.create_node("n1", machine)
        world.start()
        await clock.sleep(MINUTE)
        event = world.cloud.schedule(machine, start=clock.now(), silent=True)
        world.cloud.start_maintenance(event)
        notice = await world.wait_for_phase(event, NoticePhase.ACTIVE)
        assert notice.status.node_name == "n1"


async def test_repeated_end_event_changes_nothing(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.start_maintenance(event)
        world.cloud.end_maintenance(event)
        ended = await world.wait_for_phase(event, NoticePhase.COMPLETED)
        world.cloud.publish(world.cloud.event_document(event, ".end"))
        await clock.sleep(HOUR)
        assert (await world.notice(event)).status.history == ended.status.history


async def test_case_21_failed_maintenance_stays_active(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.start_maintenance(event)
        world.cloud.end_maintenance(event, state="FAILED")
        await world.wait_for_phase(event, NoticePhase.ACTIVE)
        await eventually(clock, lambda: _stage(world, event), becomes="Failed")
        await clock.sleep(2 * HOUR)
        assert await world.phase_of(event) == NoticePhase.ACTIVE


async def test_maintenance_of_a_terminated_instance_is_cancelled(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine, event = await planned(world)
        await clock.sleep(HOUR)
        world.cloud.terminate(machine)
        world.cloud.forget_event(event)
        await world.wait_for_phase(event, NoticePhase.CANCELLED, within=6 * MINUTE)


async def test_missing_event_is_cancelled_only_after_a_complete_list(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        await clock.sleep(HOUR)
        world.cloud.forget_event(event)
        broken = world.cloud.faults.fail("ListInstanceMaintenanceEvents", status=503, times=None)
        await clock.sleep(HOUR)
        assert await world.phase_of(event) == NoticePhase.PLANNED
        assert world.source is not None
        assert "maintenance events cannot be reconciled with OCI Compute" in world.source.problems()[0]
        world.cloud.faults.remove(broken)
        await world.wait_for_phase(event, NoticePhase.CANCELLED, within=6 * MINUTE)
        assert not world.source.problems()


async def test_missing_compute_permissions_end_no_notice(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        for call in ("ListInstanceMaintenanceEvents", "GetInstanceMaintenanceEvent", "GetInstance"):
            world.cloud.faults.fail(call, status=404, code="NotAuthorizedOrNotFound", times=None)
        await clock.sleep(2 * HOUR)
        assert await world.phase_of(event) == NoticePhase.PLANNED


async def test_notice_of_an_instance_without_a_node_is_assigned_when_the_node_joins(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("late")
        event = world.cloud.schedule(machine, start=clock.now() + DAY)
        world.start()
        waiting = await world.wait_for_phase(event, NoticePhase.PLANNED)
        found = waiting.status.condition(NoticeCondition.NODE_FOUND)
        assert found is not None
        assert found.message == f"no node runs on {machine} yet"
        await world.create_node("late", f"oci://{machine}")
        await eventually(clock, lambda: _node(world, event), becomes="late")


async def test_case_13_node_without_a_provider_id_is_found_by_its_hostname_label(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("oke-c1-n1-s1-0")
        await _unmarked_node(world, "10.0.10.7", "oke-c1-n1-s1-0")
        await _unmarked_node(world, "10.0.10.8", "oke-c1-n1-s1-1")
        event = world.cloud.schedule(machine, start=clock.now() + DAY)
        world.start()
        await eventually(clock, lambda: _node(world, event), becomes="10.0.10.7")


async def test_ambiguous_hostname_assigns_no_node_and_is_reported(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("twin")
        await _unmarked_node(world, "n1", "twin")
        await _unmarked_node(world, "n2", "twin")
        event = world.cloud.schedule(machine, start=clock.now() + DAY)
        world.start()
        await eventually(clock, lambda: _lacks_node(world, event), becomes=True)
        assert await _node(world, event) == ""


async def test_case_19_event_delivered_three_times_is_one_notice(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        before = await world.notice(event)
        for _ in range(3):
            world.cloud.publish(world.cloud.event_document(event) | {"eventTime": "2026-01-05T09:00:00.000Z"})
        await clock.sleep(MINUTE)
        after = await world.notice(event)
        assert (after.spec, after.status.history) == (before.spec, before.status.history)


async def test_case_17_newer_of_two_plans_applies_in_any_order(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        old_start, new_start = clock.now() + 14 * DAY, clock.now() + 9 * DAY
        event = world.cloud.schedule(machine, start=old_start, silent=True)
        old = world.cloud.event_document(event)
        await clock.sleep(HOUR)
        world.cloud.reschedule(event, new_start, silent=True)
        world.cloud.publish(world.cloud.event_document(event))
        world.start()
        await world.wait_for_phase(event, NoticePhase.PLANNED)
        world.cloud.publish(old)
        await clock.sleep(HOUR)
        assert await world.start_time_of(event) == new_start


async def test_ended_notice_stays_completed_after_a_late_begin_event(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        event = world.cloud.schedule(machine, start=clock.now(), silent=True)
        world.cloud.start_maintenance(event, silent=True)
        begin_event = world.cloud.event_document(event, ".begin")
        world.cloud.end_maintenance(event)
        world.start()
        await world.wait_for_phase(event, NoticePhase.COMPLETED)
        world.cloud.publish(begin_event)
        await clock.sleep(HOUR)
        assert await world.phase_of(event) == NoticePhase.COMPLETED


def _reschedule(world: OciWorld, event: str) -> None:
    world.cloud.reschedule(event, world.clock.now() + 2 * DAY)


CHANGES: dict[str, tuple[Change, NoticePhase]] = {
    "moved": (_reschedule, NoticePhase.PLANNED),
    "moved past": (lambda world, event: world.cloud.reschedule(event, world.clock.now() - HOUR), NoticePhase.DUE),
    "cancelled": (lambda world, event: world.cloud.end_maintenance(event, state="CANCELED"), NoticePhase.CANCELLED),
    "begun": (lambda world, event: world.cloud.start_maintenance(event), NoticePhase.ACTIVE),
    "ended": (lambda world, event: world.cloud.end_maintenance(event), NoticePhase.COMPLETED),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_changes_during_downtime_are_applied_seconds_after_a_restart(clock: Clock, change: str) -> None:
    act, phase = CHANGES[change]
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.kill()
        await clock.sleep(HOUR)
        act(world, event)
        await clock.sleep(HOUR)
        world.start()
        await clock.sleep(10 * SECOND)
        assert await world.phase_of(event) == phase
        assert len(await world.notices()) == 1


@pytest.mark.parametrize("change", ["moved", "ended"])
async def test_changes_beyond_the_stream_retention_are_read_from_compute(clock: Clock, change: str) -> None:
    act, phase = CHANGES[change]
    async with an_oci_world(clock) as world:
        world.cloud.stream.retention = DAY  # the shortest that there is
        _, event = await planned(world, start=clock.now() + 60 * DAY)
        world.kill()
        act(world, event)
        await clock.sleep(DAY + HOUR)
        if change == "moved":
            act(world, event)
        world.start()
        await clock.sleep(10 * SECOND)
        assert await world.phase_of(event) == phase


async def test_case_12_new_group_reads_retained_messages_and_a_successor_continues(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        events = [world.cloud.schedule(machine, start=clock.now() + DAY) for _ in range(30)]
        await clock.sleep(HOUR)
        world.start()
        await world.wait_for_phase(events[-1], NoticePhase.PLANNED)
        assert len(await world.notices()) == 30
        await clock.sleep(MINUTE)
        await world.stop_for(HOUR)
        assert world.source is not None
        await clock.sleep(MINUTE)
        assert world.source._consumer is not None
        assert world.source._consumer.messages_processed == 0


async def test_long_finished_maintenance_is_completed_without_being_missed(clock: Clock) -> None:
    """A new group starts with a week of old messages; Compute knows which of their maintenances are finished."""
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        await world.create_node("n1", machine)
        event = world.cloud.schedule(machine, start=clock.now() + HOUR, window=HOUR)
        world.cloud.end_maintenance(event, silent=True)
        await clock.sleep(6 * HOUR)
        world.start()
        notice = await world.wait_for_phase(event, NoticePhase.COMPLETED)
        assert not any("Missed" in entry.message for entry in notice.status.history)


async def test_events_missing_from_the_stream_are_found_by_compartment(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        world.compartments = (world.cloud.compute_service.instances[machine]["compartmentId"],)
        world.cloud.compute_service.page_size = 2
        world.start()
        events = [world.cloud.schedule(machine, start=clock.now() + DAY, silent=True) for _ in range(5)]
        for event in events:
            await world.wait_for_phase(event, NoticePhase.PLANNED, within=6 * MINUTE)
        await clock.sleep(HOUR)
        before = [notice.resource_version for notice in await world.notices()]
        await clock.sleep(2 * HOUR)
        assert [notice.resource_version for notice in await world.notices()] == before


async def _stage(world: OciWorld, event: str) -> str:
    return (await world.notice(event)).spec.stage


async def _node(world: OciWorld, event: str) -> str:
    return (await world.notice(event)).status.node_name


async def _lacks_node(world: OciWorld, event: str) -> bool:
    found = (await world.notice(event)).status.condition(NoticeCondition.NODE_FOUND)
    return found is not None and "nodes n1, n2 all have hostname twin" in found.message


async def _unmarked_node(world: OciWorld, name: str, hostname: str) -> None:
    await world.client.create(NODES, a_node(name, labels={"hostname": hostname}))


async def test_preemption_is_due_at_once_and_cancelled_when_the_instance_is_terminated(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("spot")
        await world.create_node("10.0.10.7", machine)
        world.start()
        world.cloud.preempt(machine)
        [notice] = await eventually(clock, world.notices, within=10 * SECOND, every=SECOND)
        event = notice.spec.notice_id
        notice = await world.wait_for_phase(event, NoticePhase.DUE)
        assert (notice.spec.kind, notice.status.node_name) == (MaintenanceKind.TERMINATE, "10.0.10.7")
        world.cloud.terminate(machine)
        await world.wait_for_phase(event, NoticePhase.CANCELLED, within=21 * MINUTE)
        assert world.source is not None
        assert not world.source.problems()


async def test_host_failure_completes_while_the_instance_runs_and_may_repeat(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("worker")
        await world.create_node("10.0.10.7", machine)
        world.start()
        world.cloud.fail_host(machine)
        [notice] = await eventually(clock, world.notices, within=10 * SECOND, every=SECOND)
        event = notice.spec.notice_id
        await world.wait_for_phase(event, NoticePhase.ACTIVE)
        await clock.sleep(14 * MINUTE)
        assert await world.phase_of(event) == NoticePhase.ACTIVE
        await world.wait_for_phase(event, NoticePhase.COMPLETED, within=7 * MINUTE)
        world.cloud.fail_host(machine)
        await eventually(clock, lambda: _count(world), becomes=2, within=10 * SECOND, every=SECOND)


async def _count(world: OciWorld) -> int:
    return len(await world.notices())
