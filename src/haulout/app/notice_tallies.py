"""What is counted about notices, for `/metrics`. Counters are the process's, and outlive its leadership."""

from collections.abc import Iterable, Mapping

from haulout.core.metering import OTHERS, Histogram, Kind, Metric, Tally
from haulout.kinds.notice import MaintenanceNotice, NoticeCondition, Phase, Status
from haulout.notices.sources import Source

_MOST_SOURCES = 50  # anybody who may write notices can invent one
_SOURCE = ("source",)
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_BEFORE = (0.0, 2 * _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY, 14 * _DAY)

NOTICES = Metric(
    "haulout_notices",
    "How many notices there are, by what they say.",
    ("source", "phase"),
    kind=Kind.GAUGE,
    more="`source` is empty if whoever wrote it did not say",
)
LATE = Metric(
    "haulout_notices_late",
    "How many notices there are whose node is not expected to be empty in time.",
    _SOURCE,
    kind=Kind.GAUGE,
)
TAKEN = Metric("haulout_notices_messages_total", "How many messages of a cloud have become notices.", _SOURCE)
ASIDE = Metric("haulout_notices_quarantined_total", "How many messages made no sense, and were put aside.", _SOURCE)
UP = Metric("haulout_notices_source_up", "1 if a source hears what its cloud says.", _SOURCE, kind=Kind.GAUGE)
SILENT = Metric(
    "haulout_notices_source_silent_seconds",
    "How long ago its cloud last answered.",
    _SOURCE,
    kind=Kind.GAUGE,
    unit="seconds",
    more="from its first answer on",
)
LEAD = Metric(
    "haulout_notices_lead_seconds",
    "How long before its start a notice came.",
    _SOURCE,
    kind=Kind.HISTOGRAM,
    unit="seconds",
    more="in the bucket of 0 are those that came when it had begun",
    buckets=_BEFORE,
)
EMPTY_AHEAD = Metric(
    "haulout_notices_empty_ahead_seconds",
    "How long before the start of an announced maintenance its node was empty.",
    _SOURCE,
    kind=Kind.HISTOGRAM,
    unit="seconds",
    more="counted when it begins; in the bucket of 0 are those whose node was not empty then",
    buckets=_BEFORE,
)
METRICS = (NOTICES, LATE, TAKEN, ASIDE, UP, SILENT, LEAD, EMPTY_AHEAD)


class NoticeTallies:
    """All that is counted."""

    def __init__(self) -> None:
        self._counted: dict[int, tuple[int, int]] = {}  # by id of the source: what it had done when it was looked at
        self.notices = Tally(NOTICES)
        self.late = Tally(LATE)
        self.taken = Tally(TAKEN)
        self.aside = Tally(ASIDE)
        self.up = Tally(UP)
        self.silent = Tally(SILENT)
        self.lead = Histogram(LEAD)
        self.empty_ahead = Histogram(EMPTY_AHEAD)
        self._know("")

    def all(self) -> tuple[Tally | Histogram, ...]:
        """Return all of them."""
        gauges = self.notices, self.late, self.up, self.silent
        return *gauges, self.taken, self.aside, self.lead, self.empty_ahead

    def count_review(self, notice: MaintenanceNotice, status: Status) -> None:
        """Count what is new about a notice of which the status was just written: that it came, or that it begins."""
        start, before, now_in = notice.spec.start, notice.status.phase, status.phase
        if start is None:
            return
        if not before and notice.metadata.creation_timestamp is not None:
            ahead = (start - notice.metadata.creation_timestamp).total_seconds()
            self.lead.observe(max(ahead, 0), self._source(notice, self.lead.values))
        has_begun = now_in in (Phase.ACTIVE, Phase.COMPLETED)
        if status.node_name and has_begun and before in (Phase.PLANNED, Phase.DUE):
            empty = 0.0 if status.empty_since is None else (start - status.empty_since).total_seconds()
            self.empty_ahead.observe(max(empty, 0), self._source(notice, self.empty_ahead.values))

    def look(self, notices: Iterable[MaintenanceNotice], *, running: Iterable[Source], up: Mapping[str, bool]) -> None:
        """Take how things are now: which sources run, and which of all there are hear their cloud."""
        for gauge in (self.notices, self.late, self.up, self.silent):
            gauge.values.clear()
        for name, is_up in up.items():
            self.up.set(name, to=is_up)
            self._know(name)
        for source in running:
            self._count(source)
            silence = source.silence()
            if silence is not None:
                self.silent.set(source.name, to=silence.total_seconds())
        for notice in notices:
            self._count_notice(notice)

    def settle(self, source: Source) -> None:
        """Take what a source has done that ends now."""
        self._count(source)
        del self._counted[id(source)]

    def _count(self, source: Source) -> None:
        taken, aside = self._counted.get(id(source), (0, 0))
        self._counted[id(source)] = source.taken, source.quarantine.count
        self.taken.add(source.name, amount=source.taken - taken)
        self.aside.add(source.name, amount=source.quarantine.count - aside)

    def _count_notice(self, notice: MaintenanceNotice) -> None:
        """Count a notice, by its source, in each phase, so that a phase that is empty again is seen to be so."""
        name, now_in = self._source(notice, self.late.values), notice.status.phase
        for phase in Phase:
            self.notices.add(name, phase, amount=phase == now_in)
        told = notice.status.condition(NoticeCondition.ON_TIME)
        is_late = told is not None and told.status == "False" and not any(it.is_over for it in Phase if it == now_in)
        self.late.add(name, amount=is_late)

    def _know(self, source: str) -> None:
        """Let series exist before the first notice of a source, so that this is seen as a rise."""
        for histogram in (self.lead, self.empty_ahead):
            histogram.know(source)

    @staticmethod
    def _source(notice: MaintenanceNotice, known: Mapping[tuple[str, ...], object]) -> str:
        name = notice.spec.source
        return OTHERS if (name,) not in known and len(known) >= _MOST_SOURCES else name
