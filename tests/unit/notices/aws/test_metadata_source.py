"""What EC2 tells an instance becomes the notices that the queue and EC2 would make of it, and no second ones."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.errors import Forbidden
from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind, MaintenanceNotice, Stage
from haulout.kinds.reports import Report
from haulout.kube.patches import merge_patch
from haulout.notices.inbox import Inbox
from haulout.notices.sources.aws.metadata_source import AwsMetadataSource
from haulout.notices.sources.aws.readings import METADATA, Family
from haulout_sandbox.clouds.aws import AwsCloud
from support.aws_world import World, a_world

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
POLL = 3 * SECOND


async def shown(world: World) -> list[tuple[str, str, str]]:
    """Return kind, reason and stage of each notice."""
    return sorted((it.spec.kind, it.spec.reason, it.spec.stage) for it in (await world.notices()).values())


# An agent alone


async def test_an_agent_without_a_queue_tells_of_a_spot_interruption(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        world.cloud.interrupt(instance, silent=True)
        start = (clock.now() + 2 * MINUTE).replace(microsecond=0)
        await clock.sleep(POLL)
        notice = await world.the()
        spec = notice.spec
        assert notice.name == f"aws-spot-{instance}"
        assert (spec.kind, spec.reason, spec.start, spec.stage) == (
            Kind.TERMINATE,
            "spot-terminate",
            start,
            Stage.SCHEDULED,
        )
        assert (spec.node_name, spec.provider_id) == ("n1", instance)


@pytest.mark.parametrize("action", ["stop", "hibernate"])
async def test_a_spot_instance_that_stops_or_hibernates_has_a_notice_of_kind_stop(clock: Clock, action: str) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        world.cloud.interrupt(instance, action, silent=True)
        await clock.sleep(POLL)
        assert await shown(world) == [(Kind.STOP, f"spot-{action}", Stage.SCHEDULED)]


async def test_an_agent_tells_of_a_rebalance_recommendation(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        world.cloud.recommend(instance, silent=True)
        await clock.sleep(POLL)
        assert await shown(world) == [(Kind.TERMINATE, "rebalance-recommendation", Stage.SCHEDULED)]
        assert (await world.the()).spec.start is None


@pytest.mark.parametrize(("state", "notices"), [("Terminated", 1), ("Standby", 0), ("InService", 0), ("", 0)])
async def test_only_the_target_state_terminated_is_a_notice(clock: Clock, state: str, notices: int) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.cloud.machines.by_name[instance].target = state
        world.start_agent("n1", instance)
        await clock.sleep(POLL)
        assert await shown(world) == [(Kind.TERMINATE, "autoscaling", Stage.SCHEDULED)] * notices


async def test_a_scheduled_event_is_planned_begins_and_ends_as_its_history_says(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        start = (clock.now() + HOUR).replace(microsecond=0)
        world.start_agent("n1", instance)
        event = world.cloud.schedule(instance, "system-reboot", start=start, silent=True)
        await clock.sleep(POLL)
        notice = await world.the()
        assert (notice.name, notice.spec.kind, notice.spec.start) == (f"aws-{event}", Kind.REBOOT, start)
        assert (notice.spec.end, notice.spec.reason) == (start + 2 * HOUR, "system-reboot")
        await clock.sleep(HOUR)
        assert (await world.the()).spec.stage == Stage.STARTED
        world.cloud.finish(instance, event, silent=True)
        await world.becomes(Stage.ENDED, within=MINUTE)


@pytest.mark.parametrize(("drains", "kind"), [(False, Kind.FREEZE), (True, Kind.REBOOT)])
async def test_an_agent_can_be_made_to_drain_for_maintenance_of_the_network(
    clock: Clock, kind: Kind, *, drains: bool
) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance, drains_for_network=drains)
        words = "The network of the host is maintained"
        world.cloud.schedule(instance, "system-maintenance", start=clock.now() + HOUR, description=words, silent=True)
        await clock.sleep(POLL)
        assert (await world.the()).spec.kind == kind


async def test_an_event_that_was_moved_has_the_new_start(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        start = (clock.now() + HOUR).replace(microsecond=0)
        world.start_agent("n1", instance)
        event = world.cloud.schedule(instance, start=start, silent=True)
        await clock.sleep(POLL)
        for later in (2 * HOUR, HOUR / 2):
            world.cloud.reschedule(instance, event, start=start + later, silent=True)
            await clock.sleep(POLL)
            assert (await world.the()).spec.start == start + later


Begin = Callable[[AwsCloud, str], object]


def scheduled(cloud: AwsCloud, instance: str) -> None:
    cloud.schedule(instance, start=(cloud.clock.now() + HOUR).replace(microsecond=0), silent=True)


def scheduled_aloud(cloud: AwsCloud, instance: str) -> None:
    cloud.schedule(instance, start=(cloud.clock.now() + HOUR).replace(microsecond=0))


ALOUD: dict[Family, Begin] = {
    Family.SPOT: AwsCloud.interrupt,
    Family.REBALANCE: AwsCloud.recommend,
    Family.TARGET: AwsCloud.scale,
    Family.EVENT: scheduled_aloud,
}


def withdrawn(cloud: AwsCloud, instance: str) -> None:
    """Have the metadata service show nothing any more."""
    machine = cloud.machines.by_name[instance]
    machine.spot, machine.rebalance, machine.target = None, None, "InService"
    machine.events.clear()


FAMILIES = (Family.SPOT, Family.REBALANCE, Family.TARGET, Family.EVENT)
SILENTLY: dict[Family, Begin] = {
    Family.SPOT: lambda cloud, instance: cloud.interrupt(instance, silent=True),
    Family.REBALANCE: lambda cloud, instance: cloud.recommend(instance, silent=True),
    Family.TARGET: lambda cloud, instance: cloud.scale(instance, silent=True),
    Family.EVENT: scheduled,
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_what_is_withdrawn_before_its_time_is_cancelled(clock: Clock, family: Family) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        SILENTLY[family](world.cloud, instance)
        await clock.sleep(POLL)
        withdrawn(world.cloud, instance)
        await clock.sleep(5 * SECOND)
        assert (await world.the()).spec.stage == Stage.SCHEDULED
        await world.becomes(Stage.CANCELLED, within=MINUTE)


async def test_an_event_that_its_history_calls_canceled_is_cancelled_also_after_its_start(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        event = world.cloud.schedule(instance, start=clock.now() + MINUTE, silent=True)
        await clock.sleep(2 * MINUTE)
        world.cloud.cancel(instance, event, silent=True)
        await world.becomes(Stage.CANCELLED, within=MINUTE)


@pytest.mark.parametrize("family", FAMILIES)
async def test_no_answer_and_an_error_end_nothing(clock: Clock, family: Family) -> None:
    operations = {
        Family.SPOT: "GetSpotAction",
        Family.REBALANCE: "GetRebalance",
        Family.TARGET: "GetTargetState",
        Family.EVENT: "GetScheduledEvents",
    }
    async with a_world(clock) as world:
        instance = await world.join("n1")
        source = world.start_agent("n1", instance)
        SILENTLY[family](world.cloud, instance)
        await clock.sleep(POLL)
        for status in (0, 500):
            world.cloud.faults.fail(operations[family], status=status, times=None)
            withdrawn(world.cloud, instance)
            await clock.sleep(MINUTE / 3)
            assert (await world.the()).spec.stage == Stage.SCHEDULED
            assert not source.is_up
            assert "the metadata service does not answer, which is tried again" in source.troubles()[0]
        world.cloud.faults.lift()
        await world.becomes(Stage.CANCELLED, within=2 * MINUTE)
        assert source.is_up


async def test_one_event_that_makes_no_sense_keeps_nothing_from_being_told_and_ends_nothing(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        source = world.start_agent("n1", instance)
        scheduled(world.cloud, instance)
        await clock.sleep(POLL)
        machine = world.cloud.machines.by_name[instance]
        (event,) = machine.events.values()
        machine.events = {"x": {**event, "InstanceEventId": ""}}
        await clock.sleep(MINUTE)
        assert (await world.the()).spec.stage == Stage.SCHEDULED
        assert "without InstanceEventId" in source.quarantine.last[-1].why


async def test_a_spot_instance_that_is_back_after_its_stop_has_no_open_notice(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        world.cloud.interrupt(instance, "stop", silent=True)
        await clock.sleep(POLL)
        await world.stop_agents()
        await clock.sleep(HOUR)
        world.cloud.machines.by_name[instance].spot = None
        world.start_agent("n1", instance)
        await world.becomes(Stage.ENDED, within=MINUTE)
        world.cloud.interrupt(instance, "stop", silent=True)
        await clock.sleep(POLL)
        found = {it.name: it.spec.stage for it in (await world.notices()).values()}
        assert found == {f"aws-spot-{instance}": Stage.ENDED, f"aws-spot-{instance}-2": Stage.SCHEDULED}


async def test_an_agent_that_is_restarted_goes_on_with_the_same_notice(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        for begin in SILENTLY.values():
            begin(world.cloud, instance)
        await clock.sleep(POLL)
        before = await world.notices()
        await world.stop_agents()
        source = world.start_agent("n1", instance)
        await clock.sleep(MINUTE)
        after = await world.notices()
        assert len(after) == len(FAMILIES)
        assert {it.name: it.spec for it in after.values()} == {it.name: it.spec for it in before.values()}
        assert source.taken == 0


async def test_a_notice_that_somebody_deletes_is_back_while_it_is_shown(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        scheduled(world.cloud, instance)
        await clock.sleep(POLL)
        name = (await world.the()).name
        await world.client.delete(MAINTENANCE_NOTICES, name)
        await clock.sleep(6 * MINUTE)
        assert (await world.the()).name == name


# Questions


async def test_a_quiet_instance_is_asked_every_two_seconds_with_one_token(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        await clock.sleep(HOUR)
        calls = list(world.cloud.faults.calls)
        assert calls.count("PutToken") == 1
        assert 1700 <= calls.count("GetSpotAction") <= 1801
        await clock.sleep(6 * HOUR)
        assert len(world.cloud.services.tokens) == 2


async def test_a_token_that_is_refused_is_renewed_at_once(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        source = world.start_agent("n1", instance)
        await clock.sleep(POLL)
        world.cloud.services.tokens.clear()
        world.cloud.interrupt(instance, silent=True)
        await clock.sleep(POLL)
        assert await shown(world) == [(Kind.TERMINATE, "spot-terminate", Stage.SCHEDULED)]
        assert source.is_up


async def test_without_an_answer_to_the_first_hop_it_says_so_and_is_patient(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        rule = world.cloud.faults.hang("PutToken", times=None)
        source = world.start_agent("n1", instance)
        await clock.sleep(HOUR)
        assert "is the agent in the network of its node?" in source.troubles()[0]
        assert list(world.cloud.faults.calls).count("PutToken") < 300
        world.cloud.faults.lift(rule)
        world.cloud.interrupt(instance, silent=True)
        await clock.sleep(MINUTE)
        assert source.is_up
        assert len(await world.notices()) == 1


async def test_one_path_that_fails_does_not_keep_the_others_from_being_heard(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.cloud.faults.fail("GetSpotAction", status=500, times=None)
        source = world.start_agent("n1", instance)
        world.cloud.scale(instance, silent=True)
        await clock.sleep(POLL)
        assert await shown(world) == [(Kind.TERMINATE, "autoscaling", Stage.SCHEDULED)]
        assert not source.is_up


# An agent and a queue


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("first", ["queue", "agent", "both"])
async def test_an_agent_and_a_queue_that_hear_of_the_same_write_one_notice(
    clock: Clock, family: Family, first: str
) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        if first in ("queue", "both"):
            world.start()
        if first in ("agent", "both"):
            world.start_agent("n1", instance)
        await clock.sleep(30 * SECOND)
        ALOUD[family](world.cloud, instance)
        await clock.sleep(20 * SECOND)
        alone = await world.the()
        if first == "queue":
            world.start_agent("n1", instance)
        if first == "agent":
            world.start()
        await clock.sleep(10 * MINUTE if family in (Family.EVENT, Family.REBALANCE) else 30 * SECOND)
        notice = await world.the()
        assert notice.name == alone.name
        assert (notice.spec.kind, notice.spec.start) == (alone.spec.kind, alone.spec.start)
        assert notice.spec.node_name == "n1"
        assert notice.metadata.annotations[METADATA] == "shown"
        assert family in notice.metadata.annotations
        if family is Family.TARGET:
            assert notice.metadata.annotations[Family.LIFECYCLE] == next(iter(world.cloud.groups.actions))


async def test_an_agent_does_not_end_what_its_instance_was_never_shown(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start()
        world.start_agent("n1", instance)
        world.cloud.recommend(instance)
        world.cloud.machines.by_name[instance].rebalance = None
        await clock.sleep(10 * MINUTE)
        assert (await world.the()).spec.stage == Stage.SCHEDULED


async def test_an_agent_does_not_take_back_a_start_that_ec2_has_told_the_operator(clock: Clock) -> None:
    """The metadata service shows another start some time after EC2 does."""
    async with a_world(clock) as world:
        instance = await world.join("n1")
        start = (clock.now() + 5 * HOUR).replace(microsecond=0)
        world.start()
        world.start_agent("n1", instance)
        event = world.cloud.schedule(instance, start=start, deadline=start + 9 * HOUR)
        await clock.sleep(MINUTE)
        notice = await world.the()
        assert notice.spec.reschedulable
        await world.stop()
        moved = {"spec": {"start": (start + HOUR).isoformat(), "reportedAt": clock.now().isoformat()}}
        await world.client.patch(MAINTENANCE_NOTICES, notice.name, merge_patch(moved))
        await clock.sleep(11 * MINUTE)  # the agent reads the notices of its node again meanwhile
        assert (await world.the()).spec.start == start + HOUR
        world.cloud.reschedule(instance, event, start=start + 2 * HOUR, silent=True)
        await clock.sleep(POLL)
        found = (await world.the()).spec
        assert (found.start, found.deadline, found.reschedulable) == (start + 2 * HOUR, start + 9 * HOUR, True)


async def test_each_lifecycle_hook_of_a_termination_is_completed_also_with_an_agent(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        await clock.sleep(POLL)
        actions = [world.cloud.scale(instance, hook=it) for it in ("a", "b")]
        await clock.sleep(POLL)
        world.start()
        await world.say("n1", "Drained")
        await clock.sleep(MINUTE)
        assert sorted(world.cloud.groups.completed) == sorted(it.token for it in actions)
        assert len(await world.notices()) == len(actions)


@pytest.mark.parametrize("stage", [Stage.SCHEDULED, Stage.ENDED])
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_notice_that_another_node_has_written_about_an_instance_is_not_taken_for_its_own(
    clock: Clock, stage: Stage, *, is_known: bool
) -> None:
    """An agent can write any machine into the notices of its node."""
    async with a_world(clock) as world:
        instance = await world.join("n1")
        await world.join("n2")
        stolen = {
            "apiVersion": MAINTENANCE_NOTICES.api_version,
            "kind": MAINTENANCE_NOTICES.kind,
            "metadata": {"name": f"aws-spot-{instance}", "annotations": {Family.SPOT: "x", METADATA: "shown"}},
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
        world.cloud.interrupt(instance)
        await clock.sleep(30 * SECOND)
        found = (await world.notices()).values()
        assert sorted((it.spec.node_name, it.spec.stage) for it in found) == [
            ("n1", Stage.SCHEDULED),
            ("n2", stage),
        ]


async def test_a_notice_names_a_node_that_joins_later(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = world.cloud.launch()
        world.start()
        await clock.sleep(SECOND)
        world.cloud.interrupt(instance)
        await clock.sleep(30 * SECOND)
        assert (await world.the()).spec.node_name == ""
        await world.add_node("n1", instance)
        await clock.sleep(5 * MINUTE)
        assert (await world.the()).spec.node_name == "n1"


# Lifecycle hooks without a queue


async def test_the_hooks_of_a_termination_that_only_an_agent_tells_of_are_completed(clock: Clock) -> None:
    async with a_world(clock, has_queue=False) as world:
        instance = await world.join("n1")
        world.start()
        world.start_agent("n1", instance)
        await clock.sleep(POLL)
        actions = [world.cloud.scale(instance, hook=it, silent=True) for it in ("a", "b")]
        await clock.sleep(10 * MINUTE)  # longer than a hook waits without a heartbeat
        world.cloud.groups.tick()
        assert len(world.cloud.groups.actions) == len(actions)
        assert {it.spec.stage for it in (await world.notices()).values()} == {Stage.SCHEDULED}
        await world.say("n1", "Drained")
        await clock.sleep(MINUTE)
        assert sorted(world.cloud.groups.completed) == sorted(it.token for it in actions)
        assert world.cloud.groups.expired == []


async def test_a_queue_that_tells_of_a_hook_that_was_found_meets_the_same_notice(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        world.start()
        rule = world.cloud.faults.fail("ReceiveMessage", status=500, times=None)
        await clock.sleep(POLL)
        action = world.cloud.scale(instance)
        await clock.sleep(20 * SECOND)
        assert (await world.the()).metadata.annotations[Family.LIFECYCLE] == "hook:workers/drain"
        world.cloud.faults.lift(rule)
        await clock.sleep(3 * MINUTE)
        await world.say("n1", "Drained")
        await clock.sleep(MINUTE)
        assert world.cloud.groups.completed == [action.token]
        assert len(await world.notices()) == 1


async def test_without_the_right_to_find_a_hook_it_is_said_that_nobody_completes_it(clock: Clock) -> None:
    async with a_world(clock, has_queue=False) as world:
        instance = await world.join("n1")
        world.cloud.faults.fail("DescribeAutoScalingInstances", status=403, code="AccessDenied", times=None)
        world.start()
        world.start_agent("n1", instance)
        world.cloud.scale(instance, silent=True)
        await clock.sleep(5 * MINUTE)
        assert world.source is not None
        assert any(f"nobody completes the lifecycle hooks of {instance}" in it for it in world.source.troubles())
        said = [it.what for it in (await world.the()).status.history if "heartbeat timeout" in it.what]
        assert len(said) == 1


async def test_an_operator_that_does_not_listen_to_aws_says_that_nobody_completes_a_hook(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        world.start_agent("n1", instance)
        world.cloud.scale(instance, silent=True)
        await clock.sleep(POLL)
        assert not any("heartbeat timeout" in it.what for it in (await world.the()).status.history)
        await clock.sleep(2 * MINUTE)
        said = [it.what for it in (await world.the()).status.history if "heartbeat timeout" in it.what]
        assert len(said) == 1


async def test_a_termination_without_a_hook_is_asked_about_once(clock: Clock) -> None:
    async with a_world(clock, has_queue=False) as world:
        instance = await world.join("n1")
        world.cloud.machines.by_name[instance].target = "Terminated"
        world.start()
        world.start_agent("n1", instance)
        await clock.sleep(HOUR)
        assert list(world.cloud.faults.calls).count("DescribeAutoScalingInstances") == 1


class Refusing(Inbox):
    """An inbox that the API server lets write nothing about spot interruptions."""

    async def take(self, report: Report) -> MaintenanceNotice:
        """Take a report, or refuse it."""
        if "spot" in report.name:
            raise Forbidden("this notice is not about n1", doing="patching", code=403)
        return await super().take(report)


async def test_a_notice_that_cannot_be_written_does_not_keep_the_others_from_being_written(clock: Clock) -> None:
    async with a_world(clock) as world:
        instance = await world.join("n1")
        for begin in SILENTLY.values():
            begin(world.cloud, instance)
        source = AwsMetadataSource(world.cloud.metadata(instance), node="n1", clock=clock, random=world.client.random)
        with pytest.raises(Forbidden):
            await source.look(Refusing(world.client))
        assert len(await world.notices()) == len(FAMILIES) - 1
