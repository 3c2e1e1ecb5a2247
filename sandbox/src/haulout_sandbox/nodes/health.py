"""What becomes of a node that is not well, and of its pods: pure decisions.

They follow kube-controller-manager's node lifecycle and taint eviction (Kubernetes 1.36,
`pkg/controller/{nodelifecycle,tainteviction}`), whose words people and tools know.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from haulout.kube.objects import RawObject, Taint
from haulout.kube.patches import Operation, add, remove, replace, require
from haulout_sandbox.nodes.conditions import condition, timestamp
from haulout_sandbox.nodes.placement import UNSCHEDULABLE_TAINT
from haulout_sandbox.nodes.specs import Toleration
from haulout_sandbox.nodes.view import NodeView

NO_EXECUTE = "NoExecute"

_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_TAINTS = {  # the condition and the status in which it taints
    ("Ready", "False"): _NOT_READY,
    ("Ready", "Unknown"): _UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_KEPT = frozenset({*_TAINTS.values(), UNSCHEDULABLE_TAINT.key})
_WATCHED = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def silenced(node: NodeView, *, now: datetime) -> tuple[Operation, ...]:
    """Return the changes that make nothing known of a node whose kubelet fell silent; none if they are made."""
    operations: list[Operation] = [] if node.conditions else [add("/status/conditions", [])]
    places = {it.type: number for number, it in enumerate(node.conditions)}
    for kind in _WATCHED:
        known = node.condition(kind)
        if known is None:
            said = condition(kind, "Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.")
            times = {"lastHeartbeatTime": timestamp(node.created_at or now), "lastTransitionTime": timestamp(now)}
            operations.append(add("/status/conditions/-", said | times))
        elif known.status != "Unknown":
            path = f"/status/conditions/{places[kind]}"
            said = condition(kind, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
            times = {"lastTransitionTime": timestamp(now)}
            operations.append(require(f"{path}/type", kind))
            if known.last_heartbeat_time:  # and it must not have spoken since: then it is alive
                times["lastHeartbeatTime"] = timestamp(known.last_heartbeat_time)
                operations.append(require(f"{path}/lastHeartbeatTime", times["lastHeartbeatTime"]))
            operations.append(replace(path, said | times))
    return tuple(operations)


def tainted(node: NodeView, *, evicts: bool, now: datetime) -> tuple[Operation, ...]:
    """Return the changes that give a node the taints that its conditions ask for, and take away those they do not.

    Those that make pods leave are given only if it `evicts`. The taints of others are left alone.
    """
    wanted = _wanted(node, evicts=evicts)
    kept = [(it.key, it.effect) for it in node.taints]
    outdated = [number for number, it in enumerate(kept) if _is_ours(*it) and it not in wanted]
    missing = [it for it in wanted if it not in kept]
    if not outdated and not missing:
        return ()
    operations = [require("/metadata/resourceVersion", node.resource_version)]
    operations += (remove(f"/spec/taints/{number}") for number in reversed(outdated))
    if missing and not node.taints:
        operations.append(add("/spec/taints", []))
    for key, effect in missing:
        taint = {"key": key, "effect": effect}
        if effect == NO_EXECUTE or key == UNSCHEDULABLE_TAINT.key:
            taint["timeAdded"] = timestamp(now)
        operations.append(add("/spec/taints/-", taint))
    return tuple(operations)


def _wanted(node: NodeView, *, evicts: bool) -> list[tuple[str, str]]:
    wanted = [(key, "NoSchedule") for it in node.conditions if (key := _TAINTS.get((it.type, it.status))) is not None]
    if node.unschedulable:
        wanted.append((UNSCHEDULABLE_TAINT.key, UNSCHEDULABLE_TAINT.effect))
    if evicts and (key := _TAINTS.get(("Ready", node.ready))):
        wanted.append((key, NO_EXECUTE))
    return wanted


def _is_ours(key: str, effect: str) -> bool:
    if effect == NO_EXECUTE:
        return key in (_NOT_READY, _UNREACHABLE)
    return effect == "NoSchedule" and key in _KEPT


def leaves_at(
    tolerations: Sequence[Toleration], taints: Iterable[Taint], *, seen_at: Mapping[str, datetime], now: datetime
) -> datetime | None:
    """Return when a pod must leave its node because of taints; None if it may stay.

    The time that it tolerates a taint counts from when that was added or, if it does not say, `seen_at` by us.
    """
    instants: list[datetime] = []
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        used = next((it for it in tolerations if it.covers(taint)), None)
        if used is None:
            return now
        if used.toleration_seconds is not None:
            since = taint.time_added or seen_at.get(taint.key, now)
            instants.append(since + timedelta(seconds=max(used.toleration_seconds, 0)))
    return min(instants, default=None)


def disrupted(reason: str, message: str, *, generation: int) -> RawObject:
    """Return the condition of a pod that is about to be made to leave."""
    return condition("DisruptionTarget", "True", reason, message, observedGeneration=generation)
