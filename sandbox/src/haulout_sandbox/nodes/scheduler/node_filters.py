"""Filters that depend only on the pod and the node, and the failures of all filters."""

from collections.abc import Iterable
from dataclasses import dataclass

from haulout.api.objects import Taint
from haulout_sandbox.nodes.informers import NodeView, PodView
from haulout_sandbox.nodes.pod_spec import Toleration, matches_node


@dataclass(frozen=True, slots=True)
class FilterFailure:
    """Why a pod cannot run on a node; `is_unresolvable` if no deletion of pods would help."""

    reasons: tuple[str, ...]
    is_unresolvable: bool


def tolerates_taint(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)


def matches_node_affinity(pod: PodView, node: NodeView) -> bool:
    """Return whether the pod's node selector and required node affinity match the node."""
    return matches_node(node, node_selector=pod.node_selector, affinity=pod.affinity)
