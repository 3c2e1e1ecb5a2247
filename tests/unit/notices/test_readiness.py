"""How tools that go by kstatus see a notice, and Argo CD."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind, MaintenanceNotice, Spec, Stage, Status
from haulout.kube.objects import Metadata, Node, NodeSpec, RawObject
from haulout.notices.finding import Finding
from haulout.notices.occupancy import Occupancy
from haulout.notices.review import Terms, planned, reviewed
from support.argocd import HEALTH, health
from support.kstatus import CURRENT, FAILED, IN_PROGRESS, kstatus
from support.noticed import HOUR, MINUTE

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
HERE = Finding(Node(metadata=Metadata(name="n1"), spec=NodeSpec(unschedulable=True)), "it is named")
NOT_THERE = Finding(None, "there is no node n1 yet")
GONE = Finding(None, "there is no node n1 yet", "n1")


def a_notice(start: timedelta = HOUR, status: Status | None = None, **spec: Any) -> MaintenanceNotice:
    """Return a notice that begins so far from now."""
    said = Spec(node_name="n1", kind=Kind.REBOOT, start=NOW + start, end=NOW + start + HOUR)
    return MaintenanceNotice(
        metadata=Metadata(name="oci-1", uid="uid-1", generation=3),
        spec=msgspec.structs.replace(said, **spec),
        status=status or Status(),
    )


def written(
    notice: MaintenanceNotice, finding: Finding = HERE, *, left: int | None = None, now: datetime = NOW
) -> MaintenanceNotice:
    """Return the notice once its status was written; so many pods are left on its node."""
    standing, plan = planned(notice, finding, now=now, terms=Terms())
    pods = None if left is None else Occupancy(now, tuple(f"shop/p{it}" for it in range(left)))
    status = reviewed(finding, standing, plan, terms=Terms(), seen=pods).status
    return msgspec.structs.replace(notice, status=status)


def shown(notice: MaintenanceNotice) -> RawObject:
    raw: RawObject = msgspec.json.decode(msgspec.json.encode(notice))
    return raw | {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}


def says(obj: RawObject) -> list[tuple[str, str, str]]:
    wanted = ("Ready", "Reconciling", "Stalled")
    return [(it["type"], it["status"], it["reason"]) for it in obj["status"]["conditions"] if it["type"] in wanted]


def ready(reason: str) -> list[tuple[str, str, str]]:
    return [("Ready", "True", reason)]


def reconciling(reason: str) -> list[tuple[str, str, str]]:
    return [("Ready", "False", reason), ("Reconciling", "True", reason)]


def stalled(reason: str) -> list[tuple[str, str, str]]:
    return [("Ready", "False", reason), ("Stalled", "True", reason)]


DUE = a_notice(14 * MINUTE)
LATE = a_notice(2 * MINUTE, Status(phase="Due", start=NOW + 2 * MINUTE, start_known_at=NOW - HOUR))
CASES: list[tuple[str, MaintenanceNotice, str, list[tuple[str, str, str]]]] = [
    ("its time has not come", written(a_notice()), CURRENT, ready("Planned")),
    ("it is being emptied", written(DUE, left=2), IN_PROGRESS, reconciling("Draining")),
    ("nobody has looked at pods", written(DUE), IN_PROGRESS, reconciling("PodsNotSeen")),
    ("its node is empty", written(DUE, left=0), CURRENT, ready("Empty")),
    ("it will be late", written(LATE, left=2), FAILED, stalled("PodsStay")),
    ("it began on an occupied node", written(a_notice(-MINUTE), left=2), FAILED, stalled("Occupied")),
    ("it began on an empty node", written(a_notice(-MINUTE), left=0), CURRENT, ready("Empty")),
    ("pods may stay", written(a_notice(-MINUTE, kind=Kind.FREEZE), left=2), CURRENT, ready("NotNeeded")),
    ("there is no such node", written(a_notice(), NOT_THERE), FAILED, stalled("NodeNotFound")),
    ("its node is gone", written(a_notice(), GONE), CURRENT, ready("NodeGone")),
    ("it failed", written(a_notice(-MINUTE, stage=Stage.FAILED), left=0), FAILED, stalled("MaintenanceFailed")),
    ("it is over", written(a_notice(stage=Stage.ENDED)), CURRENT, ready("Completed")),
    ("it is called off", written(a_notice(stage=Stage.CANCELLED), NOT_THERE), CURRENT, ready("Cancelled")),
    ("it was missed", written(a_notice(-3 * HOUR, stage=Stage.SCHEDULED)), CURRENT, ready("Missed")),
]


@pytest.mark.parametrize(("what", "notice", "expected", "said"), CASES, ids=[row[0] for row in CASES])
def test_each_state_is_what_kstatus_makes_of_it(
    what: str, notice: MaintenanceNotice, expected: str, said: list[tuple[str, str, str]]
) -> None:
    del what
    obj = shown(notice)
    assert says(obj) == said
    assert kstatus(obj) == expected
    assert health(obj)[0] == HEALTH[expected]


@pytest.mark.parametrize("notice", [row[1] for row in CASES], ids=[row[0] for row in CASES])
def test_all_conditions_say_which_generation_they_are_about_and_why(notice: MaintenanceNotice) -> None:
    assert notice.status.observed_generation == 3
    assert {it.observed_generation for it in notice.status.conditions} == {3}
    assert all(it.message for it in notice.status.conditions)


def test_the_time_of_a_condition_changes_only_with_its_status() -> None:
    """Late, later, then empty."""
    late = written(LATE, left=2)
    later = written(late, left=1, now=NOW + timedelta(seconds=1))
    empty = written(later, left=0, now=NOW + timedelta(seconds=2))

    def since(notice: MaintenanceNotice) -> dict[str, timedelta]:
        wanted = [it for it in notice.status.conditions if it.type in ("Ready", "Reconciling", "Stalled")]
        return {it.type: it.last_transition_time - NOW for it in wanted if it.last_transition_time is not None}

    assert since(late) == since(later) == {"Ready": timedelta(), "Stalled": timedelta()}
    assert since(empty) == {"Ready": timedelta(seconds=2)}


@pytest.mark.parametrize(
    ("notice", "finding", "left"),
    [(a_notice(), HERE, None), (DUE, HERE, 2), (LATE, HERE, 2), (a_notice(), NOT_THERE, None)],
)
def test_what_is_said_is_not_said_again(notice: MaintenanceNotice, finding: Finding, left: int | None) -> None:
    once = written(notice, finding, left=left)
    assert written(once, finding, left=left, now=NOW + timedelta(milliseconds=1)).status == once.status


def test_a_moved_notice_says_what_holds_for_its_new_time() -> None:
    late = written(LATE, left=2)
    moved = msgspec.structs.replace(late, spec=replace_start(late.spec, HOUR))
    assert says(shown(written(moved))) == ready("Planned")


def replace_start(spec: Spec, start: timedelta) -> Spec:
    return msgspec.structs.replace(spec, start=NOW + start, end=NOW + start + HOUR)
