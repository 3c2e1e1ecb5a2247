"""Lifecycle actions of terminating instances are completed once their nodes are empty, also after restarts."""

from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import MaintenanceKind, NoticePhase, NoticeStage
from haulout.api.resources import NODES, PODS
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout.providers.aws.settings import AwsSettings
from support.builders.objects import a_pod, a_workload
from support.clouds.aws import an_aws_world
from support.expectations.eventually import eventually

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


async def test_lifecycle_action_is_completed_when_its_node_is_drained(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        action = world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.DUE, within=5 * SECOND)
        assert (await world.only_notice()).spec.kind == MaintenanceKind.TERMINATE
        await clock.sleep(HOUR)
        assert (world.cloud.auto_scaling.completed, world.cloud.auto_scaling.expired) == ([], [])
        await world.set_condition("n1", "Drained")
        await world.wait_for_stage(NoticeStage.STARTED, within=SECOND)
        assert world.cloud.auto_scaling.completed == [action.token]
        await world.client.delete(NODES, "n1")
        await world.wait_for_stage(NoticeStage.ENDED)


async def test_lifecycle_action_is_completed_when_its_cordoned_node_has_no_pods(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        agents = a_workload("DaemonSet", "agent")
        for pod in (a_pod("web", on="n1", owner="ReplicaSet/web"), a_pod("agent", on="n1").owned_by(agents)):
            await world.client.create(PODS, pod, namespace="test")
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await clock.sleep(MINUTE)
        await world.client.patch(NODES, "n1", merge_patch({"spec": {"unschedulable": True}}))
        await clock.sleep(5 * MINUTE)
        assert world.cloud.auto_scaling.completed == []
        await world.client.delete(PODS, "web", namespace="test", grace=timedelta())
        await clock.sleep(6 * SECOND)
        assert len(world.cloud.auto_scaling.completed) == 1


async def test_lifecycle_action_is_not_completed_while_an_empty_node_is_schedulable(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await clock.sleep(10 * MINUTE)
        assert world.cloud.auto_scaling.completed == []


async def test_lifecycle_action_is_completed_when_its_node_is_deleted(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        action = world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.client.delete(NODES, "n1")
        await clock.sleep(SECOND)
        assert world.cloud.auto_scaling.completed == [action.token]


async def test_successor_continues_heartbeats_and_completes_the_lifecycle_action(clock: Clock) -> None:
    """Weakness 5 of aws-node-termination-handler: its pending actions were only in memory."""
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        action = world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await clock.sleep(MINUTE)
        assert world.cloud.queue.messages == []
        await world.stop()
        await clock.sleep(30 * SECOND)
        world.start()
        await clock.sleep(20 * MINUTE)
        assert world.cloud.auto_scaling.expired == []
        await world.set_condition("n1", "Drained")
        await clock.sleep(SECOND)
        assert world.cloud.auto_scaling.completed == [action.token]


async def test_lifecycle_action_completed_elsewhere_gets_no_more_heartbeats(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        action = world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.auto_scaling.complete(instance, group="workers", hook="drain", token=action.token)
        await world.wait_for_stage(NoticeStage.STARTED)
        calls = world.cloud.faults.calls.count("RecordLifecycleActionHeartbeat")
        await clock.sleep(HOUR)
        assert world.cloud.faults.calls.count("RecordLifecycleActionHeartbeat") == calls


async def test_heartbeats_are_sent_at_the_configured_interval_until_the_limit(clock: Clock) -> None:
    settings = AwsSettings(heartbeat=40 * SECOND, heartbeat_until=10 * MINUTE)
    async with an_aws_world(clock, settings=settings) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await clock.sleep(10 * MINUTE)
        assert world.cloud.faults.calls.count("RecordLifecycleActionHeartbeat") == 15
        await clock.sleep(3 * MINUTE)
        assert len(world.cloud.auto_scaling.actions) == 1
        world.cloud.auto_scaling.expire_actions()
        assert len(world.cloud.auto_scaling.expired) == 1


async def test_heartbeat_limit_counts_from_the_receipt_of_the_message(clock: Clock) -> None:
    async with an_aws_world(clock, settings=AwsSettings(heartbeat=MINUTE, heartbeat_until=10 * MINUTE)) as world:
        instance = await world.join_node("n1")
        world.cloud.auto_scaling.hooks["workers", "drain"] = 2 * HOUR
        world.cloud.start_lifecycle_action(instance)
        await clock.sleep(HOUR)  # the event source was not running
        world.start()
        await clock.sleep(9.5 * MINUTE)
        assert world.cloud.faults.calls.count("RecordLifecycleActionHeartbeat") == 10
        await clock.sleep(10 * MINUTE)
        assert world.cloud.faults.calls.count("RecordLifecycleActionHeartbeat") == 10


async def test_completion_waits_for_the_configured_delay_after_the_drain(clock: Clock) -> None:
    async with an_aws_world(clock, settings=AwsSettings(complete_after=3 * MINUTE)) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.set_condition("n1", "Drained")
        await clock.sleep(2 * MINUTE)
        assert world.cloud.auto_scaling.completed == []
        await clock.sleep(MINUTE + SECOND)
        assert len(world.cloud.auto_scaling.completed) == 1


@pytest.mark.parametrize("status", [0, 503, 400])
async def test_failed_completion_is_retried_and_reported(clock: Clock, status: int) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.faults.fail("CompleteLifecycleAction", status=status, code="AccessDenied", times=9)
        await world.set_condition("n1", "Drained")
        source = world.source
        assert source is not None
        if status:
            hint = "the IAM policy does not allow it"
            await eventually(clock, lambda: hint in "".join(source.problems()), becomes=True, every=SECOND)
        await world.wait_for_stage(NoticeStage.STARTED)
        assert len(world.cloud.auto_scaling.completed) == 1
        assert list(source.problems()) == []


async def test_completion_that_took_effect_without_a_response_is_no_error(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.faults.fail("CompleteLifecycleAction", status=0, after=True)
        await world.set_condition("n1", "Drained")
        await world.wait_for_stage(NoticeStage.STARTED)
        assert len(world.cloud.auto_scaling.completed) == 1


async def test_launch_action_is_completed_when_the_node_is_ready(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = world.cloud.launch()
        world.start()
        world.cloud.start_lifecycle_action(instance, launch=True)
        await clock.sleep(MINUTE)
        assert world.cloud.auto_scaling.completed == []
        await world.add_node("n1", instance)
        await world.set_condition("n1", "Ready", status="False")
        await clock.sleep(MINUTE / 2)
        assert world.cloud.auto_scaling.completed == []
        await world.set_condition("n1", "Ready")
        await clock.sleep(MINUTE)
        assert len(world.cloud.auto_scaling.completed) == 1
        assert world.cloud.queue.messages == []
        assert await world.notices() == {}


async def test_all_nodes_with_the_provider_id_must_be_drained(clock: Clock) -> None:
    """Weakness 7 of aws-node-termination-handler: of several nodes the first was taken."""
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        await world.add_node("n2", instance)
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.set_condition("n1", "Drained")
        await clock.sleep(MINUTE)
        assert world.cloud.auto_scaling.completed == []
        await world.set_condition("n2", "Drained")
        await clock.sleep(SECOND)
        assert len(world.cloud.auto_scaling.completed) == 1
