"""Find the notice for a message of the stream, and order messages. Pure.

    found = Occurrences.for_maintenance(maintenance, notices)
    if not found.has_processed(position): …

OCI gives each maintenance an OCID, and never restarts one that is over. Users who test their setup send the same sample
event repeatedly, with the same OCID and the same `eventTime`. Each such occurrence gets its own notice.

A message is identified by its partition and offset: its notice keeps the highest offset of each partition in an
annotation, written together with the content. So reading the stream again changes nothing, and the same event with a
new offset counts as sent again.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from haulout.api import annotations
from haulout.api.maintenancenotice import FINISHED_STAGES, MaintenanceNotice, is_finished
from haulout.api.notice_reports import NoticeReport, combine_reports, plan_of
from haulout.core.walltime import TICK

HEARD_AT = annotations.OCI_LAST_MESSAGE_AT  # when the last message about the maintenance was read
MAINTENANCE = annotations.OCI_MAINTENANCE  # the OCID of the maintenance, if the notice has another ID
ENDED_BY_MESSAGE = annotations.OCI_ENDED_BY_MESSAGE
_OFFSET = annotations.OCI_OFFSET_PREFIX  # followed by the partition: offset of the last message
_DIGITS = 20  # zero-padded, so that offsets compare as text
_TIME_PRECISION = timedelta(milliseconds=1)  # the precision of an eventTime
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a message on the stream."""

    partition: int
    offset: int

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotation that records that the message was processed."""
        return {f"{_OFFSET}{self.partition}": f"{self.offset:0{_DIGITS}}"}


@dataclass(frozen=True, slots=True)
class Run:
    """The messages of one occurrence, combined into one report; `position` is that of the first."""

    report: NoticeReport
    position: Position | None

    @property
    def is_finished(self) -> bool:
        """Whether the report ends the maintenance. A later open stage then begins another run."""
        return self.report.stage in FINISHED_STAGES


@dataclass(slots=True)
class Occurrences:
    """The notices of one maintenance: usually one, and another for each time that its event was sent again."""

    maintenance: str
    _notices: dict[str, MaintenanceNotice] = field(default_factory=dict)

    @staticmethod
    def for_maintenance(maintenance: str, notices: Iterable[MaintenanceNotice]) -> "Occurrences":
        """Return the occurrences of a maintenance among these notices."""
        return Occurrences(
            maintenance, {notice.name: notice for notice in notices if maintenance_of(notice) == maintenance}
        )

    def remember(self, notice: MaintenanceNotice) -> None:
        """Add a notice, or replace it with a newer version."""
        self._notices[notice.name] = notice

    def has_processed(self, position: Position | None) -> bool:
        """Return whether the message was processed before."""
        if position is None:
            return False
        return any(
            notice.metadata.annotations.get(key, "") >= value
            for notice in self._notices.values()
            for key, value in position.annotations.items()
        )

    @property
    def latest(self) -> MaintenanceNotice | None:
        """The open notice, or else the one that was created last."""
        return max(self._notices.values(), key=lambda notice: (not is_finished(notice), _age(notice)), default=None)

    def for_latest(self, report: NoticeReport) -> NoticeReport:
        """Return the report for the latest notice."""
        return report if self.latest is None else report_for(self.latest, report)

    def for_new_notice(self, run: Run) -> NoticeReport:
        """Return the report for a new notice; the same message always gives the same name."""
        report, position = run.report, run.position
        if position is None:
            return self.for_latest(report)
        notice_id = f"{self.maintenance}.offset-{position.partition}-{position.offset}"
        return replace(report, notice_id=notice_id, notes={**report.notes, MAINTENANCE: self.maintenance})


def parse_position(partition: object, offset: object) -> Position | None:
    """Return the position of a message; None if it is invalid."""
    texts = str(partition), str(offset)
    if not all(_NUMBER.fullmatch(text) for text in texts):
        return None
    return Position(int(texts[0]), int(texts[1]))


def split_runs(messages: Sequence[tuple[NoticeReport, Position | None]]) -> Iterator[Run]:
    """Yield the runs of messages about one maintenance; an open stage after an end begins a new run."""
    run: Run | None = None
    for report, position in messages:
        if run is None or (run.is_finished and report.stage not in FINISHED_STAGES):
            if run is not None:
                yield run
            run = Run(report, position)
            continue
        (folded_report,) = combine_reports([run.report, _after(run.report.at, report)])
        run = replace(run, report=folded_report)
    if run is not None:
        yield run


def ordered(notice: MaintenanceNotice | None, report: NoticeReport) -> NoticeReport:
    """Return the report with a time that overrides another plan with the same `eventTime`."""
    reported_at = None if notice is None or plan_of(notice.spec) == report.plan else notice.spec.reported_at
    return report if reported_at is None else _after(reported_at, report)


def _after(reported_at: datetime, report: NoticeReport) -> NoticeReport:
    is_same = report.at <= reported_at < report.at + _TIME_PRECISION
    return replace(report, at=reported_at + TICK) if is_same else report


def maintenance_of(notice: MaintenanceNotice) -> str:
    """Return the OCID of the notice's maintenance."""
    return notice.metadata.annotations.get(MAINTENANCE) or notice.spec.notice_id


def report_for(notice: MaintenanceNotice, report: NoticeReport) -> NoticeReport:
    return replace(report, notice_id=notice.spec.notice_id)


def heard_annotation(at: datetime) -> Mapping[str, str]:
    """Return the annotation that records when a message was read."""
    return {HEARD_AT: f"{at:%Y-%m-%dT%H:%M:%SZ}"}


def last_heard_at(notice: MaintenanceNotice) -> datetime | None:
    """Return when the maintenance was last reported, by our clock if possible, whatever time its messages have."""
    try:
        read_at = datetime.fromisoformat(notice.metadata.annotations.get(HEARD_AT, ""))
    except ValueError:
        read_at = None
    known = (read_at, notice.spec.reported_at, notice.metadata.creation_timestamp)
    return max((instant for instant in known if instant is not None and instant.tzinfo is not None), default=None)


def _age(notice: MaintenanceNotice) -> tuple[float, int, str]:
    created = notice.metadata.creation_timestamp
    # IDs that end in an offset: the longer one has the higher offset.
    return 0.0 if created is None else created.timestamp(), len(notice.spec.notice_id), notice.spec.notice_id
