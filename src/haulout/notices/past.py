"""What drains took before, read from the history of nodes while somebody wants to know.

    past = Past(client, nodes)
    await past.run(changed)         # until cancelled; reads nothing before `want(wanted=True)`
    past.predict(node)

**Cost.** Without notices nothing is read and nothing kept. With them the MaintenanceRecords are followed, and of each
only what its last drains took is kept: a few numbers for each node. What nodes of one kind took is put together when
it is asked for and at most once a minute.

Where no history is kept nothing is predicted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from haulout.drain.progress import Ending
from haulout.errors import KubeError
from haulout.history.record import MAINTENANCE_RECORDS
from haulout.kube import discovery
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Base, Node, Object
from haulout.notices.prediction import KEPT, NOT_YET, Prediction, predicted

log = logging.getLogger(__name__)

_ASKED_AGAIN_AFTER = timedelta(hours=1)  # whether a history is kept by now
_GATHERED_FOR = timedelta(minutes=1)
_ALL = ""
# By what nodes are alike, the closest first: the pool they belong to, then who made them, then what they are.
_POOLS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "worker.gardener.cloud/pool",
    "name",  # OKE
)
_OWNER = "cluster.x-k8s.io/owner-name"  # an annotation
_KINDS = ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone")

Changed = Callable[[str], object]  # with the name of a node, or nothing: all of them


class _Drain(Base, frozen=True):
    seconds: float = 0
    pods: int = 0


class _Entry(Base, frozen=True):
    result: str = ""
    drain: _Drain | None = None


class RecordedDrains(Object, frozen=True):
    """A MaintenanceRecord, as far as it is about drains."""

    entries: tuple[_Entry, ...] = ()


class Drains(msgspec.Struct, frozen=True, gc=False):
    """What the last drains of a node took, in seconds, from old to new."""

    key: str
    uid: str
    resource_version: str
    seconds: tuple[float, ...]


def drains_of(record: RecordedDrains) -> Drains:
    """Return what is kept of a record: drains that made pods leave, those that were given up among them."""
    took = [it.drain.seconds for it in record.entries if it.drain is not None and it.drain.pods and _counts(it.result)]
    return Drains(record.key, record.uid, record.resource_version, tuple(took[-KEPT:]))


class Past:
    """Predicts from history; `run` may be called once. Somebody else runs the cache of nodes."""

    def __init__(self, client: Client, nodes: Cache[Node]) -> None:
        self._client = client
        self._nodes = nodes
        self._wanted = asyncio.Event()
        self._unwanted = asyncio.Event()
        self._drains: Cache[Drains] | None = None  # while it is complete
        self._is_off = False
        self._kinds: Mapping[str, Sequence[float]] = {}
        self._kinds_until: datetime | None = None

    def want(self, *, wanted: bool) -> None:
        """Say whether anybody will ask."""
        begins, ends = (self._wanted, self._unwanted) if wanted else (self._unwanted, self._wanted)
        begins.set()
        ends.clear()

    def predict(self, node: Node) -> Prediction | None:
        """Return how long emptying a node takes; None: nothing is known, `NOT_YET`: ask again later."""
        if self._is_off:
            return None
        if self._drains is None:
            return NOT_YET
        own = self._drains.get(node.name)
        if own is not None and own.seconds:
            return predicted(node.name, own=own.seconds, alike=())
        kinds = self._by_kind(self._drains)
        alike = ((_whose(kind), kinds.get(kind, ())) for kind in (*_kinds_of(node), _ALL))
        return predicted(node.name, own=(), alike=alike)

    async def run(self, changed: Changed) -> None:
        """Follow the history while it is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._is_off = not await self._is_kept()
            if not self._is_off:
                await self._follow(changed)
                continue
            changed(_ALL)
            try:
                # Not asyncio.timeout: it is the wait itself that is limited.
                await asyncio.wait_for(self._unwanted.wait(), _ASKED_AGAIN_AFTER.total_seconds())
            except TimeoutError:
                log.debug("whether a history is kept is asked again")

    async def _follow(self, changed: Changed) -> None:
        records = MAINTENANCE_RECORDS.of(RecordedDrains)
        drains: Cache[Drains] = Cache(self._client, Selection(records), row=drains_of)
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(_followed(drains))
                ready = group.create_task(self._use(drains, changed))
                await self._unwanted.wait()
                following.cancel()
                ready.cancel()
        finally:
            self._drains, self._kinds, self._kinds_until = None, {}, None

    async def _use(self, drains: Cache[Drains], changed: Changed) -> None:
        await drains.wait_synced()
        self._drains = drains
        changed(_ALL)
        is_first = True

        def note(old: Drains | None, new: Drains | None) -> None:
            if not is_first and (old and old.seconds) != (new and new.seconds):
                changed((new or old or _NONE).key)

        drains.subscribe(note)
        is_first = False

    async def _is_kept(self) -> bool:
        try:
            return await discovery.serves(self._client, MAINTENANCE_RECORDS)
        except KubeError as error:
            log.debug("whether a history is kept is not known: %s", error)
            return True  # the cache goes on trying

    def _by_kind(self, drains: Cache[Drains]) -> Mapping[str, Sequence[float]]:
        now = self._client.clock.now()
        if self._kinds_until is None or now >= self._kinds_until:
            found: dict[str, list[float]] = {}
            for row in drains.all():
                node = self._nodes.get(row.key) if row.seconds else None
                for kind in (*(_kinds_of(node) if node else ()), _ALL):
                    found.setdefault(kind, []).extend(row.seconds)
            self._kinds, self._kinds_until = found, now + _GATHERED_FOR
        return self._kinds


_NONE = Drains("", "", "", ())


async def _followed(drains: Cache[Drains]) -> None:
    await drains.run()


def _counts(result: str) -> bool:
    return result in (Ending.DRAINED, Ending.TIMED_OUT)


def _kinds_of(node: Node) -> Iterator[str]:
    """Yield what a node has in common with others, the closest first."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    yield from (f"{it}={labels[it]}" for it in _POOLS if it in labels)
    if _OWNER in annotations:
        yield f"{_OWNER}={annotations[_OWNER]}"
    yield from (f"{it}={labels[it]}" for it in _KINDS if it in labels)


def _whose(kind: str) -> str:
    return f"nodes with {kind}" if kind else "all nodes"
