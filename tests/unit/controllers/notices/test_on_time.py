"""The OnTime condition: whether a node will be drained in time."""

import dataclasses
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api import hold
from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    MaintenanceNoticeStatus,
    NoticeCondition,
    NoticePhase,
    NoticeStage,
    phase_at,
)
from haulout.api.objects import Node, NodeSpec, ObjectMeta, Pod, StatusCondition
from haulout.api.reasons import OnTimeReason
from haulout.controllers.notices.conditions import Observation, Timeliness, evaluate_on_time
from haulout.controllers.notices.drain_prediction import DrainPrediction
from haulout.controllers.notices.remaining_pods import RemainingPods, remaining_pods
from haulout.core.clock import Clock
from support.operators.notices import HOUR, MINUTE, SECOND, NoticeCluster, a_notice_cluster

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
LEAD = 15 * MINUTE


def a_plan(
    *,
    start: timedelta | None,
    known_for: timedelta = 24 * HOUR,
    takes: timedelta | None = None,
    drain_started_ago: timedelta | None = None,
    kind: MaintenanceKind = MaintenanceKind.REBOOT,
    reason: str = "",
    stage: str = "",
) -> Observation:
    """Return an observation: the event starts in `start`, and the drain started `begun` ago."""
    spec = MaintenanceNoticeSpec(node_name="n1", kind=kind, start=None if start is None else NOW + start, stage=stage)
    conditions: tuple[StatusCondition, ...] = ()
    if reason:
        status = "True" if reason == OnTimeReason.EMPTY else "False"
        on_time = StatusCondition(type=NoticeCondition.ON_TIME, status=status, reason=reason, last_transition_time=NOW)
        conditions = (on_time,)
    notice = MaintenanceNotice(
        spec=spec, status=MaintenanceNoticeStatus(phase="Due", start=spec.start, conditions=conditions)
    )
    metadata = ObjectMeta(name="n1")
    if drain_started_ago is not None:
        mark = msgspec.json.encode({"owners": {"profile/x": {"since": NOW - drain_started_ago}}}).decode()
        metadata = ObjectMeta(name="n1", annotations={"haulout.dev/cordon": mark})
    lead = LEAD if takes is None else max(LEAD, takes)
    return Observation(
        notice=notice,
        node=Node(metadata=metadata, spec=NodeSpec(unschedulable=drain_started_ago is not None)),
        phase=phase_at(spec, now=NOW, lead=lead).phase,
        now=NOW,
        lead_time=lead,
        start_known_at=NOW - known_for,
        prediction=None if takes is None else DrainPrediction(takes, "draining node n1 took long last time"),
    )


def evaluate_with_pods(plan: Observation, left: int, *, ending_by: timedelta | None = None) -> Timeliness:
    remaining = RemainingPods(
        NOW, tuple(f"shop/p{number}" for number in range(left)), None if ending_by is None else NOW + ending_by
    )
    found = evaluate_on_time(plan, remaining)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("plan", "left", "expected"),
    [
        pytest.param(a_plan(start=HOUR), 3, ("True", OnTimeReason.PLANNED), id="far ahead"),
        pytest.param(
            a_plan(start=14 * MINUTE), 3, ("Unknown", OnTimeReason.NOT_STARTED), id="due for a minute, not begun"
        ),
        pytest.param(
            a_plan(start=10 * MINUTE), 3, ("False", OnTimeReason.NOT_STARTED), id="a third is gone, not begun"
        ),
        pytest.param(a_plan(start=10 * MINUTE), 0, ("True", OnTimeReason.EMPTY), id="empty"),
        pytest.param(
            a_plan(start=10 * MINUTE, drain_started_ago=5 * MINUTE),
            3,
            ("True", OnTimeReason.DRAINING),
            id="being emptied",
        ),
        pytest.param(
            a_plan(start=4 * MINUTE, drain_started_ago=11 * MINUTE), 3, ("False", OnTimeReason.BLOCKED), id="pods stay"
        ),
        pytest.param(
            a_plan(start=41 * MINUTE, takes=50 * MINUTE),
            3,
            ("Unknown", OnTimeReason.NOT_STARTED),
            id="not begun, but there is time to spare",
        ),
        pytest.param(
            a_plan(start=39 * MINUTE, takes=50 * MINUTE),
            3,
            ("False", OnTimeReason.NOT_STARTED),
            id="not begun, takes too long",
        ),
        pytest.param(
            a_plan(start=30 * MINUTE, takes=50 * MINUTE, drain_started_ago=5 * MINUTE),
            3,
            ("False", OnTimeReason.STARTED_TOO_LATE),
            id="begun too late for what it takes",
        ),
        pytest.param(
            a_plan(start=30 * MINUTE, takes=50 * MINUTE, drain_started_ago=20 * MINUTE),
            3,
            ("True", OnTimeReason.DRAINING),
            id="begun early enough for what it takes",
        ),
        pytest.param(
            a_plan(start=10 * MINUTE, known_for=MINUTE, takes=50 * MINUTE),
            3,
            ("False", OnTimeReason.NOT_STARTED),
            id="announced later than it takes",
        ),
        pytest.param(
            a_plan(start=2 * MINUTE, known_for=SECOND),
            3,
            ("Unknown", OnTimeReason.NOT_STARTED),
            id="announced two minutes ago",
        ),
        pytest.param(a_plan(start=None), 3, ("Unknown", OnTimeReason.ANY_MOMENT), id="at any moment"),
        pytest.param(a_plan(start=-MINUTE), 3, ("False", OnTimeReason.OCCUPIED), id="begun, pods left"),
        pytest.param(
            a_plan(start=HOUR, stage=NoticeStage.STARTED), 3, ("False", OnTimeReason.OCCUPIED), id="begun early"
        ),
        pytest.param(a_plan(start=-MINUTE), 0, ("True", OnTimeReason.EMPTY), id="begun, nothing left"),
        pytest.param(
            a_plan(start=MINUTE, kind=MaintenanceKind.FREEZE), 3, ("True", OnTimeReason.NOT_NEEDED), id="a freeze"
        ),
        pytest.param(
            a_plan(start=9 * MINUTE, drain_started_ago=MINUTE, reason=OnTimeReason.NOT_STARTED),
            3,
            ("False", OnTimeReason.CATCHING_UP),
            id="late, but begun at last",
        ),
    ],
)
def test_on_time_condition_is_false_before_it_is_too_late(
    plan: Observation, left: int, expected: tuple[str, OnTimeReason]
) -> None:
    found = evaluate_with_pods(plan, left)
    assert (found.status, found.reason) == expected


def test_pods_that_terminate_in_time_are_on_time() -> None:
    plan = a_plan(start=2 * MINUTE, drain_started_ago=13 * MINUTE)
    assert evaluate_with_pods(plan, 2, ending_by=MINUTE).is_on_time is True
    assert evaluate_with_pods(plan, 2, ending_by=3 * MINUTE).is_on_time is False


def test_termination_time_is_set_only_if_all_pods_are_terminating() -> None:
    node = Node(metadata=ObjectMeta(name="n1"))
    ending = Pod(metadata=ObjectMeta(name="a", namespace="shop", deletion_timestamp=NOW + MINUTE))
    staying = Pod(metadata=ObjectMeta(name="b", namespace="shop"))
    assert remaining_pods(node, [ending], now=NOW).terminated_by == NOW + MINUTE
    assert remaining_pods(node, [ending, staying], now=NOW) == RemainingPods(NOW, ("shop/a", "shop/b"))


def test_message_names_remaining_pods_and_remaining_time() -> None:
    assert evaluate_with_pods(
        a_plan(start=4 * MINUTE + 5 * SECOND, drain_started_ago=11 * MINUTE), 5
    ).message.startswith(
        "node n1 has 5 pods left (shop/p0, shop/p1, shop/p2 and 2 more), and the "
        "maintenance begins at 2026-01-05 09:04:05 UTC: the drain does"
    )


@pytest.mark.parametrize("reason", [OnTimeReason.EMPTY, OnTimeReason.OCCUPIED])
def test_on_time_condition_is_kept_after_the_start(reason: OnTimeReason) -> None:
    assert evaluate_on_time(a_plan(start=-MINUTE, reason=reason), None) is None


def test_unlistable_pods_yield_status_unknown() -> None:
    found = evaluate_on_time(a_plan(start=MINUTE), RemainingPods(NOW, problem="listing pods: forbidden"))
    assert found is not None
    assert (found.status, found.reason) == ("Unknown", OnTimeReason.PODS_UNKNOWN)
    assert "forbidden" in found.message


def test_maintenance_without_a_start_time_is_checked_every_two_minutes() -> None:
    assert evaluate_with_pods(a_plan(start=None), 3).requeue_at == NOW + 2 * MINUTE


@given(
    start=st.integers(1, 7200).map(lambda it: timedelta(seconds=it)),
    known_for=st.integers(0, 7200).map(lambda it: timedelta(seconds=it)),
    takes=st.none() | st.integers(1, 360).map(lambda it: timedelta(minutes=it)),
    drain_started_ago=st.none() | st.integers(0, 7200).map(lambda it: timedelta(seconds=it)),
    left=st.integers(0, 3),
)
def test_evaluation_requeues_before_the_start(
    start: timedelta, known_for: timedelta, takes: timedelta | None, drain_started_ago: timedelta | None, left: int
) -> None:
    plan = a_plan(start=start, known_for=known_for, takes=takes, drain_started_ago=drain_started_ago)
    found = evaluate_with_pods(plan, left)
    if plan.phase is NoticePhase.PLANNED:
        assert found.is_on_time
        return
    assert found.requeue_at is not None
    assert NOW < found.requeue_at <= NOW + start
    assert found.is_on_time is not False or left
    # Shortly before the start, a node with pods that were not evicted is never on time.
    if left and start <= plan.drain_window / 4:
        assert found.is_on_time is False


# Stories


async def count_warnings(world: NoticeCluster) -> tuple[int, int]:
    late = await world.node_event_notes("MaintenanceWillBeLate")
    began = await world.node_event_notes("MaintenanceStartedOnOccupiedNode")
    return len(late), len(began)


async def test_on_time_condition_follows_a_node_that_is_drained_in_time(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.create_pods(3)
        await world.announce(start=HOUR)
        assert await world.on_time() == ("True", "Planned")
        await clock.sleep(46 * MINUTE)
        assert await world.on_time() == ("Unknown", "DrainNotStarted")
        await world.cordon()
        assert await world.on_time() == ("True", "Draining")
        await world.delete_pods(0, 1, 2)
        await clock.sleep(2 * MINUTE)
        emptied = clock.now()
        assert await world.on_time() == ("True", "Empty")
        await clock.sleep(20 * MINUTE)
        notice = await world.notice()
        assert notice.status.phase == "Active"
        assert notice.status.empty_since is not None
        assert notice.status.empty_since <= emptied
        found = await world.condition(NoticeCondition.ON_TIME)
        assert found.status == "True"
        assert found.message.startswith("node n1 has been empty since 2026-01-05 ")
        assert await count_warnings(world) == (0, 0)


async def test_undrained_node_is_warned_about_once_before_and_once_after_the_start(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.create_pods(3)
        await world.announce(start=HOUR)
        await clock.sleep(45 * MINUTE)
        assert await count_warnings(world) == (0, 0)
        await clock.sleep(6 * MINUTE)
        assert await count_warnings(world) == (1, 0)
        assert await world.on_time() == ("False", "DrainNotStarted")
        await clock.sleep(8 * MINUTE)
        assert await count_warnings(world) == (1, 0)
        await clock.sleep(2 * MINUTE)
        assert await world.on_time() == ("False", "Occupied")
        assert await count_warnings(world) == (1, 1)
        await clock.sleep(30 * MINUTE)
        assert await count_warnings(world) == (1, 1)
        late = "the node was not empty in time: the maintenance has begun, and node n1 has 3 pods left"
        assert late in (await world.notice()).status.history[-1].message


async def test_blocked_drain_is_reported_and_a_rescheduled_notice_evaluated_anew(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.create_pods(3)
        await world.announce(start=HOUR)
        await clock.sleep(46 * MINUTE)
        await world.cordon()
        await clock.sleep(10 * MINUTE)
        assert await world.on_time() == ("False", "PodsBlocked")
        now = clock.now().replace(microsecond=0)
        await world.patch_notice(start=now + 2 * HOUR, end=now + 3 * HOUR)
        assert await world.on_time() == ("True", "Planned")
        await clock.sleep(2 * HOUR - 2 * MINUTE)
        assert await world.on_time() == ("False", "PodsBlocked")
        whats = [entry.message.partition(":")[0] for entry in (await world.notice()).status.history]
        assert whats.count("the node will not be empty in time") == 2


async def test_successor_repeats_no_warning(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.create_pods(1)
        await world.announce(start=HOUR)
        await clock.sleep(52 * MINUTE)
        await world.stop()
        world.start()
        await clock.sleep(20 * MINUTE)
        await world.stop()
        world.start()
        await clock.sleep(20 * MINUTE)
        assert await count_warnings(world) == (1, 1)
        whats = [entry.message.partition(":")[0] for entry in (await world.notice()).status.history]
        assert (whats.count("the node will not be empty in time"), whats.count("the node was not empty in time")) == (
            1,
            1,
        )


async def test_two_leaders_write_each_history_entry_once(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.create_pods(1)
        await world.announce(start=HOUR)
        world.start()
        await clock.sleep(90 * MINUTE)
        whats = [entry.message.partition(":")[0] for entry in (await world.notice()).status.history]
        assert len(whats) == len(set(whats))


async def test_pods_are_listed_only_after_the_notice_is_due_and_rarely(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.create_pods(1)
        await world.announce(start=10 * HOUR)
        await clock.sleep(9 * HOUR)
        assert world.count_requests(lambda item: "/pods" in item) == 0
        await clock.sleep(4 * HOUR)
        assert world.count_requests(lambda item: "/pods" in item) <= 14


async def test_many_notices_due_in_the_same_minute_are_all_evaluated(clock: Clock) -> None:
    names = [f"n{item}" for item in range(60)]
    async with a_notice_cluster(clock, nodes=names) as world:
        for name in names:
            await world.announce(f"m-{name}", node=name, start=HOUR)
        await clock.sleep(46 * MINUTE)
        found = [
            item.status.condition(NoticeCondition.ON_TIME)
            for item in (await world.client.list(MAINTENANCE_NOTICES)).items
        ]
        assert [item.reason for item in found if item is not None] == ["Empty"] * 60
        assert world.count_requests(lambda item: "/pods" in item) <= 2 * 60


def test_on_time_condition_is_unknown_when_no_profile_matches() -> None:
    found = evaluate_on_time(dataclasses.replace(a_plan(start=HOUR), is_handled=False), None)
    assert found is not None
    assert (found.status, found.reason) == ("Unknown", OnTimeReason.NO_PROFILE_MATCHES)
    assert (
        found.message
        == "no profile of node n1 has a check `notice` that matches this maintenance: drain the node by hand"
    )


def with_hold(plan: Observation, until: timedelta | None = None) -> Observation:
    """Return the observation with a hold on the node."""
    assert plan.node is not None
    value = hold.format_annotation(reason="migration", by="alice", until=None if until is None else NOW + until)
    metadata = plan.node.metadata
    annotations = {**metadata.annotations, hold.ANNOTATION: value}
    node = msgspec.structs.replace(plan.node, metadata=msgspec.structs.replace(metadata, annotations=annotations))
    return dataclasses.replace(plan, node=node)


@pytest.mark.parametrize(
    ("plan", "left", "expected"),
    [
        pytest.param(with_hold(a_plan(start=HOUR)), 3, ("False", OnTimeReason.HELD), id="far ahead, for ever"),
        pytest.param(
            with_hold(a_plan(start=HOUR), 59 * MINUTE), 3, ("True", OnTimeReason.PLANNED), id="over before it begins"
        ),
        pytest.param(with_hold(a_plan(start=HOUR), HOUR), 3, ("False", OnTimeReason.HELD), id="until it begins"),
        pytest.param(
            with_hold(a_plan(start=HOUR, takes=25 * MINUTE), 50 * MINUTE),
            3,
            ("False", OnTimeReason.HELD),
            id="over too late for what it takes",
        ),
        pytest.param(with_hold(a_plan(start=14 * MINUTE)), 3, ("False", OnTimeReason.HELD), id="due"),
        pytest.param(
            with_hold(a_plan(start=14 * MINUTE)), 0, ("True", OnTimeReason.EMPTY), id="due, and nothing on it"
        ),
        pytest.param(
            with_hold(a_plan(start=14 * MINUTE, drain_started_ago=MINUTE)),
            3,
            ("True", OnTimeReason.DRAINING),
            id="has begun",
        ),
        pytest.param(with_hold(a_plan(start=-MINUTE)), 3, ("False", OnTimeReason.OCCUPIED), id="it began"),
        pytest.param(with_hold(a_plan(start=None)), 3, ("Unknown", OnTimeReason.ANY_MOMENT), id="at any moment"),
    ],
)
def test_hold_makes_a_node_late_unless_it_ends_in_time(
    plan: Observation, left: int, expected: tuple[str, OnTimeReason]
) -> None:
    found = evaluate_with_pods(plan, left)
    assert (found.status, found.reason) == expected
    is_blamed = found.is_on_time is not True
    assert ("held by alice: migration" in found.message) is is_blamed


def test_hold_changes_nothing_when_no_profile_matches() -> None:
    plan = dataclasses.replace(with_hold(a_plan(start=HOUR)), is_handled=False)
    assert evaluate_with_pods(plan, 3).reason is OnTimeReason.NO_PROFILE_MATCHES
