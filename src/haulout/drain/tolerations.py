"""Whether the DaemonSet controller puts a pod back onto a node from which it was evicted.

It does unless the node has a taint that the DaemonSet's template does not tolerate (`NodeShouldRunDaemonPod` in
`pkg/controller/daemon/daemon_controller.go` of Kubernetes). A cordon alone never keeps it away: the controller lets all
its pods tolerate that (`AddOrUpdateDaemonPodTolerations` in `pkg/controller/daemon/util`).

In doubt the answer is that the pod comes back: to evict it would be in vain.
"""

from collections.abc import Iterable

from haulout.api.objects import Base, Taint

_REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
# Kubernetes sets and removes these itself, as conditions of the node come and go. The DaemonSet controller adds
# tolerations for most of them.
_KUBERNETES_TAINT_PREFIX = "node.kubernetes.io/"


class Toleration(Base, frozen=True):
    """Lets a pod run on a node in spite of some of its taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether it is about a taint; an operator that we do not know may be."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator not in ("", "Equal") or self.value == taint.value


def daemon_set_recreates_pod(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Tell whether a DaemonSet whose template has these tolerations puts its pod back onto a node with these taints."""
    known = tuple(tolerations)
    return all(
        taint.effect not in _REPELLING_EFFECTS
        or taint.key.startswith(_KUBERNETES_TAINT_PREFIX)
        or any(toleration.tolerates(taint) for toleration in known)
        for taint in taints
    )
