"""What documents of Scheduled Events mean, also when they are odd."""

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


def test_the_example_of_azure_is_understood() -> None:
    found = parse_scheduled_events(document(EVENT))
    report = report_of(found.events[0], machine=MACHINE, node="n1", at=NOW)
    assert (found.incarnation, found.unreadable) == (7, ())
    assert (report.stage, report.node_name, report.provider_id) == (NoticeStage.SCHEDULED, "n1", "")
    assert report.notice_id == f"{EVENT['EventId'].lower()}/{MACHINE}"
    assert report.plan is not None
    assert (report.plan.kind, report.plan.start, report.plan.deadline) == (MaintenanceKind.REBOOT, START, START)
    assert report.plan.end is None


@pytest.mark.parametrize("api", ["2017-08-01", "2019-01-01"])
def test_older_versions_say_less(api: str) -> None:
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
def test_an_event_that_makes_no_sense_is_put_aside_and_nothing_is_concluded_from_what_is_missing(odd: Any) -> None:
    found = parse_scheduled_events(document(odd, {**EVENT, "EventId": "other"}))
    assert [event.event_id for event in found.events] == ["other"]
    assert len(found.unreadable) == 1
    assert missing_notices(found, [notice(stage="Scheduled")]) == []
    assert (
        missing_notices(parse_scheduled_events(document({**EVENT, "EventId": "other"})), [notice(stage="Scheduled")])
        != []
    )


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"Events": 7}', b"\xff"])
def test_what_is_no_document_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableScheduledEvent):
        parse_scheduled_events(body)


def test_names_of_machines_and_events_are_the_same_in_any_case() -> None:
    found = parse_scheduled_events(
        document({**EVENT, "Resources": [MACHINE.upper()], "EventId": EVENT["EventId"].upper()})
    )
    assert found.events[0].is_about(MACHINE)
    assert found.find(*split_notice_id(notice_id(EVENT["EventId"].lower(), MACHINE))) is not None
    assert missing_notices(found, [notice(stage="Scheduled")]) == []


def test_an_event_that_shrank_is_over_for_who_is_not_in_it_any_more() -> None:
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
def test_what_is_shown_no_more_ended_or_was_called_off(
    known: dict[str, Any], early: EarlyStartAnswer | None, stage: NoticeStage
) -> None:
    told = {} if early is None else EarlyStart(start=START, answer=early).metadata_patch["annotations"]
    found = notice(**known)
    metadata = msgspec.structs.replace(found.metadata, annotations=told)
    assert end_report(msgspec.structs.replace(found, metadata=metadata), at=NOW).stage == stage


def test_what_is_only_for_people_may_be_missing() -> None:
    """An event that restarts the machine is not lost because nobody has described it."""
    found = parse_scheduled_events(document({**EVENT, "Description": None, "EventSource": None, "NotBefore": None}))
    assert not found.unreadable
    plan = report_of(found.events[0], machine=MACHINE, node="n1", at=NOW).plan
    assert plan is not None
    assert (plan.kind, plan.reason, plan.description, plan.start) == (MaintenanceKind.REBOOT, "", "", None)


def test_no_depth_and_no_bytes_break_the_reader() -> None:
    with pytest.raises(UnreadableScheduledEvent, match="expected a document of scheduled events"):
        parse_scheduled_events(b'{"Events": ' + b"[" * 100_000)
    assert parse_scheduled_events(b'{"Events": [{"EventId": "\xff"}]}').unreadable


def test_a_beginning_keeps_what_was_planned_and_says_by_when_it_is_over() -> None:
    planned = merge_report(
        MaintenanceNoticeSpec(),
        report_of(parse_scheduled_events(document(EVENT)).events[0], machine=MACHINE, node="n1", at=NOW),
    )
    begun = parse_scheduled_events(
        document({**EVENT, "EventStatus": "Started", "NotBefore": "", "DurationInSeconds": 9})
    ).events[0]
    known = MaintenanceNotice(spec=planned)
    later = START + timedelta(seconds=4)
    on_time = merge_report(planned, report_of(begun, machine=MACHINE, node="n1", at=later, existing=known))
    assert (on_time.start, on_time.end, on_time.stage) == (START, later + timedelta(seconds=9), NoticeStage.STARTED)
    early = merge_report(planned, report_of(begun, machine=MACHINE, node="n1", at=NOW, existing=known))
    assert (early.start, early.end, early.stage) == (
        START,
        None,
        NoticeStage.STARTED,
    )  # an end before its start is refused
    again = report_of(begun, machine=MACHINE, node="n1", at=later, existing=MaintenanceNotice(spec=on_time))
    assert again.plan is None


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001 - made aware below
def test_times_are_read_as_they_are_written(at: datetime) -> None:
    aware = at.replace(microsecond=0, tzinfo=UTC)
    assert parse_instant(format_rfc1123(aware)) == aware


@given(st.binary() | st.text().map(str.encode))
def test_no_document_breaks_the_reader(body: bytes) -> None:
    try:
        parse_scheduled_events(body)
    except UnreadableScheduledEvent:
        return


def test_a_duration_that_nobody_can_mean_is_none() -> None:
    begun = {**EVENT, "EventStatus": "Started", "NotBefore": "", "DurationInSeconds": 10**30}
    plan = report_of(parse_scheduled_events(document(begun)).events[0], machine=MACHINE, node="n1", at=NOW).plan
    assert plan is not None
    assert plan.end is None


@given(st.dictionaries(st.sampled_from(list(EVENT)), st.none() | st.integers() | st.text() | st.lists(st.text())))
def test_no_event_breaks_the_reader(changes: dict[str, Any]) -> None:
    for event in parse_scheduled_events(document({**EVENT, **changes})).events:
        report_of(event, machine=MACHINE, node="n1", at=NOW)


def test_settings_have_defaults_and_are_read() -> None:
    assert settings.read({}) == settings.AzureSettings()
    found = settings.read(
        {"HAULOUT_AZURE_START": "never", "HAULOUT_AZURE_VM": " vm ", "HAULOUT_AZURE_METADATA": "http://[::1]:80/a/"}
    )
    assert (found.early_start, found.machine, found.metadata) == (AzureEarlyStart.NEVER, "vm", "http://[::1]:80/a")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"HAULOUT_AZURE_START": "soon"}, "HAULOUT_AZURE_START: expected one of after-drain, never, found 'soon'"),
        ({"HAULOUT_AZURE_METADATA": "https://x"}, "HAULOUT_AZURE_METADATA: expected an address such as http"),
        ({"HAULOUT_AZURE_METADATA": "http://a b"}, "HAULOUT_AZURE_METADATA: expected an address"),
    ],
)
def test_settings_that_make_no_sense_are_named(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings.read(environ)
