"""What is decided about a Machine, from what is seen."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import msgspec
import pytest

from haulout.core.busy import Busy
from haulout.core.windows import Timetable, Weekly
from haulout.kinds import hold
from haulout.kinds.machinemaintenance import BY_PROFILE, MachineMaintenance, Phase, Spec, Status
from haulout.kinds.openshift import (
    CONTROL_PLANE_MACHINE_SETS,
    DELETE_FIRST,
    MACHINE_SETS,
    ROLE,
    Machine,
    MachineSet,
    MachineSpec,
    MachineStatus,
    NodeReference,
    SetSpec,
)
from haulout.kube.objects import Condition, Metadata, Node, NodeStatus, OwnerReference
from haulout.machines.claims import CLAIM, Claim, Stage
from haulout.machines.decision import decide
from haulout.machines.seen import Peer, Seen
from haulout.machines.steps import Begin, DeleteMachine, DropClaim, Mark, SetFlag, TakeClaim, Withdraw
from haulout.machines.timing import Terms, timing
from haulout.machines.withdrawal import withdrawal

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)  # a Monday
SATURDAY_NIGHT = Timetable(windows=(Weekly(weekdays=frozenset({5}), start=time(1), end=time(5)),))


def a_node(name: str, *, ready: bool = True, role: str = "worker") -> Node:
    labels = {f"node-role.kubernetes.io/{role}": ""}
    status = NodeStatus(conditions=(Condition(type="Ready", status=str(ready)),))
    return Node(metadata=Metadata(name=name, labels=labels), status=status)


def a_machine(name: str = "m1", *, kind: str = MACHINE_SETS.kind, version: str = "7", **more: Any) -> Machine:
    owner = OwnerReference(kind=kind, name="workers", uid="set", controller=True)
    labels = {ROLE: "master" if kind == CONTROL_PLANE_MACHINE_SETS.kind else "worker"}
    meta = {"name": name, "uid": f"uid-{name}", "resource_version": version, "labels": labels} | more
    return Machine(
        metadata=Metadata(**{"owner_references": (owner,), **meta}),
        spec=MachineSpec(provider_id=f"aws:///eu-west-1a/i-{name}"),
        status=MachineStatus(phase="Running", node_ref=NodeReference(name=f"node-{name}")),
    )


def a_set(claim: Claim | None = None, *, replicas: int = 2, state: str = "") -> MachineSet:
    annotations = {} if claim is None else {CLAIM: claim.written}
    meta = Metadata(name="workers", uid="set", resource_version="3", annotations=annotations)
    return MachineSet(metadata=meta, spec=SetSpec(replicas=replicas, state=state))


def a_record(*, status: Status | None = None, **spec: Any) -> MachineMaintenance:
    wanted = Spec(**{"machinelink": "m1", "machineid": "i-m1", **spec})
    return MachineMaintenance(metadata=Metadata(name="mm-m1"), spec=wanted, status=status or Status())


def seen(record: MachineMaintenance | None = None, **more: Any) -> Seen:
    machine = more.pop("machine", a_machine())
    fields = {"machine": machine, "owner": a_set(), "peers": peers(machine), "now": NOW}
    return Seen(record=record or a_record(), **(fields | more))


def peers(*machines: Machine | None, others: int = 1, ready: bool = True) -> tuple[Peer, ...]:
    more = [Peer(a_machine(f"o{number}"), a_node(f"node-o{number}", ready=ready)) for number in range(others)]
    return (*(Peer(it, a_node(it.node)) for it in machines if it is not None), *more)


CLAIMED = Claim(machine="m1", uid="uid-m1", version="7")
BEGUN = Status(machine_uid="uid-m1", phase=Phase.REPLACING)


def test_the_way_of_a_machine_step_by_step() -> None:
    """The claim; the record says which Machine; it is deleted; the flag is set; it is gone."""
    first = decide(seen()).step
    assert isinstance(first, TakeClaim)
    assert (first.claim, first.replicas) == (CLAIMED, None)
    assert isinstance(decide(seen(owner=a_set(CLAIMED))).step, Begin)
    record = a_record(status=BEGUN)
    assert isinstance(decide(seen(record, owner=a_set(CLAIMED))).step, DeleteMachine)
    leaving = a_machine(deletion_timestamp=NOW)
    assert isinstance(decide(seen(record, machine=leaving)).step, SetFlag)
    done = a_record(status=BEGUN, maintenancescheduled=True)
    assert decide(seen(done, machine=leaving)).step is None
    assert decide(seen(done, machine=None)).phase is Phase.COMPLETED


def test_a_machine_that_changed_since_its_claim_is_claimed_again_before_it_is_deleted() -> None:
    step = decide(seen(a_record(status=BEGUN), machine=a_machine(version="8"), owner=a_set(CLAIMED))).step
    assert isinstance(step, TakeClaim)
    assert step.claim.version == "8"


def test_a_machine_of_the_same_name_that_came_later_is_not_touched() -> None:
    later = a_machine(uid="another")
    assert isinstance(decide(seen(a_record(status=BEGUN), machine=later)).step, SetFlag)
    ended = decide(seen(a_record(status=BEGUN, maintenancescheduled=True), machine=later))
    assert (ended.phase, ended.step) == (Phase.COMPLETED, None)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"owner": a_set(Claim(machine="o0", uid="uid-o0"))}, "NotItsTurn", id="another one is claimed"),
        pytest.param({"peers": peers(a_machine(), ready=False)}, "NotWhole", id="a node is not ready"),
        pytest.param({"peers": peers(a_machine(), others=0)}, "NotWhole", id="one is missing"),
        pytest.param(
            {"peers": (*peers(a_machine()), Peer(a_machine("o2", deletion_timestamp=NOW)))},
            "NotItsTurn",
            id="one leaves",
        ),
    ],
)
def test_a_set_is_whole_before_one_of_its_machines_goes(more: dict[str, Any], reason: str) -> None:
    decision = decide(seen(**more))
    assert (decision.phase, decision.reason, decision.step) == (Phase.WAITING, reason, None)


@pytest.mark.parametrize(
    ("machine", "owner", "reason"),
    [
        pytest.param(a_machine(owner_references=()), None, "NoController", id="nobody makes another"),
        pytest.param(a_machine(), None, "NoController", id="its set is gone"),
        pytest.param(
            msgspec.structs.replace(a_machine(), spec=MachineSpec()), a_set(), "NoInstance", id="no instance yet"
        ),
        pytest.param(
            msgspec.structs.replace(a_machine(), spec=MachineSpec(provider_id="aws:///a/i-x")),
            a_set(),
            "OtherInstance",
            id="another instance",
        ),
        pytest.param(
            a_machine(labels={ROLE: "master"}), a_set(), "NoControlPlaneMachineSet", id="a master of a MachineSet"
        ),
    ],
)
def test_what_would_do_harm_is_refused_with_a_reason(machine: Machine, owner: MachineSet | None, reason: str) -> None:
    decision = decide(seen(machine=machine, owner=owner))
    assert (decision.phase, decision.reason, decision.is_bad, decision.step) == (Phase.REFUSED, reason, True, None)


def masters(*, ready: int = 3, there: int = 3) -> tuple[Node, ...]:
    names = ["node-m1", "node-o0", "node-o1"][:there]
    return tuple(a_node(it, ready=number < ready, role="master") for number, it in enumerate(names))


@pytest.mark.parametrize(
    ("nodes", "state", "reason"),
    [
        pytest.param(masters(ready=2), "Active", "ControlPlaneUnhealthy", id="one is not ready"),
        pytest.param(masters(there=2), "Active", "ControlPlaneUnhealthy", id="one is missing"),
        pytest.param(masters(ready=0), "Active", "ControlPlaneUnhealthy", id="its own is not ready"),
        pytest.param(masters(), "Inactive", "NoControlPlaneMachineSet", id="nobody makes another"),
        pytest.param(masters(), "Active", "Next", id="all is well"),
    ],
)
def test_of_the_control_plane_one_goes_only_when_all_are_well(nodes: tuple[Node, ...], state: str, reason: str) -> None:
    """Case 16."""
    machine = a_machine(kind=CONTROL_PLANE_MACHINE_SETS.kind)
    owner = a_set(replicas=3, state=state)
    decision = decide(seen(machine=machine, owner=owner, peers=peers(machine, others=2), control_plane=nodes))
    assert (decision.reason, decision.is_bad) == (reason, reason != "Next")
    assert (decision.step is not None) == (reason == "Next")


def test_what_waits_is_looked_at_when_its_event_is_over() -> None:
    waiting = decide(seen(a_record(notafter=NOW + timedelta(hours=2)), peers=peers(a_machine(), ready=False)))
    assert (waiting.phase, waiting.next_look) == (Phase.WAITING, NOW + timedelta(hours=2))


def test_the_set_of_the_control_plane_is_asked_again() -> None:
    machine = a_machine(kind=CONTROL_PLANE_MACHINE_SETS.kind)
    refused = decide(seen(machine=machine, owner=None, control_plane=masters()))
    assert (refused.phase, refused.next_look) == (Phase.REFUSED, NOW + timedelta(minutes=5))


# Surge


UP = Claim(machine="m1", uid="uid-m1", version="7", stage=Stage.UP)
SURGE = Terms(surge=True)


def test_the_way_of_a_surge_step_by_step() -> None:
    first = decide(seen(terms=SURGE)).step
    assert isinstance(first, TakeClaim)
    assert (first.claim.stage, first.replicas) == (Stage.UP, 3)
    waiting = decide(seen(terms=SURGE, owner=a_set(UP, replicas=3)))
    assert (waiting.phase, waiting.step) == (Phase.SURGING, None)
    ready: dict[str, Any] = {"terms": SURGE, "owner": a_set(UP, replicas=3), "peers": peers(a_machine(), others=2)}
    assert isinstance(decide(seen(**ready)).step, Begin)
    record = a_record(status=BEGUN)
    assert isinstance(decide(seen(record, **ready)).step, Mark)
    marked = a_machine(annotations={DELETE_FIRST: "true"})
    down = decide(seen(record, **(ready | {"machine": marked}))).step
    assert isinstance(down, TakeClaim)
    assert (down.claim.stage, down.replicas) == (Stage.DOWN, 2)


def test_a_surge_that_is_not_ready_is_not_waited_for_longer_than_the_cloud_waits() -> None:
    record = a_record(notbefore=NOW + timedelta(minutes=10))
    assert isinstance(decide(seen(record, terms=SURGE, owner=a_set(UP, replicas=3))).step, Begin)


def test_without_the_settings_a_surge_that_was_begun_is_brought_to_its_end() -> None:
    waiting = decide(seen(owner=a_set(UP, replicas=3)))
    assert waiting.phase is Phase.SURGING


# Claims that nobody needs


def test_a_claim_is_dropped_when_its_machine_is_gone() -> None:
    step = withdrawal(a_set(CLAIMED), peers(others=2), is_wanted=True)
    assert isinstance(step, DropClaim)
    assert step.replicas is None


def test_before_a_claim_is_dropped_a_deletion_under_way_is_made_to_fail() -> None:
    assert isinstance(withdrawal(a_set(CLAIMED), peers(a_machine()), is_wanted=False), Withdraw)
    changed = peers(a_machine(version="8"))
    assert isinstance(withdrawal(a_set(CLAIMED), changed, is_wanted=False), DropClaim)


def test_a_claim_that_is_needed_stays() -> None:
    assert withdrawal(a_set(CLAIMED), peers(a_machine()), is_wanted=True) is None
    assert withdrawal(a_set(CLAIMED), peers(a_machine(deletion_timestamp=NOW)), is_wanted=False) is None


def test_a_surge_is_taken_back_with_the_machine_that_was_made_for_it() -> None:
    latest = a_machine("o9", creation_timestamp=NOW)
    there = (*peers(a_machine()), Peer(latest))
    step = withdrawal(a_set(UP, replicas=3), there, is_wanted=False)
    assert isinstance(step, Mark)
    assert step.machine.name == "o9"


def test_what_is_written_over_a_claim_is_no_claim() -> None:
    owner = msgspec.structs.replace(a_set(), metadata=Metadata(name="workers", uid="set", annotations={CLAIM: "{"}))
    assert withdrawal(owner, peers(a_machine()), is_wanted=False) is None
    assert isinstance(decide(seen(owner=owner)).step, TakeClaim)


# When


def test_without_terms_it_is_at_once() -> None:
    """As with the Machine Maintenance Operator."""
    assert timing(Spec(notbefore=NOW + timedelta(days=14)), terms=Terms(), now=NOW).has_come


def test_with_a_lead_it_is_that_long_before() -> None:
    spec = Spec(notbefore=NOW + timedelta(days=10))
    found = timing(spec, terms=Terms(lead=timedelta(days=2)), now=NOW)
    assert (found.has_come, found.until) == (False, NOW + timedelta(days=8))
    assert timing(spec, terms=Terms(lead=timedelta(days=2)), now=NOW + timedelta(days=8)).has_come


def test_with_a_window_it_is_in_the_next_one() -> None:
    found = timing(Spec(), terms=Terms(windows=SATURDAY_NIGHT), now=NOW)
    assert not found.has_come
    assert found.until is not None
    assert found.until.date().isoformat() == "2026-05-16"
    assert timing(Spec(), terms=Terms(windows=SATURDAY_NIGHT), now=found.until).has_come


def test_with_a_lead_and_windows_it_is_in_the_last_window_that_is_in_time() -> None:
    """The event is on a Tuesday in two weeks; the second Saturday is the last chance."""
    spec = Spec(notbefore=datetime(2026, 5, 26, 6, tzinfo=UTC))
    terms = Terms(lead=timedelta(hours=1), windows=SATURDAY_NIGHT)
    first = datetime(2026, 5, 16, 2, tzinfo=UTC)
    early = timing(spec, terms=terms, now=first)
    assert not early.has_come
    assert early.until is not None
    assert early.until.date().isoformat() == "2026-05-23"
    assert timing(spec, terms=terms, now=early.until).has_come


def test_a_freeze_is_kept_and_said_when_the_cloud_begins_before_it_ends() -> None:
    always = Weekly(weekdays=frozenset(range(7)), start=time(0), end=time(0), ends_next_day=True)
    freeze = Busy(NOW - timedelta(days=1), NOW + timedelta(days=5), "year-end")
    terms = Terms(windows=Timetable(windows=(always,), blackouts=(freeze,)))
    late = timing(Spec(notbefore=NOW + timedelta(days=2)), terms=terms, now=NOW)
    assert (late.has_come, late.is_on_time, late.until) == (False, False, NOW + timedelta(days=5))
    assert "year-end" in late.why
    assert "the cloud begins before that" in late.why
    assert timing(Spec(notbefore=NOW + timedelta(days=9)), terms=terms, now=NOW).is_on_time


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
def test_what_is_over_is_left_alone(spec: dict[str, Any]) -> None:
    decision = decide(seen(a_record(**spec)))
    assert (decision.phase, decision.step) == (Phase.CANCELLED, None)


def held(until: timedelta | None = None) -> tuple[Peer, ...]:
    """Return the Machines of the set, of which a person holds the node of the first."""
    value = hold.written(reason="migration", by="alice", until=None if until is None else NOW + until)
    own, *others = peers(a_machine())
    assert own.node is not None
    metadata = msgspec.structs.replace(own.node.metadata, annotations={hold.ANNOTATION: value})
    return (Peer(own.machine, msgspec.structs.replace(own.node, metadata=metadata)), *others)


@pytest.mark.parametrize(
    ("until", "begins", "is_on_time"),
    [
        pytest.param(None, None, True, id="nobody knows when the cloud begins"),
        pytest.param(timedelta(hours=1), timedelta(hours=2), True, id="over before the cloud begins"),
        pytest.param(timedelta(hours=2), timedelta(hours=2), False, id="until it begins"),
        pytest.param(None, timedelta(days=9), False, id="for ever"),
    ],
)
def test_a_machine_whose_node_a_person_holds_waits_and_says_whether_that_is_too_long(
    until: timedelta | None,
    begins: timedelta | None,
    is_on_time: bool,  # noqa: FBT001 - a table
) -> None:
    record = a_record(notbefore=None if begins is None else NOW + begins)
    decision = decide(seen(record, peers=held(until)))
    assert (decision.phase, decision.reason, decision.step) == (Phase.WAITING, "Held", None)
    assert decision.why.startswith("node node-m1 is held by alice: migration")
    assert (decision.is_on_time, decision.is_bad) == (is_on_time, not is_on_time)
    assert decision.next_look == (None if until is None else NOW + until)


def test_a_hold_is_no_concern_of_what_has_begun_nor_of_a_profile_that_has_asked_before() -> None:
    assert isinstance(decide(seen(owner=a_set(CLAIMED), peers=held())).step, Begin)
    assert isinstance(decide(seen(a_record(eventcode=BY_PROFILE), peers=held())).step, TakeClaim)
    assert isinstance(decide(seen(peers=held(timedelta()))).step, TakeClaim)  # it is over


@pytest.mark.parametrize(
    ("uid", "flag", "phase"),
    [
        ("", False, Phase.CANCELLED),
        ("uid-m1", False, Phase.CANCELLED),
        ("", True, Phase.CANCELLED),
        ("uid-m1", True, Phase.COMPLETED),
    ],
)
def test_a_cancelled_record_is_completed_only_after_its_machine_was_deleted(
    uid: str, *, flag: bool, phase: Phase
) -> None:
    status = Status(machine_uid=uid, phase=Phase.CANCELLED, message="a person did")
    decision = decide(seen(a_record(status=status, maintenancescheduled=flag), machine=None))
    assert (decision.phase, decision.step) == (phase, None)


def test_a_machine_that_leaves_says_what_happens_to_its_node_or_to_its_instance() -> None:
    with_node = a_machine(deletion_timestamp=NOW)
    without = msgspec.structs.replace(with_node, status=MachineStatus(phase="Deleting"))
    assert "node node-m1 is emptied and ended by the Machine API" in decide(seen(machine=with_node)).why
    assert "its instance is ended by the Machine API" in decide(seen(machine=without)).why


@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_a_set_whose_claimed_machine_is_gone_takes_its_surge_back(replicas: int) -> None:
    step = withdrawal(a_set(UP, replicas=replicas), peers(others=2), is_wanted=False)
    assert isinstance(step, DropClaim)
    assert step.replicas == max(replicas - 1, 0)


def test_a_surge_whose_machine_is_not_made_yet_is_taken_back() -> None:
    step = withdrawal(a_set(UP, replicas=3), peers(a_machine(), others=1), is_wanted=False)
    assert isinstance(step, DropClaim)
    assert step.replicas == 2
