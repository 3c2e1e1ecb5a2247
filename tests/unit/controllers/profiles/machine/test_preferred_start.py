"""The preferred start of a notice, from the windows of the node's profiles."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.maintenancenotice import (
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    MaintenanceNoticeStatus,
)
from haulout.api.objects import Node, ObjectMeta
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.machine.preferred_start import lead_time, preferred_start
from haulout.controllers.profiles.plugin import ExternalQuery, QueryResult
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core import icalendar

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
HEAD = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: due, type: notice, config: {kinds: [Reboot]}}
  - {name: over, type: notice, config: {when: over}}
  - name: night
    type: timeWindow
    config: {start: '22:00', end: '04:00', acrossMidnight: true, weekdays: [mon, tue, wed, thu, fri]}
  - {name: tuesday, type: timeWindow, config: {start: '10:00', end: '12:00', weekdays: [tue]}}
  - {name: holidays, type: timeWindow, config: {calendars: [holidays.ics]}}
  - {name: approved, type: hasLabel, config: {key: example.com/approved}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain, evictionTimeout: 10m, deletionTimeout: 2m}}
profiles:
"""


def profiles(*chains: str, second: str = "") -> str:
    """Return a configuration with one profile per chain; `second` is the check of a second transition."""
    text = HEAD
    for number, chain in enumerate(chains):
        following = (
            f"\n  maintenance-required: {{transitions: [{{check: '{second}', next: in-maintenance}}]}}"
            if second
            else ""
        )
        target = "maintenance-required" if second else "in-maintenance"
        text += f"""
- name: p{number}
  operational: {{transitions: [{{check: '{chain}', next: {target}}}]}}{following}
  in-maintenance: {{transitions: [{{check: over, next: operational}}]}}
"""
    return text


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-{text}:00+00:00")


def preferred_time(
    text: str,
    start: datetime,
    *,
    deadline: datetime | None = None,
    kind: MaintenanceKind = MaintenanceKind.REBOOT,
    is_named: bool = True,
    **status: Any,
) -> datetime | None:
    known = loader.load(text.encode(), registries(), {}).configuration.profiles
    spec = MaintenanceNoticeSpec(node_name="n1", source="oci", kind=kind, start=start, deadline=deadline)
    notice = MaintenanceNotice(spec=spec, status=MaintenanceNoticeStatus(**status))
    names = "--".join(item for item in known if item != "default")
    labels = {"cloud.sap/maintenance-profile": names} if is_named else {}
    node = Node(metadata=ObjectMeta(name="n1", labels=labels))
    return preferred_start(node, notice, known, look_up=_look_up, now=NOW)


def _look_up(query: ExternalQuery) -> QueryResult | None:
    del query
    return None


@pytest.mark.parametrize(
    ("chains", "start", "expected"),
    [
        pytest.param(["due"], "06T14:00", "06T14:00", id="no window: it fits as planned"),
        pytest.param(["due && night"], "06T23:00", "06T23:00", id="inside of the window"),
        pytest.param(["due && night"], "06T14:00", "06T22:16", id="the drain begins inside of the window, too"),
        pytest.param(["due && night"], "06T22:10", "06T22:16", id="the window opens too late for the drain"),
        pytest.param(["due && night"], "07T04:05", "07T22:16", id="the window has closed at the start"),
        pytest.param(["due && night"], "10T05:00", "12T22:16", id="over the weekend"),
        pytest.param(["due && !tuesday"], "06T11:00", "06T12:15", id="a window that forbids"),
        pytest.param(["due && (night || tuesday)"], "06T09:00", "06T10:16", id="the first of two windows"),
        pytest.param(["due && (night || approved)"], "06T14:00", "06T14:00", id="something else may allow it"),
        pytest.param(["due && night && approved"], "06T14:00", "06T22:16", id="something else is needed as well"),
        pytest.param(["due && night", "due && tuesday"], "06T09:00", "06T10:16", id="one profile of two is enough"),
        pytest.param(["due && night", "due"], "06T14:00", "06T14:00", id="another profile has no window"),
        pytest.param(["night"], "06T14:00", None, id="no profile has a notice check"),
        pytest.param(["over && night"], "06T14:00", None, id="what is over is no way into maintenance"),
        pytest.param(["due && holidays"], "06T14:00", None, id="a calendar that is not known"),
    ],
)
def test_preferred_start_is_the_first_that_fits_the_windows(
    chains: list[str], start: str, expected: str | None
) -> None:
    assert preferred_time(profiles(*chains), at(start)) == (None if expected is None else at(expected))


def test_on_notice_profile_counts_on_nodes_without_its_label() -> None:
    text = profiles("due && night")
    assert preferred_time(text, at("06T14:00"), is_named=False) is None
    assert preferred_time(
        text.replace("name: p0\n", "name: p0\n  onNotice: true\n"), at("06T14:00"), is_named=False
    ) == at("06T22:16")


def test_window_on_the_second_transition_counts() -> None:
    assert preferred_time(profiles("due", second="night"), at("06T14:00")) == at("06T22:16")


def test_predicted_drain_time_must_fit_into_the_window() -> None:
    assert preferred_time(profiles("due && night"), at("06T14:00"), predicted_drain_seconds=2 * 3600) == at("07T00:01")


def test_no_start_is_preferred_after_the_deadline() -> None:
    assert preferred_time(profiles("due && night"), at("06T14:00"), deadline=at("06T22:16")) == at("06T22:16")
    assert preferred_time(profiles("due && night"), at("06T14:00"), deadline=at("06T22:15")) is None


def test_maintenance_of_an_unmatched_kind_has_no_preferred_start() -> None:
    assert preferred_time(profiles("due && night"), at("06T14:00"), kind=MaintenanceKind.FREEZE) is None


def test_window_that_never_opens_yields_no_preferred_start() -> None:
    assert preferred_time(profiles("due && night && tuesday"), at("06T14:00")) is None


def test_loaded_calendar_counts() -> None:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VEVENT", "UID:1", "DTSTART;VALUE=DATE:20260106"]
    lines += ["DTEND;VALUE=DATE:20260108", "SUMMARY:fair", "END:VEVENT", "END:VCALENDAR", ""]
    fair = icalendar.parse("\r\n".join(lines).encode(), file="holidays.ics")
    known = loader.load(profiles("due && holidays").encode(), registries(), {}).configuration.profiles
    notice = MaintenanceNotice(
        spec=MaintenanceNoticeSpec(node_name="n1", kind=MaintenanceKind.REBOOT, start=at("06T14:00"))
    )
    node = Node(metadata=ObjectMeta(name="n1", labels={"cloud.sap/maintenance-profile": "p0"}))
    found = preferred_start(node, notice, known, look_up=lambda _: QueryResult(NOW, fair), now=NOW)
    assert found == at("08T00:15")


_KNOWN = loader.load(profiles("due && (night || tuesday)").encode(), registries(), {}).configuration.profiles


@given(st.integers(0, 20 * 24 * 60), st.integers(0, 6 * 60))
def test_preferred_start_is_not_before_the_planned_one_and_is_stable(minutes: int, predicted: int) -> None:
    start = NOW + timedelta(minutes=minutes)
    node = Node(metadata=ObjectMeta(name="n1", labels={"cloud.sap/maintenance-profile": "p0"}))

    def found(planned: datetime) -> datetime | None:
        spec, status = (
            MaintenanceNoticeSpec(kind=MaintenanceKind.REBOOT, start=planned),
            MaintenanceNoticeStatus(predicted_drain_seconds=60 * predicted),
        )
        notice = MaintenanceNotice(spec=spec, status=status)
        return preferred_start(node, notice, _KNOWN, look_up=_look_up, now=NOW)

    first = found(start)
    if predicted < 6 * 60 - 2:
        assert first is not None
    if first is not None:
        assert first >= start
        assert found(first) == first


@pytest.mark.parametrize(
    ("checks", "kind", "minutes"),
    [
        (("due",), MaintenanceKind.REBOOT, 15),
        (("early",), MaintenanceKind.REBOOT, 120),
        (("early && due",), MaintenanceKind.REBOOT, 15),
        (("due", "early && approved"), MaintenanceKind.REBOOT, 120),
        (("begun",), MaintenanceKind.REBOOT, 0),
        (("due",), MaintenanceKind.STOP, None),
        (("approved",), MaintenanceKind.REBOOT, None),
    ],
)
def test_lead_time_is_that_of_the_first_transition_and_its_last_check(
    checks: tuple[str, ...], kind: MaintenanceKind, minutes: int | None
) -> None:
    more = """
  - {name: early, type: notice, config: {leadTime: 2h}}
  - {name: begun, type: notice, config: {when: active}}
  trigger:"""
    text = profiles(*checks).replace("\n  trigger:", more, 1)
    loaded = loader.load(text.encode(), registries(), {}).configuration.profiles
    named = {"cloud.sap/maintenance-profile": "--".join(loaded)}
    node = Node(metadata=ObjectMeta(name="n1", labels=named))
    notice = MaintenanceNotice(metadata=ObjectMeta(name="x"), spec=MaintenanceNoticeSpec(kind=kind, start=NOW + DAY))
    assert lead_time(node, notice, loaded) == (None if minutes is None else timedelta(minutes=minutes))
