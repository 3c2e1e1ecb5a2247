"""Which nodes are eligible for the pods of a daemon set.

Follows `NodeShouldRunDaemonPod` of `pkg/controller/daemon` in Kubernetes 1.36. Daemon pods stay where others must
leave: they tolerate a cordon, pressure and a node that is not ready. A taint that they do not tolerate prevents new
pods; only one with NoExecute removes running ones.
"""

import msgspec

from haulout.api.objects import Base, RawObject
from haulout_sandbox.controllers.objects import DaemonSet, Node, Pod
from haulout_sandbox.nodes.pod_spec import Affinity, Toleration, matches_node

_NODE_NAME_FIELD = "metadata.name"
_DAEMON_TAINTS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TAINT = ("node.kubernetes.io/network-unavailable", "NoSchedule")


class PodSchedulingSpec(Base, frozen=True):
    """The parts of a pod spec that affect scheduling."""

    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    host_network: bool = False


def scheduling_spec_of(daemon_set: DaemonSet) -> PodSchedulingSpec:
    """Return the scheduling constraints of a daemon set's pods, default daemon tolerations included."""
    spec = dict(daemon_set.spec.template.get("spec", {}))
    spec["tolerations"] = with_daemon_tolerations(spec)
    return msgspec.convert(spec, PodSchedulingSpec)


def with_daemon_tolerations(spec: RawObject) -> list[RawObject]:
    """Return the tolerations of a pod spec with the default daemon tolerations added."""
    own_tolerations: list[RawObject] = list(spec.get("tolerations", ()))
    daemon_taints = [*_DAEMON_TAINTS, _HOST_NETWORK_TAINT] if spec.get("hostNetwork") else _DAEMON_TAINTS
    daemon_tolerations = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in daemon_taints]
    return own_tolerations + [toleration for toleration in daemon_tolerations if toleration not in own_tolerations]


def node_should_run(spec: PodSchedulingSpec, node: Node) -> tuple[bool, bool]:
    """Return whether a pod should run on `node`, and whether one that runs there may continue."""
    if spec.node_name not in ("", node.name) or not matches_node(
        node, node_selector=spec.node_selector, affinity=spec.affinity
    ):
        return False, False
    untolerated = {
        taint.effect
        for taint in node.spec.taints
        if not any(toleration.tolerates(taint) for toleration in spec.tolerations)
    }
    should_continue_running = "NoExecute" not in untolerated
    return should_continue_running and "NoSchedule" not in untolerated, should_continue_running


def node_name_affinity(pod_spec: RawObject, node: str) -> RawObject:
    """Return the affinity of a pod that is pinned to `node`; other affinities are kept."""
    affinity = dict(pod_spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    term = {"matchFields": [{"key": _NODE_NAME_FIELD, "operator": "In", "values": [node]}]}
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    return affinity | {"nodeAffinity": node_affinity}


def target_node(pod: Pod) -> str:
    """Return the node that a daemon pod is bound or pinned to; empty if neither."""
    if pod.spec.node_name:
        return pod.spec.node_name
    required = pod.spec.affinity.node_affinity.required
    for term in () if required is None else required.node_selector_terms:
        for field in term.match_fields:
            if field.key == _NODE_NAME_FIELD and field.operator == "In" and len(field.values) == 1:
                return field.values[0]
    return ""
