"""Metrics of notices. The counters belong to the process and outlive leadership."""

from collections.abc import Iterable, Mapping

from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeStatus, NoticeCondition, NoticePhase
from haulout.core.metrics import OVERFLOW_LABEL, Histogram, MetricVec, counter, gauge, histogram
from haulout.providers.event_source import EventSource

_MAX_SOURCES = 50  # label values: any writer of notices can invent a source
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_LEAD_BUCKETS = (0.0, 2 * _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY, 14 * _DAY)

NOTICES = gauge(
    "haulout_notices",
    "How many MaintenanceNotices exist, by source and phase.",
    "source",
    "phase",
    details="`source` is empty if the notice names none",
)
LATE = gauge(
    "haulout_notices_late",
    "How many MaintenanceNotices have a node that is not expected to be empty in time.",
    "source",
)
MESSAGES = counter(
    "haulout_notices_messages_total", "How many messages of a cloud became MaintenanceNotices.", "source"
)
QUARANTINED = counter(
    "haulout_notices_quarantined_total",
    "How many messages of a cloud could not be parsed and were quarantined.",
    "source",
)
UP = gauge("haulout_notices_source_up", "1 if a source receives events from its cloud.", "source")
SILENT = gauge(
    "haulout_notices_source_silent_seconds",
    "Time since the cloud last answered.",
    "source",
    details="absent until the first answer",
)
LEAD = histogram(
    "haulout_notices_lead_seconds",
    "How long before the start of its maintenance a MaintenanceNotice arrived.",
    "source",
    details="bucket 0 counts notices that arrived after the start",
    buckets=_LEAD_BUCKETS,
)
EMPTY_AHEAD = histogram(
    "haulout_notices_empty_before_start_seconds",
    "How long before the start of an announced maintenance its node was empty.",
    "source",
    details="observed when the maintenance begins; bucket 0 counts nodes that were not empty",
    buckets=_LEAD_BUCKETS,
)
METRICS = (NOTICES, LATE, MESSAGES, QUARANTINED, UP, SILENT, LEAD, EMPTY_AHEAD)


class NoticeMetrics:
    """All metrics of notices: gauges are set at each collection, counters and histograms grow."""

    def __init__(self) -> None:
        self._source_counts: dict[int, tuple[int, int]] = {}  # by id of the source: its counters at the last collection
        self.notices = MetricVec(NOTICES)
        self.late = MetricVec(LATE)
        self.messages = MetricVec(MESSAGES)
        self.quarantined = MetricVec(QUARANTINED)
        self.up = MetricVec(UP)
        self.silent = MetricVec(SILENT)
        self.lead = Histogram(LEAD)
        self.empty_ahead = Histogram(EMPTY_AHEAD)
        self._initialize_source("")

    def all(self) -> tuple[MetricVec | Histogram, ...]:
        gauges = self.notices, self.late, self.up, self.silent
        return *gauges, self.messages, self.quarantined, self.lead, self.empty_ahead

    def count_review(self, notice: MaintenanceNotice, status: MaintenanceNoticeStatus) -> None:
        """Observe histograms when the status of a notice was written: at its first status, and when it begins."""
        start, before, after = notice.spec.start, notice.status.phase, status.phase
        if start is None:
            return
        if not before and notice.metadata.creation_timestamp is not None:
            lead_seconds = (start - notice.metadata.creation_timestamp).total_seconds()
            self.lead.observe(max(lead_seconds, 0), self._source(notice, self.lead.values))
        has_started = after in (NoticePhase.ACTIVE, NoticePhase.COMPLETED)
        if status.node_name and has_started and before in (NoticePhase.PLANNED, NoticePhase.DUE):
            seconds_empty = 0.0 if status.empty_since is None else (start - status.empty_since).total_seconds()
            self.empty_ahead.observe(max(seconds_empty, 0), self._source(notice, self.empty_ahead.values))

    def update(
        self, notices: Iterable[MaintenanceNotice], *, running: Iterable[EventSource], up: Mapping[str, bool]
    ) -> None:
        """Set the gauges: `running` are the sources that run here, `up` says which sources reach their cloud."""
        for metric_vec in (self.notices, self.late, self.up, self.silent):
            metric_vec.values.clear()
        for name, is_up in up.items():
            self.up.set(name, to=is_up)
            self._initialize_source(name)
        for source in running:
            self._count_source(source)
            silence = source.time_since_last_answer()
            if silence is not None:
                self.silent.set(source.name, to=silence.total_seconds())
        for notice in notices:
            self._count_notice(notice)

    def finish_source(self, source: EventSource) -> None:
        """Add the final counters of a source that stops."""
        self._count_source(source)
        del self._source_counts[id(source)]

    def _count_source(self, source: EventSource) -> None:
        messages, quarantined = self._source_counts.get(id(source), (0, 0))
        self._source_counts[id(source)] = source.messages_processed, source.quarantine.count
        self.messages.add(source.name, amount=source.messages_processed - messages)
        self.quarantined.add(source.name, amount=source.quarantine.count - quarantined)

    def _count_notice(self, notice: MaintenanceNotice) -> None:
        """Count a notice under each phase, zero included, so that an emptied phase drops to zero."""
        name, current = self._source(notice, self.late.values), notice.status.phase
        for phase in NoticePhase:
            self.notices.add(name, phase, amount=phase == current)
        condition = notice.status.condition(NoticeCondition.ON_TIME)
        is_late = (
            condition is not None
            and condition.status == "False"
            and not any(final_phase.is_over for final_phase in NoticePhase if final_phase == current)
        )
        self.late.add(name, amount=is_late)

    def _initialize_source(self, source: str) -> None:
        """Create the series of a source with zero, so that the first notice shows as an increase."""
        for lead in (self.lead, self.empty_ahead):
            lead.initialize(source)

    @staticmethod
    def _source(notice: MaintenanceNotice, known: Mapping[tuple[str, ...], object]) -> str:
        name = notice.spec.source
        return OVERFLOW_LABEL if (name,) not in known and len(known) >= _MAX_SOURCES else name
