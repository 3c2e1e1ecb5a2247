"""Node details for browser tests: a blocked node, one with a NodeMaintenance, an idle one and a hostile one."""

from datetime import datetime, timedelta

from haulout.dashboard.api.types import (
    Action,
    ActionType,
    Blocker,
    Check,
    Command,
    DrainSummary,
    HistoryEntry,
    MaintenanceSummary,
    NodeCondition,
    NodeDetail,
    NodeState,
    NodeSummary,
    ProfileState,
    Transition,
)
from support.dashboard.notices_and_configuration import HOSTILE, LONG_TEXT, a_moved_notice

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


def a_blocked_node(now: datetime) -> NodeDetail:
    """Return a node whose maintenance is blocked."""
    return NodeDetail(
        summary=NodeSummary(
            name="general-05",
            state=NodeState.BLOCKED,
            since=now - 42 * _MINUTE,
            message="the drain waits for PodDisruptionBudget bank/ledger: 2 of 2 healthy pods needed",
            next_at=now + 29 * timedelta(seconds=1),
            progress=62,
            zone="eu-1a",
            pool="general",
            is_cordoned=True,
            profiles={"os": "maintenance-required", "gpu-driver": "operational"},
            notices=1,
        ),
        uid="0d1e7f1c-2f0e-4c39-a5c5-0a8a8a2f6d11",
        provider_id="aws:///eu-central-1a/i-0abc123def4567890",
        kubelet="v1.36.3",
        created=now - 93 * _DAY,
        labels={
            "kubernetes.io/hostname": "general-05",
            "topology.kubernetes.io/zone": "eu-1a",
            "cloud.sap/maintenance-profile": "os--gpu-driver",
            "cloud.sap/maintenance-state": "maintenance-required",
            "example.com/patches": "pending",
        },
        taints=("node.kubernetes.io/unschedulable:NoSchedule",),
        conditions=(
            NodeCondition(
                type="Ready", status="True", reason="KubeletReady", message="kubelet is ready", since=now - 12 * _DAY
            ),
            NodeCondition(
                type="DrainInProgress",
                status="True",
                reason="Draining",
                message="5 of 8 pods have left",
                since=now - 42 * _MINUTE,
            ),
            NodeCondition(
                type="MemoryPressure", status="False", reason="KubeletHasSufficientMemory", since=now - 93 * _DAY
            ),
        ),
        profiles=(_os_profile(now), _gpu_profile(now)),
        next_reconcile=now + 29 * timedelta(seconds=1),
        requeue_on=("the node itself changes", "a pod of the node goes", "a node leaves maintenance"),
        drains=(_a_drain(now),),
        notices=(a_moved_notice(now),),
        history=_history_entries(now),
        commands=(
            Command(
                title="Give bank/ledger one more replica",
                command="kubectl -n bank scale deployment/ledger --replicas=3",
                reason="Then its disruption budget lets a pod go.",
            ),
            Command(
                title="See what the drain waits for",
                command="haulout why general-05 --config-map kube-system/haulout",
            ),
            Command(
                title="Approve it",
                command="kubectl annotate node general-05 example.com/approved=true",
                reason="The check approved of profile os waits for it.",
                action=Action(action=ActionType.APPROVE, node="general-05", profile="os", check="approved"),
            ),
        ),
    )


def _os_profile(now: datetime) -> ProfileState:
    return ProfileState(
        name="os",
        state="maintenance-required",
        since=now - 8 * _HOUR,
        waiting_for="drain: 3 pods are left",
        notifications=("tell_the_team",),
        transitions=(
            Transition(
                source="operational",
                target="maintenance-required",
                expression="patches_pending",
                triggers=("allow_patching",),
            ),
            Transition(
                source="maintenance-required",
                target="in-maintenance",
                expression="night && (one_at_a_time || approved)",
                triggers=("drain", "allow_patching"),
                is_current=True,
                checks=(
                    Check(
                        name="night",
                        type="timeWindow",
                        passed=True,
                        reason="the window is open until Tue 2026-11-17 04:00 CET",
                        changes_at=now + 100 * _MINUTE,
                        info={"timezone": "Europe/Berlin", "next": {"opens": "2026-11-17T22:00:00+01:00"}},
                    ),
                    Check(
                        name="one_at_a_time",
                        type="maxMaintenance",
                        passed=False,
                        reason="1 of at most 1 nodes in maintenance in the whole cluster: general-04",
                    ),
                    Check(
                        name="approved",
                        type="hasAnnotation",
                        passed=False,
                        reason="node general-05 has no annotation example.com/approved",
                    ),
                ),
                remedies=("one_at_a_time passed", "approved passed"),
            ),
            Transition(
                source="maintenance-required",
                target="operational",
                expression="!patches_pending",
                is_current=True,
                checks=(
                    Check(
                        name="patches_pending",
                        type="hasLabel",
                        passed=None,
                        error="asking Prometheus: connection refused",
                    ),
                ),
            ),
            Transition(
                source="in-maintenance",
                target="operational",
                expression="!patches_pending && well_again",
                triggers=("uncordon",),
            ),
        ),
    )


def _gpu_profile(now: datetime) -> ProfileState:
    return ProfileState(
        name="gpu-driver",
        state="operational",
        since=now - 12 * _DAY,
        transitions=(
            Transition(
                source="operational",
                target="maintenance-required",
                expression="driver_is_old",
                is_current=True,
                passed=True,
                veto="profile os is in maintenance, and only one of a node's profiles is at a time",
                checks=(
                    Check(
                        name="driver_is_old", type="hasLabel", passed=True, reason="the node has the label driver=550"
                    ),
                ),
            ),
            Transition(source="maintenance-required", target="in-maintenance", expression="night"),
            Transition(source="in-maintenance", target="operational", expression="!driver_is_old"),
        ),
    )


def _a_drain(now: datetime) -> DrainSummary:
    return DrainSummary(
        owner="profile/os",
        started=now - 42 * _MINUTE,
        deadline=now + 48 * _MINUTE,
        total=8,
        removed=5,
        terminating=1,
        message="2 pods wait for PodDisruptionBudget bank/ledger, 1 is leaving",
        pending_pods=("bank/ledger-7d9f-x2x4p", "bank/ledger-7d9f-9k8zz", "shop/cart-0"),
        blockers=(
            Blocker(
                kind="DisruptionBudget",
                pod="bank/ledger-7d9f-x2x4p",
                object="PodDisruptionBudget bank/ledger",
                workload="Deployment bank/ledger",
                reason="2 of 2 healthy pods needed",
                remedy="add a replica, or lower minAvailable: kubectl -n bank scale deployment/ledger --replicas=3",
                since=now - 40 * _MINUTE,
            ),
            Blocker(
                kind="DisruptionBudget",
                pod="bank/ledger-7d9f-9k8zz",
                object="PodDisruptionBudget bank/ledger",
                workload="Deployment bank/ledger",
                reason="2 of 2 healthy pods needed",
                remedy="add a replica, or lower minAvailable: kubectl -n bank scale deployment/ledger --replicas=3",
                since=now - 40 * _MINUTE,
            ),
            Blocker(
                kind="Termination",
                pod="shop/cart-0",
                workload="StatefulSet shop/cart",
                reason="it is ending for 3m, of a grace period of 10m",
                since=now - 3 * _MINUTE,
            ),
        ),
    )


def _history_entries(now: datetime) -> tuple[HistoryEntry, ...]:
    return (
        HistoryEntry(
            time=now - 8 * _HOUR,
            object="profile/os",
            from_="operational",
            to="maintenance-required",
            since=now - 2 * _DAY,
            reason="patches_pending passed: node general-05 has the label example.com/patches",
        ),
        HistoryEntry(
            time=now - 2 * _DAY,
            object="profile/os",
            from_="in-maintenance",
            to="operational",
            since=now - 2 * _DAY - 40 * _MINUTE,
            reason="!patches_pending && well_again passed",
        ),
        HistoryEntry(
            time=now - 2 * _DAY - 40 * _MINUTE,
            object="profile/os",
            result="Drained",
            drain_seconds=311.0,
            drain_pods=7,
            reason="7 pods removed in 5m11s, blocked longest by PodDisruptionBudget bank/ledger (44s)",
        ),
        HistoryEntry(
            time=now - 9 * _DAY,
            object="NodeMaintenance/patch",
            requested_by="kubectl-create",
            from_="Succeeded",
            to="Ended",
            since=now - 9 * _DAY - 16 * _MINUTE,
            reason="the NodeMaintenance was deleted",
        ),
    )


def an_ordered_node(now: datetime) -> NodeDetail:
    """Return a node whose NodeMaintenance failed."""
    return NodeDetail(
        summary=NodeSummary(
            name="general-08",
            state=NodeState.BLOCKED,
            since=now - 270 * _MINUTE,
            message="NodeMaintenance patch-08 failed: DrainTimedOut",
            is_cordoned=True,
            is_ready=False,
            maintenance="patch-08",
            hold="alice: disk is being replaced",
        ),
        maintenances=(
            MaintenanceSummary(
                name="patch-08",
                node="general-08",
                reason="kernel update",
                phase="Failed",
                requested_by="kubectl-create",
                created=now - 5 * _HOUR,
                error="DrainTimedOut: 30m passed, and shop/cart-0 is still there",
            ),
            MaintenanceSummary(
                name="patch-08b",
                node="general-08",
                reason="firmware",
                phase="Waiting",
                created=now - _HOUR,
                queue_position=2,
            ),
        ),
        history_problem="No history is kept here: its definition is not installed.",
    )


def an_idle_node(now: datetime, name: str = "general-020") -> NodeDetail:
    """Return an idle node."""
    return NodeDetail(
        summary=NodeSummary(name=name, state=NodeState.IDLE, profiles={"default": "operational"}),
        created=now - 10 * _DAY,
        profiles=(ProfileState(name="default", state="operational"),),
    )


def a_hostile_node(now: datetime) -> NodeDetail:
    """Return a node whose texts attempt HTML injection."""
    return NodeDetail(
        summary=NodeSummary(
            name="evil", state=NodeState.BLOCKED, message=HOSTILE, hold=HOSTILE, zone=HOSTILE, pool=LONG_TEXT
        ),
        labels={HOSTILE: HOSTILE, LONG_TEXT: LONG_TEXT},
        taints=(HOSTILE, LONG_TEXT),
        conditions=(NodeCondition(type=HOSTILE, status=HOSTILE, message=LONG_TEXT),),
        problem=HOSTILE,
        profiles=(
            ProfileState(
                name=HOSTILE,
                state=HOSTILE,
                error=HOSTILE,
                transitions=(
                    Transition(
                        source=HOSTILE,
                        target=LONG_TEXT,
                        expression=HOSTILE + LONG_TEXT,
                        is_current=True,
                        error=HOSTILE,
                        remedies=(HOSTILE,),
                        checks=(
                            Check(
                                name=LONG_TEXT,
                                type=HOSTILE,
                                reason=LONG_TEXT,
                                info={HOSTILE: [HOSTILE, {LONG_TEXT: 1}]},
                            ),
                        ),
                    ),
                ),
            ),
        ),
        drains=(DrainSummary(owner=HOSTILE, total=1, message=LONG_TEXT, pending_pods=(HOSTILE, LONG_TEXT)),),
        history=(HistoryEntry(time=now, object=HOSTILE, reason=LONG_TEXT, requested_by=HOSTILE),),
        commands=(Command(title=HOSTILE, command=LONG_TEXT, reason=HOSTILE),),
    )
