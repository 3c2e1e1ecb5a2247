"""Decisions about unhealthy nodes and their pods, as pure functions.

They follow kube-controller-manager's node lifecycle and taint eviction (Kubernetes 1.36,
`pkg/controller/{nodelifecycle,tainteviction}`), including its reasons and messages, which people and tools know.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from haulout.api.objects import RawObject, Taint
from haulout.kube.patches import Operation, add, remove, replace, require
from haulout_sandbox.nodes.conditions import format_time, new_condition
from haulout_sandbox.nodes.informers import NodeView
from haulout_sandbox.nodes.pod_spec import Toleration
from haulout_sandbox.nodes.scheduler.framework import UNSCHEDULABLE_TAINT

NO_EXECUTE = "NoExecute"

_NOT_READY_TAINT = "node.kubernetes.io/not-ready"
_UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
_TAINT_BY_CONDITION = {  # the condition, and the status in which it taints
    ("Ready", "False"): _NOT_READY_TAINT,
    ("Ready", "Unknown"): _UNREACHABLE_TAINT,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_MANAGED_TAINT_KEYS = frozenset({*_TAINT_BY_CONDITION.values(), UNSCHEDULABLE_TAINT.key})
_KUBELET_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def unknown_status_patch(node: NodeView, *, now: datetime) -> tuple[Operation, ...]:
    """Return the JSON patch that sets the conditions of a silent node to Unknown; empty if they already are."""
    operations: list[Operation] = [] if node.conditions else [add("/status/conditions", [])]
    index_by_type = {node_condition.type: number for number, node_condition in enumerate(node.conditions)}
    for condition_type in _KUBELET_CONDITIONS:
        existing = node.condition(condition_type)
        if existing is None:
            condition_body = new_condition(
                condition_type, "Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status."
            )
            times = {"lastHeartbeatTime": format_time(node.created_at or now), "lastTransitionTime": format_time(now)}
            operations.append(add("/status/conditions/-", condition_body | times))
        elif existing.status != "Unknown":
            path = f"/status/conditions/{index_by_type[condition_type]}"
            condition_body = new_condition(
                condition_type, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."
            )
            times = {"lastTransitionTime": format_time(now)}
            operations.append(require(f"{path}/type", condition_type))
            if existing.last_heartbeat_time:  # test that there was no heartbeat since: otherwise the node is alive
                times["lastHeartbeatTime"] = format_time(existing.last_heartbeat_time)
                operations.append(require(f"{path}/lastHeartbeatTime", times["lastHeartbeatTime"]))
            operations.append(replace(path, condition_body | times))
    return tuple(operations)


def taint_patch(node: NodeView, *, may_evict: bool, now: datetime) -> tuple[Operation, ...]:
    """Return the JSON patch that adds the taints of a node's conditions, and removes outdated ones.

    NoExecute taints are added only if `may_evict`. Taints of other owners are kept.
    """
    desired = _desired_taints(node, may_evict=may_evict)
    current = [(item.key, item.effect) for item in node.taints]
    outdated = [number for number, item in enumerate(current) if _is_managed_taint(*item) and item not in desired]
    missing = [item for item in desired if item not in current]
    if not outdated and not missing:
        return ()
    operations = [require("/metadata/resourceVersion", node.resource_version)]
    operations += (remove(f"/spec/taints/{number}") for number in reversed(outdated))
    if missing and not node.taints:
        operations.append(add("/spec/taints", []))
    for key, effect in missing:
        taint = {"key": key, "effect": effect}
        if effect == NO_EXECUTE or key == UNSCHEDULABLE_TAINT.key:
            taint["timeAdded"] = format_time(now)
        operations.append(add("/spec/taints/-", taint))
    return tuple(operations)


def _desired_taints(node: NodeView, *, may_evict: bool) -> list[tuple[str, str]]:
    taints = [
        (key, "NoSchedule")
        for condition in node.conditions
        if (key := _TAINT_BY_CONDITION.get((condition.type, condition.status))) is not None
    ]
    if node.unschedulable:
        taints.append((UNSCHEDULABLE_TAINT.key, UNSCHEDULABLE_TAINT.effect))
    if may_evict and (key := _TAINT_BY_CONDITION.get(("Ready", node.ready_status))):
        taints.append((key, NO_EXECUTE))
    return taints


def _is_managed_taint(key: str, effect: str) -> bool:
    if effect == NO_EXECUTE:
        return key in (_NOT_READY_TAINT, _UNREACHABLE_TAINT)
    return effect == "NoSchedule" and key in _MANAGED_TAINT_KEYS


def eviction_time(
    tolerations: Sequence[Toleration],
    taints: Iterable[Taint],
    *,
    first_observed_at: Mapping[str, datetime],
    now: datetime,
) -> datetime | None:
    """Return when a pod must leave its node because of taints; None if it may stay.

    tolerationSeconds count from the taint's timeAdded or, if that is absent, from `first_observed_at`.
    """
    instants: list[datetime] = []
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        toleration = next((candidate for candidate in tolerations if candidate.tolerates(taint)), None)
        if toleration is None:
            return now
        if toleration.toleration_seconds is not None:
            since = taint.time_added or first_observed_at.get(taint.key, now)
            instants.append(since + timedelta(seconds=max(toleration.toleration_seconds, 0)))
    return min(instants, default=None)


def disruption_target_condition(reason: str, message: str, *, generation: int) -> RawObject:
    """Return the DisruptionTarget condition of a pod that is about to be evicted."""
    return new_condition("DisruptionTarget", "True", reason, message, observedGeneration=generation)
