"""Drain metrics: how long drains take, how pods leave, and what blocks them.

    initiator_metrics = metrics.for_initiator(NODE_MAINTENANCE)
    drain_metrics = initiator_metrics.start_drain()
    drain_metrics.update(progress, outcome, blockers=blockers, is_waiting=False, now=now)
    drain_metrics.finish(result, progress, now=now)

The metrics belong to the process and outlive its leadership. A drain that another replica takes over is counted there,
from its start. A drain that finds its node empty is not counted.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from haulout.core.metrics import Histogram, MetricVec, counter, gauge, histogram
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.escalation import EscalationStep
from haulout.drain.eviction_api import EvictionApi
from haulout.drain.progress import ActiveBlocker, DrainOutcome, DrainProgress, OutcomeResult

NODE_MAINTENANCE, PROFILE = "nodemaintenance", "profiles"
CRASHED = "Crashed"  # result of a drain that crashed; the controller starts another
_BY_LABEL_HELP = "`controller` is `nodemaintenance`, `profiles` or the name of a component"
_MINUTE, _HOUR = 60.0, 3600.0

DURATION = histogram(
    "haulout_drain_duration_seconds",
    "How long completed drains took.",
    "controller",
    "result",
    details=f"{_BY_LABEL_HELP}; `result` is `Drained`, `Refused`, `TimedOut`, `Cancelled` or `{CRASHED}`",
    buckets=(5, 15, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE, _HOUR, 4 * _HOUR, 24 * _HOUR),
)
RUNNING = gauge(
    "haulout_drains_running", "How many drains are in progress.", "controller", details="only the leader reports it"
)
PODS_LEFT = gauge(
    "haulout_drain_pods_left", "How many pods drains in progress have yet to remove from their nodes.", "controller"
)
BLOCKED = gauge(
    "haulout_drains_blocked",
    "How many drains in progress have a blocker of this kind.",
    "controller",
    "kind",
    details="`kind` is that of a [blocker](drain.md), such as `DisruptionBudget`",
)
BLOCKED_SECONDS = counter(
    "haulout_drain_blocked_seconds_total",
    "How long drains were blocked by a blocker of this kind, in total.",
    "controller",
    "kind",
)
PODS = counter(
    "haulout_drain_pods_total",
    "How many pods drains removed from their nodes.",
    "controller",
    "method",
    details="`method` is `evict`, `delete`, `force-delete`, or `request` if by an EvictionRequest",
)
REFUSALS = counter(
    "haulout_drain_refusals_total",
    "How often the eviction or deletion of a pod was refused.",
    "controller",
    "kind",
    details="each attempt counts",
)
METRICS = (DURATION, RUNNING, PODS_LEFT, BLOCKED, BLOCKED_SECONDS, PODS, REFUSALS)

_REQUEST = "request"


class DrainMetrics:
    """All drain metrics of the process, for all initiators."""

    def __init__(self) -> None:
        self.duration = Histogram(DURATION)
        self.running = MetricVec(RUNNING)
        self.pods_left = MetricVec(PODS_LEFT)
        self.blocked = MetricVec(BLOCKED)
        self.blocked_seconds = MetricVec(BLOCKED_SECONDS)
        self.pods = MetricVec(PODS)
        self.refusals = MetricVec(REFUSALS)
        self._by_initiator: dict[str, InitiatorDrainMetrics] = {}
        # Series that exist from the start, so that `rate` and alerts work before the first drain.
        for initiator in (NODE_MAINTENANCE, PROFILE):
            self.for_initiator(initiator)

    def for_initiator(self, initiator: str) -> "InitiatorDrainMetrics":
        """Return the metrics of the drains of one initiator; create them if needed."""
        if initiator not in self._by_initiator:
            self._by_initiator[initiator] = InitiatorDrainMetrics(self, initiator)
            self.duration.initialize(initiator, OutcomeResult.DRAINED)
            self.blocked_seconds.add(initiator, BlockerKind.DISRUPTION_BUDGET, amount=0)
            for step in EscalationStep:
                self.pods.add(initiator, step, amount=0)
        return self._by_initiator[initiator]

    def collect(self, *, now: datetime) -> tuple[MetricVec | Histogram, ...]:
        for metric_vec in (self.running, self.pods_left, self.blocked):
            metric_vec.values.clear()
        for initiator_metrics in self._by_initiator.values():
            initiator_metrics.update_gauges(now=now)
        gauges = self.running, self.pods_left, self.blocked
        return *gauges, self.duration, self.blocked_seconds, self.pods, self.refusals


class InitiatorDrainMetrics:
    """The metrics of one initiator's drains: NodeMaintenances, profiles or a component."""

    def __init__(self, metrics: DrainMetrics, initiator: str) -> None:
        self.metrics = metrics
        self.initiator = initiator
        self.running: dict[int, SingleDrainMetrics] = {}  # by id

    def start_drain(self) -> "SingleDrainMetrics":
        """Return the metrics of a new drain; call `finish` or `discard` at its end."""
        drain = SingleDrainMetrics(self)
        self.running[id(drain)] = drain
        return drain

    def count_response(self, step: EscalationStep, api: EvictionApi, blocker: Blocker | None) -> None:
        """Count an accepted request, or a refusal by `blocker`."""
        if blocker is not None:
            self.metrics.refusals.add(self.initiator, blocker.kind)
        else:
            self.metrics.pods.add(self.initiator, _REQUEST if api is EvictionApi.REQUEST else step)

    def update_gauges(self, *, now: datetime) -> None:
        metrics, initiator = self.metrics, self.initiator
        # A drain that waits to begin, or keeps running on an empty node, is not in progress.
        running = [drain for drain in self.running.values() if drain.pods or drain.kinds]
        metrics.running.add(initiator, amount=len(running))
        metrics.pods_left.add(initiator, amount=sum(drain.pods for drain in running))
        metrics.blocked.add(initiator, BlockerKind.DISRUPTION_BUDGET, amount=0)
        for drain in running:
            drain.add_blocked_time(now)
            for kind in drain.kinds:
                metrics.blocked.add(initiator, kind)


class SingleDrainMetrics:
    """The metrics of one drain, from its start in this process to its end or handover."""

    __slots__ = ("_at", "_had_pods", "_is_counted", "_meter", "kinds", "pods")

    def __init__(self, initiator_metrics: InitiatorDrainMetrics) -> None:
        self._meter = initiator_metrics
        self._at: datetime | None = None
        self._is_counted = False
        self._had_pods = False
        self.pods = 0  # that have yet to leave
        self.kinds: frozenset[BlockerKind] = frozenset()  # of current blockers

    def update(
        self,
        progress: DrainProgress,
        outcome: DrainOutcome | None,
        *,
        blockers: Iterable[ActiveBlocker],
        is_waiting: bool,
        now: datetime,
    ) -> None:
        self.add_blocked_time(now)
        is_idle = is_waiting or (outcome is not None and not outcome.is_drained)
        self.pods = 0 if is_idle else len(progress.pods)
        has_work = not is_idle and bool(progress.pods or progress.volumes)
        self.kinds = frozenset(active.blocker.kind for active in blockers) if has_work else frozenset()
        self._had_pods = self._had_pods or (bool(progress.pods) and not is_waiting)
        if outcome is not None:
            self._count_result(outcome.result, progress, now)

    def finish(self, result: OutcomeResult | None, progress: DrainProgress, *, now: datetime) -> None:
        """Record the end of the drain. `result` is None if it crashed."""
        self.add_blocked_time(now)
        self._count_result(CRASHED if result is None else result, progress, now)
        self.discard()

    def discard(self) -> None:
        """Stop counting the drain: it has ended, or another replica continues it."""
        self._meter.running.pop(id(self), None)
        self.pods, self.kinds = 0, frozenset()

    def add_blocked_time(self, now: datetime) -> None:
        """Count the time since the last update for each current kind of blocker."""
        if self.kinds and self._at is not None:
            elapsed = max(now - self._at, timedelta()).total_seconds()
            for kind in self.kinds:
                self._meter.metrics.blocked_seconds.add(self._meter.initiator, kind, amount=elapsed)
        self._at = now

    def _count_result(self, result: str, progress: DrainProgress, now: datetime) -> None:
        if self._is_counted or not self._had_pods:  # counted before, or there was nothing to do
            return
        self._is_counted = True
        took = max(now - progress.started, timedelta()).total_seconds()
        self._meter.metrics.duration.observe(took, self._meter.initiator, result)
