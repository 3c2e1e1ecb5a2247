"""What nodes say about notices."""

from datetime import UTC, datetime

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, NoticeStage
from haulout.api.objects import Condition, Node, NodeStatus, ObjectMeta
from haulout.api.resources import NODES
from haulout.controllers.notices.node_conditions import status_patch
from haulout.core.clock import Clock
from haulout.drain import node_conditions
from haulout.drain.node_conditions import LifecycleState as LifecycleStage
from haulout.kube.patches import merge_patch, strategic_patch
from support.operators.notices import DAY, HOUR, MINUTE, SECOND, NoticeCluster, a_notice_cluster

PLANNED, IN_PROGRESS = "MaintenancePlanned", "MaintenanceInProgress"
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


def a_node(*conditions: Condition) -> Node:
    return Node(metadata=ObjectMeta(name="n1", uid="u", resource_version="1"), status=NodeStatus(conditions=conditions))


async def node_version(world: NoticeCluster) -> str:
    return (await world.client.get(NODES, "n1")).resource_version


async def test_a_node_says_what_is_planned_what_is_done_and_when_it_is_over(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY, reason="EVACUATION", stage=NoticeStage.SCHEDULED)
        status, reason, message = await world.node_condition(PLANNED)
        assert (status, reason) == ("True", "Reboot")
        assert message == "Haulout notice m1: Reboot (EVACUATION), not before 2026-01-06 09:00 UTC"
        assert await world.node_condition(IN_PROGRESS) == ("", "", "")
        await world.patch_notice(stage=NoticeStage.STARTED)
        assert (await world.node_condition(PLANNED))[0] == "False"
        assert (await world.node_condition(IN_PROGRESS))[0] == "True"
        await world.patch_notice(stage=NoticeStage.ENDED)
        assert (await world.node_condition(IN_PROGRESS))[0] == "False"


async def test_the_most_urgent_of_several_is_told_and_one_that_goes_leaves_the_other(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce("late", start=2 * DAY)
        await world.announce("soon", start=DAY, kind=MaintenanceKind.STOP)
        status, reason, message = await world.node_condition(PLANNED)
        assert (status, reason) == ("True", "Stop")
        assert message.endswith(", and 1 more")
        await world.client.delete(MAINTENANCE_NOTICES, "soon")
        assert (await world.node_condition(PLANNED))[1] == "Reboot"
        await world.client.delete(MAINTENANCE_NOTICES, "late")
        assert (await world.node_condition(PLANNED))[0] == "False"


async def test_a_node_is_written_to_only_when_it_says_something_else(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY)
        await world.node_condition(PLANNED)
        before = await node_version(world)
        await clock.sleep(DAY - MINUTE)
        world.start()
        await clock.sleep(30 * SECOND)
        assert await node_version(world) == before


async def test_what_others_say_is_left_alone(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        said = {"type": PLANNED, "status": "False", "reason": "Fine", "message": "another operator: all is well"}
        await world.client.patch(NODES, "n1", strategic_patch({"status": {"conditions": [said]}}), subresource="status")
        await world.announce(start=DAY)
        assert await world.node_condition(PLANNED) == ("False", "Fine", "another operator: all is well")


async def test_a_notice_that_was_deleted_while_nobody_ran_is_not_announced_for_ever(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY)
        assert (await world.node_condition(PLANNED))[0] == "True"
        await world.stop()
        await world.client.delete(MAINTENANCE_NOTICES, "m1")
        world.start()
        assert (await world.node_condition(PLANNED))[0] == "False"


async def test_a_condition_that_somebody_removes_comes_back(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY)
        await world.node_condition(PLANNED)
        await world.client.patch(NODES, "n1", merge_patch({"status": {"conditions": []}}), subresource="status")
        assert (await world.node_condition(PLANNED))[0] == "True"


@pytest.mark.parametrize("stage", list(LifecycleStage))
async def test_a_maintenance_on_a_persons_order_and_a_notice_do_not_fight(clock: Clock, stage: LifecycleStage) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY)
        await world.node_condition(PLANNED)
        for item in (LifecycleStage.PLANNED, stage, LifecycleStage.OVER):
            node = await world.client.get(NODES, "n1")
            change = node_conditions.conditions_patch(node, item, "NodeMaintenance x", now=clock.now())
            if change is not None:
                await world.client.patch(NODES, "n1", strategic_patch(change), subresource="status")
            status, _, message = await world.node_condition(PLANNED)
            assert (status, message.partition(":")[0]) == ("True", "Haulout notice m1")
            before = await node_version(world)
            await clock.sleep(HOUR)
            assert await node_version(world) == before


def test_what_a_notice_has_left_may_be_taken_over_by_a_maintenance_on_a_persons_order() -> None:
    ours = Condition(type=PLANNED, status="True", reason="Reboot", message="Haulout notice m1: Reboot, at any moment")
    change = status_patch(a_node(ours), (), now=NOW)
    assert change is not None
    (left,) = change["status"]["conditions"]
    node = a_node(Condition(type=PLANNED, status=left["status"], message=left["message"]))
    taken = node_conditions.conditions_patch(node, LifecycleStage.PLANNED, "NodeMaintenance x", now=NOW)
    assert taken is not None
    assert taken["status"]["conditions"][0]["status"] == "True"


async def test_a_node_that_the_kubelet_has_patched_unseen_is_read_again_at_once(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await clock.sleep(MINUTE)
        world.transports[-1].faults.delay_event(HOUR, path="/api/v1/nodes", times=None)
        await world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"any": "label"}}}))
        await world.announce(start=DAY)
        assert (await world.node_condition(PLANNED))[0] == "True"
