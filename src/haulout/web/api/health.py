"""How the operator is doing, as the API tells it: made of what its parts know when somebody asks. Pure.

Nothing is measured for it that is not measured anyway, and nothing is kept but what others keep.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from haulout.kube.cache import Cache
from haulout.kube.calls import Calls, Series
from haulout.kube.meters import Meters
from haulout.kube.objects import Lease
from haulout.kube.queue import Queue
from haulout.web.api.shapes import CallHealth, LeaseHealth, QueueHealth, WatchHealth

NO_SUCH_KIND = "there is no such kind in this cluster"
_MOST_MISFITS = 20


def watches(meters: Meters) -> tuple[WatchHealth, ...]:
    """Return how well things are followed, one for each kind, those with a problem first."""
    found = [_watch(it) for it in meters.caches]
    return tuple(sorted(_merged(found), key=lambda it: (not it.problem, it.is_synced, it.resource)))


def queues(meters: Meters) -> tuple[QueueHealth, ...]:
    """Return how long things wait that are due; equal names are one."""
    found: dict[str, QueueHealth] = {}
    for it in meters.queues:
        stats, name = it.stats(), it.name or "unnamed"
        depth, lag = stats.waiting + stats.running, _seconds(it)
        if name in found:
            depth, lag = depth + found[name].depth, max(lag, found[name].worst_lag_seconds)
        found[name] = QueueHealth(name=name, depth=depth, worst_lag_seconds=lag)
    return tuple(found[name] for name in sorted(found))


def calls(noted: Calls, *, now: float) -> tuple[CallHealth, ...]:
    """Return how the API server answers, what is asked most first; `now` is the monotonic clock's."""
    found = sorted((_call(it, now) for it in noted.all()), key=lambda it: (-it.count, it.verb, it.resource))
    return tuple(found)


def lease(name: str, found: Lease | None) -> LeaseHealth:
    """Return who holds a lease; nobody, if there is none."""
    if found is None:
        return LeaseHealth(name=name)
    return LeaseHealth(
        name=name,
        holder=found.spec.holder_identity or "",
        acquired=found.spec.acquire_time,
        renewed=found.spec.renew_time,
        transitions=found.spec.lease_transitions or 0,
    )


def _watch(cache: Cache[Any]) -> WatchHealth:
    health = cache.health()
    missing = NO_SUCH_KIND if health.is_missing else ""
    misfits = dict(list(health.misfits.items())[:_MOST_MISFITS])
    return WatchHealth(
        resource=str(cache.resource),
        is_synced=health.synced,
        objects=len(cache),
        heard=health.heard_at,
        problem=missing or health.problem or "",
        misfits=misfits,
    )


def _merged(found: Iterable[WatchHealth]) -> Iterator[WatchHealth]:
    """Yield one for each kind, the worst: several parts may follow the same, and each drain the pods of its node."""
    by_kind: dict[str, WatchHealth] = {}
    for it in found:
        known = by_kind.get(it.resource)
        if known is None or _badness(it) > _badness(known):
            by_kind[it.resource] = it
    yield from by_kind.values()


def _badness(it: WatchHealth) -> tuple[bool, bool, int]:
    return bool(it.problem), not it.is_synced, it.objects


def _seconds(queue: Queue[Any]) -> float:
    return round(queue.worst_lag().total_seconds(), 6)


def _call(series: Series, now: float) -> CallHealth:
    return CallHealth(
        verb=series.verb,
        resource=series.resource,
        count=series.count,
        errors=series.errors,
        median_seconds=round(series.lately.median(now), 6),
        worst_seconds=round(series.lately.worst(now), 6),
    )
