"""The health of the operator for the API, from data that its components keep anyway. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any

from haulout.api.objects import Lease
from haulout.dashboard.api.types import LeaseHealth, QueueHealth, RequestHealth, WatchHealth
from haulout.kube.informer import Informer
from haulout.kube.metrics import KubeMetrics, RequestMetrics, RequestSeries
from haulout.kube.workqueue import WorkQueue

NO_SUCH_KIND = "this kind is not installed in this cluster"
_MAX_MISFITS = 20


def watches(meters: KubeMetrics) -> tuple[WatchHealth, ...]:
    """Return the health of informers, one per kind, problems first."""
    found = [_watch(item) for item in meters.informers]
    return tuple(sorted(_merged(found), key=lambda item: (not item.problem, item.is_synced, item.resource)))


def queues(meters: KubeMetrics) -> tuple[QueueHealth, ...]:
    """Return the depth and lag of work queues; queues with the same name are merged."""
    found: dict[str, QueueHealth] = {}
    for queue in meters.queues:
        stats, name = queue.stats(), queue.name or "unnamed"
        depth, lag = stats.waiting + stats.running, _seconds(queue)
        if name in found:
            depth, lag = depth + found[name].depth, max(lag, found[name].worst_lag_seconds)
        found[name] = QueueHealth(name=name, depth=depth, worst_lag_seconds=lag)
    return tuple(found[name] for name in sorted(found))


def calls(recorded: RequestMetrics, *, now: float) -> tuple[RequestHealth, ...]:
    """Return latency and errors of the API server, the most frequent calls first; `now` is monotonic."""
    found = sorted(
        (_call(item, now) for item in recorded.all()), key=lambda item: (-item.count, item.verb, item.resource)
    )
    return tuple(found)


def lease(name: str, found: Lease | None) -> LeaseHealth:
    """Return the holder of a lease; an empty one if the lease does not exist."""
    if found is None:
        return LeaseHealth(name=name)
    return LeaseHealth(
        name=name,
        holder=found.spec.holder_identity or "",
        acquired=found.spec.acquire_time,
        renewed=found.spec.renew_time,
        transitions=found.spec.lease_transitions or 0,
    )


def _watch(cache: Informer[Any]) -> WatchHealth:
    health = cache.health()
    missing = NO_SUCH_KIND if health.is_missing else ""
    misfits = dict(list(health.undecodable.items())[:_MAX_MISFITS])
    return WatchHealth(
        resource=str(cache.resource),
        is_synced=health.has_synced,
        objects=len(cache),
        last_response=health.last_received_at,
        problem=missing or health.problem or "",
        undecodable_objects=misfits,
    )


def _merged(found: Iterable[WatchHealth]) -> Iterator[WatchHealth]:
    """Yield the worst informer per kind.

    Several components may watch a kind, and each drain watches the pods of its node.
    """
    by_kind: dict[str, WatchHealth] = {}
    for watch in found:
        previous = by_kind.get(watch.resource)
        if previous is None or _severity(watch) > _severity(previous):
            by_kind[watch.resource] = watch
    yield from by_kind.values()


def _severity(watch: WatchHealth) -> tuple[bool, bool, int]:
    return bool(watch.problem), not watch.is_synced, watch.objects


def _seconds(queue: WorkQueue[Any]) -> float:
    return round(queue.max_lag().total_seconds(), 6)


def _call(series: RequestSeries, now: float) -> RequestHealth:
    return RequestHealth(
        verb=series.verb,
        resource=series.resource,
        count=series.count,
        errors=series.errors,
        median_seconds=round(series.recent.median(now), 6),
        worst_seconds=round(series.recent.maximum(now), 6),
    )
