"""Responses of the metadata service are parsed as AWS documents them, and malformed ones are rejected."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.errors import ConfigError
from haulout.providers.aws import settings
from haulout.providers.aws.imds_event_source import (
    ParseImds,
    parse_events,
    parse_rebalance,
    parse_spot,
    parse_target_state,
)
from haulout.providers.aws.instance_events import EventType, UnreadableEvent

ONE = "i-0aaa1111bbb22222c"
NOW = datetime(2026, 5, 1, 8, 20, tzinfo=UTC)
EVENT = b"""[{"NotBefore": "21 May 2026 09:00:43 GMT", "Code": "system-reboot", "Description": "scheduled reboot",
 "EventId": "instance-event-0d59937288b749b32", "NotAfter": "21 May 2026 09:17:23 GMT", "State": "%s"}]"""


def test_spot_action_has_its_exact_start() -> None:
    (found,) = parse_spot(b'{"action": "hibernate", "time": "2026-05-01T08:22:00Z"}', instance=ONE, at=NOW).events
    assert found.plan is not None
    assert (found.plan.kind, found.plan.reason, found.plan.start) == (
        MaintenanceKind.STOP,
        "spot-hibernate",
        datetime(2026, 5, 1, 8, 22, tzinfo=UTC),
    )


def test_past_spot_action_is_ignored() -> None:
    body = b'{"action": "stop", "time": "2026-05-01T08:00:00Z"}'
    assert parse_spot(body, instance=ONE, at=NOW).events == ()


@pytest.mark.parametrize(
    ("state", "stage"),
    [
        (b"active", NoticeStage.SCHEDULED),
        (b"completed", NoticeStage.ENDED),
        (b"canceled", NoticeStage.CANCELLED),
        (b"", NoticeStage.SCHEDULED),
    ],
)
def test_stage_of_an_event_follows_from_its_state(state: bytes, stage: NoticeStage) -> None:
    (found,) = parse_events(EVENT % state, instance=ONE, at=NOW).events
    assert (found.notice_id, found.stage) == ("instance-event-0d59937288b749b32", stage)
    assert found.plan is not None
    assert found.plan.start == datetime(2026, 5, 21, 9, 0, 43, tzinfo=UTC)
    assert found.plan.end == datetime(2026, 5, 21, 9, 17, 23, tzinfo=UTC)


def test_active_event_has_started_after_its_start() -> None:
    (found,) = parse_events(EVENT % b"active", instance=ONE, at=NOW + timedelta(days=30)).events
    assert found.stage == NoticeStage.STARTED


@pytest.mark.parametrize(
    ("read", "body", "why"),
    [
        (parse_spot, b"<html>", "expected a spot instance action"),
        (parse_spot, b'{"action": "terminate"}', "an action and a time"),
        (parse_spot, b'{"action": "terminate", "time": "soon"}', "an action and a time"),
        (parse_spot, b"null", "expected a spot instance action"),
        (parse_rebalance, b'{"noticeTime": 7}', "expected a rebalance recommendation"),
        (parse_rebalance, b"{}", "with a noticeTime"),
        (parse_events, b"{}", "expected a list of scheduled events"),
        (parse_events, b"\xff", "expected a list of scheduled events"),
    ],
)
def test_malformed_metadata_raises_unreadable_event(read: ParseImds, body: bytes, why: str) -> None:
    with pytest.raises(UnreadableEvent, match=why):
        read(body, instance=ONE, at=NOW)


@given(some.binary(max_size=80), some.sampled_from([parse_spot, parse_rebalance, parse_events, parse_target_state]))
def test_any_bytes_are_parsed_or_raise_unreadable_event(body: bytes, read: ParseImds) -> None:
    try:
        read(body, instance=ONE, at=NOW)
    except UnreadableEvent:
        return


def test_all_event_types_are_polled_unless_disabled() -> None:
    assert set(settings.read_agent_settings({}).event_types) == {
        EventType.SPOT,
        EventType.SCHEDULED_EVENT,
        EventType.TARGET_LIFECYCLE_STATE,
        EventType.REBALANCE,
    }
    off = {"ENABLE_REBALANCE_MONITORING": "false", "ENABLE_ASG_LIFECYCLE_DRAINING": "0"}
    assert set(settings.read_agent_settings(off).event_types) == {EventType.SPOT, EventType.SCHEDULED_EVENT}
    assert EventType.REBALANCE in settings.read_agent_settings({**off, "ENABLE_REBALANCE_DRAINING": "true"}).event_types


def test_metadata_address_is_ours_or_that_of_the_node_termination_handler() -> None:
    theirs = {"INSTANCE_METADATA_URL": "http://[::1]:80/"}
    assert settings.read_agent_settings(theirs).metadata == "http://[::1]:80"
    assert settings.read_agent_settings({**theirs, "HAULOUT_AWS_METADATA": "http://a"}).metadata == "http://a"


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"HAULOUT_AWS_METADATA": "https://x"}, "HAULOUT_AWS_METADATA: expected an address such as http"),
        ({"INSTANCE_METADATA_URL": "ftp://x"}, "INSTANCE_METADATA_URL: expected an address such as http"),
        ({"ENABLE_SPOT_INTERRUPTION_DRAINING": "maybe"}, "ENABLE_SPOT_INTERRUPTION_DRAINING: expected true or false"),
        (
            {
                "ENABLE_SPOT_INTERRUPTION_DRAINING": "false",
                "ENABLE_SCHEDULED_EVENT_DRAINING": "false",
                "ENABLE_ASG_LIFECYCLE_DRAINING": "false",
                "ENABLE_REBALANCE_DRAINING": "false",
            },
            "expected some event to listen for",
        ),
    ],
)
def test_invalid_agent_settings_are_rejected(environ: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        settings.read_agent_settings(environ)
