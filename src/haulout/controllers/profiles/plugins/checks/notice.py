"""The check `notice`: whether announced maintenance of the node is due, has begun, or is over."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.api.maintenancenotice import (
    DEFAULT_LEAD,
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    NoticePhase,
    PhaseStatus,
    phase_at,
)
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, Need, PluginContext, fails, passes
from haulout.controllers.profiles.view import topics

# A freeze takes seconds; draining the node would disturb its pods more.
_DEFAULT_KINDS = tuple(kind for kind in MaintenanceKind if kind is not MaintenanceKind.FREEZE)


class When(StrEnum):
    """The phase of a maintenance that a check matches."""

    DUE = "due"
    ACTIVE = "active"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class _NoticeReading:
    notice: MaintenanceNotice
    timing: PhaseStatus
    matches: bool

    def __str__(self) -> str:
        spec = self.notice.spec
        about = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
        return f"{about}, notice {self.notice.name}: {self.timing.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeCheck(Check):
    """Passes if a maintenance that is announced for the node is due, has begun, or is over.

    Clouds, people and other tools announce maintenance by MaintenanceNotices: `kubectl get mn` lists them.

    - `due`: one is less than `leadTime` away, or has begun. If draining the node took longer than that before, it is
      due that much earlier.
    - `active`: one has begun, and is not over.
    - `over`: none is due or has begun, nor is one so near that the profile takes the node out of service for it,
      whatever the `leadTime` here is: a profile does not return a node only to take it out of service again for the
      same maintenance. A maintenance that was cancelled, and one whose notice was deleted, is over. One that its source
      reports as failed is not over until a person says so.

    For a node without notices, nothing is due and everything is over.
    """

    type = "notice"
    example = "when: due\nleadTime: 15m\nkinds: [Reboot, Stop, Terminate]"
    needs = frozenset({Need.NOTICES})

    when: When = option("What the check looks for: `due`, `active` or `over`.", default=When.DUE)
    lead_time: timedelta = option("How long before its start a maintenance is due.", default=DEFAULT_LEAD)
    kinds: tuple[MaintenanceKind, ...] = option(
        "What may happen to the machine: Reboot, Stop, Migrate, Terminate, Freeze, Unknown. Others are ignored; by "
        "default Freeze is, which takes seconds.",
        default=_DEFAULT_KINDS,
    )
    sources: tuple[str, ...] = option("Only notices of these sources, such as oci or aws. By default all.", default=())

    def evaluate(self, context: PluginContext) -> CheckResult:
        readings = sorted(self._readings(context), key=lambda reading: reading.notice.name)
        requeue_at = min((reading.timing.until for reading in readings if reading.timing.until), default=None)
        phases = {reading.notice.name: str(reading.timing.phase) for reading in readings}
        matching = [reading for reading in readings if reading.matches]
        if self.when is When.OVER:
            if matching:
                return fails(_format_readings(matching), requeue_at=requeue_at, notices=phases)
            return passes("no maintenance is due or has begun", requeue_at=requeue_at, notices=phases)
        if matching:
            return passes(_format_readings(matching), requeue_at=requeue_at, notices=phases)
        others = [reading for reading in readings if not reading.timing.phase.is_over]
        return fails(_format_readings(others) or "no maintenance is announced", requeue_at=requeue_at, notices=phases)

    def matches(self, notice: MaintenanceNotice, *, now: datetime) -> bool:
        """Return whether a maintenance matches: it is due or active; for `over`, either of them."""
        return self._read(notice, now=now).matches

    def topics(self, node: str) -> tuple[str, ...]:
        return (topics.notices(node),)

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.lead_time < timedelta():
            yield "leadTime", "expected a duration that is not negative"
        if not self.kinds:
            yield "kinds", "expected at least one kind, such as Reboot"

    def _readings(self, context: PluginContext) -> Iterator[_NoticeReading]:
        for notice in context.cluster.notices(context.node.name):
            if not notice.matches_node(context.node):
                continue
            found = self._read(notice, now=context.now)
            if self.when is When.OVER and not found.matches:
                found = self._as_taken(found, context)
            if found.matches or self._selects(notice.spec):
                yield found

    def _as_taken(self, found: _NoticeReading, context: PluginContext) -> _NoticeReading:
        """Return the maintenance as read by the checks that took the node out of service for it, if they did."""
        readings: list[_NoticeReading] = []

        def outcome(check: Check) -> bool | None:
            if not isinstance(check, NoticeCheck) or check.when is When.OVER:
                return None
            readings.append(check._read(found.notice, now=context.now))  # noqa: SLF001 - another instance of this class
            return readings[-1].matches

        if context.would_lead_here(outcome):
            return next(reading for reading in readings if reading.matches)
        until = min((reading.timing.until for reading in (found, *readings) if reading.timing.until), default=None)
        return replace(found, timing=replace(found.timing, until=until))

    def _read(self, notice: MaintenanceNotice, *, now: datetime) -> _NoticeReading:
        """Return the phase of a maintenance, and whether it matches."""
        lead = max(self.lead_time, timedelta(seconds=notice.status.predicted_drain_seconds))
        found = phase_at(notice.spec, now=now, lead=lead)
        pressing = (NoticePhase.ACTIVE,) if self.when is When.ACTIVE else (NoticePhase.DUE, NoticePhase.ACTIVE)
        return _NoticeReading(notice, found, matches=found.phase in pressing and self._selects(notice.spec))

    def _selects(self, spec: MaintenanceNoticeSpec) -> bool:
        return spec.kind in self.kinds and (not self.sources or spec.source in self.sources)


def _format_readings(readings: list[_NoticeReading]) -> str:
    return "; ".join(map(str, readings))
