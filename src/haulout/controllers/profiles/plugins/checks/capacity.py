"""The check `capacity`: whether other nodes have room for the pods of the node."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from haulout.api.objects import MIRROR_ANNOTATION, RawObject
from haulout.controllers.profiles.plugin import Check, CheckResult, Need, PluginContext, State, fails, passes
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.scheduling import NodeCapacity, has_ended, pending_pod, place_pods
from haulout.core.text import format_count, format_list

_DAEMON_SET = "DaemonSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity(Check):
    """Passes if the pods that would have to leave the node would fit on other nodes. This check is Haulout's own.

    It considers requests of all resources, the maximum number of pods per node, host ports, taints and tolerations,
    node selectors and required node affinity. Nodes that are cordoned, not ready or in maintenance do not count as
    targets, nor do nodes that have taken a slot for it.

    Pods that do not move are ignored: those of DaemonSets, static pods, pods that have ended or are being deleted, and
    pods without a controller, which nothing would recreate.

    It prevents maintenance from starting when there is clearly too little capacity. It is no guarantee: it ignores
    volumes, affinity between pods and topology spread, other pending pods may be scheduled first, and an autoscaler
    might add capacity that does not exist yet.
    """

    type = "capacity"
    example = "{}"
    needs = frozenset({Need.PODS, Need.FREE_CAPACITY})

    def evaluate(self, context: PluginContext) -> CheckResult:
        leaving = [pending_pod(pod) for pod in context.cluster.pods_on(context.node.name) if _must_move(pod)]
        if not leaving:
            return passes(f"no pod would have to leave node {context.node.name}", pods=0, homeless=[])
        capacities = list(_target_capacities(context))
        unschedulable = place_pods(leaving, capacities).unschedulable
        info: dict[str, Any] = {"pods": len(leaving), "nodes": len(capacities), "homeless": sorted(unschedulable)}
        moving = format_count(len(leaving), "pod")
        if not unschedulable:
            return passes(f"{moving} would fit on {format_count(len(capacities), 'other node')}", **info)
        first = min(unschedulable)
        reason = (
            f"{len(unschedulable)} of {moving} do not fit on other nodes: "
            f"{format_list(sorted(unschedulable))}; {first}: {unschedulable[first]}"
        )
        return fails(reason, **info)

    def topics(self, node: str) -> tuple[str, ...]:
        return topics.pods(node), topics.CAPACITY, topics.MAINTENANCE_ROOM


def _must_move(pod: RawObject) -> bool:
    metadata = pod["metadata"]
    controllers = [owner["kind"] for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    if not controllers or _DAEMON_SET in controllers or has_ended(pod):
        return False
    return "deletionTimestamp" not in metadata and MIRROR_ANNOTATION not in (metadata.get("annotations") or {})


def _target_capacities(context: PluginContext) -> Iterator[NodeCapacity]:
    """Yield the capacities of the nodes that pods could move to, in the order of their names."""
    leaving = {other.node.name for other in context.cluster.nodes_in(State.IN_MAINTENANCE)} | {context.node.name}
    for observed in sorted(context.cluster.nodes(), key=lambda observed: observed.node.name):
        if observed.node.name in leaving or observed.node.spec.unschedulable or not observed.node.is_ready:
            continue
        room = context.cluster.free_capacity(observed.node.name)
        if room is not None:
            yield room
