"""Why a pod cannot go to a node, and what a pod and a node alone decide of that."""

from collections.abc import Iterable
from dataclasses import dataclass

from haulout.kube.objects import Taint
from haulout_sandbox.nodes.specs import Toleration
from haulout_sandbox.nodes.view import NodeView, PodView


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod cannot go to a node; `final` if that stays so whichever pods leave it."""

    reasons: tuple[str, ...]
    final: bool


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Tell whether one of the tolerations covers the taint."""
    return any(toleration.covers(taint) for toleration in tolerations)


def wants(pod: PodView, node: NodeView) -> bool:
    """Tell whether the pod's node selector and required node affinity allow the node."""
    labels = node.labels
    if not all(labels.get(key) == value for key, value in pod.node_selector.items()):
        return False
    required = pod.affinity.node_affinity.required
    return required is None or any(term.matches(node) for term in required.node_selector_terms)
