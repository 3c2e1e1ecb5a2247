"""What took, takes and will take a while: by the history of a node, and by what is known of it now."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.history.record import DrainFacts, Entry
from haulout.kinds.notice import MaintenanceNotice, Status
from haulout.kinds.notice import Spec as NoticeSpec
from haulout.kube.objects import Metadata, StatusCondition
from haulout.maintenance.resource import NodeMaintenance, OrderMetadata, Spec
from haulout.maintenance.resource import Status as OrderStatus
from haulout.web.api.shapes import Drain, Span, SpanKind
from haulout.web.api.spans import Now, Stands, all_spans, within

DAY = datetime(2026, 11, 16, tzinfo=UTC)
NOW = DAY + timedelta(hours=12)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def at(hour: float) -> datetime:
    return DAY + timedelta(hours=hour)


def moved(hour: float, before: str, after: str, *, what: str = "profile/os", **more: Any) -> Entry:
    return Entry(time=at(hour), what=what, from_=before, to=after, **more)


def told(entries: list[Entry] | None = None, **now: Any) -> list[tuple[str, str, str, object, object]]:
    spans = within(all_spans(entries or [], Now(**now), at=NOW), FIRST, LAST)
    return [(it.kind, it.title, it.state, _hour(it.start), _hour(it.end)) for it in spans]


def _hour(instant: datetime | None) -> float | None:
    return None if instant is None else (instant - DAY).total_seconds() / 3600


REQUIRED, MAINTENANCE, FINE = "maintenance-required", "in-maintenance", "operational"


def test_a_profile_is_in_each_state_from_the_entry_that_led_there_until_the_next() -> None:
    entries = [moved(1, FINE, REQUIRED), moved(2, REQUIRED, MAINTENANCE), moved(5, MAINTENANCE, FINE)]
    assert told(entries, profiles=[Stands("os", FINE, at(5))]) == [
        ("profile", "os", REQUIRED, 1, 2),
        ("profile", "os", MAINTENANCE, 2, 5),
    ]


def test_what_runs_has_no_end() -> None:
    entries = [moved(1, FINE, REQUIRED)]
    assert told(entries, profiles=[Stands("os", REQUIRED, at(1))]) == [("profile", "os", REQUIRED, 1, None)]


def test_the_first_entry_that_is_left_tells_where_it_began() -> None:
    entries = [moved(5, MAINTENANCE, FINE, since=at(2))]
    assert told(entries) == [("profile", "os", MAINTENANCE, 2, 5)]


def test_what_holds_a_node_without_an_object_goes_on_until_its_history_says_that_it_ended() -> None:
    entries = [
        moved(1, "", "Running", what="ESX"),
        moved(2, "Running", "Ended", what="ESX"),
        moved(3, "", "Running", what="ESX"),
        moved(4, "", "Running", what="Kubernikus/delete-node"),
    ]
    assert told(entries) == [
        ("order", "ESX", "Running", 1, 2),
        ("order", "ESX", "Running", 3, None),
        ("order", "Kubernikus delete-node", "Running", 4, None),
    ]


def test_without_a_history_the_node_itself_tells_what_runs() -> None:
    assert told(profiles=[Stands("os", MAINTENANCE, at(3))]) == [("profile", "os", MAINTENANCE, 3, None)]
    assert told(profiles=[Stands("os", FINE, at(3))]) == []


def test_a_history_that_lags_behind_is_completed_by_the_node() -> None:
    entries = [moved(1, FINE, REQUIRED)]
    assert told(entries, profiles=[Stands("os", MAINTENANCE, at(4))]) == [
        ("profile", "os", REQUIRED, 1, 4),
        ("profile", "os", MAINTENANCE, 4, None),
    ]
    assert told(entries, profiles=[Stands("os", FINE, at(4))]) == [("profile", "os", REQUIRED, 1, 4)]


def test_profiles_are_told_apart() -> None:
    entries = [moved(1, FINE, REQUIRED), moved(2, FINE, REQUIRED, what="profile/firmware"), moved(3, REQUIRED, FINE)]
    now = [Stands("os", FINE, at(3)), Stands("firmware", REQUIRED, at(2))]
    assert told(entries, profiles=now) == [
        ("profile", "os", REQUIRED, 1, 3),
        ("profile", "firmware", REQUIRED, 2, None),
    ]


def test_a_profile_that_left_the_node_is_not_told_as_running() -> None:
    assert told([moved(1, FINE, REQUIRED)]) == [("profile", "os", REQUIRED, 1, 1)]


ORDER = "NodeMaintenance/patch-n1"


def an_order(**more: Any) -> NodeMaintenance:
    metadata = OrderMetadata(name="patch-n1", creation_timestamp=at(1), **more)
    return NodeMaintenance(metadata=metadata, spec=Spec(reason="new disk"), status=OrderStatus(phase="Running"))


def test_an_order_is_one_span_from_its_making_to_its_end() -> None:
    entries = [
        moved(1, "", "Running", what=ORDER, why="new disk"),
        moved(2, "Running", "Succeeded", what=ORDER),
        moved(6, "Succeeded", "Ended", what=ORDER),
    ]
    assert told(entries) == [("order", "patch-n1", "Succeeded", 1, 6)]


def test_an_order_that_is_there_has_no_end() -> None:
    entries = [moved(1, "", "Running", what=ORDER)]
    assert told(entries, orders=[an_order()]) == [("order", "patch-n1", "Running", 1, None)]
    assert told(orders=[an_order()]) == [("order", "patch-n1", "Running", 1, None)]


def test_an_order_of_a_name_that_was_used_before_is_another_one() -> None:
    entries = [
        moved(-9, "", "Running", what=ORDER),
        moved(-8, "Running", "Ended", what=ORDER),
        moved(1, "", "Running", what=ORDER),
    ]
    assert told(entries, orders=[an_order()]) == [
        ("order", "patch-n1", "Running", -9, -8),
        ("order", "patch-n1", "Running", 1, None),
    ]


def test_an_order_that_is_going_and_whose_end_is_written_down_is_told_once() -> None:
    entries = [moved(1, "", "Running", what=ORDER), moved(3, "Running", "Ended", what=ORDER)]
    assert told(entries, orders=[an_order(deletion_timestamp=at(3))]) == [("order", "patch-n1", "Running", 1, 3)]


def test_an_order_whose_end_is_in_the_record_has_ended_whatever_clocks_say() -> None:
    order = an_order(uid="u1")
    entries = [
        moved(5, "", "Running", what="NodeMaintenance/patch-n1", instance="u1"),
        moved(3, "Running", "Ended", what="NodeMaintenance/patch-n1", instance="u1"),
    ]
    assert told(entries, orders=[order]) == [("order", "patch-n1", "Running", 3, 3)]
    (span,) = all_spans(entries, Now(orders=[order]), at=NOW)
    assert "the clock was set back" in span.why


def test_the_end_of_another_order_of_this_name_does_not_end_it() -> None:
    entries = [
        moved(5, "", "Running", what="NodeMaintenance/patch-n1", instance="u0"),
        moved(30, "Running", "Ended", what="NodeMaintenance/patch-n1", instance="u0"),
        moved(6, "", "Running", what="NodeMaintenance/patch-n1", instance="u1"),
    ]
    assert [it[-1] for it in told(entries, orders=[an_order(uid="u1")])] == [None, 30]


def test_a_state_that_a_clock_cut_short_is_shown_without_a_length() -> None:
    entries = [moved(5, FINE, MAINTENANCE), moved(3, MAINTENANCE, FINE)]
    (span,) = all_spans(entries, Now(profiles=[Stands("os", FINE, at(3))]), at=NOW)
    assert (span.start, span.end) == (at(3), at(3))
    assert "the clock was set back" in span.why


def test_a_drain_is_told_with_what_it_took_and_what_stood_in_its_way() -> None:
    facts = DrainFacts(seconds=1800, pods=12, blocked_by="PodDisruptionBudget shop/cart", blocked_seconds=600)
    drained = Entry(time=at(3), what="profile/os", result="Drained", drain=facts)
    (span,) = all_spans([drained], Now(), at=NOW)
    assert (span.kind, span.title, span.state) == ("drain", "profile os", "Drained")
    assert (span.start, span.end) == (at(2.5), at(3))
    assert span.why == "12 pods left in 30m; PodDisruptionBudget shop/cart stood in the way for 10m"


def test_a_drain_that_runs_says_how_far_it_is() -> None:
    drain = Drain(by=ORDER, started=at(11), total=10, gone=4, words="waiting for PodDisruptionBudget shop/cart")
    (span,) = all_spans([], Now(drains=[drain]), at=NOW)
    assert (span.title, span.state, span.start, span.end) == ("NodeMaintenance patch-n1", "running", at(11), None)
    assert span.why == "4 of 10 pods gone; waiting for PodDisruptionBudget shop/cart"


def a_notice(*, status: Status | None = None, **spec: Any) -> MaintenanceNotice:
    found = {"kind": "Reboot", "reason": "firmware", "start": at(20), "end": at(22), **spec}
    metadata = Metadata(name="aws-1", creation_timestamp=at(1))
    return MaintenanceNotice(metadata=metadata, spec=NoticeSpec(**found), status=status or Status(phase="Planned"))


def test_a_notice_is_told_with_the_drain_before_it() -> None:
    status = Status(phase="Planned", drain_at=at(19), predicted_drain_seconds=1800)
    assert told(notices=[a_notice(status=status)]) == [
        ("drain", "for Reboot: firmware", "planned", 19, 19.5),
        ("notice", "Reboot: firmware", "Planned", 20, 22),
    ]


def test_where_nobody_knows_what_a_drain_takes_it_has_until_the_start() -> None:
    status = Status(phase="Planned", drain_at=at(19))
    assert told(notices=[a_notice(status=status)])[0] == ("drain", "for Reboot: firmware", "planned", 19, 20)


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"start": None, "end": None}, Status(phase="Due"), ("Due", 1, None)),
        ({"end": None}, Status(phase="Planned"), ("Planned", 20, None)),
        ({"start": at(2), "end": at(4)}, Status(phase="Completed", ended_at=at(3)), ("Completed", 2, 3)),
        ({}, Status(phase="Cancelled", ended_at=at(5)), ("Cancelled", 5, 5)),
        ({"start": at(2), "end": at(4)}, Status(phase="Missed", ended_at=at(4.5)), ("Missed", 2, 4)),
        ({}, Status(phase="nonsense"), ("Planned", 20, 22)),
    ],
    ids=["any moment", "no end", "over early", "cancelled before it began", "missed", "odd phase"],
)
def test_notices_in_all_phases(spec: dict[str, Any], status: Status, expected: tuple[object, ...]) -> None:
    ((_, _, *rest),) = told(notices=[a_notice(status=status, **spec)])
    assert tuple(rest) == expected


def test_a_notice_says_whether_it_is_on_time() -> None:
    late = StatusCondition(type="OnTime", status="False", reason="NotBegun", message="nobody has begun to empty n1")
    (span,) = all_spans([], Now(notices=[a_notice(status=Status(phase="Due", conditions=(late,)))]), at=NOW)
    assert span.why == "nobody has begun to empty n1"


def test_only_what_is_to_be_seen_in_the_range_is_told_in_the_order_of_beginning() -> None:
    def span(start: float, end: float | None) -> Span:
        return Span(kind=SpanKind.DRAIN, title="x", start=at(start), end=None if end is None else at(end))

    spans = [span(9, None), span(1, 2), span(4, 6), span(2, 4), span(10, 11), span(1, 12)]
    assert within(spans, at(4), at(10)) == (span(1, 12), span(4, 6), span(9, None))


SOME_TIME = st.datetimes(timezones=st.just(UTC))
ODD = st.floats(allow_nan=True, allow_infinity=True)
STATES = st.sampled_from(["", FINE, REQUIRED, MAINTENANCE, "Ended", "Running", "\u202e"])


@given(
    st.lists(
        st.builds(
            Entry,
            time=SOME_TIME,
            what=st.sampled_from(["profile/os", "profile/", ORDER, "", "x/y/z"]),
            from_=STATES,
            to=STATES,
            since=st.none() | SOME_TIME,
            drain=st.none() | st.builds(DrainFacts, seconds=ODD, pods=st.integers(), blocked_seconds=ODD),
        ),
        max_size=8,
    ),
    st.none() | st.builds(Stands, profile=st.just("os"), state=STATES, since=st.none() | SOME_TIME),
    st.builds(
        Status,
        phase=st.sampled_from(["", "Planned", "Due", "Missed", "Completed"]),
        drain_at=st.none() | SOME_TIME,
        predicted_drain_seconds=st.integers(min_value=-5, max_value=1 << 62),
        ended_at=st.none() | SOME_TIME,
    ),
)
def test_whatever_stands_in_a_record_spans_do_not_end_before_they_begin(
    entries: list[Entry], stands: Stands | None, status: Status
) -> None:
    now = Now(profiles=[stands] if stands else [], notices=[a_notice(status=status)])
    for span in all_spans(entries, now, at=NOW):
        assert span.end is None or span.start <= span.end
