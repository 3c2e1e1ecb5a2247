"""In which waves pods leave: all of one wave are gone before the next begins.

A pod's place is decided by the order of its rule first; then, if asked for, by what it is (pods with storage after the
others) and by its priority, the least important first. Pods of DaemonSets leave after all others, if asked for,
whatever the orders of rules are; these count among them. Waiting for pods that finish by themselves holds up only
higher orders, as in Cluster API, not the pods beside them.

Pods that are scheduled as a group leave a node together, with the last of them: the others could do nothing meanwhile.
That holds whatever the disruption mode of their PodGroup is, for it harms none of those who could leave on their own.
"""

import math
from typing import NamedTuple

from haulout.api.objects import Pod
from haulout.drain.pod_filters import belongs_to_daemon_set
from haulout.drain.policy import Behavior, DrainOrder, DrainRule

_DAEMON_SET_ORDER_OFFSET = 2**33  # is added to the order of their pods, which then is above the order of any other rule


class OrderKey(NamedTuple):
    """Where a pod stands in the row; lower leaves first."""

    order: int
    rank: float = 0  # 1: has storage, 2: belongs to a DaemonSet
    priority: float = 0

    def __str__(self) -> str:
        """Return it in words, as far as it says anything."""
        order = self.order - _DAEMON_SET_ORDER_OFFSET if self.order > _DAEMON_SET_ORDER_OFFSET // 2 else self.order
        parts = [f"order {order}"] if order else []
        parts += [{1: "pods with storage", 2: "pods of DaemonSets"}[int(self.rank)]] if self.rank in (1, 2) else []
        parts += [f"priority {self.priority:.0f}"] if self.priority and math.isfinite(self.priority) else []
        return ", ".join(parts) or "order 0"


def order_key_of(pod: Pod, rule: DrainRule, order: DrainOrder) -> OrderKey:
    """Return the place of a pod that its rule makes leave, or waits for."""
    if rule.behavior is Behavior.WAIT_COMPLETED:
        return OrderKey(0, math.inf, math.inf)
    priority = pod.spec.priority if order.by_priority else 0
    if order.daemon_sets_last and belongs_to_daemon_set(pod):
        return OrderKey(_DAEMON_SET_ORDER_OFFSET + (rule.order or 0), 2, priority)
    return OrderKey(rule.order or 0, 1 if order.storage_last and has_storage(pod) else 0, priority)


def pod_group_of(pod: Pod) -> str:
    """Return the PodGroup with which a pod is scheduled, as namespace/name; empty if with none."""
    name = (pod.spec.scheduling_group or {}).get("podGroupName")
    return f"{pod.namespace}/{name}" if name else ""


def has_storage(pod: Pod) -> bool:
    """Tell whether the pod has a volume that outlives it, which its replacement will want."""
    return any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)
