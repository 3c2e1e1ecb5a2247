"""Decisions about one host and one node: cases E01, E07, E09 and E10, and patches."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Node, NodeSpec, ObjectMeta, OwnerReference, Pod
from haulout.controllers.esx.decision import (
    Decision,
    Observation,
    PowerAction,
    decide,
    host_state,
    needs_machine,
)
from haulout.controllers.esx.labels import (
    APPROVED,
    CORDON_OWNER,
    INITIATED,
    SHUTDOWN_REQUESTED,
    STATE,
    VERSION,
    HostState,
)
from haulout.controllers.esx.vcenter import Host, PowerState, VirtualMachine
from haulout.core.timestamps import micro_time
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION, CordonRequest, acquire
from haulout.drain.pod_filters import DaemonSetInfo, PodDisposition, filter_pod
from support.platforms.esx import SETTINGS

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HEALTHY = Host(name="esx-1", version="8.0.2")
IN_MAINTENANCE = Host(name="esx-1", version="8.0.2", in_maintenance=True)
IN_ALARM = Host(name="esx-1", version="8.0.2", alarms=frozenset({"Host memory"}))
ON, IS_OFF = VirtualMachine("vm-1", "n1", PowerState.ON), VirtualMachine("vm-1", "n1", PowerState.OFF)


def a_node(
    host: Host,
    *,
    approved: bool = True,
    initiated: bool = True,
    cordoned: bool = False,
    shutdown_requested_at: str | None = None,
) -> Node:
    """Return a node with correct labels, cordoned by the ESX controller if `initiated`."""
    labels = {VERSION: host.version, STATE: str(host_state(host, SETTINGS.alarms))} | (
        {APPROVED: "true"} if approved else {}
    )
    node = Node(
        metadata=ObjectMeta(name="n1", uid="u", resource_version="7", labels=labels),
        spec=NodeSpec(unschedulable=cordoned),
    )
    if initiated:
        change: Any = acquire(node, CORDON_OWNER, CordonRequest(), now=NOW)
        marks = {INITIATED: "true", **change["metadata"]["annotations"]} | (
            {} if shutdown_requested_at is None else {SHUTDOWN_REQUESTED: shutdown_requested_at}
        )
        node = msgspec.structs.replace(
            node,
            metadata=msgspec.structs.replace(node.metadata, annotations=marks),
            spec=NodeSpec(unschedulable=True),
        )
    return node


def decide_for(node: Node, host: Host, **more: Any) -> Decision:
    observation = Observation(node=node, host=host, state=host_state(host, SETTINGS.alarms), now=NOW, **more)
    return decide(observation, SETTINGS)


def annotations_of(decision: Decision) -> dict[str, str | None]:
    assert decision.change is not None
    found: dict[str, str | None] = decision.change["metadata"]["annotations"]
    return found


@pytest.mark.parametrize(
    ("host", "state"),
    [
        (HEALTHY, HostState.HEALTHY),
        (IN_MAINTENANCE, HostState.IN_MAINTENANCE),
        (Host(name="esx-1", is_entering_maintenance=True), HostState.IN_MAINTENANCE),
        (IN_ALARM, HostState.ALARM),
        (Host(name="esx-1", alarms=frozenset({"Host memory"}), in_maintenance=True), HostState.ALARM),
        (Host(name="esx-1", alarms=frozenset({"Another"})), HostState.HEALTHY),
    ],
)
def test_e01_host_state(host: Host, state: HostState) -> None:
    assert host_state(host, SETTINGS.alarms) is state
    assert [str(state_value) for state_value in (HostState.HEALTHY, HostState.IN_MAINTENANCE, HostState.ALARM)] == [
        "false",
        "true",
        "alarm",
    ]


def test_e01_state_and_version_are_written_in_one_patch() -> None:
    bare = Node(metadata=ObjectMeta(name="n1", uid="u", resource_version="7"))
    assert decide_for(bare, IN_MAINTENANCE).change == {
        "metadata": {"labels": {VERSION: "8.0.2", STATE: "true"}, "uid": "u", "resourceVersion": "7"}
    }


def test_unknown_version_changes_no_version_label() -> None:
    bare = Node(metadata=ObjectMeta(name="n1", labels={VERSION: "8.0.1"}))
    change = decide_for(bare, Host(name="esx-1")).change
    assert change is not None
    assert change["metadata"]["labels"] == {STATE: "false"}


@pytest.mark.parametrize(
    ("host", "grace"), [(IN_ALARM, timedelta()), (IN_MAINTENANCE, None)], ids=["alarm", "in maintenance"]
)
def test_e07_pods_get_no_grace_period_in_state_alarm_only(host: Host, grace: timedelta | None) -> None:
    drain = decide_for(a_node(host), host).drain
    assert drain is not None
    assert drain.grace_period == grace


def test_e07_a_node_without_a_state_is_not_drained() -> None:
    assert decide_for(Node(metadata=ObjectMeta(name="n1", labels={APPROVED: "true"})), IN_ALARM).drain is None


@pytest.mark.parametrize(
    ("metadata", "disposition"),
    [
        (ObjectMeta(name="bare", namespace="a"), PodDisposition.LEAVES),
        (
            ObjectMeta(name="mirror", namespace="a", annotations={"kubernetes.io/config.mirror": "x"}),
            PodDisposition.STAYS,
        ),
        (
            ObjectMeta(
                name="daemon",
                namespace="a",
                owner_references=(OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", controller=True),),
            ),
            PodDisposition.STAYS,
        ),
    ],
)
def test_e09_all_pods_leave_except_daemon_set_and_mirror_pods(
    metadata: ObjectMeta, disposition: PodDisposition
) -> None:
    filters = SETTINGS.drain_policy(immediate=False).filters
    status = filter_pod(Pod(metadata=metadata), filters, daemon_set=lambda _: DaemonSetInfo(), now=NOW)
    assert status.disposition is disposition


@pytest.mark.parametrize(
    ("host", "approved", "initiated", "wanted"),
    [
        (HEALTHY, False, True, True),
        (HEALTHY, True, False, False),
        (IN_MAINTENANCE, True, False, True),
        (IN_MAINTENANCE, False, True, False),
        (IN_ALARM, True, True, True),
    ],
)
def test_e10_machines_are_read_only_when_needed(host: Host, approved: bool, initiated: bool, wanted: bool) -> None:  # noqa: FBT001 - a case
    node = a_node(host, approved=approved, initiated=initiated)
    assert needs_machine(node, host_state(host, SETTINGS.alarms)) is wanted


def test_e10_machine_that_is_off_is_powered_on_before_the_node_is_released() -> None:
    node = a_node(HEALTHY)
    assert decide_for(node, HEALTHY, machine=IS_OFF).power_action is PowerAction.POWER_ON
    back = decide_for(node, HEALTHY, machine=ON)
    assert annotations_of(back) == {
        CORDON_ANNOTATION: None,
        CORDON_BACKUP_ANNOTATION: None,
        INITIATED: None,
        SHUTDOWN_REQUESTED: None,
    }
    assert back.change is not None
    assert back.change["spec"] == {"unschedulable": None}


def test_e10_guest_is_shut_down_and_powered_off_after_the_timeout() -> None:
    drained = a_node(IN_MAINTENANCE)
    first = decide_for(drained, IN_MAINTENANCE, is_drained=True, machine=ON)
    assert annotations_of(first) == {SHUTDOWN_REQUESTED: micro_time(NOW)}
    soon = a_node(IN_MAINTENANCE, shutdown_requested_at=micro_time(NOW - timedelta(minutes=1)))
    requests = decide_for(soon, IN_MAINTENANCE, is_drained=True, machine=ON)
    assert (requests.power_action, requests.requeue_at) == (
        PowerAction.SHUT_DOWN,
        NOW + SETTINGS.shutdown_poll_interval,
    )
    waits = decide_for(soon, IN_MAINTENANCE, is_drained=True, machine=ON, shutdown_requested=True)
    assert (waits.power_action, waits.requeue_at) == (None, NOW + SETTINGS.shutdown_poll_interval)
    late = a_node(IN_MAINTENANCE, shutdown_requested_at=micro_time(NOW - SETTINGS.shutdown_timeout))
    assert (
        decide_for(late, IN_MAINTENANCE, is_drained=True, machine=ON, shutdown_requested=True).power_action
        is PowerAction.POWER_OFF
    )
    off = decide_for(late, IN_MAINTENANCE, is_drained=True, machine=IS_OFF)
    assert (off.power_action, annotations_of(off)) == (None, {SHUTDOWN_REQUESTED: None})


@pytest.mark.parametrize("text", ["yesterday", "2026-03-01T11:00:00", "", micro_time(NOW + timedelta(days=1))])
def test_invalid_shutdown_time_is_replaced(text: str) -> None:
    node = a_node(IN_MAINTENANCE, shutdown_requested_at=text)
    assert annotations_of(decide_for(node, IN_MAINTENANCE, is_drained=True, machine=ON)) == {
        SHUTDOWN_REQUESTED: micro_time(NOW)
    }


def test_machine_is_not_touched_before_its_node_is_drained() -> None:
    waiting = decide_for(a_node(IN_MAINTENANCE), IN_MAINTENANCE, machine=ON)
    assert (waiting.power_action, waiting.change) == (None, None)
    assert waiting.drain == SETTINGS.drain_policy(immediate=False)


def test_cordon_and_annotation_are_one_patch() -> None:
    change = decide_for(a_node(IN_MAINTENANCE, initiated=False), IN_MAINTENANCE).change
    assert change is not None
    assert change["spec"] == {"unschedulable": True}
    assert change["metadata"]["annotations"][INITIATED] == "true"
    assert change["metadata"]["resourceVersion"] == "7"


def test_withdrawn_approval_clears_the_shutdown_time_after_the_timeout() -> None:
    late = a_node(IN_MAINTENANCE, approved=False, shutdown_requested_at=micro_time(NOW - SETTINGS.shutdown_timeout))
    assert annotations_of(decide_for(late, IN_MAINTENANCE)) == {SHUTDOWN_REQUESTED: None}
    soon = decide_for(a_node(IN_MAINTENANCE, approved=False, shutdown_requested_at=micro_time(NOW)), IN_MAINTENANCE)
    assert (soon.change, soon.requeue_at) == (None, NOW + SETTINGS.shutdown_timeout), "the guest may still shut down"
    assert decide_for(a_node(IN_MAINTENANCE, approved=False), IN_MAINTENANCE).change is None


def test_suspended_machine_counts_as_off() -> None:
    suspended = VirtualMachine("vm-1", "n1", PowerState.SUSPENDED)
    assert decide_for(a_node(IN_MAINTENANCE), IN_MAINTENANCE, is_drained=True, machine=suspended).power_action is None
    assert decide_for(a_node(HEALTHY), HEALTHY, machine=suspended).power_action is PowerAction.POWER_ON


def test_eviction_and_deletion_timeouts_allow_deletion_of_pods() -> None:
    settings = replace(SETTINGS, eviction_timeout=timedelta(minutes=5), deletion_timeout=timedelta(minutes=2))
    for immediate in (False, True):
        policy = settings.drain_policy(immediate=immediate)
        assert (policy.eviction_timeout, policy.deletion_timeout) == (timedelta(minutes=5), timedelta(minutes=2))
        assert policy.may_delete
    assert not SETTINGS.drain_policy(immediate=True).may_delete


@pytest.mark.parametrize("mark", [None, "{}", "?"])
@pytest.mark.parametrize("was_cordoned", [False, True])
def test_node_with_an_edited_cordon_annotation_is_restored_on_release(*, mark: str | None, was_cordoned: bool) -> None:
    node = a_node(HEALTHY, cordoned=was_cordoned)
    annotations = {**node.metadata.annotations, CORDON_ANNOTATION: mark}
    left = {key: value for key, value in annotations.items() if value is not None}
    edited = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=left))
    back = decide_for(edited, HEALTHY, machine=ON)
    assert annotations_of(back).keys() >= {CORDON_BACKUP_ANNOTATION, INITIATED}
    assert back.change is not None
    assert back.change.get("spec") == (None if was_cordoned else {"unschedulable": None})
