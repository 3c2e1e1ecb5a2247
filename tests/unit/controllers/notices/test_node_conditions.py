"""Node conditions of MaintenanceNotices."""

from datetime import UTC, datetime

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, NoticeStage
from haulout.api.objects import Condition, Node, NodeStatus, ObjectMeta
from haulout.api.resources import NODES
from haulout.controllers.notices.node_conditions import status_patch
from haulout.core.clock import Clock
from haulout.drain import node_conditions
from haulout.drain.node_conditions import LifecycleState
from haulout.kube.patches import merge_patch, strategic_patch
from support.operators.notices import DAY, HOUR, MINUTE, SECOND, NoticeCluster, a_notice_cluster

PLANNED, IN_PROGRESS = "MaintenancePlanned", "MaintenanceInProgress"
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


def a_node(*conditions: Condition) -> Node:
    return Node(metadata=ObjectMeta(name="n1", uid="u", resource_version="1"), status=NodeStatus(conditions=conditions))


async def node_version(world: NoticeCluster) -> str:
    return (await world.client.get(NODES, "n1")).resource_version


async def test_node_conditions_follow_the_phases_of_a_notice(clock: Clock) -> None:
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


async def test_most_urgent_notice_is_shown_and_replaced_when_it_is_deleted(clock: Clock) -> None:
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


async def test_node_is_written_only_when_its_conditions_change(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY)
        await world.node_condition(PLANNED)
        before = await node_version(world)
        await clock.sleep(DAY - MINUTE)
        world.start()
        await clock.sleep(30 * SECOND)
        assert await node_version(world) == before


async def test_conditions_of_others_are_kept(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        condition = {"type": PLANNED, "status": "False", "reason": "Fine", "message": "another operator: all is well"}
        await world.client.patch(
            NODES, "n1", strategic_patch({"status": {"conditions": [condition]}}), subresource="status"
        )
        await world.announce(start=DAY)
        assert await world.node_condition(PLANNED) == ("False", "Fine", "another operator: all is well")


async def test_notice_deleted_while_no_operator_ran_is_removed_from_the_conditions(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY)
        assert (await world.node_condition(PLANNED))[0] == "True"
        await world.stop()
        await world.client.delete(MAINTENANCE_NOTICES, "m1")
        world.start()
        assert (await world.node_condition(PLANNED))[0] == "False"


async def test_removed_condition_is_restored(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY)
        await world.node_condition(PLANNED)
        await world.client.patch(NODES, "n1", merge_patch({"status": {"conditions": []}}), subresource="status")
        assert (await world.node_condition(PLANNED))[0] == "True"


@pytest.mark.parametrize("state", list(LifecycleState))
async def test_node_maintenance_and_notice_do_not_overwrite_each_other(clock: Clock, state: LifecycleState) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=DAY)
        await world.node_condition(PLANNED)
        for item in (LifecycleState.PLANNED, state, LifecycleState.OVER):
            node = await world.client.get(NODES, "n1")
            change = node_conditions.conditions_patch(node, item, "NodeMaintenance x", now=clock.now())
            if change is not None:
                await world.client.patch(NODES, "n1", strategic_patch(change), subresource="status")
            status, _, message = await world.node_condition(PLANNED)
            assert (status, message.partition(":")[0]) == ("True", "Haulout notice m1")
            before = await node_version(world)
            await clock.sleep(HOUR)
            assert await node_version(world) == before


def test_cleared_condition_of_a_notice_may_be_taken_over_by_a_node_maintenance() -> None:
    ours = Condition(type=PLANNED, status="True", reason="Reboot", message="Haulout notice m1: Reboot, at any moment")
    change = status_patch(a_node(ours), (), now=NOW)
    assert change is not None
    (left,) = change["status"]["conditions"]
    node = a_node(Condition(type=PLANNED, status=left["status"], message=left["message"]))
    taken = node_conditions.conditions_patch(node, LifecycleState.PLANNED, "NodeMaintenance x", now=NOW)
    assert taken is not None
    assert taken["status"]["conditions"][0]["status"] == "True"


async def test_a_node_that_the_kubelet_has_patched_unseen_is_read_again_at_once(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await clock.sleep(MINUTE)
        world.transports[-1].faults.delay_event(HOUR, path="/api/v1/nodes", times=None)
        await world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"any": "label"}}}))
        await world.announce(start=DAY)
        assert (await world.node_condition(PLANNED))[0] == "True"
