"""What the status of a MachineMaintenance says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.machinemaintenance import (
    MACHINE_MAINTENANCES,
    MachineMaintenance,
    MachineMaintenanceCondition,
    MachineMaintenancePhase,
    MachineMaintenanceSpec,
    MachineMaintenanceStatus,
)
from haulout.api.objects import ObjectMeta, RawObject, StatusCondition
from haulout.controllers.machines.observation import Decision, Observation
from haulout.controllers.machines.status import build_status
from support.expectations.kstatus import CURRENT, FAILED, IN_PROGRESS, kstatus
from support.packaging.argocd import HEALTH, health

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)


def a_maintenance(status: MachineMaintenanceStatus | None = None) -> MachineMaintenance:
    metadata, spec = ObjectMeta(name="mm-m1", generation=2), MachineMaintenanceSpec(machinelink="m1", machineid="i-m1")
    return MachineMaintenance(metadata=metadata, spec=spec, status=status or MachineMaintenanceStatus())


def status_for(
    phase: MachineMaintenancePhase, status: MachineMaintenanceStatus | None = None, **decision: Any
) -> MachineMaintenanceStatus:
    observation = Observation(maintenance=a_maintenance(status), now=NOW)
    return build_status(observation, Decision(phase=phase, reason="Any", message="for a reason", **decision))


def as_object(status: MachineMaintenanceStatus) -> RawObject:
    raw: RawObject = msgspec.json.decode(msgspec.json.encode(a_maintenance(status)))
    return raw | {"apiVersion": MACHINE_MAINTENANCES.api_version, "kind": MACHINE_MAINTENANCES.kind}


def test_completion_time_is_set_only_for_finished_records() -> None:
    assert status_for(MachineMaintenancePhase.WAITING).completed_at is None
    assert (
        status_for(MachineMaintenancePhase.WAITING, MachineMaintenanceStatus(completed_at=EARLIER)).completed_at is None
    )
    assert status_for(MachineMaintenancePhase.COMPLETED).completed_at == NOW
    assert status_for(MachineMaintenancePhase.CANCELLED).completed_at == NOW


def test_completion_time_is_kept() -> None:
    assert (
        status_for(MachineMaintenancePhase.COMPLETED, MachineMaintenanceStatus(completed_at=EARLIER)).completed_at
        == EARLIER
    )


def test_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    before = MachineMaintenanceStatus(
        conditions=(
            StatusCondition(type=MachineMaintenanceCondition.READY, status="False", last_transition_time=EARLIER),
            StatusCondition(type=MachineMaintenanceCondition.REPLACED, status="False", last_transition_time=EARLIER),
        )
    )
    surging, completed = (
        status_for(MachineMaintenancePhase.SURGING, before),
        status_for(MachineMaintenancePhase.COMPLETED, before),
    )
    assert _transition_times(surging) == {"Ready": NOW, "OnTime": NOW, "Replaced": EARLIER, "Reconciling": NOW}
    assert _transition_times(completed) == {"Ready": NOW, "OnTime": NOW, "Replaced": NOW}


READINESS: list[tuple[str, MachineMaintenanceStatus, str, dict[str, str]]] = [
    ("planned", status_for(MachineMaintenancePhase.PLANNED), IN_PROGRESS, {"Ready": "False", "Reconciling": "True"}),
    (
        "planned too late",
        status_for(MachineMaintenancePhase.PLANNED, is_on_time=False),
        FAILED,
        {"Ready": "False", "Stalled": "True"},
    ),
    ("waiting", status_for(MachineMaintenancePhase.WAITING), IN_PROGRESS, {"Ready": "False", "Reconciling": "True"}),
    (
        "waiting for people",
        status_for(MachineMaintenancePhase.WAITING, is_warning=True),
        FAILED,
        {"Ready": "False", "Stalled": "True"},
    ),
    ("surging", status_for(MachineMaintenancePhase.SURGING), IN_PROGRESS, {"Ready": "True", "Reconciling": "True"}),
    ("replacing", status_for(MachineMaintenancePhase.REPLACING), IN_PROGRESS, {"Ready": "True", "Reconciling": "True"}),
    ("refused", status_for(MachineMaintenancePhase.REFUSED), FAILED, {"Ready": "False", "Stalled": "True"}),
    ("completed", status_for(MachineMaintenancePhase.COMPLETED), CURRENT, {"Ready": "True"}),
    ("cancelled", status_for(MachineMaintenancePhase.CANCELLED), CURRENT, {"Ready": "True"}),
]


@pytest.mark.parametrize(
    ("what", "status", "expected", "expected_conditions"), READINESS, ids=[row[0] for row in READINESS]
)
def test_each_phase_has_its_kstatus(
    what: str, status: MachineMaintenanceStatus, expected: str, expected_conditions: dict[str, str]
) -> None:
    del what
    obj = as_object(status)
    shown_conditions = {
        condition.type: condition.status
        for condition in status.conditions
        if condition.type not in ("OnTime", "Replaced")
    }
    assert shown_conditions == expected_conditions
    assert kstatus(obj) == expected
    assert health(obj) == (HEALTH[expected], "for a reason")
    assert {condition.observed_generation for condition in status.conditions} == {2}


def test_stalled_record_that_continues_is_reconciling_again() -> None:
    refused = status_for(MachineMaintenancePhase.REFUSED)
    assert kstatus(as_object(status_for(MachineMaintenancePhase.WAITING, refused))) == IN_PROGRESS


def test_conditions_of_others_are_kept() -> None:
    theirs = StatusCondition(type="Audited", status="True", last_transition_time=EARLIER, observed_generation=1)
    assert (
        theirs in status_for(MachineMaintenancePhase.WAITING, MachineMaintenanceStatus(conditions=(theirs,))).conditions
    )


def _transition_times(status: MachineMaintenanceStatus) -> dict[str, datetime | None]:
    return {condition.type: condition.last_transition_time for condition in status.conditions}
