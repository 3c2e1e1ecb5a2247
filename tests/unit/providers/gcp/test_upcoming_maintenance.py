"""Parsing documents of Google Cloud."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.providers.gcp.upcoming_maintenance import (
    UnreadableMaintenance,
    VirtualMachine,
    parse_machine,
    parse_provider_id,
    parse_upcoming,
    with_scheduling,
)

START = datetime(2026, 6, 1, 19, tzinfo=UTC)
MACHINE = VirtualMachine(project="p", zone="z", name="n", number="1")

OF_COMPUTE: dict[str, Any] = {
    "canReschedule": True,
    "windowStartTime": "2026-06-01T19:00:00Z",
    "windowEndTime": "2026-06-01T22:00:00Z",
    "latestWindowStartTime": "2026-06-15T19:00:00Z",
    "maintenanceStatus": "PENDING",
    "type": "SCHEDULED",
    "maintenanceOnShutdown": False,
    "maintenanceReasons": ["PLANNED_UPDATE"],
}
OF_METADATA: dict[str, Any] = {
    "can_reschedule": "true",
    "window_start_time": "2026-06-01T19:00:00Z",
    "window_end_time": "2026-06-01T22:00:00Z",
    "latest_window_start_time": "2026-06-15T19:00:00Z",
    "maintenance_status": "PENDING",
    "type": "SCHEDULED",
    "maintenance_reasons": ["PLANNED_UPDATE"],
}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def test_compute_and_metadata_documents_parse_to_the_same_maintenance() -> None:
    found = parse_upcoming(OF_COMPUTE)
    assert found is not None
    assert found == parse_upcoming(OF_METADATA)
    assert found == parse_upcoming({"Upcoming maintenance": OF_METADATA})
    assert (found.start, found.end, found.deadline) == (
        START,
        START + timedelta(hours=3),
        START + timedelta(days=14),
    )
    assert (found.stage, found.reason, found.can_start_early) == (NoticeStage.SCHEDULED, "PLANNED_UPDATE", True)
    assert found.description == "scheduled maintenance of the host, it can begin early"
    assert not found.plan(MACHINE).reschedulable, "it can never be moved to a later time"


@pytest.mark.parametrize("nothing", [None, {}, {"maintenanceStatus": None}])
def test_empty_document_is_no_maintenance(nothing: object) -> None:
    assert parse_upcoming(nothing) is None


@pytest.mark.parametrize(
    ("status", "stage"),
    [
        ("PENDING", NoticeStage.SCHEDULED),
        ("UNKNOWN", NoticeStage.SCHEDULED),
        (None, NoticeStage.SCHEDULED),
        ("ONGOING", NoticeStage.STARTED),
        ("COMPLETE", NoticeStage.ENDED),
    ],
)
def test_stage_follows_from_the_maintenance_state(status: str | None, stage: NoticeStage) -> None:
    found = parse_upcoming(OF_COMPUTE | {"maintenanceStatus": status})
    assert found is not None
    assert found.stage is stage


def test_reason_lists_all_reasons_or_else_the_type() -> None:
    reasons = parse_upcoming(
        OF_COMPUTE | {"maintenanceReasons": ["FAILURE_GPU", "FAILURE_NVLINK"], "type": "UNSCHEDULED"}
    )
    without = parse_upcoming(OF_COMPUTE | {"maintenanceReasons": [], "type": "MULTIPLE"})
    assert reasons is not None
    assert without is not None
    assert (reasons.reason, without.reason) == ("FAILURE_GPU, FAILURE_NVLINK", "MULTIPLE")
    assert reasons.description.startswith("unscheduled maintenance")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("NONE", "expected an object, found 'NONE'"),
        ([1], r"expected an object, found \[1\]"),
        (OF_COMPUTE | {"windowStartTime": "tomorrow"}, "expected a time as windowStartTime, found 'tomorrow'"),
        (OF_COMPUTE | {"windowStartTime": "0001-01-01T00:00:00Z"}, "expected a plausible time"),
        ({"error": "no notifications have been received yet, try again later"}, "found the error 'no notifications"),
    ],
)
def test_invalid_values_are_rejected_with_a_message(document: object, message: str) -> None:
    with pytest.raises(UnreadableMaintenance, match=message):
        parse_upcoming(document)


def test_invalid_end_and_deadline_are_ignored() -> None:
    found = parse_upcoming(OF_COMPUTE | {"windowEndTime": "2026-06-01T18:00:00Z", "latestWindowStartTime": 7})
    assert found is not None
    assert (found.end, found.deadline) == (None, None)


@given(st.dictionaries(st.sampled_from([*OF_COMPUTE, *OF_METADATA, "error"]), anything))
def test_any_maintenance_document_is_parsed_or_rejected(document: dict[str, Any]) -> None:
    try:
        found = parse_upcoming(document)
    except UnreadableMaintenance:
        return
    if found is not None:
        plan = found.plan(MACHINE)
        assert len(plan.reason) <= 1024
        assert len(plan.description) <= 4096
        assert plan.start is None or plan.end is None or plan.start <= plan.end


@given(st.dictionaries(st.sampled_from(["id", "name", "zone", "scheduling"]), anything))
def test_any_instance_document_is_parsed_or_rejected(document: dict[str, Any]) -> None:
    try:
        parse_machine(document, project="p")
    except UnreadableMaintenance:
        return


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"onHostMaintenance": "MIGRATE", "automaticRestart": True}, MaintenanceKind.MIGRATE),
        ({"onHostMaintenance": "TERMINATE", "automaticRestart": True}, MaintenanceKind.REBOOT),
        ({"onHostMaintenance": "TERMINATE", "automaticRestart": False}, MaintenanceKind.STOP),
        ({"on-host-maintenance": "TERMINATE", "automatic-restart": "FALSE"}, MaintenanceKind.STOP),
        ({}, MaintenanceKind.UNKNOWN),
        (None, MaintenanceKind.UNKNOWN),
    ],
)
def test_maintenance_kind_follows_from_the_scheduling_options(options: object, kind: MaintenanceKind) -> None:
    assert with_scheduling(MACHINE, options).kind is kind


@pytest.mark.parametrize(
    ("provider_id", "place"),
    [
        ("gce://my-project/europe-west1-b/gke-1", ("my-project", "europe-west1-b", "gke-1")),
        ("gce://example.com:my-project/z/n", ("example.com:my-project", "z", "n")),
        ("aws:///eu-west-1a/i-0abc", None),
        ("gce://p/z", None),
        ("", None),
    ],
)
def test_provider_id_is_parsed_to_project_zone_and_name(provider_id: str, place: tuple[str, str, str] | None) -> None:
    assert parse_provider_id(provider_id) == place
