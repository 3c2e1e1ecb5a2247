"""The drain order: pods leave in groups, and all pods of a group are gone before the next group begins.

The group is decided by the order of the pod's rule; then, if requested, by kind (pods with storage leave after others)
and by priority, lowest first. If requested, DaemonSet pods leave after all others, whatever the orders of rules; those
orders apply among them. Waiting for pods that run to completion blocks only higher orders, as in Cluster API, not pods
of the same order.

Pods of one scheduling group leave together with the last of them, because the others could not work without it. That
holds for any disruption mode of their PodGroup, since it harms none of the pods that could leave alone.
"""

import math
from typing import NamedTuple

from haulout.api.objects import Pod
from haulout.drain.pod_filters import belongs_to_daemon_set
from haulout.drain.policy import Behavior, DrainOrder, DrainRule

# Added to the order of DaemonSet pods, so that it is above the order of any other rule.
_DAEMON_SET_ORDER_OFFSET = 2**33


class OrderKey(NamedTuple):
    """The position of a pod in the drain order; lower leaves first."""

    order: int
    rank: float = 0  # 1: has storage, 2: DaemonSet pod
    priority: float = 0

    def __str__(self) -> str:
        """Return the position as text for messages, without default parts."""
        order = self.order - _DAEMON_SET_ORDER_OFFSET if self.order > _DAEMON_SET_ORDER_OFFSET // 2 else self.order
        parts = [f"order {order}"] if order else []
        parts += [{1: "pods with storage", 2: "pods of DaemonSets"}[int(self.rank)]] if self.rank in (1, 2) else []
        parts += [f"priority {self.priority:.0f}"] if self.priority and math.isfinite(self.priority) else []
        return ", ".join(parts) or "order 0"


def order_key_of(pod: Pod, rule: DrainRule, order: DrainOrder) -> OrderKey:
    """Return the position of a pod that leaves or is waited for by its rule."""
    if rule.behavior is Behavior.WAIT_COMPLETED:
        # After all pods of order 0 and before those of higher orders, which the wait blocks.
        return OrderKey(0, math.inf, math.inf)
    priority = pod.spec.priority if order.by_priority else 0
    if order.daemon_sets_last and belongs_to_daemon_set(pod):
        return OrderKey(_DAEMON_SET_ORDER_OFFSET + (rule.order or 0), 2, priority)
    return OrderKey(rule.order or 0, 1 if order.storage_last and has_storage(pod) else 0, priority)


def pod_group_of(pod: Pod) -> str:
    """Return the PodGroup of a pod as namespace/name; empty if it has none."""
    name = (pod.spec.scheduling_group or {}).get("podGroupName")
    return f"{pod.namespace}/{name}" if name else ""


def has_storage(pod: Pod) -> bool:
    """Return whether the pod has a PersistentVolumeClaim, which its replacement needs as well."""
    return any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)
