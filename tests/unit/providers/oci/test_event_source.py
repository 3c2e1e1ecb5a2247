"""Maintenance in OCI as it goes, on virtual time: what becomes of it in the cluster, whoever is down meanwhile."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from haulout.api.maintenancenotice import MaintenanceKind, NoticeCondition, NoticePhase
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from support.builders.objects import a_node
from support.clouds.oci import DAY, HOUR, MINUTE, SECOND, OciWorld, an_oci_world
from support.expectations.eventually import eventually

Deed = Callable[[OciWorld, str], None]


async def planned(world: OciWorld, *, start: datetime | None = None) -> tuple[str, str]:
    """Have a node with a maintenance in two weeks that everybody knows of; return machine and maintenance."""
    machine = world.cloud.launch("oke-c1-n1-s1-0")
    await world.create_node("10.0.10.7", machine)
    event = world.cloud.schedule(machine, start=start or world.clock.now() + 14 * DAY)
    world.start()
    await world.wait_for_phase(event, NoticePhase.PLANNED)
    return machine, event


async def test_a_maintenance_planned_long_ahead_goes_its_way(clock: Clock) -> None:
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
        await world.stop_for(DAY - 3 * HOUR)  # nothing depends on who listens meanwhile
        await clock.sleep(40 * MINUTE)
        assert await world.phase_of(event) == NoticePhase.PLANNED
        await world.wait_for_phase(event, NoticePhase.DUE, within=10 * MINUTE)
        await clock.sleep(3 * HOUR)
        world.cloud.start_maintenance(event)
        await world.wait_for_phase(event, NoticePhase.ACTIVE, within=5 * MINUTE)
        world.cloud.end_maintenance(event)
        await world.wait_for_phase(event, NoticePhase.COMPLETED, within=5 * MINUTE)
        assert len(await world.notices()) == 1


@pytest.mark.parametrize("silent", [False, True], ids=["told", "not told"])
@pytest.mark.parametrize("by", [-7 * DAY, 7 * DAY], ids=["earlier", "later"])
async def test_a_maintenance_that_is_moved_is_planned_anew(clock: Clock, by: timedelta, *, silent: bool) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        await clock.sleep(HOUR)
        start = clock.now() + 13 * DAY + by
        world.cloud.reschedule(event, start, silent=silent)
        within = 6 * MINUTE if silent else 10 * SECOND
        await eventually(clock, lambda: world.start_time_of(event), becomes=start, within=within, every=SECOND)
        assert len(await world.notices()) == 1


async def test_a_maintenance_that_is_moved_into_the_past_is_due_at_once(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.reschedule(event, clock.now() - HOUR)
        await world.wait_for_phase(event, NoticePhase.DUE)


@pytest.mark.parametrize("silent", [False, True], ids=["told", "not told"])
async def test_case_22_a_maintenance_that_is_cancelled_is_never_due(clock: Clock, *, silent: bool) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.end_maintenance(event, state="CANCELED", silent=silent)
        await world.wait_for_phase(event, NoticePhase.CANCELLED, within=6 * MINUTE)
        await clock.sleep(2 * HOUR)
        assert await world.phase_of(event) == NoticePhase.CANCELLED


async def test_case_5_a_maintenance_that_begins_early_is_active_whatever_was_planned(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.start_maintenance(event)
        await world.wait_for_phase(event, NoticePhase.ACTIVE)


async def test_a_maintenance_that_begins_unannounced_is_active(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        await world.create_node("n1", machine)
        world.start()
        await clock.sleep(MINUTE)
        event = world.cloud.schedule(machine, start=clock.now(), silent=True)
        world.cloud.start_maintenance(event)
        notice = await world.wait_for_phase(event, NoticePhase.ACTIVE)
        assert notice.status.node_name == "n1"


async def test_an_end_that_is_told_twice_is_one_end(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.start_maintenance(event)
        world.cloud.end_maintenance(event)
        ended = await world.wait_for_phase(event, NoticePhase.COMPLETED)
        world.cloud.publish(world.cloud.event_document(event, ".end"))
        await clock.sleep(HOUR)
        assert (await world.notice(event)).status.history == ended.status.history


async def test_case_21_a_maintenance_that_failed_leaves_the_node_out_of_service(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        world.cloud.start_maintenance(event)
        world.cloud.end_maintenance(event, state="FAILED")
        await world.wait_for_phase(event, NoticePhase.ACTIVE)
        await eventually(clock, lambda: _stage(world, event), becomes="Failed")
        await clock.sleep(2 * HOUR)
        assert await world.phase_of(event) == NoticePhase.ACTIVE


async def test_the_maintenance_of_an_instance_that_is_gone_is_over(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine, event = await planned(world)
        await clock.sleep(HOUR)
        world.cloud.terminate(machine)
        world.cloud.forget_event(event)
        await world.wait_for_phase(event, NoticePhase.CANCELLED, within=6 * MINUTE)


async def test_what_nobody_knows_of_any_more_is_over_if_lists_come_whole_and_not_if_they_fail(clock: Clock) -> None:
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


async def test_without_permission_to_look_nothing_is_taken_for_gone(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        for call in ("ListInstanceMaintenanceEvents", "GetInstanceMaintenanceEvent", "GetInstance"):
            world.cloud.faults.fail(call, status=404, code="NotAuthorizedOrNotFound", times=None)
        await clock.sleep(2 * HOUR)
        assert await world.phase_of(event) == NoticePhase.PLANNED


async def test_an_instance_that_is_no_node_yet_is_waited_for(clock: Clock) -> None:
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


async def test_case_13_a_node_that_tells_no_machine_is_found_by_its_label_hostname(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("oke-c1-n1-s1-0")
        await _unmarked_node(world, "10.0.10.7", "oke-c1-n1-s1-0")
        await _unmarked_node(world, "10.0.10.8", "oke-c1-n1-s1-1")
        event = world.cloud.schedule(machine, start=clock.now() + DAY)
        world.start()
        await eventually(clock, lambda: _node(world, event), becomes="10.0.10.7")


async def test_two_nodes_that_are_called_the_same_are_left_alone_and_that_is_said(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("twin")
        await _unmarked_node(world, "n1", "twin")
        await _unmarked_node(world, "n2", "twin")
        event = world.cloud.schedule(machine, start=clock.now() + DAY)
        world.start()
        await eventually(clock, lambda: _lacks_node(world, event), becomes=True)
        assert await _node(world, event) == ""


async def test_case_19_an_event_that_is_delivered_three_times_is_one_notice(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        _, event = await planned(world)
        before = await world.notice(event)
        for _ in range(3):
            world.cloud.publish(world.cloud.event_document(event) | {"eventTime": "2026-01-05T09:00:00.000Z"})
        await clock.sleep(MINUTE)
        after = await world.notice(event)
        assert (after.spec, after.status.history) == (before.spec, before.status.history)


async def test_case_17_of_two_plans_the_newer_counts_in_whatever_order_they_come(clock: Clock) -> None:
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


async def test_an_end_that_comes_before_its_beginning_stays_the_end(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        event = world.cloud.schedule(machine, start=clock.now(), silent=True)
        world.cloud.start_maintenance(event, silent=True)
        begun = world.cloud.event_document(event, ".begin")
        world.cloud.end_maintenance(event)
        world.start()
        await world.wait_for_phase(event, NoticePhase.COMPLETED)
        world.cloud.publish(begun)
        await clock.sleep(HOUR)
        assert await world.phase_of(event) == NoticePhase.COMPLETED


def _reschedule(world: OciWorld, event: str) -> None:
    world.cloud.reschedule(event, world.clock.now() + 2 * DAY)


DEEDS: dict[str, tuple[Deed, NoticePhase]] = {
    "moved": (_reschedule, NoticePhase.PLANNED),
    "moved past": (lambda world, event: world.cloud.reschedule(event, world.clock.now() - HOUR), NoticePhase.DUE),
    "cancelled": (lambda world, event: world.cloud.end_maintenance(event, state="CANCELED"), NoticePhase.CANCELLED),
    "begun": (lambda world, event: world.cloud.start_maintenance(event), NoticePhase.ACTIVE),
    "ended": (lambda world, event: world.cloud.end_maintenance(event), NoticePhase.COMPLETED),
}


@pytest.mark.parametrize("deed", DEEDS)
async def test_what_happens_while_nobody_listens_is_known_seconds_after(clock: Clock, deed: str) -> None:
    act, phase = DEEDS[deed]
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


@pytest.mark.parametrize("deed", ["moved", "ended"])
async def test_what_happened_longer_ago_than_the_stream_remembers_is_still_learned(clock: Clock, deed: str) -> None:
    act, phase = DEEDS[deed]
    async with an_oci_world(clock) as world:
        world.cloud.stream.retention = DAY  # the shortest that there is
        _, event = await planned(world, start=clock.now() + 60 * DAY)
        world.kill()
        act(world, event)
        await clock.sleep(DAY + HOUR)
        if deed == "moved":
            act(world, event)
        world.start()
        await clock.sleep(10 * SECOND)
        assert await world.phase_of(event) == phase


async def test_case_12_a_new_group_reads_what_is_retained_and_a_successor_goes_on_after_it(clock: Clock) -> None:
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


async def test_a_maintenance_long_over_that_is_read_again_raises_no_alarm(clock: Clock) -> None:
    """A new group begins with a week of old messages: what they announced may be over, which Compute knows."""
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        await world.create_node("n1", machine)
        event = world.cloud.schedule(machine, start=clock.now() + HOUR, window=HOUR)
        world.cloud.end_maintenance(event, silent=True)
        await clock.sleep(6 * HOUR)
        world.start()
        notice = await world.wait_for_phase(event, NoticePhase.COMPLETED)
        assert not any("Missed" in entry.message for entry in notice.status.history)


async def test_what_the_stream_never_told_is_found_in_a_known_compartment(clock: Clock) -> None:
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


async def test_an_instance_that_is_preempted_is_due_at_once_and_forgotten_when_it_is_gone(clock: Clock) -> None:
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


async def test_a_host_that_failed_is_over_when_the_instance_runs_on_and_may_fail_again(clock: Clock) -> None:
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
