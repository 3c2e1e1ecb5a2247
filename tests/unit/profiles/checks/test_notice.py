"""The check `notice`: what was announced for a node, and when that concerns it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from haulout.kinds.notice import Kind, MaintenanceNotice, Spec, Stage, Status
from haulout.kube.objects import Metadata
from haulout.profiles import topics
from haulout.profiles.plugin import State, Verdict
from haulout.profiles.plugins.checks.notice import Notice, When
from support.builders import a_node
from support.scenes import MINUTE, NOW, Cluster

HOUR = timedelta(hours=1)


def notice(name: str = "m1", *, node: str = "n1", predicted: timedelta = timedelta(), **spec: Any) -> MaintenanceNotice:
    said = {"kind": Kind.REBOOT, "source": "oci", "stage": Stage.SCHEDULED, **spec}
    status = Status(node_name=node, predicted_drain_seconds=round(predicted.total_seconds()))
    return MaintenanceNotice(metadata=Metadata(name=name), spec=Spec(**said), status=status)


def looked(check: Notice, *notices: MaintenanceNotice) -> Verdict:
    cluster = Cluster(a_node("n1"))
    cluster.announced = list(notices)
    return check.look(cluster.scene())


def both() -> Iterator[Notice]:
    yield Notice(when=When.DUE)
    yield Notice(when=When.OVER)


@pytest.mark.parametrize(
    ("spec", "is_due", "is_active"),
    [
        pytest.param({"start": NOW + HOUR}, False, False, id="an hour ahead"),
        pytest.param({"start": NOW + 15 * MINUTE}, True, False, id="exactly as far ahead as the lead time"),
        pytest.param({"start": NOW - HOUR}, True, False, id="late"),
        pytest.param({"start": NOW + HOUR, "stage": Stage.STARTED}, True, True, id="begun early"),
        pytest.param({"stage": Stage.STARTED}, True, True, id="begun unannounced"),
        pytest.param({"start": NOW - HOUR, "stage": Stage.FAILED}, True, True, id="failed"),
        pytest.param({"start": NOW - HOUR, "stage": Stage.ENDED}, False, False, id="ended"),
        pytest.param({"start": NOW + MINUTE, "stage": Stage.CANCELLED}, False, False, id="cancelled"),
        pytest.param({"start": NOW - 2 * HOUR, "end": NOW - HOUR}, False, False, id="missed"),
    ],
)
def test_what_is_due_is_not_over(spec: dict[str, Any], is_due: bool, is_active: bool) -> None:  # noqa: FBT001 - a table
    announced = notice(**spec)
    assert looked(Notice(when=When.DUE), announced).passed is is_due
    assert looked(Notice(when=When.ACTIVE), announced).passed is is_active
    assert looked(Notice(when=When.OVER), announced).passed is not is_due


def test_where_nothing_is_announced_nothing_is_due_and_all_is_over() -> None:
    due, over = (looked(it) for it in both())
    assert (due.passed, due.reason) == (False, "nothing is announced")
    assert over.passed


def test_it_wakes_when_a_maintenance_falls_due_and_says_what_it_waits_for() -> None:
    verdict = looked(Notice(), notice(start=NOW + HOUR, reason="EVACUATION"))
    assert verdict.wakes_at == NOW + 45 * MINUTE
    assert verdict.reason == "Reboot (EVACUATION), notice m1: it begins at 2024-05-01 11:00 UTC at the earliest"
    assert verdict.info == {"notices": {"m1": "Planned"}}


def test_of_several_maintenances_the_first_that_falls_due_wakes_it() -> None:
    verdict = looked(Notice(), notice("m1", start=NOW + 2 * HOUR), notice("m2", start=NOW + HOUR))
    assert verdict.wakes_at == NOW + 45 * MINUTE


def test_of_several_maintenances_all_must_be_over_and_one_makes_it_due() -> None:
    ended, coming = notice("m1", stage=Stage.ENDED), notice("m2", start=NOW + MINUTE)
    due, over = (looked(it, ended, coming) for it in both())
    assert due.passed
    assert over.passed is False


def test_a_node_that_takes_long_to_be_emptied_is_due_earlier() -> None:
    slow = notice(start=NOW + HOUR, predicted=HOUR)
    assert looked(Notice(), slow).passed
    assert looked(Notice(lead_time=2 * HOUR), notice(start=NOW + 2 * HOUR)).passed


def test_kinds_and_sources_that_are_not_meant_are_ignored() -> None:
    freeze = notice(start=NOW, kind=Kind.FREEZE)
    assert looked(Notice(), freeze).passed is False
    assert looked(Notice(kinds=(Kind.FREEZE,)), freeze).passed
    assert looked(Notice(sources=("aws",)), notice(start=NOW)).passed is False


def test_notices_of_other_nodes_do_not_count_and_those_of_its_own_wake_it() -> None:
    assert looked(Notice(), notice(node="n2", start=NOW)).passed is False
    assert Notice().topics("n1") == (topics.notices("n1"),)


def test_what_makes_no_sense_is_told() -> None:
    assert [key for key, _ in Notice(lead_time=-MINUTE, kinds=()).problems()] == ["leadTime", "kinds"]


def taken_by(*checks: Notice, check: Notice, start: timedelta) -> Verdict:
    """Return what a check says on a node that others may have taken for a maintenance."""
    cluster = Cluster(a_node("n1"))
    cluster.announced = [notice(start=NOW + start)]
    scene = cluster.scene(state=State.IN_MAINTENANCE)
    return check.look(replace(scene, leads_here=lambda says: any(says(it) for it in checks)))


@pytest.mark.parametrize(
    ("start", "is_over"),
    [(41 * MINUTE, True), (40 * MINUTE, False), (16 * MINUTE, False), (MINUTE, False)],
)
def test_what_others_took_the_node_for_is_not_over_whatever_its_own_lead_time(
    start: timedelta,
    is_over: bool,  # noqa: FBT001 - a table
) -> None:
    due, over = Notice(lead_time=40 * MINUTE), Notice(when=When.OVER, lead_time=15 * MINUTE)
    assert taken_by(due, check=over, start=start).passed is is_over
    assert taken_by(check=over, start=start).passed is (start > 15 * MINUTE)


def test_over_says_what_keeps_the_node_and_looks_again_when_that_may_change() -> None:
    due, over = Notice(lead_time=40 * MINUTE), Notice(when=When.OVER, kinds=(Kind.STOP,))
    kept = taken_by(due, check=over, start=30 * MINUTE)
    assert kept.reason == "Reboot, notice m1: it begins at 2024-05-01 10:30 UTC"
    assert kept.wakes_at == NOW + 30 * MINUTE
    early = taken_by(due, check=Notice(when=When.OVER), start=HOUR)
    assert early.passed
    assert early.wakes_at == NOW + 20 * MINUTE


def test_due_is_not_looked_at_through_the_eyes_of_others() -> None:
    assert taken_by(Notice(lead_time=HOUR), check=Notice(), start=30 * MINUTE).passed is False
