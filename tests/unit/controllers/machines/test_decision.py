"""The decision about a Machine from one observation."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api import hold
from haulout.api.machinemaintenance import (
    PROFILE_EVENT_CODE,
    MachineMaintenance,
    MachineMaintenancePhase,
    MachineMaintenanceSpec,
    MachineMaintenanceStatus,
)
from haulout.api.objects import Condition, Node, NodeStatus, ObjectMeta, OwnerReference
from haulout.api.openshift import (
    CONTROL_PLANE_MACHINE_SETS,
    DELETE_MACHINE,
    MACHINE_SETS,
    ROLE,
    Machine,
    MachineSet,
    MachineSetSpec,
    MachineSpec,
    MachineStatus,
    NodeReference,
)
from haulout.controllers.machines.actions import (
    DeleteMachine,
    InvalidateDeletion,
    MarkForDeletion,
    RecordMachine,
    ReleaseClaim,
    SetMaintenanceScheduled,
    WriteClaim,
)
from haulout.controllers.machines.decision import decide, next_release_action
from haulout.controllers.machines.observation import Observation, Peer
from haulout.controllers.machines.replacement_claim import CLAIM_ANNOTATION, ClaimStage, ReplacementClaim
from haulout.controllers.machines.replacement_time import ReplacementPolicy, check_replacement_time
from haulout.core.windows import BusyPeriod, Timetable, WeeklyWindow

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)  # a Monday
SATURDAY_NIGHT = Timetable(windows=(WeeklyWindow(weekdays=frozenset({5}), start=time(1), end=time(5)),))


def a_node(name: str, *, ready: bool = True, role: str = "worker") -> Node:
    labels = {f"node-role.kubernetes.io/{role}": ""}
    status = NodeStatus(conditions=(Condition(type="Ready", status=str(ready)),))
    return Node(metadata=ObjectMeta(name=name, labels=labels), status=status)


def a_machine(name: str = "m1", *, kind: str = MACHINE_SETS.kind, version: str = "7", **more: Any) -> Machine:
    owner = OwnerReference(kind=kind, name="workers", uid="set", controller=True)
    labels = {ROLE: "master" if kind == CONTROL_PLANE_MACHINE_SETS.kind else "worker"}
    meta = {"name": name, "uid": f"uid-{name}", "resource_version": version, "labels": labels} | more
    return Machine(
        metadata=ObjectMeta(**{"owner_references": (owner,), **meta}),
        spec=MachineSpec(provider_id=f"aws:///eu-west-1a/i-{name}"),
        status=MachineStatus(phase="Running", node_ref=NodeReference(name=f"node-{name}")),
    )


def a_set(claim: ReplacementClaim | None = None, *, replicas: int = 2, state: str = "") -> MachineSet:
    annotations = {} if claim is None else {CLAIM_ANNOTATION: claim.annotation_value}
    meta = ObjectMeta(name="workers", uid="set", resource_version="3", annotations=annotations)
    return MachineSet(metadata=meta, spec=MachineSetSpec(replicas=replicas, state=state))


def a_maintenance(*, status: MachineMaintenanceStatus | None = None, **spec: Any) -> MachineMaintenance:
    wanted = MachineMaintenanceSpec(**{"machinelink": "m1", "machineid": "i-m1", **spec})
    return MachineMaintenance(
        metadata=ObjectMeta(name="mm-m1"), spec=wanted, status=status or MachineMaintenanceStatus()
    )


def an_observation(maintenance: MachineMaintenance | None = None, **more: Any) -> Observation:
    machine = more.pop("machine", a_machine())
    fields = {"machine": machine, "owner": a_set(), "peers": peers(machine), "now": NOW}
    return Observation(maintenance=maintenance or a_maintenance(), **(fields | more))


def peers(*machines: Machine | None, others: int = 1, ready: bool = True) -> tuple[Peer, ...]:
    more = [Peer(a_machine(f"o{number}"), a_node(f"node-o{number}", ready=ready)) for number in range(others)]
    return (*(Peer(machine, a_node(machine.node)) for machine in machines if machine is not None), *more)


CLAIM_WITHOUT_SURGE = ReplacementClaim(machine="m1", uid="uid-m1", version="7")
STARTED = MachineMaintenanceStatus(machine_uid="uid-m1", phase=MachineMaintenancePhase.REPLACING)


def test_replacement_claims_records_deletes_and_completes_a_machine() -> None:
    """Claim; record the Machine in the status; delete it; set maintenancescheduled; completed."""
    first = decide(an_observation()).action
    assert isinstance(first, WriteClaim)
    assert (first.claim, first.replicas) == (CLAIM_WITHOUT_SURGE, None)
    assert isinstance(decide(an_observation(owner=a_set(CLAIM_WITHOUT_SURGE))).action, RecordMachine)
    maintenance = a_maintenance(status=STARTED)
    assert isinstance(decide(an_observation(maintenance, owner=a_set(CLAIM_WITHOUT_SURGE))).action, DeleteMachine)
    leaving = a_machine(deletion_timestamp=NOW)
    assert isinstance(decide(an_observation(maintenance, machine=leaving)).action, SetMaintenanceScheduled)
    done = a_maintenance(status=STARTED, maintenancescheduled=True)
    assert decide(an_observation(done, machine=leaving)).action is None
    assert decide(an_observation(done, machine=None)).phase is MachineMaintenancePhase.COMPLETED


def test_machine_changed_since_its_claim_is_claimed_again_before_deletion() -> None:
    step = decide(
        an_observation(a_maintenance(status=STARTED), machine=a_machine(version="8"), owner=a_set(CLAIM_WITHOUT_SURGE))
    ).action
    assert isinstance(step, WriteClaim)
    assert step.claim.version == "8"


def test_later_machine_of_the_same_name_is_not_deleted() -> None:
    later = a_machine(uid="another")
    assert isinstance(
        decide(an_observation(a_maintenance(status=STARTED), machine=later)).action, SetMaintenanceScheduled
    )
    ended = decide(an_observation(a_maintenance(status=STARTED, maintenancescheduled=True), machine=later))
    assert (ended.phase, ended.action) == (MachineMaintenancePhase.COMPLETED, None)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param(
            {"owner": a_set(ReplacementClaim(machine="o0", uid="uid-o0"))},
            "WaitingForOtherMachine",
            id="another one is claimed",
        ),
        pytest.param({"peers": peers(a_machine(), ready=False)}, "MachineSetNotReady", id="a node is not ready"),
        pytest.param({"peers": peers(a_machine(), others=0)}, "MachineSetNotReady", id="one is missing"),
        pytest.param(
            {"peers": (*peers(a_machine()), Peer(a_machine("o2", deletion_timestamp=NOW)))},
            "WaitingForOtherMachine",
            id="one leaves",
        ),
    ],
)
def test_machine_set_must_be_complete_and_ready_before_a_replacement(more: dict[str, Any], reason: str) -> None:
    decision = decide(an_observation(**more))
    assert (decision.phase, decision.reason, decision.action) == (MachineMaintenancePhase.WAITING, reason, None)


@pytest.mark.parametrize(
    ("machine", "owner", "reason"),
    [
        pytest.param(a_machine(owner_references=()), None, "NoController", id="no controller creates another"),
        pytest.param(a_machine(), None, "NoController", id="its set is gone"),
        pytest.param(
            msgspec.structs.replace(a_machine(), spec=MachineSpec()), a_set(), "NoInstance", id="no instance yet"
        ),
        pytest.param(
            msgspec.structs.replace(a_machine(), spec=MachineSpec(provider_id="aws:///a/i-x")),
            a_set(),
            "InstanceMismatch",
            id="another instance",
        ),
        pytest.param(
            a_machine(labels={ROLE: "master"}), a_set(), "NoControlPlaneMachineSet", id="a master of a MachineSet"
        ),
    ],
)
def test_harmful_replacement_is_refused_with_a_reason(machine: Machine, owner: MachineSet | None, reason: str) -> None:
    decision = decide(an_observation(machine=machine, owner=owner))
    assert (decision.phase, decision.reason, decision.is_warning, decision.action) == (
        MachineMaintenancePhase.REFUSED,
        reason,
        True,
        None,
    )


def control_plane_nodes(*, ready: int = 3, there: int = 3) -> tuple[Node, ...]:
    names = ["node-m1", "node-o0", "node-o1"][:there]
    return tuple(a_node(name, ready=number < ready, role="master") for number, name in enumerate(names))


@pytest.mark.parametrize(
    ("nodes", "state", "reason"),
    [
        pytest.param(control_plane_nodes(ready=2), "Active", "ControlPlaneUnhealthy", id="one is not ready"),
        pytest.param(control_plane_nodes(there=2), "Active", "ControlPlaneUnhealthy", id="one is missing"),
        pytest.param(control_plane_nodes(ready=0), "Active", "ControlPlaneUnhealthy", id="its own is not ready"),
        pytest.param(control_plane_nodes(), "Inactive", "NoControlPlaneMachineSet", id="no controller creates another"),
        pytest.param(control_plane_nodes(), "Active", "Next", id="all is well"),
    ],
)
def test_control_plane_machine_is_replaced_only_when_all_control_plane_nodes_are_ready(
    nodes: tuple[Node, ...], state: str, reason: str
) -> None:
    """Case 16."""
    machine = a_machine(kind=CONTROL_PLANE_MACHINE_SETS.kind)
    owner = a_set(replicas=3, state=state)
    decision = decide(an_observation(machine=machine, owner=owner, peers=peers(machine, others=2), control_plane=nodes))
    assert (decision.reason, decision.is_warning) == (reason, reason != "Next")
    assert (decision.action is not None) == (reason == "Next")


def test_waiting_maintenance_is_requeued_when_its_event_ends() -> None:
    waiting = decide(
        an_observation(a_maintenance(notafter=NOW + timedelta(hours=2)), peers=peers(a_machine(), ready=False))
    )
    assert (waiting.phase, waiting.requeue_at) == (MachineMaintenancePhase.WAITING, NOW + timedelta(hours=2))


def test_missing_control_plane_machine_set_is_checked_again() -> None:
    machine = a_machine(kind=CONTROL_PLANE_MACHINE_SETS.kind)
    refused = decide(an_observation(machine=machine, owner=None, control_plane=control_plane_nodes()))
    assert (refused.phase, refused.requeue_at) == (MachineMaintenancePhase.REFUSED, NOW + timedelta(minutes=5))


# Surge


SCALED_UP = ReplacementClaim(machine="m1", uid="uid-m1", version="7", stage=ClaimStage.SCALED_UP)
SURGE = ReplacementPolicy(surge=True)


def test_surge_scales_up_records_marks_and_scales_down() -> None:
    first = decide(an_observation(policy=SURGE)).action
    assert isinstance(first, WriteClaim)
    assert (first.claim.stage, first.replicas) == (ClaimStage.SCALED_UP, 3)
    waiting = decide(an_observation(policy=SURGE, owner=a_set(SCALED_UP, replicas=3)))
    assert (waiting.phase, waiting.action) == (MachineMaintenancePhase.SURGING, None)
    ready: dict[str, Any] = {
        "policy": SURGE,
        "owner": a_set(SCALED_UP, replicas=3),
        "peers": peers(a_machine(), others=2),
    }
    assert isinstance(decide(an_observation(**ready)).action, RecordMachine)
    maintenance = a_maintenance(status=STARTED)
    assert isinstance(decide(an_observation(maintenance, **ready)).action, MarkForDeletion)
    marked = a_machine(annotations={DELETE_MACHINE: "true"})
    down = decide(an_observation(maintenance, **(ready | {"machine": marked}))).action
    assert isinstance(down, WriteClaim)
    assert (down.claim.stage, down.replicas) == (ClaimStage.SCALED_DOWN, 2)


def test_surge_is_awaited_no_longer_than_the_event_allows() -> None:
    maintenance = a_maintenance(notbefore=NOW + timedelta(minutes=10))
    assert isinstance(
        decide(an_observation(maintenance, policy=SURGE, owner=a_set(SCALED_UP, replicas=3))).action, RecordMachine
    )


def test_started_surge_is_completed_after_the_setting_is_removed() -> None:
    waiting = decide(an_observation(owner=a_set(SCALED_UP, replicas=3)))
    assert waiting.phase is MachineMaintenancePhase.SURGING


# Unused claims


def test_claim_is_released_when_its_machine_is_gone() -> None:
    step = next_release_action(a_set(CLAIM_WITHOUT_SURGE), peers(others=2), is_replacement_requested=True)
    assert isinstance(step, ReleaseClaim)
    assert step.replicas is None


def test_pending_deletion_is_invalidated_before_its_claim_is_released() -> None:
    assert isinstance(
        next_release_action(a_set(CLAIM_WITHOUT_SURGE), peers(a_machine()), is_replacement_requested=False),
        InvalidateDeletion,
    )
    changed = peers(a_machine(version="8"))
    assert isinstance(
        next_release_action(a_set(CLAIM_WITHOUT_SURGE), changed, is_replacement_requested=False), ReleaseClaim
    )


def test_claim_that_is_needed_is_kept() -> None:
    assert next_release_action(a_set(CLAIM_WITHOUT_SURGE), peers(a_machine()), is_replacement_requested=True) is None
    assert (
        next_release_action(
            a_set(CLAIM_WITHOUT_SURGE), peers(a_machine(deletion_timestamp=NOW)), is_replacement_requested=False
        )
        is None
    )


def test_cancelled_surge_deletes_the_machine_created_for_it() -> None:
    latest = a_machine("o9", creation_timestamp=NOW)
    there = (*peers(a_machine()), Peer(latest))
    step = next_release_action(a_set(SCALED_UP, replicas=3), there, is_replacement_requested=False)
    assert isinstance(step, MarkForDeletion)
    assert step.machine.name == "o9"


def test_overwritten_claim_annotation_counts_as_no_claim() -> None:
    owner = msgspec.structs.replace(
        a_set(), metadata=ObjectMeta(name="workers", uid="set", annotations={CLAIM_ANNOTATION: "{"})
    )
    assert next_release_action(owner, peers(a_machine()), is_replacement_requested=False) is None
    assert isinstance(decide(an_observation(owner=owner)).action, WriteClaim)


# When


def test_replacement_is_due_at_once_without_a_policy() -> None:
    """As with the Machine Maintenance Operator."""
    assert check_replacement_time(
        MachineMaintenanceSpec(notbefore=NOW + timedelta(days=14)), policy=ReplacementPolicy(), now=NOW
    ).is_due


def test_replacement_is_due_one_lead_time_before_the_event() -> None:
    spec = MachineMaintenanceSpec(notbefore=NOW + timedelta(days=10))
    found = check_replacement_time(spec, policy=ReplacementPolicy(lead=timedelta(days=2)), now=NOW)
    assert (found.is_due, found.requeue_at) == (False, NOW + timedelta(days=8))
    assert check_replacement_time(
        spec, policy=ReplacementPolicy(lead=timedelta(days=2)), now=NOW + timedelta(days=8)
    ).is_due


def test_replacement_is_due_in_the_next_window() -> None:
    found = check_replacement_time(MachineMaintenanceSpec(), policy=ReplacementPolicy(windows=SATURDAY_NIGHT), now=NOW)
    assert not found.is_due
    assert found.requeue_at is not None
    assert found.requeue_at.date().isoformat() == "2026-05-16"
    assert check_replacement_time(
        MachineMaintenanceSpec(), policy=ReplacementPolicy(windows=SATURDAY_NIGHT), now=found.requeue_at
    ).is_due


def test_replacement_is_due_in_the_last_window_before_the_lead_time() -> None:
    """The event is on a Tuesday in two weeks; the second Saturday is the last chance."""
    spec = MachineMaintenanceSpec(notbefore=datetime(2026, 5, 26, 6, tzinfo=UTC))
    policy = ReplacementPolicy(lead=timedelta(hours=1), windows=SATURDAY_NIGHT)
    first = datetime(2026, 5, 16, 2, tzinfo=UTC)
    early = check_replacement_time(spec, policy=policy, now=first)
    assert not early.is_due
    assert early.requeue_at is not None
    assert early.requeue_at.date().isoformat() == "2026-05-23"
    assert check_replacement_time(spec, policy=policy, now=early.requeue_at).is_due


def test_blackout_delays_the_replacement_and_reports_that_it_is_not_on_time() -> None:
    always = WeeklyWindow(weekdays=frozenset(range(7)), start=time(0), end=time(0), ends_next_day=True)
    freeze = BusyPeriod(NOW - timedelta(days=1), NOW + timedelta(days=5), "year-end")
    policy = ReplacementPolicy(windows=Timetable(windows=(always,), blackouts=(freeze,)))
    late = check_replacement_time(MachineMaintenanceSpec(notbefore=NOW + timedelta(days=2)), policy=policy, now=NOW)
    assert (late.is_due, late.is_on_time, late.requeue_at) == (False, False, NOW + timedelta(days=5))
    assert "year-end" in late.message
    assert "the cloud begins before that" in late.message
    assert check_replacement_time(
        MachineMaintenanceSpec(notbefore=NOW + timedelta(days=9)), policy=policy, now=NOW
    ).is_on_time


@pytest.mark.parametrize(
    "spec",
    [
        {"description": "[Completed] all is well"},
        {"description": "[Canceled] never mind"},
        {"description": "[CANCELLED]"},
        {"notafter": NOW - timedelta(hours=1)},
        {"maintenancescheduled": True},
    ],
)
def test_finished_or_cancelled_maintenance_is_left_alone(spec: dict[str, Any]) -> None:
    decision = decide(an_observation(a_maintenance(**spec)))
    assert (decision.phase, decision.action) == (MachineMaintenancePhase.CANCELLED, None)


def peers_on_hold(until: timedelta | None = None) -> tuple[Peer, ...]:
    """Return the Machines of the set; the node of the first has a hold."""
    value = hold.format_annotation(reason="migration", by="alice", until=None if until is None else NOW + until)
    own, *others = peers(a_machine())
    assert own.node is not None
    metadata = msgspec.structs.replace(own.node.metadata, annotations={hold.ANNOTATION: value})
    return (Peer(own.machine, msgspec.structs.replace(own.node, metadata=metadata)), *others)


@pytest.mark.parametrize(
    ("until", "begins", "is_on_time"),
    [
        pytest.param(None, None, True, id="unknown start of the event"),
        pytest.param(timedelta(hours=1), timedelta(hours=2), True, id="over before the cloud begins"),
        pytest.param(timedelta(hours=2), timedelta(hours=2), False, id="until it begins"),
        pytest.param(None, timedelta(days=9), False, id="for ever"),
    ],
)
def test_hold_on_the_node_delays_the_replacement_and_reports_whether_it_is_too_late(
    until: timedelta | None,
    begins: timedelta | None,
    is_on_time: bool,  # noqa: FBT001 - a table
) -> None:
    maintenance = a_maintenance(notbefore=None if begins is None else NOW + begins)
    decision = decide(an_observation(maintenance, peers=peers_on_hold(until)))
    assert (decision.phase, decision.reason, decision.action) == (MachineMaintenancePhase.WAITING, "Held", None)
    assert decision.message.startswith("node node-m1 is held by alice: migration")
    assert (decision.is_on_time, decision.is_warning) == (is_on_time, not is_on_time)
    assert decision.requeue_at == (None if until is None else NOW + until)


def test_hold_does_not_affect_a_started_replacement_or_a_request_of_a_profile() -> None:
    assert isinstance(
        decide(an_observation(owner=a_set(CLAIM_WITHOUT_SURGE), peers=peers_on_hold())).action, RecordMachine
    )
    assert isinstance(
        decide(an_observation(a_maintenance(eventcode=PROFILE_EVENT_CODE), peers=peers_on_hold())).action, WriteClaim
    )
    assert isinstance(decide(an_observation(peers=peers_on_hold(timedelta()))).action, WriteClaim)  # it is over


@pytest.mark.parametrize(
    ("uid", "flag", "phase"),
    [
        ("", False, MachineMaintenancePhase.CANCELLED),
        ("uid-m1", False, MachineMaintenancePhase.CANCELLED),
        ("", True, MachineMaintenancePhase.CANCELLED),
        ("uid-m1", True, MachineMaintenancePhase.COMPLETED),
    ],
)
def test_cancelled_maintenance_is_completed_only_after_its_machine_was_deleted(
    uid: str, *, flag: bool, phase: MachineMaintenancePhase
) -> None:
    status = MachineMaintenanceStatus(machine_uid=uid, phase=MachineMaintenancePhase.CANCELLED, message="a person did")
    decision = decide(an_observation(a_maintenance(status=status, maintenancescheduled=flag), machine=None))
    assert (decision.phase, decision.action) == (phase, None)


def test_message_of_a_terminating_machine_mentions_its_node_or_its_instance() -> None:
    with_node = a_machine(deletion_timestamp=NOW)
    without = msgspec.structs.replace(with_node, status=MachineStatus(phase="Deleting"))
    assert (
        "node node-m1 is drained and its instance terminated by the Machine API"
        in decide(an_observation(machine=with_node)).message
    )
    assert "its instance is terminated by the Machine API" in decide(an_observation(machine=without)).message


@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_surge_is_scaled_down_when_the_claimed_machine_is_gone(replicas: int) -> None:
    step = next_release_action(a_set(SCALED_UP, replicas=replicas), peers(others=2), is_replacement_requested=False)
    assert isinstance(step, ReleaseClaim)
    assert step.replicas == max(replicas - 1, 0)


def test_surge_is_scaled_down_before_its_machine_is_created() -> None:
    step = next_release_action(
        a_set(SCALED_UP, replicas=3), peers(a_machine(), others=1), is_replacement_requested=False
    )
    assert isinstance(step, ReleaseClaim)
    assert step.replicas == 2
