"""MaintenanceNotices in kstatus and Argo CD."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    MaintenanceNoticeStatus,
    NoticeStage,
)
from haulout.api.objects import Node, NodeSpec, ObjectMeta, RawObject
from haulout.controllers.notices.decision import NoticeOptions, decide, observe
from haulout.controllers.notices.node_lookup import NodeLookupResult
from haulout.controllers.notices.remaining_pods import RemainingPods
from support.expectations.kstatus import CURRENT, FAILED, IN_PROGRESS, kstatus
from support.operators.notices import HOUR, MINUTE
from support.packaging.argocd import HEALTH, health

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
HERE = NodeLookupResult(Node(metadata=ObjectMeta(name="n1"), spec=NodeSpec(unschedulable=True)), "it is named")
NOT_THERE = NodeLookupResult(None, "node n1 does not exist")
GONE = NodeLookupResult(None, "node n1 does not exist", "n1")


def a_notice(start: timedelta = HOUR, status: MaintenanceNoticeStatus | None = None, **spec: Any) -> MaintenanceNotice:
    """Return a notice that begins so far from now."""
    spec_fields = MaintenanceNoticeSpec(
        node_name="n1", kind=MaintenanceKind.REBOOT, start=NOW + start, end=NOW + start + HOUR
    )
    return MaintenanceNotice(
        metadata=ObjectMeta(name="oci-1", uid="uid-1", generation=3),
        spec=msgspec.structs.replace(spec_fields, **spec),
        status=status or MaintenanceNoticeStatus(),
    )


def with_status(
    notice: MaintenanceNotice, finding: NodeLookupResult = HERE, *, left: int | None = None, now: datetime = NOW
) -> MaintenanceNotice:
    """Return the notice with its new status; `left` pods remain on its node."""
    observed, plan = observe(notice, finding, now=now, options=NoticeOptions())
    pods = None if left is None else RemainingPods(now, tuple(f"shop/p{number}" for number in range(left)))
    status = decide(finding, observed, plan, options=NoticeOptions(), remaining=pods).status
    return msgspec.structs.replace(notice, status=status)


def to_object(notice: MaintenanceNotice) -> RawObject:
    raw: RawObject = msgspec.json.decode(msgspec.json.encode(notice))
    return raw | {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}


def kstatus_conditions(obj: RawObject) -> list[tuple[str, str, str]]:
    wanted = ("Ready", "Reconciling", "Stalled")
    return [
        (item["type"], item["status"], item["reason"]) for item in obj["status"]["conditions"] if item["type"] in wanted
    ]


def ready(reason: str) -> list[tuple[str, str, str]]:
    return [("Ready", "True", reason)]


def reconciling(reason: str) -> list[tuple[str, str, str]]:
    return [("Ready", "False", reason), ("Reconciling", "True", reason)]


def stalled(reason: str) -> list[tuple[str, str, str]]:
    return [("Ready", "False", reason), ("Stalled", "True", reason)]


DUE = a_notice(14 * MINUTE)
LATE = a_notice(2 * MINUTE, MaintenanceNoticeStatus(phase="Due", start=NOW + 2 * MINUTE, start_known_at=NOW - HOUR))
CASES: list[tuple[str, MaintenanceNotice, str, list[tuple[str, str, str]]]] = [
    ("its time has not come", with_status(a_notice()), CURRENT, ready("Planned")),
    ("it is being emptied", with_status(DUE, left=2), IN_PROGRESS, reconciling("Draining")),
    ("nobody has looked at pods", with_status(DUE), IN_PROGRESS, reconciling("PodsUnknown")),
    ("its node is empty", with_status(DUE, left=0), CURRENT, ready("Empty")),
    ("it will be late", with_status(LATE, left=2), FAILED, stalled("PodsBlocked")),
    ("it began on an occupied node", with_status(a_notice(-MINUTE), left=2), FAILED, stalled("Occupied")),
    ("it began on an empty node", with_status(a_notice(-MINUTE), left=0), CURRENT, ready("Empty")),
    ("pods may stay", with_status(a_notice(-MINUTE, kind=MaintenanceKind.FREEZE), left=2), CURRENT, ready("NotNeeded")),
    ("there is no such node", with_status(a_notice(), NOT_THERE), FAILED, stalled("NodeNotFound")),
    ("its node is gone", with_status(a_notice(), GONE), CURRENT, ready("NodeGone")),
    (
        "it failed",
        with_status(a_notice(-MINUTE, stage=NoticeStage.FAILED), left=0),
        FAILED,
        stalled("MaintenanceFailed"),
    ),
    ("it is over", with_status(a_notice(stage=NoticeStage.ENDED)), CURRENT, ready("Completed")),
    ("it is called off", with_status(a_notice(stage=NoticeStage.CANCELLED), NOT_THERE), CURRENT, ready("Cancelled")),
    ("it was missed", with_status(a_notice(-3 * HOUR, stage=NoticeStage.SCHEDULED)), CURRENT, ready("Missed")),
]


@pytest.mark.parametrize(("what", "notice", "expected", "spec_fields"), CASES, ids=[row[0] for row in CASES])
def test_each_state_has_its_kstatus(
    what: str, notice: MaintenanceNotice, expected: str, spec_fields: list[tuple[str, str, str]]
) -> None:
    del what
    obj = to_object(notice)
    assert kstatus_conditions(obj) == spec_fields
    assert kstatus(obj) == expected
    assert health(obj)[0] == HEALTH[expected]


@pytest.mark.parametrize("notice", [row[1] for row in CASES], ids=[row[0] for row in CASES])
def test_conditions_have_message_and_observed_generation(notice: MaintenanceNotice) -> None:
    assert notice.status.observed_generation == 3
    assert {item.observed_generation for item in notice.status.conditions} == {3}
    assert all(item.message for item in notice.status.conditions)


def test_transition_time_of_a_condition_changes_only_with_its_status() -> None:
    """Late, later, then empty."""
    late = with_status(LATE, left=2)
    later = with_status(late, left=1, now=NOW + timedelta(seconds=1))
    empty = with_status(later, left=0, now=NOW + timedelta(seconds=2))

    def since(notice: MaintenanceNotice) -> dict[str, timedelta]:
        wanted = [item for item in notice.status.conditions if item.type in ("Ready", "Reconciling", "Stalled")]
        return {item.type: item.last_transition_time - NOW for item in wanted if item.last_transition_time is not None}

    assert since(late) == since(later) == {"Ready": timedelta(), "Stalled": timedelta()}
    assert since(empty) == {"Ready": timedelta(seconds=2)}


@pytest.mark.parametrize(
    ("notice", "finding", "left"),
    [(a_notice(), HERE, None), (DUE, HERE, 2), (LATE, HERE, 2), (a_notice(), NOT_THERE, None)],
)
def test_unchanged_conditions_are_kept(notice: MaintenanceNotice, finding: NodeLookupResult, left: int | None) -> None:
    once = with_status(notice, finding, left=left)
    assert with_status(once, finding, left=left, now=NOW + timedelta(milliseconds=1)).status == once.status


def test_rescheduled_notice_has_the_conditions_of_its_new_time() -> None:
    late = with_status(LATE, left=2)
    moved = msgspec.structs.replace(late, spec=replace_start(late.spec, HOUR))
    assert kstatus_conditions(to_object(with_status(moved))) == ready("Planned")


def replace_start(spec: MaintenanceNoticeSpec, start: timedelta) -> MaintenanceNoticeSpec:
    return msgspec.structs.replace(spec, start=NOW + start, end=NOW + start + HOUR)
