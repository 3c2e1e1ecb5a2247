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

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.objects import Base, Node, Object
from haulout.controllers.notices.drain_prediction import MAX_SAMPLES, PENDING, DrainPrediction, predict_drain
from haulout.drain.progress import OutcomeResult
from haulout.errors import KubeError
from haulout.kube import discovery
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.reflector import ListWatch

log = logging.getLogger(__name__)

_DISCOVERY_INTERVAL = timedelta(hours=1)  # whether a history is kept by now
_AGGREGATION_TTL = timedelta(minutes=1)
_ALL_NODES = ""
# By what nodes are alike, the closest first: the pool they belong to, then who made them, then what they are.
_POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "worker.gardener.cloud/pool",
    "name",  # OKE
)
_OWNER_ANNOTATION = "cluster.x-k8s.io/owner-name"  # an annotation
_KIND_LABELS = ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone")

OnChange = Callable[[str], object]  # with the name of a node, or nothing: all of them


class _Drain(Base, frozen=True):
    seconds: float = 0
    pods: int = 0


class _Entry(Base, frozen=True):
    result: str = ""
    drain: _Drain | None = None


class RecordedDrains(Object, frozen=True):
    """A MaintenanceRecord, as far as it is about drains."""

    entries: tuple[_Entry, ...] = ()


class DrainDurations(msgspec.Struct, frozen=True, gc=False):
    """What the last drains of a node took, in seconds, from old to new."""

    key: str
    uid: str
    resource_version: str
    seconds: tuple[float, ...]


def drain_durations(record: RecordedDrains) -> DrainDurations:
    """Return what is kept of a record: drains that made pods leave, those that were given up among them."""
    seconds = [
        entry.drain.seconds
        for entry in record.entries
        if entry.drain is not None and entry.drain.pods and _is_counted(entry.result)
    ]
    return DrainDurations(record.key, record.uid, record.resource_version, tuple(seconds[-MAX_SAMPLES:]))


class DrainHistory:
    """Predicts from history; `run` may be called once. Somebody else runs the cache of nodes."""

    def __init__(self, client: Client, nodes: Informer[Node]) -> None:
        self._client = client
        self._nodes = nodes
        self._enabled = asyncio.Event()
        self._disabled = asyncio.Event()
        self._drains: Informer[DrainDurations] | None = None  # while it is complete
        self._is_unavailable = False
        self._seconds_by_kind: Mapping[str, Sequence[float]] = {}
        self._seconds_valid_until: datetime | None = None

    def set_enabled(self, *, enabled: bool) -> None:
        """Say whether anybody will ask."""
        to_set, to_clear = (self._enabled, self._disabled) if enabled else (self._disabled, self._enabled)
        to_set.set()
        to_clear.clear()

    def predict(self, node: Node) -> DrainPrediction | None:
        """Return how long emptying a node takes; None: nothing is known, `PENDING`: ask again later."""
        if self._is_unavailable:
            return None
        if self._drains is None:
            return PENDING
        own = self._drains.get(node.name)
        if own is not None and own.seconds:
            return predict_drain(node.name, own=own.seconds, similar=())
        kinds = self._by_kind(self._drains)
        similar = ((_describe_kind(kind), kinds.get(kind, ())) for kind in (*_kinds_of(node), _ALL_NODES))
        return predict_drain(node.name, own=(), similar=similar)

    async def run(self, on_change: OnChange) -> None:
        """Follow the history while it is wanted, until cancelled."""
        while True:
            await self._enabled.wait()
            self._is_unavailable = not await self._has_history()
            if not self._is_unavailable:
                await self._watch(on_change)
                continue
            on_change(_ALL_NODES)
            try:
                # Not asyncio.timeout: it is the wait itself that is limited.
                await asyncio.wait_for(self._disabled.wait(), _DISCOVERY_INTERVAL.total_seconds())
            except TimeoutError:
                log.debug("whether a history is kept is asked again")

    async def _watch(self, on_change: OnChange) -> None:
        records = MAINTENANCE_RECORDS.with_model(RecordedDrains)
        drains: Informer[DrainDurations] = Informer(self._client, ListWatch(records), transform=drain_durations)
        try:
            async with asyncio.TaskGroup() as group:
                watch_task = group.create_task(_run_cache(drains))
                activation_task = group.create_task(self._activate(drains, on_change))
                await self._disabled.wait()
                watch_task.cancel()
                activation_task.cancel()
        finally:
            self._drains, self._seconds_by_kind, self._seconds_valid_until = None, {}, None

    async def _activate(self, drains: Informer[DrainDurations], on_change: OnChange) -> None:
        await drains.wait_synced()
        self._drains = drains
        on_change(_ALL_NODES)
        is_first = True

        def on_update(old: DrainDurations | None, new: DrainDurations | None) -> None:
            if not is_first and (old and old.seconds) != (new and new.seconds):
                on_change((new or old or _NO_DURATIONS).key)

        drains.subscribe(on_update)
        is_first = False

    async def _has_history(self) -> bool:
        try:
            return await discovery.serves(self._client, MAINTENANCE_RECORDS)
        except KubeError as error:
            log.debug("whether a history is kept is not known: %s", error)
            return True  # the cache goes on trying

    def _by_kind(self, drains: Informer[DrainDurations]) -> Mapping[str, Sequence[float]]:
        now = self._client.clock.now()
        if self._seconds_valid_until is None or now >= self._seconds_valid_until:
            found: dict[str, list[float]] = {}
            for row in drains.all():
                node = self._nodes.get(row.key) if row.seconds else None
                for kind in (*(_kinds_of(node) if node else ()), _ALL_NODES):
                    found.setdefault(kind, []).extend(row.seconds)
            self._seconds_by_kind, self._seconds_valid_until = found, now + _AGGREGATION_TTL
        return self._seconds_by_kind


_NO_DURATIONS = DrainDurations("", "", "", ())


async def _run_cache(drains: Informer[DrainDurations]) -> None:
    await drains.run()


def _is_counted(result: str) -> bool:
    return result in (OutcomeResult.DRAINED, OutcomeResult.TIMED_OUT)


def _kinds_of(node: Node) -> Iterator[str]:
    """Yield what a node has in common with others, the closest first."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    yield from (f"{label}={labels[label]}" for label in _POOL_LABELS if label in labels)
    if _OWNER_ANNOTATION in annotations:
        yield f"{_OWNER_ANNOTATION}={annotations[_OWNER_ANNOTATION]}"
    yield from (f"{label}={labels[label]}" for label in _KIND_LABELS if label in labels)


def _describe_kind(kind: str) -> str:
    return f"nodes with {kind}" if kind else "all nodes"
