"""The leave to begin before the time: given only for a node that profiles have emptied for this, and as it is now."""

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
from haulout.controllers.notices.controller import MaintenanceNoticeController
from haulout.controllers.notices.early_start import may_start_early
from haulout.controllers.notices.remaining_pods import RemainingPods
from haulout.core.clock import Clock
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
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
    """Return a plan whose notice says something already."""
    said = MaintenanceNoticeStatus(conditions=(StatusCondition(type=NoticeCondition.EMPTIED, status=status),))
    return replace(plan, notice=msgspec.structs.replace(plan.notice, status=said))


def test_a_node_that_profiles_have_emptied_is_given() -> None:
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
def test_any_other_is_not_and_who_was_given_leave_loses_it(plan: Observation, found: Timeliness, reason: str) -> None:
    assert emptied_condition(plan, found) is None  # nothing is said about what was never so
    taken_back = emptied_condition(with_condition(plan, "True"), found)
    assert taken_back is not None
    assert (taken_back.status, taken_back.reason) == ("False", reason)


@pytest.mark.parametrize("phase", [NoticePhase.ACTIVE, NoticePhase.COMPLETED, NoticePhase.CANCELLED])
def test_what_was_said_stays_once_it_has_started(phase: NoticePhase) -> None:
    assert emptied_condition(with_condition(replace(PLAN, phase=phase, node=None), "True"), None) is None


def test_nobody_looks_at_pods_any_more_once_its_time_has_come() -> None:
    assert emptied_condition(with_condition(PLAN, "True"), None) is None


@pytest.mark.parametrize(("observed", "may"), [(3, True), (2, False)])
def test_leave_for_what_was_planned_before_is_none(observed: int, *, may: bool) -> None:
    said = (StatusCondition(type=NoticeCondition.EMPTIED, status="True"),)
    status = MaintenanceNoticeStatus(phase=NoticePhase.DUE, observed_generation=observed, conditions=said)
    assert may_start_early(msgspec.structs.replace(NOTICE, status=status)) is may


@pytest.mark.parametrize("is_cordoned", [True, False])
async def test_leave_is_given_only_for_how_the_node_is_now(clock: Clock, *, is_cordoned: bool) -> None:
    """What we have seen of it may be old."""
    async with a_notice_cluster(clock) as world:
        await world.stop()
        if is_cordoned:
            await world.cordon()
        nodes: Informer[Node] = Informer(world.client, ListWatch(NODES), transform=as_is)
        events = EventRecorder(world.client, instance="test")
        controller = MaintenanceNoticeController(world.client, events=events, nodes=nodes)
        now = await world.client.get(NODES, "n1")
        seen = msgspec.structs.replace(a_node(), metadata=msgspec.structs.replace(a_node().metadata, uid=now.uid))
        plan = replace(PLAN, node=seen)
        assert await controller._reconciler._is_confirmed(plan, RemainingPods(NOW)) is is_cordoned
        await world.create_pods(1)
        assert await controller._reconciler._is_confirmed(plan, RemainingPods(NOW)) is False
        gone = merge_patch({"metadata": {"annotations": {"haulout.dev/cordon": None}}})
        await world.client.patch(NODES, "n1", gone)
        assert await controller._reconciler._is_confirmed(plan, RemainingPods(NOW)) is False
