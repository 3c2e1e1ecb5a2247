"""What nodes say about notices: the conditions MaintenancePlanned and MaintenanceInProgress (KEP-5683).

    kubectl describe node n1
      MaintenancePlanned   True   Reboot   Haulout notice oci-e1: Reboot (EVACUATION), not before 2026-01-07 09:00 UTC

Others write these conditions, too: a NodeMaintenance by `haulout.drain.lifecycle`, and whoever knows the proposal. Only
what we wrote is changed. Our messages begin with words of their own, so that a NodeMaintenance leaves them alone while
they are True; when nothing is announced any more they are False, in the words of `lifecycle`, and may be taken over by
it. What it has left False may be taken over by us.

A node is written to only if what it says changes: when a notice comes, is moved, begins, and is over.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta

from haulout.drain.lifecycle import NodeCondition
from haulout.errors import Conflict, Forbidden, Invalid, NotFound
from haulout.kinds.notice import MaintenanceNotice, Phase
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Condition, Node, RawObject
from haulout.kube.patches import strategic_patch
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES
from haulout.kube.timestamps import whole_seconds
from haulout.notices.occupancy import condition_of

log = logging.getLogger(__name__)

OURS = "Haulout notice "
_FREE = "Haulout: "  # what a NodeMaintenance writes, too
_OVER = f"{_FREE}nothing is announced any more"
_AGAIN_AFTER = timedelta(seconds=1)
_FORBIDDEN_FOR = timedelta(minutes=10)
_WORKERS = 8
_SAID: tuple[tuple[NodeCondition, frozenset[str]], ...] = (
    (NodeCondition.PLANNED, frozenset({Phase.PLANNED, Phase.DUE})),
    (NodeCondition.IN_PROGRESS, frozenset({Phase.ACTIVE})),
)

About = Callable[[str], Collection[MaintenanceNotice]]


def announced(node: Node, notices: Collection[MaintenanceNotice], *, now: datetime) -> RawObject | None:
    """Return the change to the status of a node that makes it say what is announced for it; None if it does."""
    changed = list(_changes(node, notices, now=now))
    if not changed:
        return None
    metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata, "status": {"conditions": changed}}


def says_alike(old: Node, new: Node) -> bool:
    """Tell whether two states of a node say the same about maintenance."""
    return all(condition_of(old, kind) == condition_of(new, kind) for kind, _ in _SAID)


def says_anything(node: Node) -> bool:
    """Tell whether a node says that something is announced for it, in our words."""
    found = (condition_of(node, kind) for kind, _ in _SAID)
    return any(it is not None and it.message.startswith(OURS) for it in found)


def _changes(node: Node, notices: Collection[MaintenanceNotice], *, now: datetime) -> Iterator[RawObject]:
    for kind, phases in _SAID:
        found = condition_of(node, kind)
        meant = sorted((it for it in notices if it.status.phase in phases), key=_urgency)
        if meant and _may_be_written(found):
            status, reason, message = "True", meant[0].spec.kind, _message(meant)
        elif not meant and found is not None and found.message.startswith(OURS):
            status, reason, message = "False", "MaintenanceEnded", _OVER
        else:
            continue
        if found is None or (found.status, found.reason, found.message) != (status, reason, message):
            yield _condition(kind, found, status=status, reason=reason, message=message, now=now)


def _may_be_written(found: Condition | None) -> bool:
    if found is None or found.message.startswith(OURS):
        return True
    return found.status == "False" and found.message.startswith(_FREE)


def _urgency(notice: MaintenanceNotice) -> tuple[bool, str, str]:
    start = notice.spec.start
    return start is not None, "" if start is None else start.isoformat(), notice.name


def _message(meant: Sequence[MaintenanceNotice]) -> str:
    first, others = meant[0], len(meant) - 1
    spec = first.spec
    about = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
    when = "at any moment" if spec.start is None else f"not before {spec.start:%Y-%m-%d %H:%M} UTC"
    more = f", and {others} more" if others else ""
    return f"{OURS}{first.name}: {about}, {when}{more}"


def _condition(
    kind: NodeCondition, found: Condition | None, *, status: str, reason: str, message: str, now: datetime
) -> RawObject:
    condition = {"type": str(kind), "status": status, "reason": reason, "message": message}
    if found is None or found.status != status:
        condition["lastTransitionTime"] = whole_seconds(now)
    return condition


class Announcer:
    """Keeps what nodes say true; the owner runs `run`, and says by `add` of which nodes it may have changed."""

    def __init__(self, client: Client, nodes: Cache[Node], *, about: About) -> None:
        self._client = client
        self._nodes = nodes
        self._about = about
        self._is_forbidden = False
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            meters=client.meters,
            name="announcing",
        )

    def add(self, node: str) -> None:
        """Look at a node soon."""
        if node:
            self._queue.add(node)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    async def _work(self, name: str) -> datetime | None:
        node = self._nodes.get(name)
        if node is None:
            return None
        now = self._client.clock.now()
        change = announced(node, [it for it in self._about(name) if it.fits(node)], now=now)
        if change is None:
            return None
        try:
            await self._client.patch(NODES, name, strategic_patch(change), subresource="status")
        except NotFound:
            return None
        except Conflict:
            return now + _AGAIN_AFTER  # its kubelet writes there, too, and the cache will know soon
        except (Forbidden, Invalid) as error:
            if not self._is_forbidden:
                log.warning("nodes do not say what is announced for them: %s", error)
            self._is_forbidden = True
            return now + _FORBIDDEN_FOR
        self._is_forbidden = False
        return None
