"""AWS events become notices despite restarts and failures: scenarios on virtual time."""

from datetime import datetime, timedelta

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, NoticePhase, NoticeStage
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.providers.aws.instance_events import EventType
from haulout.providers.aws.settings import AwsSettings
from support.clouds import aws_messages as aws
from support.clouds.aws import an_aws_world

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


def a_second(clock: Clock) -> datetime:
    """Return the current time in whole seconds, as AWS has no fractions."""
    return clock.now().replace(microsecond=0)


async def test_maintenance_goes_through_all_phases_of_its_notice(clock: Clock) -> None:
    """Weaknesses 1 and 4 of aws-node-termination-handler: it drained at once, and did not detect the end."""
    async with an_aws_world(clock, has_queue=False, settings=AwsSettings(poll_interval=HOUR)) as world:
        instance = await world.join_node("n1")
        start = a_second(clock) + 5 * DAY
        event = world.cloud.schedule(instance, start=start)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.PLANNED, within=10 * SECOND)
        notice = await world.only_notice()
        assert (notice.name, notice.status.node_name) == (f"aws-{event}", "n1")
        assert (notice.spec.kind, notice.spec.start) == (MaintenanceKind.REBOOT, start)
        await clock.sleep(5 * DAY - HOUR)
        assert (await world.only_notice()).status.phase == NoticePhase.PLANNED
        await world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE, within=2 * HOUR)
        world.cloud.complete_event(instance, event)
        await world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED, within=2 * HOUR)


@pytest.mark.parametrize("by", [2 * DAY, -2 * DAY])
async def test_rescheduled_event_changes_the_start_of_its_notice(clock: Clock, by: timedelta) -> None:
    for silent in (False, True):
        async with an_aws_world(clock) as world:
            instance = await world.join_node("n1")
            world.start()
            start = a_second(clock) + 4 * DAY
            event = world.cloud.schedule(instance, start=start, silent=silent)
            await world.wait_for_stage(NoticeStage.SCHEDULED)
            await clock.sleep(HOUR)
            world.cloud.reschedule(instance, event, start=start + by, silent=silent)
            await clock.sleep(6 * MINUTE)
            assert (await world.only_notice()).spec.start == start + by


async def test_event_rescheduled_into_the_past_has_started(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        event = world.cloud.schedule(instance, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.reschedule(instance, event, start=clock.now() - MINUTE)
        await world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE)


@pytest.mark.parametrize("silent", [True, False])
async def test_cancelled_maintenance_is_never_due(clock: Clock, *, silent: bool) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        event = world.cloud.schedule(instance, start=clock.now() + DAY, silent=silent)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.cancel_event(instance, event, silent=silent)
        await world.wait_for_stage(NoticeStage.CANCELLED, phase=NoticePhase.CANCELLED)
        await clock.sleep(2 * DAY)
        assert (await world.only_notice()).status.phase == NoticePhase.CANCELLED


async def test_missing_event_is_cancelled_only_after_a_second_poll(clock: Clock) -> None:
    async with an_aws_world(clock, has_queue=False) as world:
        instance = await world.join_node("n1")
        world.start()
        event = world.cloud.schedule(instance, start=clock.now() + DAY, silent=True)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        event_data = world.cloud.ec2_instances.by_id[instance].events[event]
        polls_before = world.cloud.faults.calls.count("DescribeInstanceStatus")
        world.cloud.forget_event(instance, event)
        while world.cloud.faults.calls.count("DescribeInstanceStatus") == polls_before:
            await clock.sleep(SECOND)
        world.cloud.ec2_instances.by_id[instance].events[event] = event_data  # another endpoint still lists it
        await clock.sleep(HOUR)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        world.cloud.forget_event(instance, event)
        await world.wait_for_stage(NoticeStage.CANCELLED)


async def test_api_error_ends_no_notice(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.schedule(instance, start=clock.now() + 2 * DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        faults = world.cloud.faults
        for code, status in (("UnauthorizedOperation", 403), ("InternalError", 500), ("RequestExpired", 400)):
            rule = faults.fail("DescribeInstanceStatus", status=status, code=code, times=None)
            await clock.sleep(HOUR)
            assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
            assert world.source is not None
            assert any(code in problem for problem in world.source.problems())
            faults.remove(rule)
        await clock.sleep(10 * MINUTE)
        assert world.source is not None
        assert list(world.source.problems()) == []


async def test_repeated_end_does_not_write_the_notice_again(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        event = world.cloud.schedule(instance, start=clock.now() + HOUR)
        await clock.sleep(2 * HOUR)
        world.cloud.complete_event(instance, event)
        await world.wait_for_stage(NoticeStage.ENDED)
        before = await world.only_notice()
        world.cloud.queue.send(world.cloud.queue.messages[-1].body if world.cloud.queue.messages else "{}")
        world.cloud.forget_event(instance, event)
        await clock.sleep(HOUR)
        assert (await world.only_notice()).resource_version == before.resource_version


async def test_notice_is_cancelled_once_instance_and_node_are_deleted(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance, other = await world.join_node("n1"), await world.join_node("n2")
        world.start()
        world.cloud.schedule(instance, start=clock.now() + 5 * DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.forget_instance(instance)
        await world.client.delete(NODES, "n1")
        await world.wait_for_stage(NoticeStage.CANCELLED)
        world.cloud.schedule(other, start=clock.now() + 5 * DAY, silent=True)
        await clock.sleep(6 * MINUTE)
        assert len(await world.notices()) == 2


async def test_unknown_instance_does_not_hide_events_of_others(clock: Clock) -> None:
    """MMO weakness 5: one unknown instance ended the whole scan."""
    async with an_aws_world(clock, has_queue=False) as world:
        known = [await world.join_node(f"n{number}") for number in range(3)]
        await world.add_node("ghost", "i-0bad0bad0bad0bad0")
        await world.add_node("fargate", "fargate-ip-10-0-0-1.ec2.internal")
        for instance in known:
            world.cloud.schedule(instance, start=world.clock.now() + DAY)
        world.start()
        await clock.sleep(MINUTE)
        assert len(await world.notices()) == 3


async def test_notice_of_an_instance_without_a_node_is_assigned_when_the_node_joins(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = world.cloud.launch()
        world.start()
        world.cloud.schedule(instance, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.PLANNED)
        await world.add_node("late", instance)
        await clock.sleep(SECOND)
        assert (await world.only_notice()).status.node_name == "late"


async def test_repeated_message_is_one_notice(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.cloud.schedule(instance, start=clock.now() + DAY)
        body = world.cloud.queue.messages[0].body
        for _ in range(25):
            world.cloud.queue.send(body)
        world.start()
        await clock.sleep(MINUTE)
        assert world.cloud.queue.messages == []
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED


async def test_messages_out_of_order_lead_to_the_same_notice(clock: Clock) -> None:
    outcomes = []
    for backwards in (False, True):
        async with an_aws_world(clock) as world:
            instance = await world.join_node("n1")
            start = a_second(clock) + DAY
            event = world.cloud.schedule(instance, start=start)
            await clock.sleep(MINUTE)
            world.cloud.reschedule(instance, event, start=start + HOUR)
            await clock.sleep(MINUTE)
            world.cloud.cancel_event(instance, event)
            world.cloud.forget_event(instance, event)
            if backwards:
                world.cloud.queue.messages.reverse()
            world.start()
            await clock.sleep(HOUR)
            outcomes.append([(notice.spec.stage, notice.spec.kind) for notice in (await world.notices()).values()])
    assert outcomes == [[(NoticeStage.CANCELLED, MaintenanceKind.REBOOT)]] * 2


@pytest.mark.parametrize("downtime", [MINUTE, 3 * HOUR, 3 * DAY])
async def test_changes_during_downtime_are_applied_after_a_restart(clock: Clock, downtime: timedelta) -> None:
    async with an_aws_world(clock) as world:
        moved, cancelled, finished = [await world.join_node(name) for name in ("n1", "n2", "n3")]
        start = a_second(clock) + DAY
        events = {item: world.cloud.schedule(item, start=start) for item in (moved, cancelled, finished)}
        world.start()
        await clock.sleep(MINUTE)
        await world.stop()
        world.cloud.reschedule(moved, events[moved], start=start + 7 * DAY)
        world.cloud.cancel_event(cancelled, events[cancelled])
        await clock.sleep(downtime)
        world.cloud.complete_event(finished, events[finished])
        spot = await world.join_node("n4")
        world.cloud.interrupt_spot(spot)
        world.start()
        await clock.sleep(MINUTE)
        specs = {item.spec.provider_id: item.spec for item in (await world.notices()).values()}
        assert len(await world.notices()) == 4
        assert (specs[moved].start, specs[moved].stage) == (start + 7 * DAY, NoticeStage.SCHEDULED)
        assert specs[cancelled].stage == NoticeStage.CANCELLED
        assert specs[finished].stage in (NoticeStage.ENDED, NoticeStage.CANCELLED)
        assert specs[spot].kind == MaintenanceKind.TERMINATE
        assert world.cloud.queue.messages == []


async def test_spot_interruption_is_due_at_once_and_ends_with_the_instance(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.interrupt_spot(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.DUE, within=5 * SECOND)
        world.cloud.set_state(instance, "shutting-down")
        await world.wait_for_stage(NoticeStage.STARTED)
        await world.client.delete(NODES, "n1")
        await world.wait_for_stage(NoticeStage.ENDED)


async def test_unannounced_stop_is_active_until_the_instance_runs_again(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        foreign = world.cloud.launch()
        world.start()
        world.cloud.set_state(foreign, "stopping")
        world.cloud.set_state(instance, "stopping")
        world.cloud.set_state(instance, "stopped")
        await world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE)
        world.cloud.set_state(instance, "running", silent=True)
        await world.wait_for_stage(NoticeStage.ENDED, phase=NoticePhase.COMPLETED)


async def test_early_scheduled_stop_is_active(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.schedule(instance, "instance-stop", start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.PLANNED)
        world.cloud.set_state(instance, "stopping")
        await world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE, within=5 * SECOND)


async def test_health_event_during_ec2_throttling_is_correlated_with_the_ec2_event(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        await clock.sleep(MINUTE)
        rule = world.cloud.faults.fail("DescribeInstanceStatus", status=503, code="RequestLimitExceeded", times=None)
        world.cloud.schedule(instance, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=10 * SECOND)
        world.cloud.faults.remove(rule)
        await clock.sleep(10 * MINUTE)
        notice = await world.only_notice()
        assert set(notice.metadata.annotations) == {EventType.SCHEDULED_EVENT, EventType.HEALTH}


async def test_health_event_triggers_an_ec2_poll_so_that_the_notice_is_reschedulable(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        await clock.sleep(MINUTE)
        now = clock.now()
        event = world.cloud.schedule(instance, start=now + DAY, deadline=now + 3 * DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=5 * SECOND)
        notice = await world.only_notice()
        assert notice.name == f"aws-{event}"
        assert notice.spec.reschedulable


async def test_deleted_notice_is_recreated_while_ec2_lists_the_event(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.schedule(instance, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.client.delete(MAINTENANCE_NOTICES, (await world.only_notice()).name)
        await clock.sleep(6 * MINUTE)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED


async def test_message_is_deleted_only_after_its_notice_is_written(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        await clock.sleep(SECOND)
        world.transport.cut()  # type: ignore[attr-defined] # of the sandbox
        world.cloud.interrupt_spot(instance)
        await clock.sleep(3 * MINUTE)
        assert len(world.cloud.queue.messages) == 1
        assert world.source is not None
        assert "its MaintenanceNotice cannot be written" in "".join(world.source.problems())
        assert world.source.quarantine.count == 0
        world.transport.mend()  # type: ignore[attr-defined] # of the sandbox
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await clock.sleep(MINUTE)
        assert world.cloud.queue.messages == []


async def test_unreadable_messages_are_quarantined_and_others_are_processed(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        for body in ("", "{", "[]", "\ud800", '{"source":"aws.ec2"}', "x" * 200_000):
            world.cloud.queue.send(body)
        world.cloud.interrupt_spot(instance)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=10 * SECOND)
        await clock.sleep(10 * MINUTE)
        assert world.source is not None
        assert world.source.quarantine.count == 6
        assert "could not be read" in "".join(world.source.problems())


async def test_unreadable_message_stays_in_the_queue_for_its_dead_letter_policy(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        world.cloud.queue.send("what?")
        world.start()
        await clock.sleep(5 * MINUTE)
        (left,) = world.cloud.queue.messages
        assert (left.body, left.receive_count) == ("what?", 5)  # each counts for its maxReceiveCount


@pytest.mark.parametrize("may_hide", [True, False])
async def test_many_unreadable_messages_do_not_delay_others(clock: Clock, *, may_hide: bool) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        if not may_hide:
            world.cloud.faults.fail("ChangeMessageVisibility", status=403, code="AccessDenied", times=None)
        for number in range(300):
            world.cloud.queue.send(f"what? {number}")
        world.start()
        await clock.sleep(2 * MINUTE)
        world.cloud.interrupt_spot(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=5 * SECOND)
        assert world.source is not None
        assert world.source.quarantine.count == 300
        assert len(world.cloud.queue.messages) == 300
        assert world.source.is_up


@pytest.mark.parametrize("by_queue", [True, False])
@pytest.mark.parametrize(("drains", "kind"), [(False, MaintenanceKind.FREEZE), (True, MaintenanceKind.REBOOT)])
async def test_network_maintenance_drains_only_if_configured(
    clock: Clock, kind: MaintenanceKind, *, drains: bool, by_queue: bool
) -> None:
    async with an_aws_world(clock, settings=AwsSettings(drains_for_network_maintenance=drains)) as world:
        instance = await world.join_node("n1")
        if by_queue:
            code = "AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED"
            start = clock.now() + DAY
            world.cloud.queue.send(aws.health(instance, start=start, at=clock.now(), eventTypeCode=code))
        else:
            description = "The network of the host is maintained"
            world.cloud.schedule(
                instance, "system-maintenance", start=clock.now() + DAY, description=description, silent=True
            )
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        assert (await world.only_notice()).spec.kind == kind


async def test_idle_event_source_does_not_write_notices(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.schedule(instance, start=clock.now() + 5 * DAY)
        await clock.sleep(HOUR)
        before = await world.only_notice()
        await clock.sleep(DAY)
        await world.stop()
        world.start()
        await clock.sleep(HOUR)
        assert (await world.only_notice()).resource_version == before.resource_version
