"""Whether the DaemonSet controller recreates an evicted pod on its node.

It does unless the node has a taint that the DaemonSet's template does not tolerate (`NodeShouldRunDaemonPod` in
`pkg/controller/daemon/daemon_controller.go` of Kubernetes). A cordon alone never prevents it: the controller adds a
toleration for it to all its pods (`AddOrUpdateDaemonPodTolerations` in `pkg/controller/daemon/util`).

In doubt the answer is yes, because evicting the pod would be useless then.
"""

from collections.abc import Iterable

from haulout.api.objects import Base, Taint

_REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
# Kubernetes itself sets and removes these as node conditions change. The DaemonSet controller adds tolerations for most
# of them.
_KUBERNETES_TAINT_PREFIX = "node.kubernetes.io/"


class Toleration(Base, frozen=True):
    """A toleration of a pod spec."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether it tolerates a taint; an unknown operator counts as yes."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator not in ("", "Equal") or self.value == taint.value


def daemon_set_recreates_pod(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Return whether a DaemonSet with these tolerations recreates its pod on a node with these taints."""
    known = tuple(tolerations)
    return all(
        taint.effect not in _REPELLING_EFFECTS
        or taint.key.startswith(_KUBERNETES_TAINT_PREFIX)
        or any(toleration.tolerates(taint) for toleration in known)
        for taint in taints
    )
