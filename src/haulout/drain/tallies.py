"""What is counted about drains, for `/metrics`: how long they take, what they do to pods, and what holds them up.

    meter = tallies.of("order")                  # who drains: a person's order, or a profile
    observed = meter.begin()
    observed.sees(progress, outcome, now=now)    # whenever there is something new
    observed.end()

The tallies are the process's, and outlive its leadership. A drain that is taken over by another replica is counted
there, from its beginning; one that finds its node empty is none.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from haulout.core.metering import Histogram, Metric, Tally
from haulout.core.metering import Kind as Type
from haulout.drain.blockers import Blocker, Kind
from haulout.drain.ladder import Rung
from haulout.drain.progress import Ending, Outcome, Progress, Standing
from haulout.drain.ways import Way

ORDER, PROFILE, ESX, KUBERNIKUS = "order", "profile", "esx", "kubernikus"
BROKE = "Broke"  # the result of a drain that ended against its will; it is begun again
_BY = "`by` is `order`, `profile`, `esx` or `kubernikus`"
_MINUTE, _HOUR = 60.0, 3600.0

DURATION = Metric(
    "haulout_drain_duration_seconds",
    "How long drains took that are over.",
    ("by", "result"),
    kind=Type.HISTOGRAM,
    unit="seconds",
    more=f"{_BY}; `result` is `Drained`, `Refused`, `TimedOut`, `Cancelled` or `{BROKE}`",
    buckets=(5, 15, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE, _HOUR, 4 * _HOUR, 24 * _HOUR),
)
RUNNING = Metric(
    "haulout_drains_running", "How many drains are under way.", ("by",), kind=Type.GAUGE, more="only the leader has it"
)
PODS_LEFT = Metric(
    "haulout_drain_pods_left", "How many pods are still to leave by drains under way.", ("by",), kind=Type.GAUGE
)
BLOCKED = Metric(
    "haulout_drains_blocked",
    "How many drains are under way in which a pod, or the drain, waits for something of this kind.",
    ("by", "kind"),
    kind=Type.GAUGE,
    more="`kind` is that of a [blocker](drain.md), such as `DisruptionBudget`",
)
BLOCKED_SECONDS = Metric(
    "haulout_drain_blocked_seconds_total",
    "How long drains had a pod that waits for something of this kind, all together.",
    ("by", "kind"),
    unit="seconds",
)
PODS = Metric(
    "haulout_drain_pods_total",
    "How many pods were made to leave.",
    ("by", "how"),
    more="`how` is `evict`, `delete`, `kill`, or `request` if somebody else was asked to see to it",
)
REFUSALS = Metric(
    "haulout_drain_refusals_total", "How often a pod could not be made to leave.", ("by", "kind"), more="tries count"
)
METRICS = (DURATION, RUNNING, PODS_LEFT, BLOCKED, BLOCKED_SECONDS, PODS, REFUSALS)

_REQUEST = "request"


class DrainTallies:
    """All that is counted."""

    def __init__(self) -> None:
        self.duration = Histogram(DURATION)
        self.running = Tally(RUNNING)
        self.pods_left = Tally(PODS_LEFT)
        self.blocked = Tally(BLOCKED)
        self.blocked_seconds = Tally(BLOCKED_SECONDS)
        self.pods = Tally(PODS)
        self.refusals = Tally(REFUSALS)
        self._meters: dict[str, Meter] = {}
        for by in (ORDER, PROFILE):
            self.of(by)

    def of(self, by: str) -> "Meter":
        """Return what counts the drains that somebody has made."""
        if by not in self._meters:
            self._meters[by] = Meter(self, by)
            self.duration.know(by, Ending.DRAINED)
            self.blocked_seconds.add(by, Kind.BUDGET, amount=0)
            for rung in Rung:
                self.pods.add(by, rung, amount=0)
        return self._meters[by]

    def look(self, *, now: datetime) -> tuple[Tally | Histogram, ...]:
        """Return all of them, as they are now."""
        for gauge in (self.running, self.pods_left, self.blocked):
            gauge.values.clear()
        for meter in self._meters.values():
            meter.look(now=now)
        gauges = self.running, self.pods_left, self.blocked
        return *gauges, self.duration, self.blocked_seconds, self.pods, self.refusals


class Meter:
    """Counts the drains of one controller."""

    def __init__(self, tallies: DrainTallies, by: str) -> None:
        self.tallies = tallies
        self.by = by
        self.observed: dict[int, Observed] = {}  # by id

    def begin(self) -> "Observed":
        """Return what counts one drain, until its `end`."""
        observed = Observed(self)
        self.observed[id(observed)] = observed
        return observed

    def answered(self, rung: Rung, way: Way, blocker: Blocker | None) -> None:
        """Count that a pod was made to leave, or what stands in its way."""
        if blocker is not None:
            self.tallies.refusals.add(self.by, blocker.kind)
        else:
            self.tallies.pods.add(self.by, _REQUEST if way is Way.REQUEST else rung)

    def look(self, *, now: datetime) -> None:
        """Bring the numbers up to date."""
        tallies, by = self.tallies, self.by
        running = [it for it in self.observed.values() if it.pods or it.kinds]
        tallies.running.add(by, amount=len(running))
        tallies.pods_left.add(by, amount=sum(it.pods for it in running))
        tallies.blocked.add(by, Kind.BUDGET, amount=0)
        for it in running:
            it.pass_time(now)
            for kind in it.kinds:
                tallies.blocked.add(by, kind)


class Observed:
    """One drain."""

    __slots__ = ("_at", "_had_pods", "_is_counted", "_meter", "kinds", "pods")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._at: datetime | None = None
        self._is_counted = False
        self._had_pods = False
        self.pods = 0  # that are still to leave
        self.kinds: frozenset[Kind] = frozenset()  # of what stands in the way

    def sees(
        self,
        progress: Progress,
        outcome: Outcome | None,
        *,
        standing: Iterable[Standing],
        is_waiting: bool,
        now: datetime,
    ) -> None:
        """Take note of how it stands."""
        self.pass_time(now)
        is_idle = is_waiting or (outcome is not None and not outcome.is_drained)
        self.pods = 0 if is_idle else len(progress.pods)
        has_work = not is_idle and bool(progress.pods or progress.volumes)
        self.kinds = frozenset(it.blocker.kind for it in standing) if has_work else frozenset()
        self._had_pods = self._had_pods or (bool(progress.pods) and not is_waiting)
        if outcome is not None:
            self._count(outcome.ending, progress, now)

    def ends(self, ending: Ending | None, progress: Progress, *, now: datetime) -> None:
        """Take note of its end; None: it broke."""
        self.pass_time(now)
        self._count(BROKE if ending is None else ending, progress, now)
        self.forget()

    def forget(self) -> None:
        """Count it no more: it is over, or another replica goes on with it."""
        self._meter.observed.pop(id(self), None)
        self.pods, self.kinds = 0, frozenset()

    def pass_time(self, now: datetime) -> None:
        """Count the time since the last look for what stands in the way."""
        if self.kinds and self._at is not None:
            passed = max(now - self._at, timedelta()).total_seconds()
            for kind in self.kinds:
                self._meter.tallies.blocked_seconds.add(self._meter.by, kind, amount=passed)
        self._at = now

    def _count(self, result: str, progress: Progress, now: datetime) -> None:
        if self._is_counted or not self._had_pods:  # it goes on for pods that come later, or there was nothing to do
            return
        self._is_counted = True
        took = max(now - progress.started, timedelta()).total_seconds()
        self._meter.tallies.duration.observe(took, self._meter.by, result)
