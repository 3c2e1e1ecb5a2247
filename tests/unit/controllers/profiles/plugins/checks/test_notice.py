"""The check `notice`: due, active and over, for the notices of a node."""

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
    spec_fields = {"kind": MaintenanceKind.REBOOT, "source": "oci", "stage": NoticeStage.SCHEDULED, **spec}
    status = MaintenanceNoticeStatus(node_name=node, predicted_drain_seconds=round(predicted.total_seconds()))
    return MaintenanceNotice(metadata=ObjectMeta(name=name), spec=MaintenanceNoticeSpec(**spec_fields), status=status)


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
def test_due_active_and_over_follow_the_phase_of_the_notice(
    spec: dict[str, Any],
    is_due: bool,  # noqa: FBT001 - a table
    is_active: bool,  # noqa: FBT001 - a table
) -> None:
    announced = notice(**spec)
    assert evaluate(NoticeCheck(when=When.DUE), announced).passed is is_due
    assert evaluate(NoticeCheck(when=When.ACTIVE), announced).passed is is_active
    assert evaluate(NoticeCheck(when=When.OVER), announced).passed is not is_due


def test_without_a_notice_nothing_is_due_and_everything_is_over() -> None:
    due, over = (evaluate(notice_check) for notice_check in both())
    assert (due.passed, due.reason) == (False, "no maintenance is announced")
    assert over.passed


def test_check_requeues_when_the_notice_is_due_and_states_the_reason() -> None:
    result = evaluate(NoticeCheck(), notice(start=NOW + HOUR, reason="EVACUATION"))
    assert result.requeue_at == NOW + 45 * MINUTE
    assert result.reason == "Reboot (EVACUATION), notice m1: it begins at 2024-05-01 11:00 UTC at the earliest"
    assert result.info == {"notices": {"m1": "Planned"}}


def test_first_due_notice_of_several_determines_the_requeue() -> None:
    result = evaluate(NoticeCheck(), notice("m1", start=NOW + 2 * HOUR), notice("m2", start=NOW + HOUR))
    assert result.requeue_at == NOW + 45 * MINUTE


def test_one_notice_of_several_is_due_and_over_requires_all() -> None:
    ended, coming = notice("m1", stage=NoticeStage.ENDED), notice("m2", start=NOW + MINUTE)
    due, over = (evaluate(notice_check, ended, coming) for notice_check in both())
    assert due.passed
    assert over.passed is False


def test_predicted_drain_time_makes_a_notice_due_earlier() -> None:
    slow = notice(start=NOW + HOUR, predicted=HOUR)
    assert evaluate(NoticeCheck(), slow).passed
    assert evaluate(NoticeCheck(lead_time=2 * HOUR), notice(start=NOW + 2 * HOUR)).passed


def test_other_kinds_and_sources_are_ignored() -> None:
    freeze = notice(start=NOW, kind=MaintenanceKind.FREEZE)
    assert evaluate(NoticeCheck(), freeze).passed is False
    assert evaluate(NoticeCheck(kinds=(MaintenanceKind.FREEZE,)), freeze).passed
    assert evaluate(NoticeCheck(sources=("aws",)), notice(start=NOW)).passed is False


def test_notices_of_other_nodes_do_not_count_and_the_topic_is_its_own_notices() -> None:
    assert evaluate(NoticeCheck(), notice(node="n2", start=NOW)).passed is False
    assert NoticeCheck().topics("n1") == (topics.notices("n1"),)


def test_invalid_options_are_reported() -> None:
    assert [key for key, _ in NoticeCheck(lead_time=-MINUTE, kinds=()).problems()] == ["leadTime", "kinds"]


def evaluate_after_taking(*checks: NoticeCheck, check: NoticeCheck, start: timedelta) -> CheckResult:
    """Return the result of a check on a node that `checks` led into maintenance."""
    cluster = FakeClusterView(a_node("n1"))
    cluster.announced_notices = [notice(start=NOW + start)]
    context = cluster.plugin_context(state=State.IN_MAINTENANCE)
    return check.evaluate(replace(context, would_lead_here=lambda would_pass: any(would_pass(item) for item in checks)))


@pytest.mark.parametrize(
    ("start", "is_over"),
    [(41 * MINUTE, True), (40 * MINUTE, False), (16 * MINUTE, False), (MINUTE, False)],
)
def test_over_considers_the_lead_time_of_the_check_that_led_to_maintenance(
    start: timedelta,
    is_over: bool,  # noqa: FBT001 - a table
) -> None:
    due, over = NoticeCheck(lead_time=40 * MINUTE), NoticeCheck(when=When.OVER, lead_time=15 * MINUTE)
    assert evaluate_after_taking(due, check=over, start=start).passed is is_over
    assert evaluate_after_taking(check=over, start=start).passed is (start > 15 * MINUTE)


def test_over_states_the_open_notice_and_requeues_when_it_may_change() -> None:
    due, over = NoticeCheck(lead_time=40 * MINUTE), NoticeCheck(when=When.OVER, kinds=(MaintenanceKind.STOP,))
    kept = evaluate_after_taking(due, check=over, start=30 * MINUTE)
    assert kept.reason == "Reboot, notice m1: it begins at 2024-05-01 10:30 UTC"
    assert kept.requeue_at == NOW + 30 * MINUTE
    early = evaluate_after_taking(due, check=NoticeCheck(when=When.OVER), start=HOUR)
    assert early.passed
    assert early.requeue_at == NOW + 20 * MINUTE


def test_due_ignores_the_checks_that_led_to_maintenance() -> None:
    assert evaluate_after_taking(NoticeCheck(lead_time=HOUR), check=NoticeCheck(), start=30 * MINUTE).passed is False
