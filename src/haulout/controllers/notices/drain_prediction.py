"""Predict how long a drain takes from the durations of past drains.

    predict_drain(node.name, own=(2400.0, 2520.0), similar=[("nodes of pool blue", samples)])

The node's own last drains count first: its workloads and their PodDisruptionBudgets rarely change much. A node that was
never drained is compared with similar nodes, from the most specific group to all nodes, and only with groups that have
enough samples. The prediction is the 90th percentile plus a safety margin, since a drain that begins too early costs
little.

`DrainHistory` reads the durations from MaintenanceRecords, while a notice needs a prediction:

    history = DrainHistory(client, nodes)
    await history.run(on_change)    # until cancelled; reads nothing before `set_enabled(enabled=True)`
    history.predict(node)

**Cost.** Without open notices nothing is read and nothing is kept. Otherwise an informer watches the MaintenanceRecords
and keeps only the durations of each node's last drains. The durations of similar nodes are aggregated on demand, at
most once per minute.

If the cluster has no MaintenanceRecords, nothing is predicted.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.objects import Base, Node, Object
from haulout.core import duration
from haulout.drain.progress import OutcomeResult
from haulout.errors import KubeError
from haulout.kube import discovery
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.reflector import ListWatch

log = logging.getLogger(__name__)

MAX_LEAD_TIME: Final = timedelta(hours=6)  # one drain that hung must not make the next one begin a day early
SAFETY_FACTOR: Final = 1.25
MAX_SAMPLES: Final = 5  # drains per node: older drains say little
_PERCENTILE = 0.9
_MIN_SAMPLES = 3  # drains of similar nodes
_MINUTE = timedelta(minutes=1)

_DISCOVERY_INTERVAL = timedelta(hours=1)  # how often to check whether MaintenanceRecords exist by now
_AGGREGATION_TTL = timedelta(minutes=1)
_ALL_NODES = ""
# Labels that similar nodes share, the most specific first: the node pool, then the owner, then the kind of node.
_POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "worker.gardener.cloud/pool",
    "name",  # OKE
)
_OWNER_ANNOTATION = "cluster.x-k8s.io/owner-name"  # set by Cluster API
_KIND_LABELS = ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone")

OnChange = Callable[[str], object]  # called with the name of a node, or "" for all nodes


@dataclass(frozen=True, slots=True)
class DrainPrediction:
    """A predicted drain duration, including the safety margin, and its basis."""

    with_margin: timedelta
    reason: str = ""  # for users: "draining node n1 took 42m last time"

    @property
    def expected(self) -> timedelta:
        """The predicted duration without the safety margin."""
        return self.with_margin / SAFETY_FACTOR


PENDING: Final = DrainPrediction(timedelta(), "the drain history is still being read")  # compare with `is`


def predict_drain(
    node: str, *, own: Sequence[float], similar: Iterable[tuple[str, Sequence[float]]]
) -> DrainPrediction | None:
    """Return the predicted duration; None if nothing is known.

    All durations are in seconds, those in `own` oldest first.
    """
    if own:
        return _prediction(_percentile(own), _own_reason(node, own))
    for group, samples in similar:
        if len(samples) >= _MIN_SAMPLES:
            seconds = _percentile(samples)
            reason = f"90% of {len(samples)} drains of {group} took at most {format_seconds(seconds)}"
            return _prediction(seconds, reason)
    return None


def format_seconds(seconds: float) -> str:
    """Format a duration in minutes; in seconds if it is below ten minutes."""
    unit = 1 if seconds < 10 * _MINUTE.total_seconds() else 60
    return duration.format_short(timedelta(seconds=round(seconds / unit) * unit))


def _prediction(seconds: float, reason: str) -> DrainPrediction:
    # Round up to whole minutes, so that a difference of seconds causes no event.
    with_margin = math.ceil(seconds * SAFETY_FACTOR / _MINUTE.total_seconds()) * _MINUTE
    if with_margin <= MAX_LEAD_TIME:
        return DrainPrediction(with_margin, reason)
    return DrainPrediction(
        MAX_LEAD_TIME, f"{reason}; no drain begins more than {duration.format_short(MAX_LEAD_TIME)} ahead"
    )


def _own_reason(node: str, own: Sequence[float]) -> str:
    slowest, last = format_seconds(_percentile(own)), format_seconds(own[-1])
    return f"draining node {node} took {last} last time" + (f", and {slowest} before" if slowest != last else "")


def _percentile(samples: Sequence[float]) -> float:
    """Return the 90th percentile by the nearest-rank method: of few samples, the longest."""
    return sorted(samples)[math.ceil(_PERCENTILE * len(samples)) - 1]


class _Drain(Base, frozen=True):
    seconds: float = 0
    pods: int = 0


class _Entry(Base, frozen=True):
    result: str = ""
    drain: _Drain | None = None


class RecordedDrains(Object, frozen=True):
    """The part of a MaintenanceRecord that describes drains."""

    entries: tuple[_Entry, ...] = ()


class DrainDurations(msgspec.Struct, frozen=True, gc=False):
    """Durations of a node's last drains, in seconds, oldest first."""

    key: str
    uid: str
    resource_version: str
    seconds: tuple[float, ...]


def drain_durations(record: RecordedDrains) -> DrainDurations:
    """Return the durations of drains that evicted pods, including those that timed out."""
    seconds = [
        entry.drain.seconds
        for entry in record.entries
        if entry.drain is not None and entry.drain.pods and _is_counted(entry.result)
    ]
    return DrainDurations(record.key, record.uid, record.resource_version, tuple(seconds[-MAX_SAMPLES:]))


class DrainPredictor(Protocol):
    """Predicts how long it takes to empty a node."""

    def predict(self, node: Node) -> DrainPrediction | None:
        """Return the predicted duration. None: nothing is known. `PENDING`: ask again later."""
        ...

    def set_enabled(self, *, enabled: bool) -> None:
        """Enable or disable reading the history. Without open notices nothing needs predictions."""
        ...

    async def run(self, on_change: OnChange) -> None:
        """Run until cancelled; call `on_change` with the node whose history changed, or "" for all nodes."""
        ...


class DrainHistory:
    """Predicts drains from history. Call `run` at most once. The caller runs the node informer."""

    def __init__(self, client: Client, nodes: Informer[Node]) -> None:
        self._client = client
        self._nodes = nodes
        self._enabled = asyncio.Event()
        self._disabled = asyncio.Event()
        self._drains: Informer[DrainDurations] | None = None  # None until the informer has synced
        self._is_unavailable = False
        self._seconds_by_kind: Mapping[str, Sequence[float]] = {}
        self._seconds_valid_until: datetime | None = None

    def set_enabled(self, *, enabled: bool) -> None:
        """Enable or disable reading the history."""
        to_set, to_clear = (self._enabled, self._disabled) if enabled else (self._disabled, self._enabled)
        to_set.set()
        to_clear.clear()

    def predict(self, node: Node) -> DrainPrediction | None:
        """Return the predicted duration. None: nothing is known. `PENDING`: the history is still being read."""
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
        """Watch the history while enabled, until cancelled."""
        while True:
            await self._enabled.wait()
            self._is_unavailable = not await self._has_history()
            if not self._is_unavailable:
                await self._watch(on_change)
                continue
            on_change(_ALL_NODES)
            try:
                # Not asyncio.timeout: only this wait is limited.
                await asyncio.wait_for(self._disabled.wait(), _DISCOVERY_INTERVAL.total_seconds())
            except TimeoutError:
                log.debug("checking again whether MaintenanceRecords are served")

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
            log.debug("cannot check whether MaintenanceRecords are served: %s", error)
            return True  # assume that they exist: the informer keeps retrying

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
    """Yield the groups that a node belongs to, the most specific first."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    yield from (f"{label}={labels[label]}" for label in _POOL_LABELS if label in labels)
    if _OWNER_ANNOTATION in annotations:
        yield f"{_OWNER_ANNOTATION}={annotations[_OWNER_ANNOTATION]}"
    yield from (f"{label}={labels[label]}" for label in _KIND_LABELS if label in labels)


def _describe_kind(kind: str) -> str:
    return f"nodes with {kind}" if kind else "all nodes"
