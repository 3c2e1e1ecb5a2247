"""What is left on a node that a drain would make leave."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from haulout.api.objects import Condition, Node, Pod
from haulout.api.resources import PODS
from haulout.core.text import format_list, format_pod_count
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of
from haulout.drain.node_conditions import NodeConditionType
from haulout.drain.pod_filters import belongs_to_daemon_set, is_finished, is_static
from haulout.kube.client import Client


@dataclass(frozen=True, slots=True)
class RemainingPods:
    """The pods that are left; `problem` is why they are not known."""

    observed_at: datetime
    pod_keys: tuple[str, ...] = ()
    terminated_by: datetime | None = None  # all of them are being deleted, and have to be gone by then
    problem: str = ""

    def __str__(self) -> str:
        return (
            f"{format_pod_count(len(self.pod_keys))} left ({format_list(self.pod_keys)})"
            if self.pod_keys
            else "nothing left"
        )


async def list_remaining_pods(client: Client, node: Node, *, exact: bool = False) -> RemainingPods:
    """Return what is left on a node; mostly a few seconds old is new enough, and saves the server a read."""
    found = (await client.list(PODS, fields=f"spec.nodeName={node.name}", from_cache=not exact)).items
    return remaining_pods(node, found, now=client.clock.now())


def remaining_pods(node: Node, candidates: Iterable[Pod], *, now: datetime) -> RemainingPods:
    """Return what is left on a node; nothing, if who drains it says that it is done: some policies let pods stay."""
    remaining = [] if drained_at(node) is not None else [item for item in candidates if must_leave(item)]
    deletion_times = [item.metadata.deletion_timestamp for item in remaining]
    known_times = [item for item in deletion_times if item is not None]
    are_all_terminating = bool(known_times) and len(known_times) == len(deletion_times)
    return RemainingPods(now, tuple(item.key for item in remaining), max(known_times) if are_all_terminating else None)


def must_leave(pod: Pod) -> bool:
    """Tell whether a drain would make a pod leave, or refuse to begin because of it."""
    return not (is_finished(pod) or is_static(pod) or belongs_to_daemon_set(pod))


def drained_at(node: Node) -> datetime | None:
    """Return since when somebody says that a node is drained; None if nobody says so."""
    condition = node_condition(node, NodeConditionType.DRAINED)
    return condition.last_transition_time if condition is not None and condition.status == "True" else None


def cordoned_since(node: Node) -> datetime | None:
    """Return since when one of us keeps a node cordoned; None if none of us does."""
    try:
        mark = cordon_of(node)
    except InvalidCordonAnnotation:
        return None
    return min((owner.since for owner in mark.owners.values()), default=None) if mark is not None else None


def node_condition(node: Node, condition_type: str) -> Condition | None:
    """Return one of the conditions of a node."""
    return next((condition for condition in node.status.conditions if condition.type == condition_type), None)
