"""Reports about a maintenance merge to the same notice in any order and with any repetition."""

import hashlib
import re
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNoticeSpec, NoticeStage, object_name
from haulout.api.notice_reports import MaintenancePlan, NoticeReport, combine_reports, merge_report, missing_annotations

NOON = datetime(2026, 4, 2, 12, tzinfo=UTC)
INSTANTS = st.integers(0, 3).map(lambda hours: NOON + timedelta(hours=hours))
PLANS = st.builds(
    MaintenancePlan,
    kind=st.sampled_from(MaintenanceKind),
    reason=st.sampled_from(["", "EVACUATION"]),
    start=st.none() | INSTANTS,
    end=st.none() | INSTANTS,
    reschedulable=st.booleans(),
)
REPORTS = st.builds(
    NoticeReport,
    source=st.just("oci"),
    notice_id=st.just("ocid1.event"),
    at=INSTANTS,
    provider_id=st.sampled_from(["", "ocid1.instance"]),
    machine_name=st.sampled_from(["", "worker-7"]),
    stage=st.sampled_from(NoticeStage),
    plan=st.none() | PLANS,
    notes=st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])),
)


def merged_spec(*reports: NoticeReport) -> MaintenanceNoticeSpec:
    spec = MaintenanceNoticeSpec()
    for report in reports:
        spec = merge_report(spec, report)
    return spec


def report(stage: NoticeStage = NoticeStage.SCHEDULED, *, at: int = 0, start: int | None = None) -> NoticeReport:
    plan = None if start is None else MaintenancePlan(kind=MaintenanceKind.REBOOT, start=NOON + timedelta(hours=start))
    return NoticeReport(source="oci", notice_id="e1", at=NOON + timedelta(minutes=at), stage=stage, plan=plan)


@given(
    st.lists(REPORTS, max_size=6).flatmap(
        lambda reported: st.tuples(st.just(reported), st.permutations(reported + reported[:3]))
    )
)
def test_merged_notice_does_not_depend_on_order_and_repetition_of_reports(
    reports: tuple[list[NoticeReport], list[NoticeReport]],
) -> None:
    once, shuffled = reports
    assert merged_spec(*shuffled) == merged_spec(*once)


def test_rescheduled_maintenance_has_the_start_of_the_latest_report() -> None:
    first, second, third = report(at=1, start=10), report(at=2, start=40), report(at=3, start=20)
    assert merged_spec(third, first, second).start == NOON + timedelta(hours=20)


def test_late_started_report_after_the_end_is_ignored() -> None:
    assert merged_spec(report(NoticeStage.ENDED, at=9), report(NoticeStage.STARTED, at=8)).stage == NoticeStage.ENDED


def test_ended_notice_stays_ended_after_a_late_scheduled_report() -> None:
    assert (
        merged_spec(report(NoticeStage.ENDED, at=8), report(NoticeStage.SCHEDULED, at=9, start=1)).stage
        == NoticeStage.ENDED
    )


def test_notice_of_an_unannounced_start_has_no_times() -> None:
    spec = merged_spec(report(NoticeStage.STARTED))
    assert (spec.stage, spec.start, spec.reported_at) == (NoticeStage.STARTED, None, None)


def test_report_replaces_fields_set_by_a_user() -> None:
    assert merge_report(
        MaintenanceNoticeSpec(start=NOON, kind=MaintenanceKind.FREEZE), report(start=5)
    ).start == NOON + timedelta(hours=5)


def test_object_name_is_deterministic_and_valid_for_any_id() -> None:
    assert (
        object_name("oci", "ocid1.instancemaintenanceevent.oc1.eu.abc")
        == "oci-ocid1.instancemaintenanceevent.oc1.eu.abc"
    )
    strange = object_name("aws", "arn:aws:health:eu-west-1::event/EC2/X/i-0abc")
    assert strange == object_name("aws", "arn:aws:health:eu-west-1::event/EC2/X/i-0abc")
    assert strange != object_name("aws", "arn:aws:health:eu-west-1::event/EC2/X/i-0abd")
    assert len(object_name("oci", "x" * 1000)) < 64
    assert object_name("people", "CHG 17/b") == "people-chg-17-b-" + hashlib.sha256(b"CHG 17/b").hexdigest()[:16]
    assert re.fullmatch("people-[0-9a-f]{16}", object_name("people", "変更"))
    assert "." not in object_name("oci", "ocid1.event.oc1..abc")  # a name with an empty part is refused


@given(st.lists(REPORTS, min_size=1, max_size=6), REPORTS)
def test_combined_reports_merge_to_the_same_notice(reports: list[NoticeReport], before: NoticeReport) -> None:
    (one,) = combine_reports(reports)
    assert merged_spec(before, one) == merged_spec(before, *reports)


def test_reports_about_different_maintenances_are_not_combined() -> None:
    others = [
        report(at=1, start=2),
        NoticeReport(source="oci", notice_id="e2", at=NOON),
        report(NoticeStage.ENDED, at=5),
    ]
    assert [(it.notice_id, it.stage) for it in combine_reports(others)] == [
        ("e1", NoticeStage.ENDED),
        ("e2", NoticeStage.SCHEDULED),
    ]


@given(
    st.lists(REPORTS, max_size=6).flatmap(
        lambda reported: st.tuples(st.just(reported), st.permutations(reported + reported[:3]))
    )
)
def test_annotations_do_not_depend_on_order_and_combination_of_reports(
    reports: tuple[list[NoticeReport], list[NoticeReport]],
) -> None:
    once, shuffled = reports
    assert notes(*shuffled) == notes(*once) == notes(*combine_reports(once))


def notes(*reports: NoticeReport) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in reports:
        found |= missing_annotations(found, each)
    return found
