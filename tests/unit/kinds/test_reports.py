"""Reports about a maintenance: in any order, any number of times, the same comes out."""

import hashlib
import re
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from haulout.kinds.notice import Kind, Spec, Stage, name_of
from haulout.kinds.reports import Plan, Report, folded, merged, noted

NOON = datetime(2026, 4, 2, 12, tzinfo=UTC)
INSTANTS = st.integers(0, 3).map(lambda hours: NOON + timedelta(hours=hours))
PLANS = st.builds(
    Plan,
    kind=st.sampled_from(Kind),
    reason=st.sampled_from(["", "EVACUATION"]),
    start=st.none() | INSTANTS,
    end=st.none() | INSTANTS,
    reschedulable=st.booleans(),
)
REPORTS = st.builds(
    Report,
    source=st.just("oci"),
    notice_id=st.just("ocid1.event"),
    at=INSTANTS,
    provider_id=st.sampled_from(["", "ocid1.instance"]),
    machine_name=st.sampled_from(["", "worker-7"]),
    stage=st.sampled_from(Stage),
    plan=st.none() | PLANS,
    notes=st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])),
)


def told(*reports: Report) -> Spec:
    spec = Spec()
    for report in reports:
        spec = merged(spec, report)
    return spec


def report(stage: Stage = Stage.SCHEDULED, *, at: int = 0, start: int | None = None) -> Report:
    plan = None if start is None else Plan(kind=Kind.REBOOT, start=NOON + timedelta(hours=start))
    return Report(source="oci", notice_id="e1", at=NOON + timedelta(minutes=at), stage=stage, plan=plan)


@given(st.lists(REPORTS, max_size=6).flatmap(lambda said: st.tuples(st.just(said), st.permutations(said + said[:3]))))
def test_the_order_and_the_number_of_reports_do_not_matter(reports: tuple[list[Report], list[Report]]) -> None:
    once, shuffled = reports
    assert told(*shuffled) == told(*once)


def test_a_maintenance_that_is_moved_is_where_it_was_moved_to_last() -> None:
    first, second, third = report(at=1, start=10), report(at=2, start=40), report(at=3, start=20)
    assert told(third, first, second).start == NOON + timedelta(hours=20)


def test_a_beginning_that_comes_in_after_the_end_changes_nothing() -> None:
    assert told(report(Stage.ENDED, at=9), report(Stage.STARTED, at=8)).stage == Stage.ENDED


def test_an_end_is_the_end_whatever_a_late_list_says() -> None:
    assert told(report(Stage.ENDED, at=8), report(Stage.SCHEDULED, at=9, start=1)).stage == Stage.ENDED


def test_who_begins_unannounced_has_no_times() -> None:
    spec = told(report(Stage.STARTED))
    assert (spec.stage, spec.start, spec.reported_at) == (Stage.STARTED, None, None)


def test_a_report_replaces_what_a_person_wrote_about_the_same_maintenance() -> None:
    assert merged(Spec(start=NOON, kind=Kind.FREEZE), report(start=5)).start == NOON + timedelta(hours=5)


def test_the_same_notice_has_the_same_name_and_any_id_makes_one() -> None:
    assert (
        name_of("oci", "ocid1.instancemaintenanceevent.oc1.eu.abc") == "oci-ocid1.instancemaintenanceevent.oc1.eu.abc"
    )
    strange = name_of("aws", "arn:aws:health:eu-west-1::event/EC2/X/i-0abc")
    assert strange == name_of("aws", "arn:aws:health:eu-west-1::event/EC2/X/i-0abc")
    assert strange != name_of("aws", "arn:aws:health:eu-west-1::event/EC2/X/i-0abd")
    assert len(name_of("oci", "x" * 1000)) < 64
    assert name_of("people", "CHG 17/b") == "people-chg-17-b-" + hashlib.sha256(b"CHG 17/b").hexdigest()[:16]
    assert re.fullmatch("people-[0-9a-f]{16}", name_of("people", "変更"))
    assert "." not in name_of("oci", "ocid1.event.oc1..abc")  # a name with an empty part is refused


@given(st.lists(REPORTS, min_size=1, max_size=6), REPORTS)
def test_many_reports_folded_into_one_say_the_same(reports: list[Report], before: Report) -> None:
    (one,) = folded(reports)
    assert told(before, one) == told(before, *reports)


def test_reports_about_different_maintenances_stay_apart() -> None:
    others = [report(at=1, start=2), Report(source="oci", notice_id="e2", at=NOON), report(Stage.ENDED, at=5)]
    assert [(it.notice_id, it.stage) for it in folded(others)] == [("e1", Stage.ENDED), ("e2", Stage.SCHEDULED)]


@given(st.lists(REPORTS, max_size=6).flatmap(lambda said: st.tuples(st.just(said), st.permutations(said + said[:3]))))
def test_notes_come_out_the_same_too_one_by_one_or_all_at_once(reports: tuple[list[Report], list[Report]]) -> None:
    once, shuffled = reports
    assert notes(*shuffled) == notes(*once) == notes(*folded(once))


def notes(*reports: Report) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in reports:
        found |= noted(found, each)
    return found
