"""The check `recovered`: whether node, DaemonSets and evicted workloads are available after maintenance."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from haulout.api.objects import Condition, Node, RawObject
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, Need, PluginContext, fails, passes, unknown
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.scheduling import Toleration, hard_taints, mismatch_reason, requirements_of
from haulout.core.text import format_duration, format_list, format_time
from haulout.core.timestamps import add_saturating

_DAEMON_SET = "DaemonSet"
# Tolerations that the DaemonSet controller adds to its pods, so that they run on nodes that other pods avoid
# (AddOrUpdateDaemonPodTolerations in pkg/controller/daemon/util/daemonset_util.go).
_DAEMON_SET_TOLERATIONS = tuple(
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
_HOST_NETWORK_TOLERATION = Toleration(
    key="node.kubernetes.io/network-unavailable", operator="Exists", effect="NoSchedule"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Check):
    """Passes if the node has recovered, so that the next node can start. This check is Haulout's own.

    The node must be Ready without interruption for at least `readyFor`. Each DaemonSet that should run on it must have
    a ready pod there, unless `daemonSets` is off. With `workloads`, the workloads whose pods were evicted from the node
    must be available again: they must have as many available pods as they want, or as they had before the eviction if
    those were fewer.

    When the operator cordons the node, it writes these workloads with their numbers of available pods to the annotation
    `haulout.dev/workloads-before`, so that the next leader waits for the same ones. If someone has edited the
    annotation so that it cannot be parsed, the check does not pass and says why; without the annotation the check waits
    for no workload. The annotation is removed when the node is operational.

    Use it on the way out of `in-maintenance`, together with a check that shows that the work is done: a node that has
    not been rebooted yet looks recovered, too. Together with `maxMaintenance` it stops the rollout at the first node
    that does not recover.
    """

    type = "recovered"
    example = "readyFor: 5m\nworkloads: true"
    needs = frozenset({Need.PODS, Need.DAEMON_SETS, Need.WORKLOADS})

    ready_for: timedelta = option("How long the node must have been Ready.", default=timedelta())
    daemon_sets: bool = option("Whether the pods of DaemonSets must be ready.", default=True)
    workloads: bool = option("Whether workloads that were evicted from the node must be available.", default=False)

    def evaluate(self, context: PluginContext) -> CheckResult:
        return (
            self._node_problem(context)
            or (self._daemon_set_problem(context) if self.daemon_sets else None)
            or (self._workload_problem(context) if self.workloads else None)
            or passes(f"node {context.node.name} has recovered")
        )

    def topics(self, node: str) -> tuple[str, ...]:
        daemons = (topics.pods(node), topics.DAEMON_SETS) if self.daemon_sets else ()
        return tuple(dict.fromkeys((*daemons, *((topics.pods(node), topics.evicted(node)) if self.workloads else ()))))

    @property
    def needs_workload_record(self) -> bool:
        return self.workloads

    def _node_problem(self, context: PluginContext) -> CheckResult | None:
        node = context.node.name
        ready = context.node.condition("Ready")
        if ready is None:
            return unknown(f"node {node} has no condition Ready")
        if ready.status != "True":
            return fails(f"node {node} is not Ready{_details(ready)}")
        since = ready.last_transition_time
        if not self.ready_for:
            return None
        if since is None:
            return unknown(f"condition Ready of node {node} has no lastTransitionTime")
        end = add_saturating(since, self.ready_for)
        if context.now >= end:
            return None
        remaining = end - context.now
        reason = f"node {node} must stay Ready for {format_duration(remaining)} more, until {format_time(end)}"
        return fails(reason, requeue_at=end, remaining_seconds=remaining.total_seconds())

    def _daemon_set_problem(self, context: PluginContext) -> CheckResult | None:
        node = context.node
        pods: dict[str, list[RawObject]] = {}
        for pod in context.cluster.pods_on(node.name):
            for uid in _daemon_set_uids(pod):
                pods.setdefault(uid, []).append(pod)
        sets = sorted(context.cluster.daemon_sets(), key=_name)
        missing = [
            _name(daemon_set)
            for daemon_set in sets
            if _should_run(daemon_set, node) and not any(map(_is_ready, pods.get(_uid(daemon_set), ())))
        ]
        if not missing:
            return None
        return fails(f"no pod is ready on node {node.name} of DaemonSet {format_list(missing)}", daemonSets=missing)

    def _workload_problem(self, context: PluginContext) -> CheckResult | None:
        evicted = sorted(context.cluster.evicted_from(context.node.name), key=lambda workload: workload.name)
        short = [str(workload) for workload in evicted if workload.is_degraded]
        if not short:
            return None
        reason = f"evicted from node {context.node.name} and not fully available again: {format_list(short)}"
        return fails(reason, workloads=short)


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
    is_ready = any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]


def _should_run(daemon_set: RawObject, node: Node) -> bool:
    """Return whether a DaemonSet wants a pod on a node.

    The rules are those of NodeShouldRunDaemonPod in pkg/controller/daemon/daemon_controller.go.
    """
    if "deletionTimestamp" in daemon_set["metadata"]:
        return False
    spec = daemon_set.get("spec", {}).get("template", {}).get("spec", {})
    if spec.get("nodeName") not in (None, "", node.name):
        return False
    requirements = requirements_of(spec)
    tolerations = (
        *requirements.tolerations,
        *_DAEMON_SET_TOLERATIONS,
        *((_HOST_NETWORK_TOLERATION,) if spec.get("hostNetwork") else ()),
    )
    requirements = replace(requirements, tolerations=tolerations)
    return mismatch_reason(requirements, node.name, node.metadata.labels, hard_taints(node)) is None
