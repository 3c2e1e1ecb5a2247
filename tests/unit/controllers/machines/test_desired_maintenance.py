"""The MachineMaintenance that a notice requests."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.machinemaintenance import MachineMaintenance, MachineMaintenanceSpec, object_name
from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice, NoticeStage
from haulout.api.maintenancenotice import MaintenanceNoticeSpec as NoticeSpec
from haulout.api.objects import ObjectMeta
from haulout.api.openshift import Machine, MachineSpec, MachineStatus, NodeReference
from haulout.controllers.machines.desired_maintenance import (
    EVENT_CODES,
    EVENT_ID_ANNOTATION,
    NoticeFilter,
    desired_maintenance,
    is_about,
)

NOW = datetime(2026, 5, 11, tzinfo=UTC)
START = NOW + timedelta(days=14)
MMO_NOTICE_FILTER = NoticeFilter(kinds=frozenset(), codes=frozenset(EVENT_CODES))
EVENT = "instance-event-0a1b2c3d4e5f60718"
MACHINE = Machine(
    metadata=ObjectMeta(name="prod-worker-x9q4r"),
    spec=MachineSpec(provider_id="aws:///eu-west-1a/i-0abc"),
    status=MachineStatus(node_ref=NodeReference(name="ip-1")),
)


def a_notice(code: str = "instance-stop", *, kind: str = MaintenanceKind.STOP, **more: Any) -> MaintenanceNotice:
    fields = {
        "source": "aws",
        "notice_id": EVENT,
        "provider_id": "i-0abc",
        "stage": NoticeStage.SCHEDULED,
        "start": START,
    }
    spec = NoticeSpec(kind=kind, reason=code, **{**fields, "description": "degraded hardware", **more})
    return MaintenanceNotice(metadata=ObjectMeta(name=f"aws-{EVENT}"), spec=spec)


def a_maintenance(**spec: Any) -> MachineMaintenance:
    fields = {"eventcode": "instance-stop", "eventid": EVENT, "machineid": "i-0abc", "machinelink": MACHINE.name}
    notice_fields = {"notbefore": START, "description": "degraded hardware"}
    return MachineMaintenance(
        metadata=ObjectMeta(name=f"mm-{MACHINE.name}"),
        spec=MachineMaintenanceSpec(**{**fields, **notice_fields, **spec}),
    )


def test_event_becomes_a_record_like_in_the_machine_maintenance_operator() -> None:
    """Case 6, with the times that it dropped."""
    found = desired_maintenance(a_notice(), MACHINE, [], notice_filter=NoticeFilter(), now=NOW)
    assert found is not None
    assert found.spec == a_maintenance().spec
    assert found.name == "mm-prod-worker-x9q4r-0a1b2c3d4e5f60718"


@pytest.mark.parametrize("code", EVENT_CODES)
def test_each_event_code_creates_a_record_with_the_filter_of_the_machine_maintenance_operator(code: str) -> None:
    """Case 8."""
    found = desired_maintenance(
        a_notice(code, kind=MaintenanceKind.REBOOT), MACHINE, [], notice_filter=MMO_NOTICE_FILTER, now=NOW
    )
    assert found is not None
    assert found.spec.eventcode == code


def test_unknown_event_code_creates_no_record() -> None:
    """Case 8."""
    assert (
        desired_maintenance(
            a_notice("instance-dance", kind=MaintenanceKind.UNKNOWN),
            MACHINE,
            [],
            notice_filter=MMO_NOTICE_FILTER,
            now=NOW,
        )
        is None
    )


def test_reboot_creates_no_record() -> None:
    """Case 23: a profile drains and releases the node; the Machine is kept."""
    assert (
        desired_maintenance(
            a_notice("instance-reboot", kind=MaintenanceKind.REBOOT), MACHINE, [], notice_filter=NoticeFilter(), now=NOW
        )
        is None
    )


def test_notice_without_a_machine_creates_no_record() -> None:
    """Cases 7, 19."""
    assert desired_maintenance(a_notice(), None, [], notice_filter=NoticeFilter(), now=NOW) is None
    assert not is_about(a_notice(), msgspec.structs.replace(MACHINE, spec=MachineSpec()))
    assert is_about(a_notice(), MACHINE)
    assert is_about(a_notice(provider_id="", node_name="ip-1"), MACHINE)
    assert not is_about(a_notice(provider_id=""), msgspec.structs.replace(MACHINE, status=MachineStatus()))


def test_terminating_machine_gets_no_record() -> None:
    leaving = msgspec.structs.replace(MACHINE, metadata=ObjectMeta(name=MACHINE.name, deletion_timestamp=NOW))
    assert desired_maintenance(a_notice(), leaving, [], notice_filter=NoticeFilter(), now=NOW) is None


def test_existing_record_is_unchanged() -> None:
    """Case 9, and under its old name."""
    assert desired_maintenance(a_notice(), MACHINE, [a_maintenance()], notice_filter=NoticeFilter(), now=NOW) is None


def test_rescheduled_event_updates_its_record() -> None:
    """Case 22."""
    later = START + timedelta(days=3)
    found = desired_maintenance(
        a_notice(start=later), MACHINE, [a_maintenance()], notice_filter=NoticeFilter(), now=NOW
    )
    assert found is not None
    assert (found.name, found.spec.notbefore) == (f"mm-{MACHINE.name}", later)


@pytest.mark.parametrize(("stage", "word"), [(NoticeStage.ENDED, "[Completed]"), (NoticeStage.CANCELLED, "[Canceled]")])
def test_finished_event_closes_its_record_and_creates_none(stage: NoticeStage, word: str) -> None:
    """Case 15."""
    over = a_notice(stage=stage)
    found = desired_maintenance(over, MACHINE, [a_maintenance()], notice_filter=NoticeFilter(), now=NOW)
    assert found is not None
    assert found.spec.description == f"{word} degraded hardware"
    assert found.spec.is_over_or_cancelled
    assert desired_maintenance(over, MACHINE, [], notice_filter=NoticeFilter(), now=NOW) is None
    closed = a_maintenance(description=found.spec.description)
    assert desired_maintenance(over, MACHINE, [closed], notice_filter=NoticeFilter(), now=NOW) is None


def test_record_cancelled_by_a_user_stays_cancelled() -> None:
    by_hand = a_maintenance(description="[Canceled] by us, we stop it ourselves")
    assert desired_maintenance(a_notice(), MACHINE, [by_hand], notice_filter=NoticeFilter(), now=NOW) is None


def test_record_of_a_deleted_machine_is_unchanged() -> None:
    gone = a_maintenance(maintenancescheduled=True)
    assert desired_maintenance(a_notice(start=NOW), MACHINE, [gone], notice_filter=NoticeFilter(), now=NOW) is None


def test_record_of_the_same_event_for_another_machine_is_distinct() -> None:
    other = a_maintenance(machinelink="another", machineid="i-0other", notbefore=None)
    found = desired_maintenance(a_notice(), MACHINE, [other], notice_filter=NoticeFilter(), now=NOW)
    assert found is not None
    assert found.existing is None


def test_record_is_closed_although_its_machine_is_gone() -> None:
    found = desired_maintenance(
        a_notice(stage=NoticeStage.CANCELLED), None, [a_maintenance()], notice_filter=NoticeFilter(), now=NOW
    )
    assert found is not None
    assert found.spec.is_over_or_cancelled


def test_second_event_of_a_machine_gets_its_own_record() -> None:
    """Cases 20, 21."""
    another = a_notice(notice_id="instance-event-2")
    found = desired_maintenance(
        another, MACHINE, [a_maintenance(maintenancescheduled=True)], notice_filter=NoticeFilter(), now=NOW
    )
    assert found is not None
    assert (found.existing, found.name) == (None, f"mm-{MACHINE.name}-2")


def test_event_id_annotation_identifies_the_record() -> None:
    noted = msgspec.structs.replace(
        a_notice(notice_id="arn:aws:health:…/i-0abc"),
        metadata=ObjectMeta(name="x", annotations={EVENT_ID_ANNOTATION: EVENT}),
    )
    assert desired_maintenance(noted, MACHINE, [a_maintenance()], notice_filter=NoticeFilter(), now=NOW) is None


@pytest.mark.parametrize("event", ["arn:aws:health:eu/EC2", "Ümlaut", "", "x" * 400])
def test_object_name_is_valid_for_any_event_id(event: str) -> None:
    name = object_name("prod-worker", event)
    assert name.startswith("mm-prod-worker-")
    assert len(name) <= 253
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert name != object_name("prod-worker", event + "y")
