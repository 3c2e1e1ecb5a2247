"""The health of the operator for the API, from data that its components keep anyway, and its last warnings and errors.

    with warnings.capture():
        …
    warnings.to_api(redact)  # the newest first, without secrets

The number of warnings is bounded. Repeated messages are one entry with a count, even if numbers in them differ, such as
an attempt or a time.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from haulout.api.objects import Lease
from haulout.core.clock import Clock
from haulout.core.redaction import redact_known_patterns
from haulout.dashboard.api.types import (
    Banner,
    LeaseHealth,
    Level,
    LoggedWarning,
    QueueHealth,
    RequestHealth,
    WatchHealth,
)
from haulout.kube.informer import Informer
from haulout.kube.metrics import KubeMetrics, RequestMetrics, RequestSeries
from haulout.kube.workqueue import WorkQueue

NO_SUCH_KIND = "this kind is not installed in this cluster"
_MAX_MISFITS = 20

MAX_ENTRIES = 50
_MAX_TEXT_LENGTH = 2_000  # characters
_LOGGER = "haulout"
_NUMBER = re.compile(r"\d+")

Key = tuple[str, int, str]


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


@dataclass(slots=True)
class _LogEntry:
    at: datetime
    level: Level
    text: str
    count: int = 1


class RecentWarnings(logging.Handler):
    """A logging handler that keeps the last warnings."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._entries: OrderedDict[Key, _LogEntry] = OrderedDict()

    @contextmanager
    def capture(self, logger: str = _LOGGER) -> Iterator[None]:
        """Handle records of a logger while the context lasts."""
        target = logging.getLogger(logger)
        target.addHandler(self)
        try:
            yield
        finally:
            target.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message. Messages that differ in numbers only are one entry with a count."""
        try:
            text = _text(record)
        except Exception:  # noqa: BLE001 - as logging does for a message that does not match its arguments
            self.handleError(record)
            return
        level = Level.CRITICAL if record.levelno >= logging.ERROR else Level.WARNING
        key = record.name, record.levelno, _NUMBER.sub("#", text)
        before = self._entries.pop(key, None)
        count = 1 if before is None else before.count + 1
        self._entries[key] = _LogEntry(self._clock.now(), level, text, count)
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def to_api(self, redact: Callable[[str], str] = redact_known_patterns) -> tuple[LoggedWarning, ...]:
        """Return the entries, the newest first; `redact` removes secrets."""
        with self.lock or _no_lock():  # other threads may log
            entries = [*self._entries.values()]
        return tuple(
            LoggedWarning(
                time=entry.at, level=entry.level, message=redact_known_patterns(redact(entry.text)), count=entry.count
            )
            for entry in reversed(entries)
        )


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if error is not None and str(error) not in text:
        text = f"{text}: {type(error).__name__}: {error}"
    line = " ".join(text[: 4 * _MAX_TEXT_LENGTH].split())
    return line if len(line) <= _MAX_TEXT_LENGTH else f"{line[:_MAX_TEXT_LENGTH]}…"


@contextmanager
def _no_lock() -> Iterator[None]:
    yield


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorInfo:
    """The header of every page, besides the nodes."""

    identity: str
    since: datetime
    cluster: str = ""
    banners: Callable[[], tuple[Banner, ...]] = tuple
    has_history: Callable[[], bool] = bool
    components: tuple[str, ...] = ()  # in the history, those that cordon nodes
