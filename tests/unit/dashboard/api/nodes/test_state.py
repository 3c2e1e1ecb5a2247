"""The state of a node on the map, and its reason: a table."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.maintenancefreeze import MaintenanceFreeze, MaintenanceFreezeSpec
from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.nodemaintenance import NodeMaintenance
from haulout.api.objects import Node, ObjectMeta, RawObject
from haulout.controllers.profiles.observation import CheckReport, ProfileReport, TransitionReport
from haulout.controllers.profiles.plugin import ProfileStatus, fails, passes
from haulout.controllers.profiles.status import NodeProfilesStatus
from haulout.dashboard.api.nodes.informers import NodeSnapshot
from haulout.dashboard.api.nodes.state import assess_node
from haulout.dashboard.api.nodes.summary import summarize_node
from haulout.dashboard.api.types import NodeState
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.manager import DrainSnapshot
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import ActiveBlocker, DrainOutcome, DrainProgress, OutcomeResult, PodDrainState, PodProgress
from haulout.runtime.freezes import Freezes, parse_freeze

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(minutes=10)
JUST = NOW - timedelta(seconds=5)
BUDGET = "PodDisruptionBudget shop/cart needs 2 healthy pods and has 2"
READY = {"type": "Ready", "status": "True"}


def a_node(
    *, annotations: dict[str, str] | None = None, cordoned: bool = False, ready: RawObject | None = None
) -> Node:
    raw = {
        "metadata": {"name": "n1", "uid": "u1", "annotations": annotations or {}},
        "spec": {"unschedulable": cordoned},
        "status": {"conditions": [ready or READY]},
    }
    return msgspec.convert(raw, Node)


def cordoned_for(owner: str) -> Node:
    hold = {owner: {"since": "2026-05-01T11:50:00Z"}}
    return a_node(annotations={"haulout.dev/cordon": msgspec.json.encode({"owners": hold}).decode()}, cordoned=True)


def in_transition_to(to: str) -> Node:
    pending = {"os": {"next": to, "check": "x", "since": "2026-05-01T11:50:00Z"}}
    return a_node(annotations={"haulout.dev/transitions": msgspec.json.encode(pending).decode()}, cordoned=True)


def order(phase: str = "", *, cordoned: bool | None = None, leaving: bool = False, **status: Any) -> NodeMaintenance:
    conditions = status.pop("conditions", [])
    if cordoned is not None:
        conditions = [{"type": "Cordoned", "status": str(cordoned)}, *conditions]
    metadata = {"name": "patch", "creationTimestamp": "2026-05-01T11:50:00Z"}
    if leaving:
        metadata["deletionTimestamp"] = "2026-05-01T11:59:00Z"
    spec = {"nodeName": "n1", "reason": "a new kernel"}
    raw = {"metadata": metadata, "spec": spec, "status": {"phase": phase, "conditions": conditions, **status}}
    return msgspec.convert(raw, NodeMaintenance)


def status_blocker(since: datetime, kind: str = "DisruptionBudget") -> RawObject:
    return {"kind": kind, "pod": "shop/cart-0", "reason": BUDGET, "remedy": "run more", "since": since.isoformat()}


def drain(
    *,
    blocked_since: datetime | None = None,
    kind: BlockerKind = BlockerKind.DISRUPTION_BUDGET,
    ending: OutcomeResult | None = None,
) -> DrainSnapshot:
    blocker = Blocker(kind=kind, pod="shop/cart-0", uid="p1", reason=BUDGET)
    pod_blocker = None if blocked_since is None else ActiveBlocker(blocker, blocked_since)
    pod = PodProgress(pod="shop/cart-0", uid="p1", state=PodDrainState.EVICTING, message="", active_blocker=pod_blocker)
    progress = DrainProgress(node="n1", started=EARLIER, total=4, gone=3, percent=75, pods=(pod,), is_known=True)
    outcome = None if ending is None else DrainOutcome(ending, "it took too long", progress)
    return DrainSnapshot(node_uid="u1", policy=DrainPolicy(), progress=progress, outcome=outcome)


def entry(current: str, previous: str = "") -> dict[str, ProfileStatus]:
    return {"os": ProfileStatus(current=current, previous=previous or current, transition=EARLIER)}


def info(state: str, **checks: tuple[str, bool]) -> NodeProfilesStatus:
    """Return what was decided: a check is what type it has, and whether it passes."""
    verdicts = {
        name: CheckReport(kind, passes() if passed else fails(f"{name} says no"))
        for name, (kind, passed) in checks.items()
    }
    transition = TransitionReport(
        target="operational",  # type: ignore[arg-type]  # a State is a text
        expression=" && ".join(checks) or "x",
        chain_passed=False,
        passed=False,
        checks=verdicts,
    )
    return node_info(ProfileReport(name="os", state=state, next=state, transitions=(transition,)))


def node_info(report: ProfileReport, problem: str = "") -> NodeProfilesStatus:
    return NodeProfilesStatus("n1", {}, (report,), NOW, None, problem=problem)


UNTIL_NOT_DUE = TransitionReport(
    target="operational",  # type: ignore[arg-type]  # a State is a text
    expression="!due && ready",
    chain_passed=False,
    passed=False,
    checks={"due": CheckReport("notice", passes("due says yes")), "ready": CheckReport("condition", passes("fine"))},
)


REFUSED = TransitionReport(
    target="in-maintenance",  # type: ignore[arg-type]  # a State is a text
    expression="due",
    chain_passed=True,
    passed=False,
    checks={"due": CheckReport("notice", passes("due says yes"))},
    veto="the budget is used up: 1 of at most 1",
)


def failing(state: str) -> NodeProfilesStatus:
    return node_info(ProfileReport(name="os", state=state, next=state, error="drain: no such thing"))


def notice(**spec: Any) -> MaintenanceNotice:
    raw = {"metadata": {"name": "oci-1"}, "spec": {"nodeName": "n1", "source": "oci", "kind": "Reboot", **spec}}
    return msgspec.convert(raw, MaintenanceNotice)


@dataclass(frozen=True)
class Case:
    """What is known, and what comes of it."""

    state: NodeState
    why: str = ""
    node: Node = field(default_factory=a_node)
    observed: dict[str, Any] = field(default_factory=dict)


CASES = {
    "nothing": Case(NodeState.IDLE),
    "not ready": Case(
        NodeState.IDLE,
        "not ready: kubelet is gone",
        a_node(ready={**READY, "status": "False", "message": "kubelet is gone"}),
    ),
    "cordoned by hand": Case(NodeState.IDLE, "cordoned by hand, not by Haulout", a_node(cordoned=True)),
    "data that makes no sense": Case(
        NodeState.BLOCKED,
        "Haulout does not manage this node: expected JSON",
        observed={"data_problem": "expected JSON"},
    ),
    "a mark that makes no sense": Case(
        NodeState.BLOCKED, "annotation haulout.dev/cordon of node n1", a_node(annotations={"haulout.dev/cordon": "{"})
    ),
    # Orders
    "an order that nobody looked at": Case(
        NodeState.PLANNED,
        "NodeMaintenance patch has not been processed by the operator yet",
        observed={"orders": (order(),)},
    ),
    "an order that waits for room": Case(
        NodeState.PLANNED,
        "NodeMaintenance patch waits for a budget slot (position 3 in the queue): the budget is used up",
        observed={
            "orders": (
                order(
                    "Running",
                    cordoned=False,
                    conditions=[{"type": "WithinBudget", "status": "False", "message": "the budget is used up"}],
                ),
            ),
            "waiting_positions": {"patch": 3},
        },
    ),
    "an order that waits for a lease": Case(
        NodeState.PLANNED,
        "waits: lease node-n1 is held",
        observed={"orders": (order("Running", cordoned=False, lastError="lease node-n1 is held"),)},
    ),
    "an order that has just taken its node": Case(
        NodeState.DRAINING,
        "NodeMaintenance patch: 4 of 4 pods have not left",
        cordoned_for("NodeMaintenance/patch"),
        observed={"orders": (order("Running", cordoned=False, pendingPods=["a", "b", "c", "d"], evictionPods=4),)},
    ),
    "an order that drains": Case(
        NodeState.DRAINING,
        "NodeMaintenance patch: 1 of 4 pods have not left",
        observed={
            "orders": (order("Running", cordoned=True, pendingPods=["cart-0"], evictionPods=4, drainProgress=75),)
        },
    ),
    "an order of which a pod may not leave for a moment": Case(
        NodeState.DRAINING,
        BUDGET,
        observed={"orders": (order("Running", cordoned=True, blockers=[status_blocker(JUST)]),)},
    ),
    "an order of which a pod may not leave": Case(
        NodeState.BLOCKED,
        f"shop/cart-0: {BUDGET}; run more",
        observed={"orders": (order("Running", cordoned=True, blockers=[status_blocker(EARLIER)]),)},
    ),
    "an order of which a pod migrates": Case(
        NodeState.DRAINING,
        "NodeMaintenance patch: 0 of 0",
        observed={"orders": (order("Running", cordoned=True, blockers=[status_blocker(EARLIER, "Migration")]),)},
    ),
    "an order that lost its lease": Case(
        NodeState.BLOCKED,
        "patch: the lease was lost",
        observed={"orders": (order("Running", cordoned=True, lastError="the lease was lost"),)},
    ),
    "an order that failed": Case(
        NodeState.BLOCKED,
        "NodeMaintenance patch failed: no such node",
        observed={"orders": (order("Failed", lastError="no such node"),)},
    ),
    "an order that is done": Case(
        NodeState.IN_MAINTENANCE,
        "NodeMaintenance patch: a new kernel",
        observed={"orders": (order("Succeeded", cordoned=True),)},
    ),
    "an order that ends": Case(
        NodeState.RECOVERING,
        "NodeMaintenance patch was deleted",
        observed={"orders": (order("Succeeded", leaving=True),)},
    ),
    "an order of the Node Maintenance Operator": Case(NodeState.DRAINING, observed={"orders": (order("Running"),)}),
    # What was left
    "left by an order": Case(
        NodeState.BLOCKED,
        "it is kept cordoned for NodeMaintenance old, which no longer exists",
        cordoned_for("NodeMaintenance/old"),
    ),
    "left by an order, perhaps": Case(
        NodeState.IDLE, node=cordoned_for("NodeMaintenance/old"), observed={"knows_orders": False}
    ),
    "left by a profile": Case(
        NodeState.BLOCKED, "for profile old, which no longer exists", cordoned_for("profile/old")
    ),
    "held by a profile": Case(
        NodeState.IN_MAINTENANCE, node=cordoned_for("profile/os"), observed={"entries": entry("in-maintenance")}
    ),
    # Profiles
    "operational": Case(NodeState.IDLE, observed={"entries": entry("operational")}),
    "operational, and a check fails": Case(
        NodeState.IDLE,
        "os: drain: no such thing",
        observed={"entries": entry("operational"), "info": failing("operational")},
    ),
    "operational, and no room": Case(
        NodeState.PLANNED,
        "os: the budget is used up",
        observed={
            "entries": entry("operational"),
            "info": node_info(
                ProfileReport(name="os", state="operational", next="operational", transitions=(REFUSED,))
            ),
        },
    ),
    "required": Case(
        NodeState.PLANNED,
        "os: approved says no",
        observed={
            "entries": entry("maintenance-required"),
            "info": info("maintenance-required", approved=("hasLabel", False), window=("timeWindow", True)),
        },
    ),
    "required, and something fails": Case(
        NodeState.PLANNED,
        "os: drain: no such thing",
        observed={"entries": entry("maintenance-required"), "info": failing("maintenance-required")},
    ),
    "about to be drained": Case(
        NodeState.DRAINING,
        "os: the transition is in progress",
        in_transition_to("in-maintenance"),
        {"entries": entry("maintenance-required")},
    ),
    "about to be drained, and something fails": Case(
        NodeState.BLOCKED,
        "os: drain: no such thing",
        in_transition_to("in-maintenance"),
        {"entries": entry("maintenance-required"), "info": failing("maintenance-required")},
    ),
    "drained": Case(
        NodeState.DRAINING,
        "os: 3 of 4 pods have left",
        in_transition_to("in-maintenance"),
        {"entries": entry("maintenance-required"), "drains": {"os": drain()}},
    ),
    "drained, and a pod may not leave for a moment": Case(
        NodeState.DRAINING,
        BUDGET,
        in_transition_to("in-maintenance"),
        {"entries": entry("maintenance-required"), "drains": {"os": drain(blocked_since=JUST)}},
    ),
    "drained, and a pod may not leave": Case(
        NodeState.BLOCKED,
        BUDGET,
        in_transition_to("in-maintenance"),
        {"entries": entry("maintenance-required"), "drains": {"os": drain(blocked_since=EARLIER)}},
    ),
    "drained, and a pod finishes its work": Case(
        NodeState.DRAINING,
        "os: 3 of 4",
        in_transition_to("in-maintenance"),
        {
            "entries": entry("maintenance-required"),
            "drains": {"os": drain(blocked_since=EARLIER, kind=BlockerKind.COMPLETION)},
        },
    ),
    "drained in vain": Case(
        NodeState.BLOCKED,
        "os: it took too long",
        in_transition_to("in-maintenance"),
        {"entries": entry("maintenance-required"), "drains": {"os": drain(ending=OutcomeResult.TIMED_OUT)}},
    ),
    "in maintenance": Case(
        NodeState.IN_MAINTENANCE,
        "os: done says no",
        observed={
            "entries": entry("in-maintenance"),
            "drains": {"os": drain(ending=OutcomeResult.DRAINED)},
            "info": info("in-maintenance", done=("hasLabel", False), well=("recovered", False)),
        },
    ),
    "in maintenance as long as something is so": Case(
        NodeState.IN_MAINTENANCE,
        "os: due says yes",
        observed={
            "entries": entry("in-maintenance"),
            "info": node_info(
                ProfileReport(name="os", state="in-maintenance", next="in-maintenance", transitions=(UNTIL_NOT_DUE,))
            ),
        },
    ),
    "in maintenance, and not well yet": Case(
        NodeState.RECOVERING,
        "os: well says no",
        observed={
            "entries": entry("in-maintenance"),
            "info": info("in-maintenance", done=("hasLabel", True), well=("recovered", False)),
        },
    ),
    "on its way back": Case(
        NodeState.RECOVERING,
        "os: the transition is in progress",
        in_transition_to("operational"),
        {"entries": entry("in-maintenance")},
    ),
    "in maintenance, and something fails": Case(
        NodeState.BLOCKED,
        "os: drain: no such thing",
        observed={"entries": entry("in-maintenance"), "info": failing("in-maintenance")},
    ),
    "a state that nobody knows": Case(NodeState.BLOCKED, "'lost'", observed={"entries": entry("lost")}),
    # Notices
    "announced": Case(
        NodeState.PLANNED,
        "Reboot (HW) announced by oci: it begins at 2026-05-01 14:00 UTC at the earliest",
        observed={"notices": (notice(reason="HW", start="2026-05-01T14:00:00Z"),)},
    ),
    "announced, and in maintenance": Case(
        NodeState.IN_MAINTENANCE,
        observed={"notices": (notice(start="2026-05-01T14:00:00Z"),), "entries": entry("in-maintenance")},
    ),
    "in maintenance, and another order ends": Case(
        NodeState.IN_MAINTENANCE,
        observed={"orders": (order("Succeeded", leaving=True),), "entries": entry("in-maintenance")},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_node_state_follows_from_the_observation(name: str) -> None:
    case = CASES[name]
    found = assess_node(NodeSnapshot(node=case.node, now=NOW, **case.observed))
    assert (found.state, case.why in found.why) == (case.state, True), found


def test_blocked_drain_is_reassessed_when_the_threshold_is_reached() -> None:
    known: dict[str, Any] = {"entries": entry("maintenance-required"), "drains": {"os": drain(blocked_since=JUST)}}
    found = assess_node(NodeSnapshot(node=a_node(), now=NOW, **known))
    assert found.changes_at == JUST + timedelta(seconds=30)
    later = assess_node(NodeSnapshot(node=a_node(), now=JUST + timedelta(seconds=30), **known))
    assert (later.state, later.since, later.progress) == (NodeState.BLOCKED, JUST, 75)


def test_node_reason_is_one_line_of_limited_length() -> None:
    problem_text = "x\n" * 1000
    assert len(assess_node(NodeSnapshot(node=a_node(), now=NOW, data_problem=problem_text)).why) == 300


@pytest.mark.parametrize(
    ("value", "held", "changes_at"),
    [
        ("by=alice; migration", "held by alice: migration", None),
        ("until=2026-05-01T13:00:00Z", "held, until 2026-05-01 13:00 UTC", NOW + timedelta(hours=1)),
        ("until=2026-05-01T12:00:00Z", "", None),
    ],
)
def test_tile_shows_the_hold_until_it_expires(value: str, held: str, changes_at: datetime | None) -> None:
    tile, assessment = summarize_node(NodeSnapshot(node=a_node(annotations={"haulout.dev/hold": value}), now=NOW))
    assert (tile.state, tile.hold, assessment.changes_at) == (NodeState.IDLE, held, changes_at)


def test_tile_shows_the_freeze_until_it_expires() -> None:
    until = NOW + timedelta(hours=1)
    spec = MaintenanceFreezeSpec(by="alice", reason="Black Friday", until=until)
    freezes = Freezes((parse_freeze(MaintenanceFreeze(metadata=ObjectMeta(name="black-friday"), spec=spec)),))
    tile, assessment = summarize_node(NodeSnapshot(node=a_node(), now=NOW, freezes=freezes))
    held = f"frozen by alice until {until:%Y-%m-%d %H:%M} UTC: Black Friday"
    assert (tile.state, tile.hold, assessment.changes_at) == (NodeState.IDLE, held, until)
    after = NodeSnapshot(node=a_node(), now=until, freezes=freezes)
    assert summarize_node(after)[0].hold == ""
