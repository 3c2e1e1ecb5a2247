"""Decisions about one host and one node: E01, E07, E09 and E10, and what is written when."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.drain.cordon import BACKUP, MARK, Wishes, acquire
from haulout.drain.selection import DaemonSetAnswer, Fate, judge
from haulout.esx.decision import Act, Decision, HostState, Seen, decide, needs_machine, state_of
from haulout.esx.keys import APPROVED, ASKED, INITIATED, OWNER, STATE, VERSION
from haulout.esx.vcenter import Host, Machine, Power
from haulout.kube.objects import Metadata, Node, NodeSpec, OwnerReference, Pod
from haulout.kube.timestamps import micro_time
from support.esx import SETTINGS

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WELL = Host(name="esx-1", version="8.0.2")
IN_MAINTENANCE = Host(name="esx-1", version="8.0.2", in_maintenance=True)
IN_ALARM = Host(name="esx-1", version="8.0.2", alarms=frozenset({"Host memory"}))
ON, IS_OFF = Machine("vm-1", "n1", Power.ON), Machine("vm-1", "n1", Power.OFF)


def a_node(
    host: Host, *, approved: bool = True, initiated: bool = True, cordoned: bool = False, asked: str | None = None
) -> Node:
    """Return a node whose labels are right, and which has our part in its cordon if it is in our hands."""
    labels = {VERSION: host.version, STATE: str(state_of(host, SETTINGS.alarms))} | (
        {APPROVED: "true"} if approved else {}
    )
    node = Node(
        metadata=Metadata(name="n1", uid="u", resource_version="7", labels=labels),
        spec=NodeSpec(unschedulable=cordoned),
    )
    if initiated:
        change: Any = acquire(node, OWNER, Wishes(), now=NOW)
        marks = {INITIATED: "true", **change["metadata"]["annotations"]} | ({} if asked is None else {ASKED: asked})
        node = msgspec.structs.replace(
            node,
            metadata=msgspec.structs.replace(node.metadata, annotations=marks),
            spec=NodeSpec(unschedulable=True),
        )
    return node


def decided(node: Node, host: Host, **more: Any) -> Decision:
    seen = Seen(node=node, host=host, state=state_of(host, SETTINGS.alarms), now=NOW, **more)
    return decide(seen, SETTINGS)


def annotations_of(decision: Decision) -> dict[str, str | None]:
    assert decision.change is not None
    found: dict[str, str | None] = decision.change["metadata"]["annotations"]
    return found


@pytest.mark.parametrize(
    ("host", "state"),
    [
        (WELL, HostState.WELL),
        (IN_MAINTENANCE, HostState.IN_MAINTENANCE),
        (Host(name="esx-1", is_entering=True), HostState.IN_MAINTENANCE),
        (IN_ALARM, HostState.ALARM),
        (Host(name="esx-1", alarms=frozenset({"Host memory"}), in_maintenance=True), HostState.ALARM),
        (Host(name="esx-1", alarms=frozenset({"Another"})), HostState.WELL),
    ],
)
def test_e01_the_state_of_a_host(host: Host, state: HostState) -> None:
    assert state_of(host, SETTINGS.alarms) is state
    assert [str(it) for it in (HostState.WELL, HostState.IN_MAINTENANCE, HostState.ALARM)] == ["false", "true", "alarm"]


def test_e01_state_and_version_are_written_together_over_what_was_read() -> None:
    bare = Node(metadata=Metadata(name="n1", uid="u", resource_version="7"))
    assert decided(bare, IN_MAINTENANCE).change == {
        "metadata": {"labels": {VERSION: "8.0.2", STATE: "true"}, "uid": "u", "resourceVersion": "7"}
    }


def test_a_version_that_nobody_knows_changes_no_label() -> None:
    bare = Node(metadata=Metadata(name="n1", labels={VERSION: "8.0.1"}))
    change = decided(bare, Host(name="esx-1")).change
    assert change is not None
    assert change["metadata"]["labels"] == {STATE: "false"}


@pytest.mark.parametrize(
    ("host", "grace"), [(IN_ALARM, timedelta()), (IN_MAINTENANCE, None)], ids=["alarm", "in maintenance"]
)
def test_e07_pods_get_no_time_to_end_in_state_alarm_only(host: Host, grace: timedelta | None) -> None:
    drain = decided(a_node(host), host).drain
    assert drain is not None
    assert drain.grace_period == grace


def test_e07_a_node_without_a_state_is_not_drained() -> None:
    assert decided(Node(metadata=Metadata(name="n1", labels={APPROVED: "true"})), IN_ALARM).drain is None


@pytest.mark.parametrize(
    ("metadata", "fate"),
    [
        (Metadata(name="bare", namespace="a"), Fate.LEAVES),
        (Metadata(name="mirror", namespace="a", annotations={"kubernetes.io/config.mirror": "x"}), Fate.STAYS),
        (
            Metadata(
                name="daemon",
                namespace="a",
                owner_references=(OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", controller=True),),
            ),
            Fate.STAYS,
        ),
    ],
)
def test_e09_all_pods_leave_but_those_of_daemon_sets_and_mirrors(metadata: Metadata, fate: Fate) -> None:
    filters = SETTINGS.policy(in_a_hurry=False).filters
    verdict = judge(Pod(metadata=metadata), filters, daemon_set=lambda _: DaemonSetAnswer(), now=NOW)
    assert verdict.fate is fate


@pytest.mark.parametrize(
    ("host", "approved", "initiated", "wanted"),
    [
        (WELL, False, True, True),
        (WELL, True, False, False),
        (IN_MAINTENANCE, True, False, True),
        (IN_MAINTENANCE, False, True, False),
        (IN_ALARM, True, True, True),
    ],
)
def test_e10_which_machines_are_looked_at(host: Host, approved: bool, initiated: bool, wanted: bool) -> None:  # noqa: FBT001 - a case
    node = a_node(host, approved=approved, initiated=initiated)
    assert needs_machine(node, state_of(host, SETTINGS.alarms)) is wanted


def test_e10_a_machine_that_is_off_is_turned_on_and_then_the_node_is_given_back() -> None:
    node = a_node(WELL)
    assert decided(node, WELL, machine=IS_OFF).act is Act.POWER_ON
    back = decided(node, WELL, machine=ON)
    assert annotations_of(back) == {MARK: None, BACKUP: None, INITIATED: None, ASKED: None}
    assert back.change is not None
    assert back.change["spec"] == {"unschedulable": None}


def test_e10_a_guest_is_asked_and_its_machine_turned_off_when_its_time_is_over() -> None:
    drained = a_node(IN_MAINTENANCE)
    first = decided(drained, IN_MAINTENANCE, is_drained=True, machine=ON)
    assert annotations_of(first) == {ASKED: micro_time(NOW)}
    soon = a_node(IN_MAINTENANCE, asked=micro_time(NOW - timedelta(minutes=1)))
    asks = decided(soon, IN_MAINTENANCE, is_drained=True, machine=ON)
    assert (asks.act, asks.again_at) == (Act.SHUT_DOWN, NOW + SETTINGS.looks_every)
    waits = decided(soon, IN_MAINTENANCE, is_drained=True, machine=ON, was_asked=True)
    assert (waits.act, waits.again_at) == (None, NOW + SETTINGS.looks_every)
    late = a_node(IN_MAINTENANCE, asked=micro_time(NOW - SETTINGS.shuts_down_within))
    assert decided(late, IN_MAINTENANCE, is_drained=True, machine=ON, was_asked=True).act is Act.POWER_OFF
    off = decided(late, IN_MAINTENANCE, is_drained=True, machine=IS_OFF)
    assert (off.act, annotations_of(off)) == (None, {ASKED: None})


@pytest.mark.parametrize("text", ["yesterday", "2026-03-01T11:00:00", "", micro_time(NOW + timedelta(days=1))])
def test_a_time_that_nobody_can_have_written_is_written_anew(text: str) -> None:
    node = a_node(IN_MAINTENANCE, asked=text)
    assert annotations_of(decided(node, IN_MAINTENANCE, is_drained=True, machine=ON)) == {ASKED: micro_time(NOW)}


def test_nothing_is_done_to_the_machine_of_a_node_that_is_not_empty() -> None:
    waiting = decided(a_node(IN_MAINTENANCE), IN_MAINTENANCE, machine=ON)
    assert (waiting.act, waiting.change) == (None, None)
    assert waiting.drain == SETTINGS.policy(in_a_hurry=False)


def test_the_mark_and_the_cordon_are_one_write() -> None:
    change = decided(a_node(IN_MAINTENANCE, initiated=False), IN_MAINTENANCE).change
    assert change is not None
    assert change["spec"] == {"unschedulable": True}
    assert change["metadata"]["annotations"][INITIATED] == "true"
    assert change["metadata"]["resourceVersion"] == "7"


def test_who_was_approved_once_and_is_not_any_more_will_be_asked_anew() -> None:
    late = a_node(IN_MAINTENANCE, approved=False, asked=micro_time(NOW - SETTINGS.shuts_down_within))
    assert annotations_of(decided(late, IN_MAINTENANCE)) == {ASKED: None}
    soon = decided(a_node(IN_MAINTENANCE, approved=False, asked=micro_time(NOW)), IN_MAINTENANCE)
    assert (soon.change, soon.again_at) == (None, NOW + SETTINGS.shuts_down_within), "it may still do as it was asked"
    assert decided(a_node(IN_MAINTENANCE, approved=False), IN_MAINTENANCE).change is None


def test_a_suspended_machine_does_not_run_and_is_left_as_it_is() -> None:
    suspended = Machine("vm-1", "n1", Power.SUSPENDED)
    assert decided(a_node(IN_MAINTENANCE), IN_MAINTENANCE, is_drained=True, machine=suspended).act is None
    assert decided(a_node(WELL), WELL, machine=suspended).act is Act.POWER_ON


def test_force_deletes_pods_and_ends_them_each_after_its_time() -> None:
    settings = replace(SETTINGS, evicts_for=timedelta(minutes=5), deletes_for=timedelta(minutes=2))
    for hurry in (False, True):
        policy = settings.policy(in_a_hurry=hurry)
        assert (policy.eviction_timeout, policy.deletion_timeout) == (timedelta(minutes=5), timedelta(minutes=2))
        assert policy.may_delete
    assert not SETTINGS.policy(in_a_hurry=True).may_delete


@pytest.mark.parametrize("mark", [None, "{}", "?"])
@pytest.mark.parametrize("was_cordoned", [False, True])
def test_a_node_whose_mark_is_edited_is_given_back_as_it_was(*, mark: str | None, was_cordoned: bool) -> None:
    node = a_node(WELL, cordoned=was_cordoned)
    annotations = {**node.metadata.annotations, MARK: mark}
    left = {key: value for key, value in annotations.items() if value is not None}
    edited = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=left))
    back = decided(edited, WELL, machine=ON)
    assert annotations_of(back).keys() >= {BACKUP, INITIATED}
    assert back.change is not None
    assert back.change.get("spec") == (None if was_cordoned else {"unschedulable": None})
