"""What a timeline is made of: which part of time, which rows first, histories read sparingly, bands behind it all."""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.core.icalendar import Calendar, read
from haulout.errors import Forbidden
from haulout.history import record
from haulout.history.record import MAINTENANCE_RECORDS, STANDING, Stand
from haulout.history.survey import Standing
from haulout.kinds.notice import MaintenanceNotice, Spec, Status
from haulout.kube.client import Client
from haulout.kube.objects import Metadata
from haulout.kube.timestamps import micro_time
from haulout.profiles import config
from haulout.profiles.plugin import Answer, Question
from haulout.profiles.plugins.registry import registries
from haulout.web.api.openings import MOST_BANDS, bands, windows_of
from haulout.web.api.records import KEPT_FOR, NoRecords, Records
from haulout.web.api.shapes import NodeState, Tile
from haulout.web.api.source import Unanswerable
from haulout.web.api.timeline import LONGEST, Range, asked_range, rank
from haulout_sandbox.apiserver import ApiServer

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)  # a Monday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


# Which part of time


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
def test_what_is_not_said_is_around_now(
    start: datetime | None, end: datetime | None, expected: tuple[datetime, datetime]
) -> None:
    found = asked_range(start, end, now=NOW)
    assert (found.start, found.end) == expected


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (NOW, NOW),
        (NOW + HOUR, NOW),
        (NOW, NOW + LONGEST + HOUR),
        (None, datetime.min.replace(tzinfo=UTC)),
        (datetime.max.replace(tzinfo=UTC), None),
    ],
)
def test_what_cannot_be_meant_is_refused(start: datetime | None, end: datetime | None) -> None:
    with pytest.raises(Unanswerable):
        asked_range(start, end, now=NOW)


# Which rows first


def a_notice(hours: float) -> MaintenanceNotice:
    spec = Spec(start=NOW + hours * HOUR, end=NOW + (hours + 1) * HOUR)
    return MaintenanceNotice(metadata=Metadata(name="x"), spec=spec, status=Status(phase="Planned"))


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
def test_rows_with_something_to_show_come_first(
    tile: dict[str, Any], notices: Sequence[MaintenanceNotice], since: datetime | None, expected: int
) -> None:
    shown = Tile(**{"name": "n1", "state": NodeState.IDLE, **tile})
    standing = None if since is None else Standing("u", {"profile/os": Stand(state="operational", since=since)})
    assert rank(shown, notices, standing, Range(NOW - DAY, NOW + 7 * DAY), now=NOW) == expected


def test_what_goes_on_now_matters_only_where_now_is_shown() -> None:
    tile = Tile(name="n1", state=NodeState.DRAINING)
    assert rank(tile, [], None, Range(NOW - 9 * DAY, NOW - 8 * DAY), now=NOW) == 3


# Histories


def a_record(node: str, *, entries: int = 1) -> dict[str, Any]:
    standing = record.write_standing({"profile/os": Stand(state="operational", since=NOW)})
    found = [{"time": micro_time(NOW + number * HOUR), "what": "profile/os", "to": "x"} for number in range(entries)]
    return {
        "apiVersion": MAINTENANCE_RECORDS.api_version,
        "kind": MAINTENANCE_RECORDS.kind,
        "metadata": {"name": node, "annotations": {STANDING: standing}},
        "total": entries,
        "entries": found,
    }


async def a_history(clock: Clock, *nodes: str) -> tuple[ApiServer, Client]:
    api = ApiServer(clock)
    api.put(record.definition())
    await clock.sleep(timedelta(seconds=1))
    for node in nodes:
        api.put(a_record(node))
    return api, Client(api.transport("me"), clock=clock, random=random.Random(1))


def asked(client: Client) -> int:
    return sum(it.count for it in client.calls.all())


async def test_only_the_histories_are_read_that_are_asked_for(clock: Clock) -> None:
    _, client = await a_history(clock, *(f"n{number}" for number in range(100)))
    found = await Records(client).entries(["n1", "n7", "nobody"])
    assert sorted(found) == ["n1", "n7"]
    assert [it.what for it in found["n1"]] == ["profile/os"]
    assert asked(client) == 1 + 2  # all of them without entries, and two


async def test_most_histories_are_read_by_pages(clock: Clock) -> None:
    _, client = await a_history(clock, *(f"n{number}" for number in range(100)))
    found = await Records(client).entries([f"n{number}" for number in range(90)])
    assert len(found) == 90
    assert asked(client) == 1 + 2


async def test_what_was_read_is_kept_for_some_seconds(clock: Clock) -> None:
    api, client = await a_history(clock, "n1")
    records = Records(client)
    await records.entries(["n1"])
    before = asked(client)
    api.put(a_record("n1", entries=3))
    assert len((await records.entries(["n1"]))["n1"]) == 1
    assert asked(client) == before
    await clock.sleep(KEPT_FOR)
    assert len((await records.entries(["n1"]))["n1"]) == 3


async def test_who_asks_at_the_same_time_waits_for_the_same_answer(clock: Clock) -> None:
    _, client = await a_history(clock, "n1", "n2")
    records = Records(client)
    found = await asyncio.gather(*(records.entries(["n1", "n2"]) for _ in range(9)))
    assert all(sorted(it) == ["n1", "n2"] for it in found)
    assert asked(client) == 1 + 2


async def test_that_there_is_no_history_is_told_with_what_to_type(clock: Clock) -> None:
    client = Client(ApiServer(clock).transport("me"), clock=clock, random=random.Random(1))
    records = Records(client)
    with pytest.raises(NoRecords, match="MaintenanceRecord is not installed; `haulout manifests --crds-only"):
        await records.entries(["n1"])
    before = asked(client)
    with pytest.raises(NoRecords):
        await records.standings()
    assert asked(client) == before


async def test_that_it_may_not_be_read_is_told(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    _, client = await a_history(clock, "n1")
    records = Records(client)
    await records.standings()

    async def refused(*_: object, **__: object) -> None:
        raise Forbidden("no", code=403, reason="Forbidden")

    monkeypatch.setattr(client, "get", refused)
    with pytest.raises(NoRecords, match="the history may not be read"):
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
    return dict(windows_of(config.load(WINDOWS.encode(), registries(), {}).configuration.profiles))


def test_windows_count_that_keep_maintenance_from_beginning_and_once() -> None:
    assert list(windows()) == ["os: office", "os: never"]


def test_events_of_a_calendar_are_blackouts_with_their_names() -> None:
    calendar: Calendar = read(HOLIDAYS.encode(), file="holidays.ics")

    def answer(_: Question) -> Answer:
        return Answer(NOW, calendar)

    spans, problem = bands("x", windows()["os: never"], start=NOW, end=NOW + 7 * DAY, answer=answer)
    assert problem == ""
    assert [(it.kind, it.why, it.start.day) for it in spans] == [("blackout", "Repentance Day", 18)]


@pytest.mark.parametrize(
    ("found", "problem"),
    [(None, "x: it has not been read yet"), (Answer(NOW, problem="no such file"), "x: no such file")],
)
def test_a_calendar_that_is_not_known_is_told(found: Answer | None, problem: str) -> None:
    assert bands("x", windows()["os: never"], start=NOW, end=NOW + DAY, answer=lambda _: found) == ((), problem)


def test_bands_are_bounded_in_number_and_in_time_and_do_not_overlap() -> None:
    spans, _ = bands("x", windows()["os: office"], start=NOW, end=NOW + LONGEST, answer=lambda _: None)
    assert len(spans) == MOST_BANDS
    assert spans[0].start == NOW
    assert all(before.end is not None and before.end <= after.start for before, after in pairwise(spans))
