"""Parsing maintenance events of OCI: tolerant in format, exact in meaning."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.providers.oci.maintenance_events import (
    MaintenanceHint,
    MaintenanceMessage,
    UnreadableMaintenanceEvent,
    parse_entry,
    parse_message,
)
from support.clouds.oci_events import COMPARTMENT, ENDED, EVENT, INSTANCE, SCHEDULED, STARTED, entry, envelope, message

START = datetime(2026, 4, 16, 2, tzinfo=UTC)
EVENT_TIME = datetime(2026, 4, 2, 8, 15, 30, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def read(document: Any) -> NoticeReport:
    parsed = parse_message(message(document))
    assert isinstance(parsed, MaintenanceMessage)
    return parsed.report


def plan(document: Any) -> MaintenancePlan:
    found = read(document).plan
    assert found is not None
    return found


def test_scheduled_event_is_parsed_to_a_report() -> None:
    parsed = parse_message(message(envelope()))
    assert isinstance(parsed, MaintenanceMessage)
    assert parsed.compartment == COMPARTMENT
    assert parsed.report == NoticeReport(
        source="oci",
        notice_id=EVENT,
        at=EVENT_TIME,
        provider_id=INSTANCE,
        stage=NoticeStage.SCHEDULED,
        plan=MaintenancePlan(
            kind=MaintenanceKind.REBOOT,
            reason="HARDWARE_REPLACEMENT",
            description="Planned hardware replacement.",
            start=START,
            deadline=START + DAY,
            end=START + DAY + 2 * HOUR,
            reschedulable=True,
        ),
    )


def test_cloud_events_1_envelope_parses_to_the_same_report() -> None:
    old = envelope()
    new = {"specversion": "1.0", "type": old["eventType"], "id": old["eventID"], "time": old["eventTime"]}
    assert read(new | {"source": "ComputeApi", "data": old["data"]}) == read(old)


@pytest.mark.parametrize(
    ("kind", "state", "stage"),
    [
        (SCHEDULED, "SCHEDULED", NoticeStage.SCHEDULED),
        (SCHEDULED, None, NoticeStage.SCHEDULED),
        (SCHEDULED, "SOMETHING_NEW", NoticeStage.SCHEDULED),
        (SCHEDULED, "CANCELED", NoticeStage.CANCELLED),
        (SCHEDULED, "canceled", NoticeStage.CANCELLED),
        (SCHEDULED, "PROCESSING", NoticeStage.STARTED),
        ("com.oraclecloud.computeapi.maintenancerescheduled", "SCHEDULED", NoticeStage.SCHEDULED),
        (STARTED, "STARTED", NoticeStage.STARTED),
        (STARTED, "SCHEDULED", NoticeStage.STARTED),
        (STARTED, None, NoticeStage.STARTED),
        (STARTED, 7, NoticeStage.STARTED),
        (ENDED, "SUCCEEDED", NoticeStage.ENDED),
        (ENDED, "SUCCESSFUL", NoticeStage.ENDED),
        (ENDED, "STARTED", NoticeStage.ENDED),
        (ENDED, None, NoticeStage.ENDED),
        (ENDED, "FAILED", NoticeStage.FAILED),
        (ENDED, "CANCELED", NoticeStage.CANCELLED),
    ],
)
def test_stage_follows_from_the_maintenance_state(kind: str, state: Any, stage: NoticeStage) -> None:
    assert read(envelope(kind, lifecycleState=state)).stage is stage


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("REBOOT_MIGRATION", MaintenanceKind.REBOOT),
        ("REBOOT_MIGRATE", MaintenanceKind.REBOOT),
        ("reboot_migration", MaintenanceKind.REBOOT),
        ("TERMINATE", MaintenanceKind.TERMINATE),
        ("STOP", MaintenanceKind.STOP),
        ("NONE", MaintenanceKind.MIGRATE),
        ("None", MaintenanceKind.MIGRATE),
        ("UNKNOWN_ENUM_VALUE", MaintenanceKind.UNKNOWN),
        (None, MaintenanceKind.UNKNOWN),
        (["STOP"], MaintenanceKind.UNKNOWN),
    ],
)
def test_maintenance_kind_follows_from_the_instance_action(action: Any, kind: MaintenanceKind) -> None:
    assert plan(envelope(instanceAction=action)).kind is kind


@pytest.mark.parametrize(
    "written",
    [
        "2026-04-16T02:00:00Z",
        "2026-04-16T02:00:00.0Z",
        "2026-04-16T02:00:00.000000000Z",
        "2026-04-16T04:00:00+02:00",
        "2026-04-15T21:00:00.000-05:00",
        "2026-04-16t02:00:00z",
        "2026-04-16 02:00:00Z",
    ],
)
def test_case_28_instants_are_parsed_in_any_rfc_3339_format(written: str) -> None:
    assert plan(envelope(timeWindowStart=written)).start == START


def test_nanoseconds_are_truncated() -> None:
    assert plan(envelope(timeWindowStart="2026-04-16T02:00:00.123456789Z")).start == START.replace(microsecond=123456)


@pytest.mark.parametrize(
    ("window", "estimate", "deadline", "end"),
    [
        ("P1D", "PT2H", START + DAY, START + DAY + 2 * HOUR),
        (None, "PT2H", None, START + 2 * HOUR),
        ("P1D", None, START + DAY, None),
        (None, None, None, None),
        ("a day", "PT2H", None, START + 2 * HOUR),
        ("PT0S", "PT0S", START, START),
        (86400, {"hours": 2}, None, None),
    ],
)
def test_deadline_and_end_follow_from_window_and_estimate(
    window: Any, estimate: Any, deadline: datetime | None, end: datetime | None
) -> None:
    found = plan(envelope(startWindowDuration=window, estimatedDuration=estimate))
    assert (found.deadline, found.end) == (deadline, end)


@pytest.mark.parametrize(
    ("due", "deadline"),
    [
        ("2026-04-30T00:00:00Z", START + DAY),
        ("2026-04-16T12:00:00Z", START + 10 * HOUR),
        ("2026-04-10T00:00:00Z", START),  # a due date before the window means the start of the window
        ("soon", START + DAY),
        (None, START + DAY),
    ],
)
def test_the_hard_due_date_bounds_the_window(due: str | None, deadline: datetime) -> None:
    found = parse_entry(entry(timeHardDueDate=due), at=EVENT_TIME).plan
    assert found is not None
    assert found.deadline == deadline


def test_end_of_a_started_maintenance_counts_from_its_actual_start() -> None:
    started = plan(envelope(STARTED, timeWindowStart="2026-04-02T08:00:00Z"))
    assert started.end == EVENT_TIME + 2 * HOUR
    listed = parse_entry(entry(lifecycleState="PROCESSING", timeStarted="2026-04-16T05:00:00Z"), at=EVENT_TIME)
    assert listed.stage is NoticeStage.STARTED
    assert listed.plan is not None
    assert listed.plan.end == START + 5 * HOUR


def test_end_of_an_early_maintenance_is_not_before_its_planned_start() -> None:
    started = plan(envelope(STARTED))
    assert (started.start, started.end) == (START, START)


def test_begin_and_end_events_require_only_the_instance() -> None:
    for kind, stage in ((STARTED, NoticeStage.STARTED), (ENDED, NoticeStage.ENDED)):
        document = envelope(kind)
        document["data"]["additionalDetails"] = {"instanceId": INSTANCE}
        found = read(document)
        assert (found.stage, found.plan, found.notice_id) == (stage, None, EVENT)


@pytest.mark.parametrize("resource", [None, ""])
def test_event_without_a_resource_id_has_the_instance_id(resource: Any) -> None:
    assert read(envelope(resource=resource)).notice_id == INSTANCE


def test_event_without_a_time_has_the_time_of_its_message() -> None:
    document = envelope()
    del document["eventTime"]
    assert read(document).at == datetime(2026, 4, 2, 8, 15, 31, 123000, tzinfo=UTC)


def test_event_time_in_the_future_is_replaced_by_the_time_of_its_message() -> None:
    assert read(envelope() | {"eventTime": "2199-01-01T00:00:00Z"}).at == datetime(
        2026, 4, 2, 8, 15, 31, 123000, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("what", "kind", "stage", "ahead", "notice_suffix"),
    [
        (
            "instancepreemptionaction",
            MaintenanceKind.TERMINATE,
            NoticeStage.SCHEDULED,
            timedelta(minutes=2),
            "preemption",
        ),
        ("instancefailed", MaintenanceKind.STOP, NoticeStage.STARTED, timedelta(), "failure"),
    ],
)
def test_preemption_and_failure_events_are_parsed_to_reports(
    what: str, kind: MaintenanceKind, stage: NoticeStage, ahead: timedelta, notice_suffix: str
) -> None:
    document = envelope(f"com.oraclecloud.computeapi.{what}", resource=INSTANCE)
    document["data"]["additionalDetails"] = {"preemptionAction": "TERMINATE"}
    report = read(document)
    assert report.notice_id == f"{INSTANCE}.{notice_suffix}.20260402t081530z"
    assert (report.provider_id, report.stage) == (INSTANCE, stage)
    assert report.plan is not None
    assert (report.plan.kind, report.plan.start) == (kind, report.at + ahead)
    again = read(document | {"eventTime": "2026-04-01T08:15:30Z"})
    assert again.notice_id != report.notice_id


@pytest.mark.parametrize("resource", [None, "", "not an id"])
def test_outage_event_without_an_instance_id_is_rejected(resource: Any) -> None:
    with pytest.raises(UnreadableMaintenanceEvent, match=r"data\.resourceId: expected an OCID"):
        read(envelope("com.oraclecloud.computeapi.instancefailed", resource=resource))


def test_outage_event_without_data_is_rejected() -> None:
    with pytest.raises(UnreadableMaintenanceEvent, match="the OCID of the instance"):
        read(envelope("com.oraclecloud.computeapi.instancefailed") | {"data": None})


def test_event_with_undocumented_content_is_a_hint_to_poll_compute() -> None:
    assert parse_message(message(envelope("com.oraclecloud.computeapi.schedulemaintenance"))) == MaintenanceHint(
        COMPARTMENT
    )


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(envelope("com.oraclecloud.computeapi.launchinstance.end"), id="case 8: another type"),
        pytest.param(envelope(source="computeapi"), id="case 9: another source"),
        pytest.param(envelope(source="ObjectStorage"), id="case 9: another service"),
        pytest.param({"hello": "world"}, id="another document"),
        pytest.param({"eventType": ["x"], "source": "ComputeApi"}, id="a type that is no text"),
    ],
)
def test_unrelated_message_is_ignored(document: Any) -> None:
    assert parse_message(message(document)) is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param("%%%", "base64", id="case 10: no base64"),
        pytest.param(base64.b64encode(b"hello").decode(), "JSON", id="case 10: no JSON"),
        pytest.param(base64.b64encode(b"\xff\xfe").decode(), "JSON", id="no UTF-8"),
        pytest.param(base64.b64encode(b"[1]").decode(), "expected a JSON object, found list", id="a list"),
        pytest.param(base64.b64encode(b"[" * 100_000).decode(), "JSON", id="nested deeply"),
        pytest.param("", "JSON", id="empty"),
        pytest.param(None, "expected a value in base64, found NoneType", id="no value"),
        pytest.param(7, "expected a value in base64, found int", id="a number"),
    ],
)
def test_malformed_message_value_is_rejected_with_the_reason(value: Any, why: str) -> None:
    with pytest.raises(UnreadableMaintenanceEvent, match=why):
        parse_message(message({}) | {"value": value})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"instanceId": None}, "data.additionalDetails.instanceId: expected an OCID, found 'None'"),
        ({"instanceId": ""}, "expected an OCID, found ''"),
        ({"instanceId": {"$ne": ""}}, "expected an OCID"),
        ({"instanceId": "a b"}, "expected an OCID, found 'a b'"),
        ({"instanceId": "x" * 300}, "at most 255 characters, found 300"),
        ({"timeWindowStart": "tomorrow"}, "timeWindowStart: expected an instant such as .*, found 'tomorrow'"),
        ({"timeWindowStart": None}, "timeWindowStart: expected an instant"),
        ({"timeWindowStart": "2026-02-30T00:00:00Z"}, "timeWindowStart: expected an instant"),
        ({"timeWindowStart": "0001-01-01T00:00:00Z"}, "timeWindowStart: expected an instant"),
        ({"timeWindowStart": "9999-12-31T23:59:59Z"}, "timeWindowStart: expected an instant"),
    ],
)
def test_invalid_event_is_rejected_with_its_field_and_value(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(UnreadableMaintenanceEvent, match=why):
        parse_message(message(envelope(**changed)))


def test_event_without_details_is_rejected() -> None:
    with pytest.raises(UnreadableMaintenanceEvent, match=r"expected data\.additionalDetails"):
        parse_message(message(envelope() | {"data": "gone"}))


def test_description_and_reason_are_truncated_to_the_limits_of_a_notice() -> None:
    found = plan(envelope(description="x\x00" * 10_000, maintenanceReason="y" * 5_000))
    assert (len(found.description), len(found.reason)) == (4096, 1024)
    assert "\x00" not in found.description


def test_list_entry_parses_to_the_same_report_as_an_event() -> None:
    of_list = parse_entry(entry(timeHardDueDate=None), at=EVENT_TIME)
    assert of_list == read(envelope())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(sorted(entry()))


@given(st.dictionaries(KEYS, JSON, max_size=4), st.sampled_from([SCHEDULED, STARTED, ENDED]))
def test_any_event_details_are_rejected_or_have_ordered_times(changed: dict[str, Any], kind: str) -> None:
    document = envelope(kind)
    document["data"]["additionalDetails"] |= changed
    try:
        found = read(json.loads(json.dumps(document)))
    except UnreadableMaintenanceEvent:
        return
    if found.plan is not None and found.plan.start is not None:
        assert all(item is None or item >= found.plan.start for item in (found.plan.end, found.plan.deadline))
