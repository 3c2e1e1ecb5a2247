"""What is left on a node that a drain would make leave."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from haulout.drain.cordon import BadMark, cordon_of
from haulout.drain.lifecycle import NodeCondition
from haulout.drain.selection import belongs_to_daemon_set, is_finished, is_static
from haulout.drain.words import pods, some
from haulout.kube.client import Client
from haulout.kube.objects import Condition, Node, Pod
from haulout.kube.resources import PODS


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The pods that are left; `trouble` is why they are not known."""

    at: datetime
    left: tuple[str, ...] = ()
    ending_by: datetime | None = None  # all of them are being deleted, and have to be gone by then
    trouble: str = ""

    def __str__(self) -> str:
        return f"{pods(len(self.left))} left ({some(self.left)})" if self.left else "nothing left"


async def occupancy(client: Client, node: Node, *, exact: bool = False) -> Occupancy:
    """Return what is left on a node; mostly a few seconds old is new enough, and saves the server a read."""
    found = (await client.list(PODS, fields=f"spec.nodeName={node.name}", from_cache=not exact)).items
    return occupied(node, found, now=client.clock.now())


def occupied(node: Node, found: Iterable[Pod], *, now: datetime) -> Occupancy:
    """Return what is left on a node; nothing, if who drains it says that it is done: some policies let pods stay."""
    left = [] if drained_at(node) is not None else [it for it in found if is_to_leave(it)]
    ends = [it.metadata.deletion_timestamp for it in left]
    known = [it for it in ends if it is not None]
    all_end = bool(known) and len(known) == len(ends)
    return Occupancy(now, tuple(it.key for it in left), max(known) if all_end else None)


def is_to_leave(pod: Pod) -> bool:
    """Tell whether a drain would make a pod leave, or refuse to begin because of it."""
    return not (is_finished(pod) or is_static(pod) or belongs_to_daemon_set(pod))


def drained_at(node: Node) -> datetime | None:
    """Return since when somebody says that a node is drained; None if nobody says so."""
    drained = condition_of(node, NodeCondition.DRAINED)
    return drained.last_transition_time if drained is not None and drained.status == "True" else None


def held_since(node: Node) -> datetime | None:
    """Return since when one of us keeps a node cordoned; None if none of us does."""
    try:
        mark = cordon_of(node)
    except BadMark:
        return None
    return min((it.since for it in mark.owners.values()), default=None) if mark is not None else None


def condition_of(node: Node, kind: str) -> Condition | None:
    """Return one of the conditions of a node."""
    return next((it for it in node.status.conditions if it.type == kind), None)
