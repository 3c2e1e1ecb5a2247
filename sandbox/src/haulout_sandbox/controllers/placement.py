"""On which nodes a daemon set's pods belong.

Follows `NodeShouldRunDaemonPod` of `pkg/controller/daemon` in Kubernetes 1.36. Daemons stay where others must leave:
they tolerate a cordon, pressure and a node that is not ready. A taint that they do not tolerate keeps new ones away;
only one that evicts takes those that run.
"""

from collections.abc import Iterable

import msgspec

from haulout.kube.objects import Base, RawObject, Taint
from haulout_sandbox.controllers.objects import Affinity, DaemonSet, Node, NodeSelectorTerm, Pod, Toleration

_NODE_NAME = "metadata.name"
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_ON_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


class Wishes(Base, frozen=True):
    """What a pod's spec says about where it runs."""

    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_network: bool = False


def wishes_of(daemon_set: DaemonSet) -> Wishes:
    """Return where a daemon set's pods may run, what all daemons tolerate included."""
    spec = dict(daemon_set.spec.template.get("spec", {}))
    spec["tolerations"] = tolerations(spec)
    return msgspec.convert(spec, Wishes)


def tolerations(spec: RawObject) -> list[RawObject]:
    """Return the tolerations of a pod's spec, and those that all daemons have."""
    own: list[RawObject] = list(spec.get("tolerations", ()))
    usual = [*_TOLERATED, _ON_HOST_NETWORK] if spec.get("hostNetwork") else _TOLERATED
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in usual]
    return own + [each for each in added if each not in own]


def should_run(wishes: Wishes, node: Node) -> tuple[bool, bool]:
    """Return whether a pod belongs on `node`, and whether one that runs there may stay."""
    if wishes.node_name not in ("", node.name) or not _fits(wishes, node):
        return False, False
    untolerated = {taint.effect for taint in node.spec.taints if not _tolerates(wishes.tolerations, taint)}
    stays = "NoExecute" not in untolerated
    return stays and "NoSchedule" not in untolerated, stays


def pinned(spec: RawObject, node: str) -> RawObject:
    """Return the affinity that binds a pod to `node`; its other affinities stay."""
    affinity = dict(spec.get("affinity") or {})
    to_nodes = dict(affinity.get("nodeAffinity") or {})
    term = {"matchFields": [{"key": _NODE_NAME, "operator": "In", "values": [node]}]}
    to_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    return affinity | {"nodeAffinity": to_nodes}


def target_node(pod: Pod) -> str:
    """Return the node that a daemon pod is on, or is meant for; empty if neither is known."""
    if pod.spec.node_name:
        return pod.spec.node_name
    for term in _terms(pod.spec.affinity) or ():
        for field in term.match_fields:
            if field.key == _NODE_NAME and field.operator == "In" and len(field.values) == 1:
                return field.values[0]
    return ""


def _fits(wishes: Wishes, node: Node) -> bool:
    if any(node.labels.get(name) != value for name, value in wishes.node_selector.items()):
        return False
    terms = _terms(wishes.affinity)
    return terms is None or any(_meets(term, node) for term in terms)


def _terms(affinity: Affinity | None) -> Iterable[NodeSelectorTerm] | None:
    to_nodes = None if affinity is None else affinity.node_affinity
    required = None if to_nodes is None else to_nodes.required_during_scheduling_ignored_during_execution
    return None if required is None else required.node_selector_terms


def _meets(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # an empty term selects nothing
    fields = {_NODE_NAME: node.name}
    return all(each.met_by(node.labels) for each in term.match_expressions) and all(
        each.met_by(fields) for each in term.match_fields
    )


def _tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(
        each.effect in ("", taint.effect)
        and (each.key == taint.key or (not each.key and each.operator == "Exists"))
        and (each.operator == "Exists" or each.value == taint.value)
        for each in tolerations
    )
