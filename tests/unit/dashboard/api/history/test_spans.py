"""Past, running and planned spans of a node, from its history and its current state."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeStatus
from haulout.api.maintenancenotice import MaintenanceNoticeSpec as NoticeSpec
from haulout.api.maintenancerecord import DrainFacts, Entry
from haulout.api.nodemaintenance import NodeMaintenance, NodeMaintenanceMetadata, NodeMaintenanceSpec
from haulout.api.nodemaintenance import NodeMaintenanceStatus as OrderStatus
from haulout.api.objects import ObjectMeta, StatusCondition
from haulout.dashboard.api.history.spans import CurrentState, ProfileStatus, all_spans, within
from haulout.dashboard.api.types import DrainSummary, Span, SpanKind

DAY = datetime(2026, 11, 16, tzinfo=UTC)
NOW = DAY + timedelta(hours=12)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def at(hour: float) -> datetime:
    return DAY + timedelta(hours=hour)


def a_change(hour: float, before: str, after: str, *, what: str = "profile/os", **more: Any) -> Entry:
    return Entry(time=at(hour), object=what, from_=before, to=after, **more)


def span_rows(entries: list[Entry] | None = None, **now: Any) -> list[tuple[str, str, str, object, object]]:
    spans = within(all_spans(entries or [], CurrentState(**now), at=NOW), FIRST, LAST)
    return [(span.kind, span.title, span.state, _hour(span.start), _hour(span.end)) for span in spans]


def _hour(instant: datetime | None) -> float | None:
    return None if instant is None else (instant - DAY).total_seconds() / 3600


REQUIRED, MAINTENANCE, FINE = "maintenance-required", "in-maintenance", "operational"


def test_profile_has_one_span_per_state() -> None:
    entries = [a_change(1, FINE, REQUIRED), a_change(2, REQUIRED, MAINTENANCE), a_change(5, MAINTENANCE, FINE)]
    assert span_rows(entries, profiles=[ProfileStatus("os", FINE, at(5))]) == [
        ("profile", "os", REQUIRED, 1, 2),
        ("profile", "os", MAINTENANCE, 2, 5),
    ]


def test_current_state_has_no_end() -> None:
    entries = [a_change(1, FINE, REQUIRED)]
    assert span_rows(entries, profiles=[ProfileStatus("os", REQUIRED, at(1))]) == [("profile", "os", REQUIRED, 1, None)]


def test_first_remaining_entry_gives_the_start_of_the_span() -> None:
    entries = [a_change(5, MAINTENANCE, FINE, since=at(2))]
    assert span_rows(entries) == [("profile", "os", MAINTENANCE, 2, 5)]


def test_cordon_owner_without_an_object_lasts_until_its_end_entry() -> None:
    entries = [
        a_change(1, "", "Running", what="ESX"),
        a_change(2, "Running", "Ended", what="ESX"),
        a_change(3, "", "Running", what="ESX"),
        a_change(4, "", "Running", what="Kubernikus/delete-node"),
    ]
    assert span_rows(entries) == [
        ("maintenance", "ESX", "Running", 1, 2),
        ("maintenance", "ESX", "Running", 3, None),
        ("maintenance", "Kubernikus delete-node", "Running", 4, None),
    ]


def test_current_state_of_the_node_is_used_without_a_history() -> None:
    assert span_rows(profiles=[ProfileStatus("os", MAINTENANCE, at(3))]) == [("profile", "os", MAINTENANCE, 3, None)]
    assert span_rows(profiles=[ProfileStatus("os", FINE, at(3))]) == []


def test_current_state_of_the_node_completes_a_stale_history() -> None:
    entries = [a_change(1, FINE, REQUIRED)]
    assert span_rows(entries, profiles=[ProfileStatus("os", MAINTENANCE, at(4))]) == [
        ("profile", "os", REQUIRED, 1, 4),
        ("profile", "os", MAINTENANCE, 4, None),
    ]
    assert span_rows(entries, profiles=[ProfileStatus("os", FINE, at(4))]) == [("profile", "os", REQUIRED, 1, 4)]


def test_profiles_have_separate_spans() -> None:
    entries = [
        a_change(1, FINE, REQUIRED),
        a_change(2, FINE, REQUIRED, what="profile/firmware"),
        a_change(3, REQUIRED, FINE),
    ]
    now = [ProfileStatus("os", FINE, at(3)), ProfileStatus("firmware", REQUIRED, at(2))]
    assert span_rows(entries, profiles=now) == [
        ("profile", "os", REQUIRED, 1, 3),
        ("profile", "firmware", REQUIRED, 2, None),
    ]


def test_removed_profile_is_not_shown_as_running() -> None:
    assert span_rows([a_change(1, FINE, REQUIRED)]) == [("profile", "os", REQUIRED, 1, 1)]


ORDER = "NodeMaintenance/patch-n1"


def an_order(**more: Any) -> NodeMaintenance:
    metadata = NodeMaintenanceMetadata(name="patch-n1", creation_timestamp=at(1), **more)
    return NodeMaintenance(
        metadata=metadata, spec=NodeMaintenanceSpec(reason="new disk"), status=OrderStatus(phase="Running")
    )


def test_nodemaintenance_is_one_span_from_creation_to_end() -> None:
    entries = [
        a_change(1, "", "Running", what=ORDER, reason="new disk"),
        a_change(2, "Running", "Succeeded", what=ORDER),
        a_change(6, "Succeeded", "Ended", what=ORDER),
    ]
    assert span_rows(entries) == [("maintenance", "patch-n1", "Succeeded", 1, 6)]


def test_existing_nodemaintenance_has_no_end() -> None:
    entries = [a_change(1, "", "Running", what=ORDER)]
    assert span_rows(entries, orders=[an_order()]) == [("maintenance", "patch-n1", "Running", 1, None)]
    assert span_rows(orders=[an_order()]) == [("maintenance", "patch-n1", "Running", 1, None)]


def test_reused_nodemaintenance_name_is_a_separate_span() -> None:
    entries = [
        a_change(-9, "", "Running", what=ORDER),
        a_change(-8, "Running", "Ended", what=ORDER),
        a_change(1, "", "Running", what=ORDER),
    ]
    assert span_rows(entries, orders=[an_order()]) == [
        ("maintenance", "patch-n1", "Running", -9, -8),
        ("maintenance", "patch-n1", "Running", 1, None),
    ]


def test_deleting_nodemaintenance_with_a_recorded_end_is_one_span() -> None:
    entries = [a_change(1, "", "Running", what=ORDER), a_change(3, "Running", "Ended", what=ORDER)]
    assert span_rows(entries, orders=[an_order(deletion_timestamp=at(3))]) == [
        ("maintenance", "patch-n1", "Running", 1, 3)
    ]


def test_recorded_end_wins_over_the_times_of_a_clock_that_was_set_back() -> None:
    order = an_order(uid="u1")
    entries = [
        a_change(5, "", "Running", what="NodeMaintenance/patch-n1", instance="u1"),
        a_change(3, "Running", "Ended", what="NodeMaintenance/patch-n1", instance="u1"),
    ]
    assert span_rows(entries, orders=[order]) == [("maintenance", "patch-n1", "Running", 3, 3)]
    (span,) = all_spans(entries, CurrentState(orders=[order]), at=NOW)
    assert "the clock was set back" in span.message


def test_end_of_another_instance_does_not_end_the_span() -> None:
    entries = [
        a_change(5, "", "Running", what="NodeMaintenance/patch-n1", instance="u0"),
        a_change(30, "Running", "Ended", what="NodeMaintenance/patch-n1", instance="u0"),
        a_change(6, "", "Running", what="NodeMaintenance/patch-n1", instance="u1"),
    ]
    assert [item[-1] for item in span_rows(entries, orders=[an_order(uid="u1")])] == [None, 30]


def test_state_shortened_by_a_clock_change_has_no_length() -> None:
    entries = [a_change(5, FINE, MAINTENANCE), a_change(3, MAINTENANCE, FINE)]
    (span,) = all_spans(entries, CurrentState(profiles=[ProfileStatus("os", FINE, at(3))]), at=NOW)
    assert (span.start, span.end) == (at(3), at(3))
    assert "the clock was set back" in span.message


def test_drain_span_has_duration_and_longest_blocker() -> None:
    facts = DrainFacts(seconds=1800, pods=12, blocked_by="PodDisruptionBudget shop/cart", blocked_seconds=600)
    drained = Entry(time=at(3), object="profile/os", result="Drained", drain=facts)
    (span,) = all_spans([drained], CurrentState(), at=NOW)
    assert (span.kind, span.title, span.state) == ("drain", "profile os", "Drained")
    assert (span.start, span.end) == (at(2.5), at(3))
    assert span.message == "12 pods removed in 30m; PodDisruptionBudget shop/cart blocked it for 10m"


def test_running_drain_span_has_its_progress() -> None:
    drain = DrainSummary(
        owner=ORDER, started=at(11), total=10, removed=4, message="waiting for PodDisruptionBudget shop/cart"
    )
    (span,) = all_spans([], CurrentState(drains=[drain]), at=NOW)
    assert (span.title, span.state, span.start, span.end) == ("NodeMaintenance patch-n1", "running", at(11), None)
    assert span.message == "4 of 10 pods gone; waiting for PodDisruptionBudget shop/cart"


def a_notice(*, status: MaintenanceNoticeStatus | None = None, **spec: Any) -> MaintenanceNotice:
    found = {"kind": "Reboot", "reason": "firmware", "start": at(20), "end": at(22), **spec}
    metadata = ObjectMeta(name="aws-1", creation_timestamp=at(1))
    return MaintenanceNotice(
        metadata=metadata, spec=NoticeSpec(**found), status=status or MaintenanceNoticeStatus(phase="Planned")
    )


def test_notice_has_a_span_for_its_predicted_drain() -> None:
    status = MaintenanceNoticeStatus(phase="Planned", drain_at=at(19), predicted_drain_seconds=1800)
    assert span_rows(notices=[a_notice(status=status)]) == [
        ("drain", "for Reboot: firmware", "planned", 19, 19.5),
        ("notice", "Reboot: firmware", "Planned", 20, 22),
    ]


def test_drain_without_a_prediction_lasts_until_the_start() -> None:
    status = MaintenanceNoticeStatus(phase="Planned", drain_at=at(19))
    assert span_rows(notices=[a_notice(status=status)])[0] == ("drain", "for Reboot: firmware", "planned", 19, 20)


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"start": None, "end": None}, MaintenanceNoticeStatus(phase="Due"), ("Due", 1, None)),
        ({"end": None}, MaintenanceNoticeStatus(phase="Planned"), ("Planned", 20, None)),
        (
            {"start": at(2), "end": at(4)},
            MaintenanceNoticeStatus(phase="Completed", ended_at=at(3)),
            ("Completed", 2, 3),
        ),
        ({}, MaintenanceNoticeStatus(phase="Cancelled", ended_at=at(5)), ("Cancelled", 5, 5)),
        ({"start": at(2), "end": at(4)}, MaintenanceNoticeStatus(phase="Missed", ended_at=at(4.5)), ("Missed", 2, 4)),
        ({}, MaintenanceNoticeStatus(phase="nonsense"), ("Planned", 20, 22)),
    ],
    ids=["any moment", "no end", "over early", "cancelled before it began", "missed", "odd phase"],
)
def test_notice_span_depends_on_the_phase(
    spec: dict[str, Any], status: MaintenanceNoticeStatus, expected: tuple[object, ...]
) -> None:
    ((_, _, *rest),) = span_rows(notices=[a_notice(status=status, **spec)])
    assert tuple(rest) == expected


def test_notice_span_has_the_on_time_message() -> None:
    not_on_time = StatusCondition(
        type="OnTime", status="False", reason="DrainNotStarted", message="nobody has begun to empty n1"
    )
    (span,) = all_spans(
        [],
        CurrentState(notices=[a_notice(status=MaintenanceNoticeStatus(phase="Due", conditions=(not_on_time,)))]),
        at=NOW,
    )
    assert span.message == "nobody has begun to empty n1"


def test_spans_are_limited_to_the_range_and_sorted_by_start() -> None:
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
            object=st.sampled_from(["profile/os", "profile/", ORDER, "", "x/y/z"]),
            from_=STATES,
            to=STATES,
            since=st.none() | SOME_TIME,
            drain=st.none() | st.builds(DrainFacts, seconds=ODD, pods=st.integers(), blocked_seconds=ODD),
        ),
        max_size=8,
    ),
    st.none() | st.builds(ProfileStatus, profile=st.just("os"), state=STATES, since=st.none() | SOME_TIME),
    st.builds(
        MaintenanceNoticeStatus,
        phase=st.sampled_from(["", "Planned", "Due", "Missed", "Completed"]),
        drain_at=st.none() | SOME_TIME,
        predicted_drain_seconds=st.integers(min_value=-5, max_value=1 << 62),
        ended_at=st.none() | SOME_TIME,
    ),
)
def test_spans_do_not_end_before_they_start_for_any_record(
    entries: list[Entry], current: ProfileStatus | None, status: MaintenanceNoticeStatus
) -> None:
    now = CurrentState(profiles=[current] if current else [], notices=[a_notice(status=status)])
    for span in all_spans(entries, now, at=NOW):
        assert span.end is None or span.start <= span.end
