"""The check `notice`: what was announced for a node, and when that concerns it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import (
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    MaintenanceNoticeStatus,
    NoticeStage,
)
from haulout.api.objects import ObjectMeta
from haulout.controllers.profiles.plugin import CheckResult, State
from haulout.controllers.profiles.plugins.checks.notice import NoticeCheck, When
from haulout.controllers.profiles.view import topics
from support.builders.objects import a_node
from support.fakes.cluster_view import MINUTE, NOW, FakeClusterView

HOUR = timedelta(hours=1)


def notice(name: str = "m1", *, node: str = "n1", predicted: timedelta = timedelta(), **spec: Any) -> MaintenanceNotice:
    said = {"kind": MaintenanceKind.REBOOT, "source": "oci", "stage": NoticeStage.SCHEDULED, **spec}
    status = MaintenanceNoticeStatus(node_name=node, predicted_drain_seconds=round(predicted.total_seconds()))
    return MaintenanceNotice(metadata=ObjectMeta(name=name), spec=MaintenanceNoticeSpec(**said), status=status)


def evaluate(check: NoticeCheck, *notices: MaintenanceNotice) -> CheckResult:
    cluster = FakeClusterView(a_node("n1"))
    cluster.announced_notices = list(notices)
    return check.evaluate(cluster.plugin_context())


def both() -> Iterator[NoticeCheck]:
    yield NoticeCheck(when=When.DUE)
    yield NoticeCheck(when=When.OVER)


@pytest.mark.parametrize(
    ("spec", "is_due", "is_active"),
    [
        pytest.param({"start": NOW + HOUR}, False, False, id="an hour ahead"),
        pytest.param({"start": NOW + 15 * MINUTE}, True, False, id="exactly as far ahead as the lead time"),
        pytest.param({"start": NOW - HOUR}, True, False, id="late"),
        pytest.param({"start": NOW + HOUR, "stage": NoticeStage.STARTED}, True, True, id="begun early"),
        pytest.param({"stage": NoticeStage.STARTED}, True, True, id="begun unannounced"),
        pytest.param({"start": NOW - HOUR, "stage": NoticeStage.FAILED}, True, True, id="failed"),
        pytest.param({"start": NOW - HOUR, "stage": NoticeStage.ENDED}, False, False, id="ended"),
        pytest.param({"start": NOW + MINUTE, "stage": NoticeStage.CANCELLED}, False, False, id="cancelled"),
        pytest.param({"start": NOW - 2 * HOUR, "end": NOW - HOUR}, False, False, id="missed"),
    ],
)
def test_what_is_due_is_not_over(spec: dict[str, Any], is_due: bool, is_active: bool) -> None:  # noqa: FBT001 - a table
    announced = notice(**spec)
    assert evaluate(NoticeCheck(when=When.DUE), announced).passed is is_due
    assert evaluate(NoticeCheck(when=When.ACTIVE), announced).passed is is_active
    assert evaluate(NoticeCheck(when=When.OVER), announced).passed is not is_due


def test_where_nothing_is_announced_nothing_is_due_and_all_is_over() -> None:
    due, over = (evaluate(notice_check) for notice_check in both())
    assert (due.passed, due.reason) == (False, "no maintenance is announced")
    assert over.passed


def test_it_wakes_when_a_maintenance_falls_due_and_says_what_it_waits_for() -> None:
    result = evaluate(NoticeCheck(), notice(start=NOW + HOUR, reason="EVACUATION"))
    assert result.requeue_at == NOW + 45 * MINUTE
    assert result.reason == "Reboot (EVACUATION), notice m1: it begins at 2024-05-01 11:00 UTC at the earliest"
    assert result.info == {"notices": {"m1": "Planned"}}


def test_of_several_maintenances_the_first_that_falls_due_wakes_it() -> None:
    result = evaluate(NoticeCheck(), notice("m1", start=NOW + 2 * HOUR), notice("m2", start=NOW + HOUR))
    assert result.requeue_at == NOW + 45 * MINUTE


def test_of_several_maintenances_all_must_be_over_and_one_makes_it_due() -> None:
    ended, coming = notice("m1", stage=NoticeStage.ENDED), notice("m2", start=NOW + MINUTE)
    due, over = (evaluate(notice_check, ended, coming) for notice_check in both())
    assert due.passed
    assert over.passed is False


def test_a_node_that_takes_long_to_be_emptied_is_due_earlier() -> None:
    slow = notice(start=NOW + HOUR, predicted=HOUR)
    assert evaluate(NoticeCheck(), slow).passed
    assert evaluate(NoticeCheck(lead_time=2 * HOUR), notice(start=NOW + 2 * HOUR)).passed


def test_kinds_and_sources_that_are_not_meant_are_ignored() -> None:
    freeze = notice(start=NOW, kind=MaintenanceKind.FREEZE)
    assert evaluate(NoticeCheck(), freeze).passed is False
    assert evaluate(NoticeCheck(kinds=(MaintenanceKind.FREEZE,)), freeze).passed
    assert evaluate(NoticeCheck(sources=("aws",)), notice(start=NOW)).passed is False


def test_notices_of_other_nodes_do_not_count_and_those_of_its_own_wake_it() -> None:
    assert evaluate(NoticeCheck(), notice(node="n2", start=NOW)).passed is False
    assert NoticeCheck().topics("n1") == (topics.notices("n1"),)


def test_what_makes_no_sense_is_told() -> None:
    assert [key for key, _ in NoticeCheck(lead_time=-MINUTE, kinds=()).problems()] == ["leadTime", "kinds"]


def evaluate_after_taking(*checks: NoticeCheck, check: NoticeCheck, start: timedelta) -> CheckResult:
    """Return what a check says on a node that others may have taken for a maintenance."""
    cluster = FakeClusterView(a_node("n1"))
    cluster.announced_notices = [notice(start=NOW + start)]
    context = cluster.plugin_context(state=State.IN_MAINTENANCE)
    return check.evaluate(replace(context, would_lead_here=lambda says: any(says(item) for item in checks)))


@pytest.mark.parametrize(
    ("start", "is_over"),
    [(41 * MINUTE, True), (40 * MINUTE, False), (16 * MINUTE, False), (MINUTE, False)],
)
def test_what_others_took_the_node_for_is_not_over_whatever_its_own_lead_time(
    start: timedelta,
    is_over: bool,  # noqa: FBT001 - a table
) -> None:
    due, over = NoticeCheck(lead_time=40 * MINUTE), NoticeCheck(when=When.OVER, lead_time=15 * MINUTE)
    assert evaluate_after_taking(due, check=over, start=start).passed is is_over
    assert evaluate_after_taking(check=over, start=start).passed is (start > 15 * MINUTE)


def test_over_says_what_keeps_the_node_and_looks_again_when_that_may_change() -> None:
    due, over = NoticeCheck(lead_time=40 * MINUTE), NoticeCheck(when=When.OVER, kinds=(MaintenanceKind.STOP,))
    kept = evaluate_after_taking(due, check=over, start=30 * MINUTE)
    assert kept.reason == "Reboot, notice m1: it begins at 2024-05-01 10:30 UTC"
    assert kept.requeue_at == NOW + 30 * MINUTE
    early = evaluate_after_taking(due, check=NoticeCheck(when=When.OVER), start=HOUR)
    assert early.passed
    assert early.requeue_at == NOW + 20 * MINUTE


def test_due_is_not_looked_at_through_the_eyes_of_others() -> None:
    assert evaluate_after_taking(NoticeCheck(lead_time=HOUR), check=NoticeCheck(), start=30 * MINUTE).passed is False
