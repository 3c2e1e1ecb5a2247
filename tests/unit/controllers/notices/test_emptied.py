"""The Emptied condition permits an early start: only for a node that profiles drained, as it is now."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from haulout.api.maintenancenotice import (
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    MaintenanceNoticeStatus,
    NoticeCondition,
    NoticePhase,
)
from haulout.api.objects import Node, ObjectMeta, StatusCondition
from haulout.api.reasons import OnTimeReason
from haulout.api.resources import NODES
from haulout.controllers.notices.conditions import Observation, Timeliness, emptied_condition
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.controllers.notices.early_start import may_start_early
from haulout.controllers.notices.remaining_pods import RemainingPods
from haulout.core.clock import Clock
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.runtime.freezes import NoFreezes
from support.operators.notices import a_notice_cluster

NOW = datetime(2026, 5, 14, 9, 0, tzinfo=UTC)
NOTICE = MaintenanceNotice(metadata=ObjectMeta(name="m1", generation=3), spec=MaintenanceNoticeSpec(node_name="n1"))
EMPTY = Timeliness(True, OnTimeReason.EMPTY, "node n1 has been empty since then")
OCCUPIED = Timeliness(True, OnTimeReason.DRAINING, "n1 has 2 pods left")
BY_PROFILE = '{"owners": {"profile/x": {"since": "2026-05-14T08:50:00Z"}}}'
BY_BOTH = BY_PROFILE.replace("}}}", '}, "NodeMaintenance/y": {"since": "2026-05-14T08:50:00Z"}}}')


def a_node(mark: str | None = BY_PROFILE, *, unschedulable: bool = True) -> Node:
    annotations = {} if mark is None else {"haulout.dev/cordon": mark}
    body = {"metadata": {"name": "n1", "annotations": annotations}, "spec": {"unschedulable": unschedulable}}
    return msgspec.convert(body, Node)


PLAN = Observation(
    notice=NOTICE,
    node=a_node(),
    phase=NoticePhase.DUE,
    now=NOW,
    lead_time=timedelta(minutes=15),
    start_known_at=NOW - timedelta(1),
)


def with_condition(plan: Observation, status: str) -> Observation:
    """Return the observation with an existing Emptied condition."""
    notice_status = MaintenanceNoticeStatus(conditions=(StatusCondition(type=NoticeCondition.EMPTIED, status=status),))
    return replace(plan, notice=msgspec.structs.replace(plan.notice, status=notice_status))


def test_drained_node_gets_the_emptied_condition() -> None:
    found = emptied_condition(PLAN, EMPTY)
    assert found is not None
    assert (found.status, found.reason, found.message) == (
        "True",
        "Empty",
        "n1 is cordoned and empty: the maintenance may begin",
    )


@pytest.mark.parametrize(
    ("plan", "found", "reason"),
    [
        (replace(PLAN, node=None), EMPTY, "NodeNotFound"),
        (replace(PLAN, phase=NoticePhase.PLANNED), EMPTY, "NotDue"),
        (replace(PLAN, is_handled=False), EMPTY, "NotDue"),
        (replace(PLAN, node=a_node(None)), EMPTY, "NotCordoned"),
        (replace(PLAN, node=a_node(unschedulable=False)), EMPTY, "NotCordoned"),
        (replace(PLAN, node=a_node("nonsense")), EMPTY, "NotCordoned"),
        (replace(PLAN, node=a_node(BY_BOTH)), EMPTY, "CordonedByOthers"),
        (PLAN, OCCUPIED, "NotEmpty"),
    ],
)
def test_emptied_condition_is_withdrawn_when_the_node_is_no_longer_empty(
    plan: Observation, found: Timeliness, reason: str
) -> None:
    assert emptied_condition(plan, found) is None  # a condition that was never true is not written
    taken_back = emptied_condition(with_condition(plan, "True"), found)
    assert taken_back is not None
    assert (taken_back.status, taken_back.reason) == ("False", reason)


@pytest.mark.parametrize("phase", [NoticePhase.ACTIVE, NoticePhase.COMPLETED, NoticePhase.CANCELLED])
def test_emptied_condition_is_kept_once_the_maintenance_has_started(phase: NoticePhase) -> None:
    assert emptied_condition(with_condition(replace(PLAN, phase=phase, node=None), "True"), None) is None


def test_emptied_condition_is_unchanged_without_a_pod_check() -> None:
    assert emptied_condition(with_condition(PLAN, "True"), None) is None


@pytest.mark.parametrize(("observed", "may"), [(3, True), (2, False)])
def test_emptied_condition_of_an_older_generation_does_not_permit_an_early_start(observed: int, *, may: bool) -> None:
    conditions = (StatusCondition(type=NoticeCondition.EMPTIED, status="True"),)
    status = MaintenanceNoticeStatus(phase=NoticePhase.DUE, observed_generation=observed, conditions=conditions)
    assert may_start_early(msgspec.structs.replace(NOTICE, status=status)) is may


@pytest.mark.parametrize("is_cordoned", [True, False])
async def test_emptied_condition_is_confirmed_by_the_current_node(clock: Clock, *, is_cordoned: bool) -> None:
    """The observed node may be stale."""
    async with a_notice_cluster(clock) as world:
        await world.stop()
        if is_cordoned:
            await world.cordon()
        nodes: Informer[Node] = Informer(world.client, ListWatch(NODES), transform=as_is)
        events = EventRecorder(world.client, instance="test")
        controller = MaintenanceNoticeController(
            world.client, events=events, nodes=nodes, notices=notice_informer(world.client), freezes=NoFreezes()
        )
        now = await world.client.get(NODES, "n1")
        observed = msgspec.structs.replace(a_node(), metadata=msgspec.structs.replace(a_node().metadata, uid=now.uid))
        plan = replace(PLAN, node=observed)
        assert await controller._reconciler._is_confirmed(plan, RemainingPods(NOW)) is is_cordoned
        await world.create_pods(1)
        assert await controller._reconciler._is_confirmed(plan, RemainingPods(NOW)) is False
        gone = merge_patch({"metadata": {"annotations": {"haulout.dev/cordon": None}}})
        await world.client.patch(NODES, "n1", gone)
        assert await controller._reconciler._is_confirmed(plan, RemainingPods(NOW)) is False
