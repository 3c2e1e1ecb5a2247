"""Events from the instance metadata service become the same notices as from the queue and EC2, without duplicates."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, MaintenanceNotice, NoticeStage
from haulout.api.notice_reports import NoticeReport
from haulout.core.clock import Clock
from haulout.errors import Forbidden
from haulout.kube.patches import merge_patch
from haulout.providers.aws.imds_event_source import ImdsEventSource
from haulout.providers.aws.instance_events import SHOWN_BY_IMDS, EventType
from haulout.providers.notice_writer import NoticeWriter
from haulout_sandbox.clouds.aws import AwsCloud
from support.clouds.aws import AwsWorld, an_aws_world

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
POLL = 3 * SECOND


async def notice_states(world: AwsWorld) -> list[tuple[str, str, str]]:
    """Return kind, reason and stage of each notice."""
    return sorted(
        (notice.spec.kind, notice.spec.reason, notice.spec.stage) for notice in (await world.notices()).values()
    )


# An agent without a queue


async def test_agent_without_a_queue_reports_a_spot_interruption(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        world.cloud.interrupt_spot(instance, silent=True)
        start = (clock.now() + 2 * MINUTE).replace(microsecond=0)
        await clock.sleep(POLL)
        notice = await world.only_notice()
        spec = notice.spec
        assert notice.name == f"aws-spot-{instance}"
        assert (spec.kind, spec.reason, spec.start, spec.stage) == (
            MaintenanceKind.TERMINATE,
            "spot-terminate",
            start,
            NoticeStage.SCHEDULED,
        )
        assert (spec.node_name, spec.provider_id) == ("n1", instance)


@pytest.mark.parametrize("action", ["stop", "hibernate"])
async def test_a_spot_instance_that_stops_or_hibernates_has_a_notice_of_kind_stop(clock: Clock, action: str) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        world.cloud.interrupt_spot(instance, action, silent=True)
        await clock.sleep(POLL)
        assert await notice_states(world) == [(MaintenanceKind.STOP, f"spot-{action}", NoticeStage.SCHEDULED)]


async def test_agent_reports_a_rebalance_recommendation(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        world.cloud.recommend_rebalance(instance, silent=True)
        await clock.sleep(POLL)
        assert await notice_states(world) == [
            (MaintenanceKind.TERMINATE, "rebalance-recommendation", NoticeStage.SCHEDULED)
        ]
        assert (await world.only_notice()).spec.start is None


@pytest.mark.parametrize(("state", "notices"), [("Terminated", 1), ("Standby", 0), ("InService", 0), ("", 0)])
async def test_only_the_target_state_terminated_is_a_notice(clock: Clock, state: str, notices: int) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.cloud.ec2_instances.by_id[instance].target_lifecycle_state = state
        world.start_agent("n1", instance)
        await clock.sleep(POLL)
        assert (
            await notice_states(world) == [(MaintenanceKind.TERMINATE, "autoscaling", NoticeStage.SCHEDULED)] * notices
        )


async def test_scheduled_event_is_scheduled_started_and_ended_as_in_its_history(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        start = (clock.now() + HOUR).replace(microsecond=0)
        world.start_agent("n1", instance)
        event = world.cloud.schedule(instance, "system-reboot", start=start, silent=True)
        await clock.sleep(POLL)
        notice = await world.only_notice()
        assert (notice.name, notice.spec.kind, notice.spec.start) == (f"aws-{event}", MaintenanceKind.REBOOT, start)
        assert (notice.spec.end, notice.spec.reason) == (start + 2 * HOUR, "system-reboot")
        await clock.sleep(HOUR)
        assert (await world.only_notice()).spec.stage == NoticeStage.STARTED
        world.cloud.complete_event(instance, event, silent=True)
        await world.wait_for_stage(NoticeStage.ENDED, within=MINUTE)


@pytest.mark.parametrize(("drains", "kind"), [(False, MaintenanceKind.FREEZE), (True, MaintenanceKind.REBOOT)])
async def test_agent_drains_for_network_maintenance_only_if_configured(
    clock: Clock, kind: MaintenanceKind, *, drains: bool
) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance, drains_for_network=drains)
        description = "The network of the host is maintained"
        world.cloud.schedule(
            instance, "system-maintenance", start=clock.now() + HOUR, description=description, silent=True
        )
        await clock.sleep(POLL)
        assert (await world.only_notice()).spec.kind == kind


async def test_rescheduled_event_has_the_new_start(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        start = (clock.now() + HOUR).replace(microsecond=0)
        world.start_agent("n1", instance)
        event = world.cloud.schedule(instance, start=start, silent=True)
        await clock.sleep(POLL)
        for later in (2 * HOUR, HOUR / 2):
            world.cloud.reschedule(instance, event, start=start + later, silent=True)
            await clock.sleep(POLL)
            assert (await world.only_notice()).spec.start == start + later


Trigger = Callable[[AwsCloud, str], object]


def schedule_event(cloud: AwsCloud, instance: str) -> None:
    cloud.schedule(instance, start=(cloud.clock.now() + HOUR).replace(microsecond=0), silent=True)


def schedule_and_publish(cloud: AwsCloud, instance: str) -> None:
    cloud.schedule(instance, start=(cloud.clock.now() + HOUR).replace(microsecond=0))


PUBLISHED_TRIGGERS: dict[EventType, Trigger] = {
    EventType.SPOT: AwsCloud.interrupt_spot,
    EventType.REBALANCE: AwsCloud.recommend_rebalance,
    EventType.TARGET_LIFECYCLE_STATE: AwsCloud.start_lifecycle_action,
    EventType.SCHEDULED_EVENT: schedule_and_publish,
}


def withdraw_event(cloud: AwsCloud, instance: str) -> None:
    """Remove all events from the metadata service."""
    machine = cloud.ec2_instances.by_id[instance]
    machine.spot_action, machine.rebalance, machine.target_lifecycle_state = None, None, "InService"
    machine.events.clear()


FAMILIES = (EventType.SPOT, EventType.REBALANCE, EventType.TARGET_LIFECYCLE_STATE, EventType.SCHEDULED_EVENT)
SILENT_TRIGGERS: dict[EventType, Trigger] = {
    EventType.SPOT: lambda cloud, instance: cloud.interrupt_spot(instance, silent=True),
    EventType.REBALANCE: lambda cloud, instance: cloud.recommend_rebalance(instance, silent=True),
    EventType.TARGET_LIFECYCLE_STATE: lambda cloud, instance: cloud.start_lifecycle_action(instance, silent=True),
    EventType.SCHEDULED_EVENT: schedule_event,
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_event_withdrawn_before_its_start_is_cancelled(clock: Clock, family: EventType) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        SILENT_TRIGGERS[family](world.cloud, instance)
        await clock.sleep(POLL)
        withdraw_event(world.cloud, instance)
        await clock.sleep(5 * SECOND)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        await world.wait_for_stage(NoticeStage.CANCELLED, within=MINUTE)


async def test_event_canceled_in_its_history_is_cancelled_also_after_its_start(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        event = world.cloud.schedule(instance, start=clock.now() + MINUTE, silent=True)
        await clock.sleep(2 * MINUTE)
        world.cloud.cancel_event(instance, event, silent=True)
        await world.wait_for_stage(NoticeStage.CANCELLED, within=MINUTE)


@pytest.mark.parametrize("family", FAMILIES)
async def test_missing_response_or_error_ends_no_notice(clock: Clock, family: EventType) -> None:
    operations = {
        EventType.SPOT: "GetSpotAction",
        EventType.REBALANCE: "GetRebalance",
        EventType.TARGET_LIFECYCLE_STATE: "GetTargetState",
        EventType.SCHEDULED_EVENT: "GetScheduledEvents",
    }
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        source = world.start_agent("n1", instance)
        SILENT_TRIGGERS[family](world.cloud, instance)
        await clock.sleep(POLL)
        for status in (0, 500):
            world.cloud.faults.fail(operations[family], status=status, times=None)
            withdraw_event(world.cloud, instance)
            await clock.sleep(MINUTE / 3)
            assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
            assert not source.is_up
            assert "the metadata service does not answer, retrying" in source.problems()[0]
        world.cloud.faults.remove()
        await world.wait_for_stage(NoticeStage.CANCELLED, within=2 * MINUTE)
        assert source.is_up


async def test_malformed_event_is_quarantined_and_ends_no_notice(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        source = world.start_agent("n1", instance)
        schedule_event(world.cloud, instance)
        await clock.sleep(POLL)
        machine = world.cloud.ec2_instances.by_id[instance]
        (event,) = machine.events.values()
        machine.events = {"x": {**event, "InstanceEventId": ""}}
        await clock.sleep(MINUTE)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        assert "without InstanceEventId" in source.quarantine.last[-1].why


async def test_restarted_spot_instance_has_no_open_notice(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        world.cloud.interrupt_spot(instance, "stop", silent=True)
        await clock.sleep(POLL)
        await world.stop_agents()
        await clock.sleep(HOUR)
        world.cloud.ec2_instances.by_id[instance].spot_action = None
        world.start_agent("n1", instance)
        await world.wait_for_stage(NoticeStage.ENDED, within=MINUTE)
        world.cloud.interrupt_spot(instance, "stop", silent=True)
        await clock.sleep(POLL)
        found = {notice.name: notice.spec.stage for notice in (await world.notices()).values()}
        assert found == {f"aws-spot-{instance}": NoticeStage.ENDED, f"aws-spot-{instance}-2": NoticeStage.SCHEDULED}


async def test_restarted_agent_continues_the_same_notices(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        for trigger in SILENT_TRIGGERS.values():
            trigger(world.cloud, instance)
        await clock.sleep(POLL)
        before = await world.notices()
        await world.stop_agents()
        source = world.start_agent("n1", instance)
        await clock.sleep(MINUTE)
        after = await world.notices()
        assert len(after) == len(FAMILIES)
        assert {item.name: item.spec for item in after.values()} == {item.name: item.spec for item in before.values()}
        assert source.messages_processed == 0


async def test_deleted_notice_is_recreated_while_its_event_is_shown(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        schedule_event(world.cloud, instance)
        await clock.sleep(POLL)
        name = (await world.only_notice()).name
        await world.client.delete(MAINTENANCE_NOTICES, name)
        await clock.sleep(6 * MINUTE)
        assert (await world.only_notice()).name == name


# Requests to the metadata service


async def test_idle_agent_polls_every_two_seconds_with_one_token(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        await clock.sleep(HOUR)
        calls = list(world.cloud.faults.calls)
        assert calls.count("PutToken") == 1
        assert 1700 <= calls.count("GetSpotAction") <= 1801
        await clock.sleep(6 * HOUR)
        assert len(world.cloud.metadata_services.tokens) == 2


async def test_rejected_token_is_renewed_at_once(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        source = world.start_agent("n1", instance)
        await clock.sleep(POLL)
        world.cloud.metadata_services.tokens.clear()
        world.cloud.interrupt_spot(instance, silent=True)
        await clock.sleep(POLL)
        assert await notice_states(world) == [(MaintenanceKind.TERMINATE, "spot-terminate", NoticeStage.SCHEDULED)]
        assert source.is_up


async def test_missing_token_response_is_reported_with_advice_and_backs_off(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        rule = world.cloud.faults.hang("PutToken", times=None)
        source = world.start_agent("n1", instance)
        await clock.sleep(HOUR)
        assert "does the agent run with hostNetwork?" in source.problems()[0]
        assert list(world.cloud.faults.calls).count("PutToken") < 300
        world.cloud.faults.remove(rule)
        world.cloud.interrupt_spot(instance, silent=True)
        await clock.sleep(MINUTE)
        assert source.is_up
        assert len(await world.notices()) == 1


async def test_failing_metadata_path_does_not_block_the_others(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.cloud.faults.fail("GetSpotAction", status=500, times=None)
        source = world.start_agent("n1", instance)
        world.cloud.start_lifecycle_action(instance, silent=True)
        await clock.sleep(POLL)
        assert await notice_states(world) == [(MaintenanceKind.TERMINATE, "autoscaling", NoticeStage.SCHEDULED)]
        assert not source.is_up


# An agent and a queue


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("first", ["queue", "agent", "both"])
async def test_agent_and_queue_write_one_notice_for_the_same_event(clock: Clock, family: EventType, first: str) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        if first in ("queue", "both"):
            world.start()
        if first in ("agent", "both"):
            world.start_agent("n1", instance)
        await clock.sleep(30 * SECOND)
        PUBLISHED_TRIGGERS[family](world.cloud, instance)
        await clock.sleep(20 * SECOND)
        alone = await world.only_notice()
        if first == "queue":
            world.start_agent("n1", instance)
        if first == "agent":
            world.start()
        await clock.sleep(10 * MINUTE if family in (EventType.SCHEDULED_EVENT, EventType.REBALANCE) else 30 * SECOND)
        notice = await world.only_notice()
        assert notice.name == alone.name
        assert (notice.spec.kind, notice.spec.start) == (alone.spec.kind, alone.spec.start)
        assert notice.spec.node_name == "n1"
        assert notice.metadata.annotations[SHOWN_BY_IMDS] == "shown"
        assert family in notice.metadata.annotations
        if family is EventType.TARGET_LIFECYCLE_STATE:
            assert notice.metadata.annotations[EventType.LIFECYCLE] == next(iter(world.cloud.auto_scaling.actions))


async def test_agent_does_not_end_notices_its_metadata_service_never_showed(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.start_agent("n1", instance)
        world.cloud.recommend_rebalance(instance)
        world.cloud.ec2_instances.by_id[instance].rebalance = None
        await clock.sleep(10 * MINUTE)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED


async def test_agent_does_not_revert_a_start_reported_by_ec2(clock: Clock) -> None:
    """The metadata service shows a changed start later than EC2."""
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        start = (clock.now() + 5 * HOUR).replace(microsecond=0)
        world.start()
        world.start_agent("n1", instance)
        event = world.cloud.schedule(instance, start=start, deadline=start + 9 * HOUR)
        await clock.sleep(MINUTE)
        notice = await world.only_notice()
        assert notice.spec.reschedulable
        await world.stop()
        moved = {"spec": {"start": (start + HOUR).isoformat(), "reportedAt": clock.now().isoformat()}}
        await world.client.patch(MAINTENANCE_NOTICES, notice.name, merge_patch(moved))
        await clock.sleep(11 * MINUTE)  # meanwhile, the agent reads the notices of its node again
        assert (await world.only_notice()).spec.start == start + HOUR
        world.cloud.reschedule(instance, event, start=start + 2 * HOUR, silent=True)
        await clock.sleep(POLL)
        found = (await world.only_notice()).spec
        assert (found.start, found.deadline, found.reschedulable) == (start + 2 * HOUR, start + 9 * HOUR, True)


async def test_each_lifecycle_hook_is_completed_with_an_agent_running(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        await clock.sleep(POLL)
        actions = [world.cloud.start_lifecycle_action(instance, hook=item) for item in ("a", "b")]
        await clock.sleep(POLL)
        world.start()
        await world.set_condition("n1", "Drained")
        await clock.sleep(MINUTE)
        assert sorted(world.cloud.auto_scaling.completed) == sorted(item.token for item in actions)
        assert len(await world.notices()) == len(actions)


@pytest.mark.parametrize("stage", [NoticeStage.SCHEDULED, NoticeStage.ENDED])
@pytest.mark.parametrize("is_known", [True, False])
async def test_notice_written_by_another_node_about_an_instance_is_ignored(
    clock: Clock, stage: NoticeStage, *, is_known: bool
) -> None:
    """An agent can write any machine into the notices of its node."""
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        await world.join_node("n2")
        stolen = {
            "apiVersion": MAINTENANCE_NOTICES.api_version,
            "kind": MAINTENANCE_NOTICES.kind,
            "metadata": {"name": f"aws-spot-{instance}", "annotations": {EventType.SPOT: "x", SHOWN_BY_IMDS: "shown"}},
            "spec": {
                "source": "aws",
                "noticeID": f"spot-{instance}",
                "nodeName": "n2",
                "providerID": instance,
                "stage": stage,
                "kind": "Terminate",
            },
        }
        if is_known:
            await world.client.create(MAINTENANCE_NOTICES, stolen)
        world.start()
        await clock.sleep(SECOND)
        if not is_known:
            await world.client.create(MAINTENANCE_NOTICES, stolen)
        world.cloud.interrupt_spot(instance)
        await clock.sleep(30 * SECOND)
        found = (await world.notices()).values()
        assert sorted((notice.spec.node_name, notice.spec.stage) for notice in found) == [
            ("n1", NoticeStage.SCHEDULED),
            ("n2", stage),
        ]


async def test_notice_is_assigned_to_a_node_that_joins_later(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = world.cloud.launch()
        world.start()
        await clock.sleep(SECOND)
        world.cloud.interrupt_spot(instance)
        await clock.sleep(30 * SECOND)
        assert (await world.only_notice()).spec.node_name == ""
        await world.add_node("n1", instance)
        await clock.sleep(5 * MINUTE)
        assert (await world.only_notice()).spec.node_name == "n1"


# Lifecycle hooks without a queue


async def test_lifecycle_hooks_of_a_termination_reported_by_an_agent_are_completed(clock: Clock) -> None:
    async with an_aws_world(clock, has_queue=False) as world:
        instance = await world.join_node("n1")
        world.start()
        world.start_agent("n1", instance)
        await clock.sleep(POLL)
        actions = [world.cloud.start_lifecycle_action(instance, hook=item, silent=True) for item in ("a", "b")]
        await clock.sleep(10 * MINUTE)  # longer than a hook waits without a heartbeat
        world.cloud.auto_scaling.expire_actions()
        assert len(world.cloud.auto_scaling.actions) == len(actions)
        assert {item.spec.stage for item in (await world.notices()).values()} == {NoticeStage.SCHEDULED}
        await world.set_condition("n1", "Drained")
        await clock.sleep(MINUTE)
        assert sorted(world.cloud.auto_scaling.completed) == sorted(item.token for item in actions)
        assert world.cloud.auto_scaling.expired == []


async def test_queue_message_about_a_found_hook_updates_the_same_notice(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        world.start()
        rule = world.cloud.faults.fail("ReceiveMessage", status=500, times=None)
        await clock.sleep(POLL)
        action = world.cloud.start_lifecycle_action(instance)
        await clock.sleep(20 * SECOND)
        assert (await world.only_notice()).metadata.annotations[EventType.LIFECYCLE] == "hook:workers/drain"
        world.cloud.faults.remove(rule)
        await clock.sleep(3 * MINUTE)
        await world.set_condition("n1", "Drained")
        await clock.sleep(MINUTE)
        assert world.cloud.auto_scaling.completed == [action.token]
        assert len(await world.notices()) == 1


async def test_missing_permission_to_find_hooks_is_reported_in_the_notice(clock: Clock) -> None:
    async with an_aws_world(clock, has_queue=False) as world:
        instance = await world.join_node("n1")
        world.cloud.faults.fail("DescribeAutoScalingInstances", status=403, code="AccessDenied", times=None)
        world.start()
        world.start_agent("n1", instance)
        world.cloud.start_lifecycle_action(instance, silent=True)
        await clock.sleep(5 * MINUTE)
        assert world.source is not None
        assert any(f"the lifecycle hooks of {instance} cannot be completed" in item for item in world.source.problems())
        entries = [
            item.message for item in (await world.only_notice()).status.history if "heartbeat timeout" in item.message
        ]
        assert len(entries) == 1


async def test_operator_without_aws_reports_that_hooks_are_not_completed(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start_agent("n1", instance)
        world.cloud.start_lifecycle_action(instance, silent=True)
        await clock.sleep(POLL)
        assert not any("heartbeat timeout" in entry.message for entry in (await world.only_notice()).status.history)
        await clock.sleep(2 * MINUTE)
        entries = [
            entry.message
            for entry in (await world.only_notice()).status.history
            if "heartbeat timeout" in entry.message
        ]
        assert len(entries) == 1


async def test_termination_without_a_hook_is_looked_up_once(clock: Clock) -> None:
    async with an_aws_world(clock, has_queue=False) as world:
        instance = await world.join_node("n1")
        world.cloud.ec2_instances.by_id[instance].target_lifecycle_state = "Terminated"
        world.start()
        world.start_agent("n1", instance)
        await clock.sleep(HOUR)
        assert list(world.cloud.faults.calls).count("DescribeAutoScalingInstances") == 1


class RejectingNoticeWriter(NoticeWriter):
    """A notice writer for which the API server rejects notices about spot interruptions."""

    async def write(self, report: NoticeReport) -> MaintenanceNotice:
        """Write a report, or raise Forbidden."""
        if "spot" in report.name:
            raise Forbidden("this notice is not about n1", doing="patching", code=403)
        return await super().write(report)


async def test_rejected_notice_does_not_block_others(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        for trigger in SILENT_TRIGGERS.values():
            trigger(world.cloud, instance)
        source = ImdsEventSource(world.cloud.metadata(instance), node="n1", clock=clock, random=world.client.random)
        with pytest.raises(Forbidden):
            await source.poll(RejectingNoticeWriter(world.client))
        assert len(await world.notices()) == len(FAMILIES) - 1
