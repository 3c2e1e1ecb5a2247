"""What the status of a MachineMaintenance says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.kinds.machinemaintenance import (
    MACHINE_MAINTENANCES,
    MachineCondition,
    MachineMaintenance,
    Phase,
    Spec,
    Status,
)
from haulout.kube.objects import Metadata, RawObject, StatusCondition
from haulout.machines.seen import Decision, Seen
from haulout.machines.status import describe
from support.argocd import HEALTH, health
from support.kstatus import CURRENT, FAILED, IN_PROGRESS, kstatus

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)


def a_record(status: Status | None = None) -> MachineMaintenance:
    metadata, spec = Metadata(name="mm-m1", generation=2), Spec(machinelink="m1", machineid="i-m1")
    return MachineMaintenance(metadata=metadata, spec=spec, status=status or Status())


def described(phase: Phase, status: Status | None = None, **decision: Any) -> Status:
    seen = Seen(record=a_record(status), now=NOW)
    return describe(seen, Decision(phase=phase, reason="Any", why="for a reason", **decision))


def shown(status: Status) -> RawObject:
    raw: RawObject = msgspec.json.decode(msgspec.json.encode(a_record(status)))
    return raw | {"apiVersion": MACHINE_MAINTENANCES.api_version, "kind": MACHINE_MAINTENANCES.kind}


def test_only_a_record_that_is_over_says_when_it_was_completed() -> None:
    assert described(Phase.WAITING).completed_at is None
    assert described(Phase.WAITING, Status(completed_at=EARLIER)).completed_at is None
    assert described(Phase.COMPLETED).completed_at == NOW
    assert described(Phase.CANCELLED).completed_at == NOW


def test_the_time_of_completion_stays() -> None:
    assert described(Phase.COMPLETED, Status(completed_at=EARLIER)).completed_at == EARLIER


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    before = Status(
        conditions=(
            StatusCondition(type=MachineCondition.READY, status="False", last_transition_time=EARLIER),
            StatusCondition(type=MachineCondition.REPLACED, status="False", last_transition_time=EARLIER),
        )
    )
    surging, completed = described(Phase.SURGING, before), described(Phase.COMPLETED, before)
    assert _times(surging) == {"Ready": NOW, "OnTime": NOW, "Replaced": EARLIER, "Reconciling": NOW}
    assert _times(completed) == {"Ready": NOW, "OnTime": NOW, "Replaced": NOW}


READINESS: list[tuple[str, Status, str, dict[str, str]]] = [
    ("planned", described(Phase.PLANNED), IN_PROGRESS, {"Ready": "False", "Reconciling": "True"}),
    ("planned too late", described(Phase.PLANNED, is_on_time=False), FAILED, {"Ready": "False", "Stalled": "True"}),
    ("waiting", described(Phase.WAITING), IN_PROGRESS, {"Ready": "False", "Reconciling": "True"}),
    ("waiting for people", described(Phase.WAITING, is_bad=True), FAILED, {"Ready": "False", "Stalled": "True"}),
    ("surging", described(Phase.SURGING), IN_PROGRESS, {"Ready": "True", "Reconciling": "True"}),
    ("replacing", described(Phase.REPLACING), IN_PROGRESS, {"Ready": "True", "Reconciling": "True"}),
    ("refused", described(Phase.REFUSED), FAILED, {"Ready": "False", "Stalled": "True"}),
    ("completed", described(Phase.COMPLETED), CURRENT, {"Ready": "True"}),
    ("cancelled", described(Phase.CANCELLED), CURRENT, {"Ready": "True"}),
]


@pytest.mark.parametrize(("what", "status", "expected", "said"), READINESS, ids=[row[0] for row in READINESS])
def test_each_phase_is_what_kstatus_makes_of_it(what: str, status: Status, expected: str, said: dict[str, str]) -> None:
    del what
    obj = shown(status)
    told = {it.type: it.status for it in status.conditions if it.type not in ("OnTime", "Replaced")}
    assert told == said
    assert kstatus(obj) == expected
    assert health(obj) == (HEALTH[expected], "for a reason")
    assert {it.observed_generation for it in status.conditions} == {2}


def test_what_stalled_and_goes_on_is_reconciled_again() -> None:
    refused = described(Phase.REFUSED)
    assert kstatus(shown(described(Phase.WAITING, refused))) == IN_PROGRESS


def test_conditions_of_others_stay() -> None:
    theirs = StatusCondition(type="Audited", status="True", last_transition_time=EARLIER, observed_generation=1)
    assert theirs in described(Phase.WAITING, Status(conditions=(theirs,))).conditions


def _times(status: Status) -> dict[str, datetime | None]:
    return {it.type: it.last_transition_time for it in status.conditions}
