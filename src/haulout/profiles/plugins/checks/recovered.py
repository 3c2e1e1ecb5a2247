"""The check `recovered`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from haulout.kube.objects import Condition, Node, RawObject
from haulout.profiles import topics
from haulout.profiles.fitting import Toleration, hard_taints, stays_away, wish_of
from haulout.profiles.instants import later
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Need, Scene, Verdict, fails, passes, unknown
from haulout.profiles.words import clock_time, lasting, some

_DAEMON_SET = "DaemonSet"
# What the DaemonSet controller adds to its pods, so that they stay and start where others do not.
_HARDY = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect=effect)
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
_HOST_NETWORK = Toleration(key="node.kubernetes.io/network-unavailable", operator="Exists", effect="NoSchedule")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Check):
    """Passes if the node is well again: proof of recovery before the next node starts. This check is Haulout's own.

    The node must be Ready, without a break for as long as `readyFor` says. Each DaemonSet that should run on it must
    have a pod there that is ready, unless `daemonSets` is off. With `workloads`, those whose pods were evicted from
    the node must be available again: have as many available pods as they want, or as they had before the eviction if
    that were fewer.

    Which workloads these are, and how many of their pods were available, the operator writes to the annotation
    `haulout.dev/workloads-before` of the node when it cordons it, so that the next leader waits for the same ones. If
    somebody has edited the annotation so that it cannot be read, the check does not pass, and says so; without the
    annotation no workload is waited for. It is removed when the node is operational.

    Use it on the way out of `in-maintenance`, together with a check that tells that the work is done: a node that has
    not even been rebooted yet looks recovered, too. Together with `maxMaintenance` it stops the procession at the first
    node that does not come back.
    """

    type = "recovered"
    example = "readyFor: 5m\nworkloads: true"
    needs = frozenset({Need.PODS, Need.DAEMON_SETS, Need.WORKLOADS})

    ready_for: timedelta = option("How long the node must have been Ready.", default=timedelta())
    daemon_sets: bool = option("Whether the pods of DaemonSets must be ready.", default=True)
    workloads: bool = option("Whether workloads that were evicted from the node must be available.", default=False)

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        return (
            self._unready(scene)
            or (self._daemons_missing(scene) if self.daemon_sets else None)
            or (self._workloads_short(scene) if self.workloads else None)
            or passes(f"node {scene.node.name} has recovered")
        )

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        daemons = (topics.pods(node), topics.DAEMON_SETS) if self.daemon_sets else ()
        return tuple(dict.fromkeys((*daemons, *((topics.pods(node), topics.evicted(node)) if self.workloads else ()))))

    @property
    def compares_workloads(self) -> bool:
        """Whether it asks who was evicted."""
        return self.workloads

    def _unready(self, scene: Scene) -> Verdict | None:
        node = scene.node.name
        ready = next((it for it in scene.node.status.conditions if it.type == "Ready"), None)
        if ready is None:
            return unknown(f"node {node} does not say whether it is Ready")
        if ready.status != "True":
            return fails(f"node {node} is not Ready{_details(ready)}")
        since = ready.last_transition_time
        if not self.ready_for:
            return None
        if since is None:
            return unknown(f"node {node} does not say since when it is Ready")
        end = later(since, self.ready_for)
        if scene.now >= end:
            return None
        left = end - scene.now
        why = f"node {node} must stay Ready for {lasting(left)} more, until {clock_time(end)}"
        return fails(why, wakes_at=end, remaining_seconds=left.total_seconds())

    def _daemons_missing(self, scene: Scene) -> Verdict | None:
        node = scene.node
        pods: dict[str, list[RawObject]] = {}
        for pod in scene.sights.pods_on(node.name):
            for uid in _daemon_set_uids(pod):
                pods.setdefault(uid, []).append(pod)
        sets = sorted(scene.sights.daemon_sets(), key=_name)
        late = [_name(it) for it in sets if _should_run(it, node) and not any(map(_is_ready, pods.get(_uid(it), ())))]
        if not late:
            return None
        return fails(f"no pod is ready on node {node.name} of DaemonSet {some(late)}", daemonSets=late)

    def _workloads_short(self, scene: Scene) -> Verdict | None:
        evicted = sorted(scene.sights.evicted_from(scene.node.name), key=lambda it: it.name)
        short = [str(it) for it in evicted if it.is_short]
        if not short:
            return None
        why = f"evicted from node {scene.node.name} and not fully available again: {some(short)}"
        return fails(why, workloads=short)


def _details(condition: Condition) -> str:
    details = condition.message or condition.reason
    return f" ({details})" if details else ""


def _name(obj: RawObject) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _uid(obj: RawObject) -> str:
    return str(obj["metadata"].get("uid", ""))


def _daemon_set_uids(pod: RawObject) -> Iterator[str]:
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == _DAEMON_SET:
            yield str(owner.get("uid", ""))


def _is_ready(pod: RawObject) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    is_ready = any(it.get("type") == "Ready" and it.get("status") == "True" for it in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]


def _should_run(daemon_set: RawObject, node: Node) -> bool:
    """Tell whether a DaemonSet wants a pod on a node, as its controller decides it."""
    if "deletionTimestamp" in daemon_set["metadata"]:
        return False
    spec = daemon_set.get("spec", {}).get("template", {}).get("spec", {})
    if spec.get("nodeName") not in (None, "", node.name):
        return False
    wish = wish_of(spec)
    tolerations = (*wish.tolerations, *_HARDY, *((_HOST_NETWORK,) if spec.get("hostNetwork") else ()))
    wish = replace(wish, tolerations=tolerations)
    return stays_away(wish, node.name, node.metadata.labels, hard_taints(node)) is None
