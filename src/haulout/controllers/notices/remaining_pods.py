"""The pods on a node that a drain would evict."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from haulout.api.objects import Node, NodeConditionType, Pod
from haulout.api.resources import PODS
from haulout.core.text import format_list, format_pod_count
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of
from haulout.drain.pod_filters import belongs_to_daemon_set, is_finished, is_static
from haulout.kube.client import Client


@dataclass(frozen=True, slots=True)
class RemainingPods:
    """The remaining pods; `problem` is set if they could not be listed."""

    observed_at: datetime
    pod_keys: tuple[str, ...] = ()
    terminated_by: datetime | None = None  # set if all pods are terminating: when the last one's grace period ends
    problem: str = ""

    def __str__(self) -> str:
        return (
            f"{format_pod_count(len(self.pod_keys))} left ({format_list(self.pod_keys)})"
            if self.pod_keys
            else "no pods left"
        )


async def list_remaining_pods(client: Client, node: Node, *, exact: bool = False) -> RemainingPods:
    """List the remaining pods. By default the API server may answer from its cache, which saves a quorum read."""
    found = (await client.list(PODS, fields=f"spec.nodeName={node.name}", from_cache=not exact)).items
    return remaining_pods(node, found, now=client.clock.now())


def remaining_pods(node: Node, candidates: Iterable[Pod], *, now: datetime) -> RemainingPods:
    """Return the remaining pods; none if the node has the condition Drained, since some policies let pods stay."""
    remaining = [] if drained_at(node) is not None else [item for item in candidates if must_leave(item)]
    deletion_times = [item.metadata.deletion_timestamp for item in remaining]
    known_times = [item for item in deletion_times if item is not None]
    are_all_terminating = bool(known_times) and len(known_times) == len(deletion_times)
    return RemainingPods(now, tuple(item.key for item in remaining), max(known_times) if are_all_terminating else None)


def must_leave(pod: Pod) -> bool:
    """Return whether a drain would evict a pod, or refuse to begin because of it."""
    return not (is_finished(pod) or is_static(pod) or belongs_to_daemon_set(pod))


def drained_at(node: Node) -> datetime | None:
    """Return since when the node has the condition Drained; None if it does not."""
    condition = node.condition(NodeConditionType.DRAINED)
    return condition.last_transition_time if condition is not None and condition.status == "True" else None


def cordoned_since(node: Node) -> datetime | None:
    """Return since when a cordon owner keeps the node cordoned; None if there is no owner."""
    try:
        mark = cordon_of(node)
    except InvalidCordonAnnotation:
        return None
    return min((owner.since for owner in mark.owners.values()), default=None) if mark is not None else None
