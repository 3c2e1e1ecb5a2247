"""Banners, notices and recent warnings of the API."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haulout.api.maintenancefreeze import MaintenanceFreeze, MaintenanceFreezeSpec, MaintenanceFreezeStatus
from haulout.api.maintenancenotice import (
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    MaintenanceNoticeStatus,
    NoticeHistoryEntry,
)
from haulout.api.objects import ObjectMeta, StatusCondition
from haulout.dashboard.api.banners import BannerInputs, banners
from haulout.dashboard.api.health import MAX_ENTRIES, NO_SUCH_KIND, RecentWarnings
from haulout.dashboard.api.notices import notice_list, notice_to_api
from haulout.dashboard.api.types import Banner, ComponentHealth, Level, Notice, WatchHealth
from haulout.errors import ConfigError, ConfigErrors
from haulout.runtime.freezes import parse_freeze
from haulout_sandbox.event_loops.virtual_time import VirtualClock

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
BROKEN = ConfigErrors([ConfigError("expected 1m", line=3, key="requeue"), ConfigError("and more", line=5)])
FREEZE = MaintenanceFreeze(
    metadata=ObjectMeta(name="black-friday"),
    spec=MaintenanceFreezeSpec(by="alice", reason="Black Friday", until=datetime(2026, 12, 1, 8, tzinfo=UTC)),
    status=MaintenanceFreezeStatus(nodes=12),
)
LATE_NOTICE = Notice(name="aws-1", phase="Due", kind="Reboot", node="n1", is_on_time=False)


def banner_rows(**known: Any) -> list[tuple[str, str, str]]:
    return [
        (banner.level, banner.page, banner.message) for banner in banners(BannerInputs(**{"leader": "me", **known}))
    ]


@pytest.mark.parametrize(
    ("known", "level", "page", "text"),
    [
        (
            {"leader": ""},
            "critical",
            "health",
            "no replica is the leader: no maintenance starts or continues until one is elected",
        ),
        (
            {"freezes": [parse_freeze(FREEZE)]},
            "info",
            "fleet",
            "12 nodes are frozen by alice until 2026-12-01 08:00 UTC: Black Friday",
        ),
        (
            {"problem": BROKEN, "file": "m.yaml"},
            "warning",
            "configuration",
            "m.yaml is invalid, and the last valid version stays in force: line 3: expected 1m (and 1 more error)",
        ),
        (
            {"problem": BROKEN, "file": "m.yaml", "has_last_good": False},
            "critical",
            "configuration",
            "m.yaml is invalid, and its content is ignored: line 3: expected 1m (and 1 more error)",
        ),
        (
            {"sources": [ComponentHealth(name="source oci", is_healthy=False, message="401: who are you")]},
            "critical",
            "health",
            "source oci does not answer: 401: who are you",
        ),
        (
            {"components": [ComponentHealth(name="profiles", is_healthy=False, message="profiles broke")]},
            "critical",
            "health",
            "profiles: profiles broke",
        ),
        (
            {"missing_permissions": "patch nodes"},
            "warning",
            "health",
            "the operator lacks permissions that profiles need: patch nodes",
        ),
        (
            {"watches": [WatchHealth(resource="nodes", is_synced=False, problem="forbidden")]},
            "critical",
            "health",
            "cannot be watched: nodes: forbidden",
        ),
        (
            {"watches": [WatchHealth(resource="nodes", is_synced=True, problem="connection refused")]},
            "warning",
            "health",
            "the watch fails, so the data may be out of date: nodes: connection refused",
        ),
        (
            {"notices": [LATE_NOTICE]},
            "warning",
            "notices",
            "1 notice is late, as the drain is not expected to finish before the maintenance starts: n1",
        ),
        ({"skipped_nodes": 2}, "warning", "fleet", "2 nodes skipped, as their data cannot be read"),
        ({"other_warnings": ["Machines wait"]}, "warning", "health", "Machines wait"),
    ],
)
def test_each_problem_has_a_banner_that_links_to_its_page(
    known: dict[str, Any], level: str, page: str, text: str
) -> None:
    assert banner_rows(**known) == [(level, page, text)]


def test_healthy_operator_has_no_banners() -> None:
    healthy = [ComponentHealth(name="source oci", is_healthy=True, message="quiet")]
    missing = [WatchHealth(resource="maintenancenotices.haulout.dev", is_synced=False, problem=NO_SUCH_KIND)]
    over = [Notice(name="aws-1", phase="Completed", kind="Reboot", is_on_time=False)]
    assert banner_rows(components=healthy, sources=healthy, watches=missing, notices=over) == []


def test_banners_are_sorted_by_severity() -> None:
    found = banners(BannerInputs(leader="", other_warnings=["x"], notices=[LATE_NOTICE]))
    assert [item.level for item in found] == [Level.CRITICAL, Level.WARNING, Level.WARNING]
    assert all(isinstance(item, Banner) for item in found)


# Notices


def a_notice(name: str = "aws-1", *, status: MaintenanceNoticeStatus | None = None, **spec: Any) -> MaintenanceNotice:
    metadata = ObjectMeta(name=name, creation_timestamp=NOW - timedelta(days=1))
    return MaintenanceNotice(
        metadata=metadata, spec=MaintenanceNoticeSpec(kind="Reboot", **spec), status=status or MaintenanceNoticeStatus()
    )


def test_notice_has_its_on_time_condition_and_history_newest_first() -> None:
    conditions = (
        StatusCondition(type="OnTime", status="False", message="3 pods stay"),
        StatusCondition(type="Rescheduled", status="True", message="moved by a day"),
    )
    history = (
        NoticeHistoryEntry(time=NOW, reporter="aws", message="planned"),
        NoticeHistoryEntry(reporter="me", message="moved"),
    )
    found = notice_to_api(
        a_notice(status=MaintenanceNoticeStatus(phase="Due", conditions=conditions, history=history)), now=NOW
    )
    assert (found.is_on_time, found.on_time_message, found.rescheduled) == (False, "3 pods stay", "moved by a day")
    assert [(event.message, event.reporter) for event in found.history] == [("moved", "me"), ("planned", "aws")]
    assert found.history[0].time == NOW - timedelta(days=1)


@pytest.mark.parametrize(("status", "answer"), [("True", True), ("False", False), ("Unknown", None), ("odd", None)])
def test_on_time_is_none_when_the_condition_is_unknown(status: str, answer: bool | None) -> None:  # noqa: FBT001 - a row of a table
    condition = StatusCondition(type="OnTime", status=status)
    assert (
        notice_to_api(a_notice(status=MaintenanceNoticeStatus(conditions=(condition,))), now=NOW).is_on_time is answer
    )


def test_phase_of_an_unprocessed_notice_is_derived_from_the_clock() -> None:
    assert notice_to_api(a_notice(start=NOW + timedelta(days=1)), now=NOW).phase == "Planned"
    assert notice_to_api(a_notice(start=NOW - timedelta(days=1)), now=NOW).phase == "Active"


def test_open_notices_are_listed_first_by_start() -> None:
    hours = {"late": 9, "soon": 1, "over": -9, "long-over": -99}
    notices = [
        a_notice(item, start=NOW + timedelta(hours=at), end=NOW + timedelta(hours=at + 1)) for item, at in hours.items()
    ]
    notices.append(a_notice("any", deadline=None))
    found = notice_list(notices, revision="7", now=NOW)
    assert [item.name for item in found.notices] == ["soon", "late", "any", "over", "long-over"]


# What was logged


def logged_warnings(clock: VirtualClock, *lines: str) -> RecentWarnings:
    warnings = RecentWarnings(clock)
    with warnings.capture("haulout.test"):
        for line in lines:
            logging.getLogger("haulout.test").warning(line)
    logging.getLogger("haulout.test").warning("after all")
    return warnings


async def test_recent_warnings_are_newest_first_and_limited(clock: VirtualClock) -> None:
    lines = [f"{'x' * number} failed" for number in range(1, 99)]
    found = logged_warnings(clock, *lines).to_api()
    assert len(found) == MAX_ENTRIES
    assert found[0].message == f"{'x' * 98} failed"
    assert (found[0].level, found[0].time) == (Level.WARNING, clock.now())


async def test_warnings_that_differ_only_in_a_number_are_counted_as_one(clock: VirtualClock) -> None:
    found = logged_warnings(clock, "attempt 1 failed", "other", "attempt 2 failed").to_api()
    assert [(item.message, item.count) for item in found] == [("attempt 2 failed", 2), ("other", 1)]


async def test_recent_warnings_are_redacted(clock: VirtualClock) -> None:
    [found] = logged_warnings(clock, "GET https://me:hunter2@example.com and xoxb-123456789 failed").to_api()
    assert found.message == "GET https://(hidden)@example.com and (hidden) failed"


async def test_logged_exception_includes_its_message(clock: VirtualClock) -> None:
    warnings = RecentWarnings(clock)
    with warnings.capture("haulout.test"):
        try:
            raise ValueError("no such thing")
        except ValueError:
            logging.getLogger("haulout.test").exception("looking failed")
    [found] = warnings.to_api()
    assert (found.level, found.message) == (Level.CRITICAL, "looking failed: ValueError: no such thing")
