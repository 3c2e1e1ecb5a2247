"""The parts of a timeline: time range, row order, record cache, and windows."""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from haulout.api import maintenancerecord
from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeSpec, MaintenanceNoticeStatus
from haulout.api.maintenancerecord import LAST_STATES_ANNOTATION, MAINTENANCE_RECORDS, LastState
from haulout.api.objects import ObjectMeta
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.plugin import ExternalQuery, QueryResult
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.clock import Clock
from haulout.core.icalendar import Calendar, parse
from haulout.core.timestamps import micro_time
from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.api.history.record_cache import TTL, HistoryUnavailable, RecordCache
from haulout.dashboard.api.history.timeline import (
    MAX_BANDS,
    MAX_RANGE,
    TimeRange,
    rank,
    resolve_time_range,
    time_windows,
    window_spans,
)
from haulout.dashboard.api.types import NodeState, NodeSummary
from haulout.errors import Forbidden
from haulout.history.record_store import RecordSummary
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)  # a Monday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


# The time range


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, (NOW - DAY, NOW + 7 * DAY)),
        (NOW - HOUR, NOW + HOUR, (NOW - HOUR, NOW + HOUR)),
        (NOW + DAY, None, (NOW + DAY, NOW + 8 * DAY)),
        (None, NOW - 30 * DAY, (NOW - 31 * DAY, NOW - 30 * DAY)),
        (NOW - 30 * DAY, None, (NOW - 30 * DAY, NOW + 7 * DAY)),
    ],
)
def test_time_range_defaults_to_the_days_around_now(
    start: datetime | None, end: datetime | None, expected: tuple[datetime, datetime]
) -> None:
    found = resolve_time_range(start, end, now=NOW)
    assert (found.start, found.end) == expected


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (NOW, NOW),
        (NOW + HOUR, NOW),
        (NOW, NOW + MAX_RANGE + HOUR),
        (None, datetime.min.replace(tzinfo=UTC)),
        (datetime.max.replace(tzinfo=UTC), None),
    ],
)
def test_invalid_time_range_is_refused(start: datetime | None, end: datetime | None) -> None:
    with pytest.raises(HttpError):
        resolve_time_range(start, end, now=NOW)


# The order of rows


def a_notice(hours: float) -> MaintenanceNotice:
    spec = MaintenanceNoticeSpec(start=NOW + hours * HOUR, end=NOW + (hours + 1) * HOUR)
    return MaintenanceNotice(metadata=ObjectMeta(name="x"), spec=spec, status=MaintenanceNoticeStatus(phase="Planned"))


@pytest.mark.parametrize(
    ("tile", "notices", "since", "expected"),
    [
        ({"state": NodeState.DRAINING}, [], None, 0),
        ({"maintenance": "patch"}, [], None, 0),
        ({"state": NodeState.PLANNED}, [], None, 1),
        ({}, [a_notice(5)], None, 1),
        ({}, [a_notice(-5)], None, 1),
        ({}, [a_notice(500)], None, 3),
        ({}, [], NOW - HOUR, 2),
        ({}, [], NOW - 100 * DAY, 3),
        ({}, [], None, 3),
    ],
)
def test_rows_with_something_to_show_are_ranked_first(
    tile: dict[str, Any], notices: Sequence[MaintenanceNotice], since: datetime | None, expected: int
) -> None:
    row_tile = NodeSummary(**{"name": "n1", "state": NodeState.IDLE, **tile})
    summary = None if since is None else RecordSummary("u", {"profile/os": LastState(state="operational", since=since)})
    assert rank(row_tile, notices, summary, TimeRange(NOW - DAY, NOW + 7 * DAY), now=NOW) == expected


def test_current_state_affects_the_rank_only_when_now_is_in_range() -> None:
    tile = NodeSummary(name="n1", state=NodeState.DRAINING)
    assert rank(tile, [], None, TimeRange(NOW - 9 * DAY, NOW - 8 * DAY), now=NOW) == 3


# Histories


def a_record(node: str, *, entries: int = 1) -> dict[str, Any]:
    states = maintenancerecord.encode_last_states({"profile/os": LastState(state="operational", since=NOW)})
    entry_bodies = [
        {"time": micro_time(NOW + number * HOUR), "object": "profile/os", "to": "x"} for number in range(entries)
    ]
    return {
        "apiVersion": MAINTENANCE_RECORDS.api_version,
        "kind": MAINTENANCE_RECORDS.kind,
        "metadata": {"name": node, "annotations": {LAST_STATES_ANNOTATION: states}},
        "total": entries,
        "entries": entry_bodies,
    }


async def a_history(clock: Clock, *nodes: str) -> tuple[ApiServer, Client]:
    api = ApiServer(clock)
    api.put(maintenancerecord.custom_resource_definition())
    await clock.sleep(timedelta(seconds=1))
    for node in nodes:
        api.put(a_record(node))
    return api, Client(api.transport("me"), clock=clock, random=random.Random(1))


def request_count(client: Client) -> int:
    return sum(call.count for call in client.request_metrics.all())


async def test_only_requested_records_are_read(clock: Clock) -> None:
    _, client = await a_history(clock, *(f"n{number}" for number in range(100)))
    found = await RecordCache(client).entries(["n1", "n7", "nobody"])
    assert sorted(found) == ["n1", "n7"]
    assert [entry.object for entry in found["n1"]] == ["profile/os"]
    assert request_count(client) == 1 + 2  # all of them without entries, and two


async def test_many_records_are_read_as_pages(clock: Clock) -> None:
    _, client = await a_history(clock, *(f"n{number}" for number in range(100)))
    found = await RecordCache(client).entries([f"n{number}" for number in range(90)])
    assert len(found) == 90
    assert request_count(client) == 1 + 2


async def test_records_are_cached_for_the_ttl(clock: Clock) -> None:
    api, client = await a_history(clock, "n1")
    records = RecordCache(client)
    await records.entries(["n1"])
    before = request_count(client)
    api.put(a_record("n1", entries=3))
    assert len((await records.entries(["n1"]))["n1"]) == 1
    assert request_count(client) == before
    await clock.sleep(TTL)
    assert len((await records.entries(["n1"]))["n1"]) == 3


async def test_concurrent_requests_share_one_read(clock: Clock) -> None:
    _, client = await a_history(clock, "n1", "n2")
    records = RecordCache(client)
    found = await asyncio.gather(*(records.entries(["n1", "n2"]) for _ in range(9)))
    assert all(sorted(histories) == ["n1", "n2"] for histories in found)
    assert request_count(client) == 1 + 2


async def test_missing_record_definition_is_reported_with_a_remedy(clock: Clock) -> None:
    client = Client(ApiServer(clock).transport("me"), clock=clock, random=random.Random(1))
    records = RecordCache(client)
    with pytest.raises(HistoryUnavailable, match="MaintenanceRecord is not installed; `haulout manifests --crds-only"):
        await records.entries(["n1"])
    before = request_count(client)
    with pytest.raises(HistoryUnavailable):
        await records.summaries()
    assert request_count(client) == before


async def test_forbidden_history_is_reported(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    _, client = await a_history(clock, "n1")
    records = RecordCache(client)
    await records.summaries()

    async def refused(*_: object, **__: object) -> None:
        raise Forbidden("no", code=403, reason="Forbidden")

    monkeypatch.setattr(client, "get", refused)
    with pytest.raises(HistoryUnavailable, match="no permission to read the history"):
        await records.entries(["n1"])


# Bands

WINDOWS = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: office, type: timeWindow, config: {start: "09:00", end: "17:00", weekdays: [mon, tue, wed, thu, fri]}}
  - {name: never, type: timeWindow, config: {calendars: [holidays.ics]}}
  - {name: back, type: timeWindow, config: {start: "01:00", end: "02:00", weekdays: [sun]}}
profiles:
- name: os
  operational: {transitions: [{check: office && never, next: maintenance-required}]}
  maintenance-required: {transitions: [{check: office, next: in-maintenance}]}
  in-maintenance: {transitions: [{check: back, next: operational}]}
"""
HOLIDAYS = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\n"
    "DTSTART;VALUE=DATE:20261118\r\nSUMMARY:Repentance Day\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


def windows() -> dict[str, Any]:
    return dict(time_windows(loader.load(WINDOWS.encode(), registries(), {}).configuration.profiles))


def test_only_windows_that_prevent_maintenance_are_listed_and_once() -> None:
    assert list(windows()) == ["os: office", "os: never"]


def test_calendar_events_are_blackouts_with_their_summary() -> None:
    calendar: Calendar = parse(HOLIDAYS.encode(), file="holidays.ics")

    def answer(_: ExternalQuery) -> QueryResult:
        return QueryResult(NOW, calendar)

    spans, problem = window_spans("x", windows()["os: never"], start=NOW, end=NOW + 7 * DAY, lookup=answer)
    assert problem == ""
    assert [(span.kind, span.message, span.start.day) for span in spans] == [("blackout", "Repentance Day", 18)]


@pytest.mark.parametrize(
    ("found", "problem"),
    [(None, "x: it has not been read yet"), (QueryResult(NOW, problem="no such file"), "x: no such file")],
)
def test_unavailable_calendar_is_reported(found: QueryResult | None, problem: str) -> None:
    assert window_spans("x", windows()["os: never"], start=NOW, end=NOW + DAY, lookup=lambda _: found) == ((), problem)


def test_bands_are_limited_and_do_not_overlap() -> None:
    spans, _ = window_spans("x", windows()["os: office"], start=NOW, end=NOW + MAX_RANGE, lookup=lambda _: None)
    assert len(spans) == MAX_BANDS
    assert spans[0].start == NOW
    assert all(before.end is not None and before.end <= after.start for before, after in pairwise(spans))
