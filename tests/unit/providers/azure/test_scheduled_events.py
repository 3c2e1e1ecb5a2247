"""Parsing documents of Azure Scheduled Events, also malformed ones."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.maintenancenotice import (
    EarlyStart,
    EarlyStartAnswer,
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    NoticeStage,
)
from haulout.api.notice_reports import merge_report
from haulout.api.objects import ObjectMeta
from haulout.errors import ConfigError
from haulout.providers.azure import settings
from haulout.providers.azure.scheduled_events import (
    UnreadableScheduledEvent,
    end_report,
    missing_notices,
    notice_id,
    parse_instant,
    parse_scheduled_events,
    report_of,
    split_notice_id,
)
from haulout.providers.azure.settings import AzureEarlyStart
from haulout_sandbox.clouds.azure.cloud import format_rfc1123

NOW = datetime(2026, 5, 14, 9, 0, tzinfo=UTC)
START = NOW + timedelta(minutes=30)
MACHINE = "aks-np1-31415926-vmss_3"
EVENT: dict[str, Any] = {
    "EventId": "0D0F7A0E-8a0b-4a34-9c84-4d5f1d1f9a10",
    "EventType": "Reboot",
    "ResourceType": "VirtualMachine",
    "Resources": [MACHINE],
    "EventStatus": "Scheduled",
    "NotBefore": "Thu, 14 May 2026 09:30:00 GMT",
    "Description": "Host server is undergoing maintenance.",
    "EventSource": "Platform",
    "DurationInSeconds": -1,
}


def document(*events: Any, incarnation: int = 7) -> bytes:
    return msgspec.json.encode({"DocumentIncarnation": incarnation, "Events": list(events)})


def notice(**spec: Any) -> MaintenanceNotice:
    known = {"source": "azure", "notice_id": notice_id(EVENT["EventId"], MACHINE), "node_name": "n1", **spec}
    return MaintenanceNotice(metadata=ObjectMeta(name="azure-x"), spec=MaintenanceNoticeSpec(**known))


def test_documented_example_of_azure_is_parsed() -> None:
    found = parse_scheduled_events(document(EVENT))
    report = report_of(found.events[0], machine=MACHINE, node="n1", at=NOW)
    assert found.unreadable == ()
    assert (report.stage, report.node_name, report.provider_id) == (NoticeStage.SCHEDULED, "n1", "")
    assert report.notice_id == f"{EVENT['EventId'].lower()}/{MACHINE}"
    assert report.plan is not None
    assert (report.plan.kind, report.plan.start, report.plan.deadline) == (MaintenanceKind.REBOOT, START, START)
    assert report.plan.end is None


@pytest.mark.parametrize("api", ["2017-08-01", "2019-01-01"])
def test_documents_of_older_api_versions_are_parsed(api: str) -> None:
    del api
    old = {key: EVENT[key] for key in ("EventId", "EventType", "Resources", "EventStatus", "NotBefore")}
    report = report_of(parse_scheduled_events(document(old)).events[0], machine=MACHINE, node="n1", at=NOW)
    assert report.plan is not None
    assert (report.plan.reason, report.plan.description) == ("", "")


@pytest.mark.parametrize(
    "odd",
    [
        "not an event",
        {},
        {**EVENT, "EventId": ""},
        {**EVENT, "EventId": 7},
        {**EVENT, "EventStatus": "Dreaming"},
        {**EVENT, "Resources": MACHINE},
    ],
)
def test_malformed_event_is_quarantined_and_no_missing_notice_is_ended(odd: Any) -> None:
    found = parse_scheduled_events(document(odd, {**EVENT, "EventId": "other"}))
    assert [event.event_id for event in found.events] == ["other"]
    assert len(found.unreadable) == 1
    assert missing_notices(found, [notice(stage="Scheduled")]) == []
    assert (
        missing_notices(parse_scheduled_events(document({**EVENT, "EventId": "other"})), [notice(stage="Scheduled")])
        != []
    )


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"Events": 7}', b"\xff"])
def test_malformed_document_is_rejected(body: bytes) -> None:
    with pytest.raises(UnreadableScheduledEvent):
        parse_scheduled_events(body)


def test_machine_names_and_event_ids_are_case_insensitive() -> None:
    found = parse_scheduled_events(
        document({**EVENT, "Resources": [MACHINE.upper()], "EventId": EVENT["EventId"].upper()})
    )
    assert found.events[0].is_about(MACHINE)
    assert found.find(*split_notice_id(notice_id(EVENT["EventId"].lower(), MACHINE))) is not None
    assert missing_notices(found, [notice(stage="Scheduled")]) == []


def test_notice_ends_for_a_machine_removed_from_its_event() -> None:
    found = parse_scheduled_events(document({**EVENT, "Resources": ["another"]}))
    assert len(missing_notices(found, [notice(stage="Scheduled")])) == 1


@pytest.mark.parametrize(
    ("known", "early", "stage"),
    [
        ({"stage": "Scheduled", "start": START}, None, NoticeStage.CANCELLED),
        ({"stage": "Scheduled", "start": START}, EarlyStartAnswer.REQUESTED, NoticeStage.ENDED),
        ({"stage": "Scheduled", "start": START}, EarlyStartAnswer.ACCEPTED, NoticeStage.ENDED),
        ({"stage": "Scheduled", "start": START}, EarlyStartAnswer.REFUSED, NoticeStage.CANCELLED),
        ({"stage": "Scheduled", "start": NOW}, None, NoticeStage.ENDED),
        ({"stage": "Started", "start": START}, None, NoticeStage.ENDED),
    ],
)
def test_missing_event_has_ended_or_is_cancelled(
    known: dict[str, Any], early: EarlyStartAnswer | None, stage: NoticeStage
) -> None:
    annotations = {} if early is None else EarlyStart(start=START, answer=early).metadata_patch["annotations"]
    found = notice(**known)
    metadata = msgspec.structs.replace(found.metadata, annotations=annotations)
    assert end_report(msgspec.structs.replace(found, metadata=metadata), at=NOW).stage == stage


def test_descriptive_fields_of_an_event_may_be_missing() -> None:
    """An event that restarts the machine is not lost because it has no description."""
    found = parse_scheduled_events(document({**EVENT, "Description": None, "EventSource": None, "NotBefore": None}))
    assert not found.unreadable
    plan = report_of(found.events[0], machine=MACHINE, node="n1", at=NOW).plan
    assert plan is not None
    assert (plan.kind, plan.reason, plan.description, plan.start) == (MaintenanceKind.REBOOT, "", "", None)


def test_deep_nesting_and_invalid_utf8_are_handled() -> None:
    with pytest.raises(UnreadableScheduledEvent, match="expected a document of scheduled events"):
        parse_scheduled_events(b'{"Events": ' + b"[" * 100_000)
    assert parse_scheduled_events(b'{"Events": [{"EventId": "\xff"}]}').unreadable


def test_started_event_keeps_its_plan_and_sets_the_end() -> None:
    planned = merge_report(
        MaintenanceNoticeSpec(),
        report_of(parse_scheduled_events(document(EVENT)).events[0], machine=MACHINE, node="n1", at=NOW),
    )
    started = parse_scheduled_events(
        document({**EVENT, "EventStatus": "Started", "NotBefore": "", "DurationInSeconds": 9})
    ).events[0]
    known = MaintenanceNotice(spec=planned)
    later = START + timedelta(seconds=4)
    on_time = merge_report(planned, report_of(started, machine=MACHINE, node="n1", at=later, existing=known))
    assert (on_time.start, on_time.end, on_time.stage) == (START, later + timedelta(seconds=9), NoticeStage.STARTED)
    early = merge_report(planned, report_of(started, machine=MACHINE, node="n1", at=NOW, existing=known))
    assert (early.start, early.end, early.stage) == (
        START,
        None,
        NoticeStage.STARTED,
    )  # an end before its start is refused
    again = report_of(started, machine=MACHINE, node="n1", at=later, existing=MaintenanceNotice(spec=on_time))
    assert again.plan is None


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001 - made aware below
def test_formatted_times_parse_to_the_same_instant(at: datetime) -> None:
    aware = at.replace(microsecond=0, tzinfo=UTC)
    assert parse_instant(format_rfc1123(aware)) == aware


@given(st.binary() | st.text().map(str.encode))
def test_any_document_is_parsed_or_rejected(body: bytes) -> None:
    try:
        parse_scheduled_events(body)
    except UnreadableScheduledEvent:
        return


def test_absurd_duration_is_ignored() -> None:
    started = {**EVENT, "EventStatus": "Started", "NotBefore": "", "DurationInSeconds": 10**30}
    plan = report_of(parse_scheduled_events(document(started)).events[0], machine=MACHINE, node="n1", at=NOW).plan
    assert plan is not None
    assert plan.end is None


@given(st.dictionaries(st.sampled_from(list(EVENT)), st.none() | st.integers() | st.text() | st.lists(st.text())))
def test_any_event_fields_are_handled(changes: dict[str, Any]) -> None:
    for event in parse_scheduled_events(document({**EVENT, **changes})).events:
        report_of(event, machine=MACHINE, node="n1", at=NOW)


def test_azure_settings_have_defaults_and_are_read() -> None:
    assert settings.read({}) == settings.AzureSettings()
    found = settings.read(
        {"HAULOUT_AZURE_START": "never", "HAULOUT_AZURE_VM": " vm ", "HAULOUT_AZURE_METADATA": "http://[::1]:80/a/"}
    )
    assert (found.early_start, found.machine, found.metadata) == (AzureEarlyStart.NEVER, "vm", "http://[::1]:80/a")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"HAULOUT_AZURE_START": "soon"}, "HAULOUT_AZURE_START: expected one of after-drain, never, found 'soon'"),
        ({"HAULOUT_AZURE_METADATA": "https://x"}, "HAULOUT_AZURE_METADATA: expected an address such as http"),
        ({"HAULOUT_AZURE_METADATA": "http://a b"}, "HAULOUT_AZURE_METADATA: expected an address"),
    ],
)
def test_invalid_azure_settings_are_rejected(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings.read(environ)
