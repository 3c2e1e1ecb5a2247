"""Instances that Auto Scaling takes out of service wait until their nodes are empty, whoever is killed meanwhile."""

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


async def test_an_instance_is_let_go_when_its_node_is_empty_and_not_before(clock: Clock) -> None:
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


async def test_an_instance_is_let_go_when_nothing_is_left_on_its_node_whoever_drained_it(clock: Clock) -> None:
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


async def test_a_node_that_has_no_pods_and_takes_new_ones_is_not_empty(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await clock.sleep(10 * MINUTE)
        assert world.cloud.auto_scaling.completed == []


async def test_an_instance_whose_node_is_gone_is_let_go(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        action = world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.client.delete(NODES, "n1")
        await clock.sleep(SECOND)
        assert world.cloud.auto_scaling.completed == [action.token]


async def test_a_successor_goes_on_keeping_the_instance_and_lets_it_go(clock: Clock) -> None:
    """Weakness 5 of aws-node-termination-handler: what it was waiting for was only in its memory."""
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


async def test_an_action_that_somebody_else_has_completed_is_not_waited_for(clock: Clock) -> None:
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


async def test_heartbeats_come_as_often_as_is_configured_and_for_as_long(clock: Clock) -> None:
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


async def test_heartbeats_count_from_when_the_message_was_received(clock: Clock) -> None:
    async with an_aws_world(clock, settings=AwsSettings(heartbeat=MINUTE, heartbeat_until=10 * MINUTE)) as world:
        instance = await world.join_node("n1")
        world.cloud.auto_scaling.hooks["workers", "drain"] = 2 * HOUR
        world.cloud.start_lifecycle_action(instance)
        await clock.sleep(HOUR)  # nobody listened
        world.start()
        await clock.sleep(9.5 * MINUTE)
        assert world.cloud.faults.calls.count("RecordLifecycleActionHeartbeat") == 10
        await clock.sleep(10 * MINUTE)
        assert world.cloud.faults.calls.count("RecordLifecycleActionHeartbeat") == 10


async def test_completion_waits_as_long_after_the_drain_as_is_configured(clock: Clock) -> None:
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
async def test_a_completion_that_fails_is_tried_again_and_told(clock: Clock, status: int) -> None:
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


async def test_a_completion_that_took_effect_unheard_is_no_trouble(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.faults.fail("CompleteLifecycleAction", status=0, after=True)
        await world.set_condition("n1", "Drained")
        await world.wait_for_stage(NoticeStage.STARTED)
        assert len(world.cloud.auto_scaling.completed) == 1


async def test_a_new_instance_may_serve_when_its_node_is_ready(clock: Clock) -> None:
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


async def test_two_nodes_that_claim_the_instance_must_both_be_empty(clock: Clock) -> None:
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
