"""The check `capacity`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from haulout.kube.objects import Node, RawObject
from haulout.kube.rows import MIRROR_ANNOTATION
from haulout.profiles import topics
from haulout.profiles.fitting import Room, fit, has_ended, want_of
from haulout.profiles.plugin import Check, Need, Scene, State, Verdict, fails, passes
from haulout.profiles.words import counted, some

_DAEMON_SET = "DaemonSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity(Check):
    """Passes if the pods that would have to leave the node would fit on other nodes. This check is Haulout's own.

    Looked at are requests of all resources, the number of pods that a node takes, host ports, taints and tolerations,
    node selectors and required node affinity. Nodes that are cordoned, not ready or in maintenance do not count, nor
    do those that have taken a slot for it.

    Pods that do not move do not count either: those of DaemonSets, static pods, pods that have ended or are on their
    way out, and pods without a controller, which nobody would start again.

    It keeps maintenance from starting when there is clearly no room. It is no promise: volumes, affinity between pods
    and topology spread are not looked at, pods that wait for a node elsewhere may be quicker, and an autoscaler might
    make room that is not there yet.
    """

    type = "capacity"
    example = "{}"
    needs = frozenset({Need.PODS, Need.ROOM})

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        leaving = [want_of(pod) for pod in scene.sights.pods_on(scene.node.name) if _moves(pod)]
        if not leaving:
            return passes(f"no pod would have to leave node {scene.node.name}", pods=0, homeless=[])
        rooms = list(_rooms(scene))
        homeless = fit(leaving, rooms).homeless
        info: dict[str, Any] = {"pods": len(leaving), "nodes": len(rooms), "homeless": sorted(homeless)}
        moving = counted(len(leaving), "pod")
        if not homeless:
            return passes(f"{moving} would fit on {counted(len(rooms), 'other node')}", **info)
        first = min(homeless)
        why = f"{len(homeless)} of {moving} would find no place: {some(sorted(homeless))}; {first}: {homeless[first]}"
        return fails(why, **info)

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        return topics.pods(node), topics.CAPACITY, topics.ROOM


def _moves(pod: RawObject) -> bool:
    metadata = pod["metadata"]
    controllers = [it["kind"] for it in metadata.get("ownerReferences") or () if it.get("controller")]
    if not controllers or _DAEMON_SET in controllers or has_ended(pod):
        return False
    return "deletionTimestamp" not in metadata and MIRROR_ANNOTATION not in (metadata.get("annotations") or {})


def _rooms(scene: Scene) -> Iterator[Room]:
    """Yield the nodes that pods could go to, in the order of their names."""
    leaving = {it.node.name for it in scene.sights.nodes_in(State.IN_MAINTENANCE)} | {scene.node.name}
    for sight in sorted(scene.sights.nodes(), key=lambda sight: sight.node.name):
        if sight.node.name in leaving or sight.node.spec.unschedulable or not _is_ready(sight.node):
            continue
        room = scene.sights.room(sight.node.name)
        if room is not None:
            yield room


def _is_ready(node: Node) -> bool:
    return any(it.type == "Ready" and it.status == "True" for it in node.status.conditions)
