"""What stands above every page, what is told of notices, and of what was logged."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haulout.errors import ConfigError, ConfigErrors
from haulout.kinds.notice import HistoryEntry, MaintenanceNotice, Spec, Status
from haulout.kube.objects import Metadata, StatusCondition
from haulout.web.api.banners import Known, banners
from haulout.web.api.health import NO_SUCH_KIND
from haulout.web.api.notices import listed, told
from haulout.web.api.shapes import Banner, Level, Notice, PartHealth, WatchHealth
from haulout.web.api.troubles import KEPT, Troubles
from haulout_sandbox.event_loops.virtual import VirtualClock

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
BROKEN = ConfigErrors([ConfigError("expected 1m", line=3, key="requeue"), ConfigError("and more", line=5)])
LATE = Notice(name="aws-1", phase="Due", kind="Reboot", node="n1", is_on_time=False)


def said(**known: Any) -> list[tuple[str, str, str]]:
    return [(it.level, it.page, it.text) for it in banners(Known(**{"leader": "me", **known}))]


@pytest.mark.parametrize(
    ("known", "level", "page", "text"),
    [
        ({"leader": ""}, "critical", "health", "nobody leads: no maintenance begins or goes on until a replica does"),
        (
            {"problem": BROKEN, "file": "m.yaml"},
            "warning",
            "configuration",
            "m.yaml makes no sense, and what it said before is in force: line 3: expected 1m (and 1 more error)",
        ),
        (
            {"problem": BROKEN, "file": "m.yaml", "has_good": False},
            "critical",
            "configuration",
            "m.yaml makes no sense, and it is as if it were not there: line 3: expected 1m (and 1 more error)",
        ),
        (
            {"sources": [PartHealth(name="source oci", is_well=False, text="401: who are you")]},
            "critical",
            "health",
            "source oci is not heard: 401: who are you",
        ),
        (
            {"parts": [PartHealth(name="profiles", is_well=False, text="profiles broke")]},
            "critical",
            "health",
            "profiles: profiles broke",
        ),
        (
            {"lacking": "patch nodes"},
            "warning",
            "health",
            "the operator may not do what profiles need: patch nodes",
        ),
        (
            {"watches": [WatchHealth(resource="nodes", is_synced=False, problem="forbidden")]},
            "critical",
            "health",
            "not known, as they cannot be followed: nodes: forbidden",
        ),
        (
            {"watches": [WatchHealth(resource="nodes", is_synced=True, problem="connection refused")]},
            "warning",
            "health",
            "may be shown as they were: nodes: connection refused",
        ),
        (
            {"notices": [LATE]},
            "warning",
            "notices",
            "1 notice is late, as pods will still be there when it begins: n1",
        ),
        ({"left_alone": 2}, "warning", "fleet", "nothing is done about 2 nodes, whose data cannot be used"),
        ({"others": ["Machines wait"]}, "warning", "health", "Machines wait"),
    ],
)
def test_what_is_wrong_is_told_with_where_there_is_more(
    known: dict[str, Any], level: str, page: str, text: str
) -> None:
    assert said(**known) == [(level, page, text)]


def test_if_all_is_well_nothing_is_told() -> None:
    well = [PartHealth(name="source oci", is_well=True, text="quiet")]
    missing = [WatchHealth(resource="maintenancenotices.haulout.dev", is_synced=False, problem=NO_SUCH_KIND)]
    over = [Notice(name="aws-1", phase="Completed", kind="Reboot", is_on_time=False)]
    assert said(parts=well, sources=well, watches=missing, notices=over) == []


def test_the_worst_comes_first() -> None:
    found = banners(Known(leader="", others=["x"], notices=[LATE]))
    assert [it.level for it in found] == [Level.CRITICAL, Level.WARNING, Level.WARNING]
    assert all(isinstance(it, Banner) for it in found)


# Notices


def a_notice(name: str = "aws-1", *, status: Status | None = None, **spec: Any) -> MaintenanceNotice:
    metadata = Metadata(name=name, creation_timestamp=NOW - timedelta(days=1))
    return MaintenanceNotice(metadata=metadata, spec=Spec(kind="Reboot", **spec), status=status or Status())


def test_a_notice_tells_whether_it_is_on_time_and_what_happened_the_newest_first() -> None:
    conditions = (
        StatusCondition(type="OnTime", status="False", message="3 pods stay"),
        StatusCondition(type="Rescheduled", status="True", message="moved by a day"),
    )
    history = (HistoryEntry(time=NOW, who="aws", what="planned"), HistoryEntry(who="me", what="moved"))
    found = told(a_notice(status=Status(phase="Due", conditions=conditions, history=history)), now=NOW)
    assert (found.is_on_time, found.on_time, found.rescheduled) == (False, "3 pods stay", "moved by a day")
    assert [(it.what, it.by) for it in found.history] == [("moved", "me"), ("planned", "aws")]
    assert found.history[0].time == NOW - timedelta(days=1)


@pytest.mark.parametrize(("status", "answer"), [("True", True), ("False", False), ("Unknown", None), ("odd", None)])
def test_what_nobody_can_tell_is_neither(status: str, answer: bool | None) -> None:  # noqa: FBT001 - a row of a table
    condition = StatusCondition(type="OnTime", status=status)
    assert told(a_notice(status=Status(conditions=(condition,))), now=NOW).is_on_time is answer


def test_a_notice_that_nobody_has_looked_at_yet_stands_as_the_clock_says() -> None:
    assert told(a_notice(start=NOW + timedelta(days=1)), now=NOW).phase == "Planned"
    assert told(a_notice(start=NOW - timedelta(days=1)), now=NOW).phase == "Active"


def test_notices_that_are_not_over_come_first_by_their_start() -> None:
    hours = {"late": 9, "soon": 1, "over": -9, "long-over": -99}
    notices = [
        a_notice(it, start=NOW + timedelta(hours=at), end=NOW + timedelta(hours=at + 1)) for it, at in hours.items()
    ]
    notices.append(a_notice("any", deadline=None))
    found = listed(notices, revision="7", now=NOW)
    assert [it.name for it in found.notices] == ["soon", "late", "any", "over", "long-over"]


# What was logged


def troubled(clock: VirtualClock, *lines: str) -> Troubles:
    troubles = Troubles(clock)
    with troubles.listening("haulout.test"):
        for line in lines:
            logging.getLogger("haulout.test").warning(line)
    logging.getLogger("haulout.test").warning("after all")
    return troubles


async def test_what_is_logged_is_kept_the_newest_first_and_not_more_than_some(clock: VirtualClock) -> None:
    lines = [f"{'x' * number} failed" for number in range(1, 99)]
    found = troubled(clock, *lines).told()
    assert len(found) == KEPT
    assert found[0].text == f"{'x' * 98} failed"
    assert (found[0].level, found[0].time) == (Level.WARNING, clock.now())


async def test_what_differs_in_a_number_only_is_one_line_that_counts(clock: VirtualClock) -> None:
    found = troubled(clock, "attempt 1 failed", "other", "attempt 2 failed").told()
    assert [(it.text, it.count) for it in found] == [("attempt 2 failed", 2), ("other", 1)]


async def test_what_is_logged_shows_no_credentials(clock: VirtualClock) -> None:
    [found] = troubled(clock, "GET https://me:hunter2@example.com and xoxb-123456789 failed").told()
    assert found.text == "GET https://(hidden)@example.com and (hidden) failed"


async def test_an_exception_is_told_with_its_message(clock: VirtualClock) -> None:
    troubles = Troubles(clock)
    with troubles.listening("haulout.test"):
        try:
            raise ValueError("no such thing")
        except ValueError:
            logging.getLogger("haulout.test").exception("looking failed")
    [found] = troubles.told()
    assert (found.level, found.text) == (Level.CRITICAL, "looking failed: ValueError: no such thing")
