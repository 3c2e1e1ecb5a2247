"""Which notice a message of the stream is about, and in which order messages count. Pure.

    found = Occurrences.of(maintenance, notices)
    if not found.has_taken(position): …

OCI gives each maintenance an OCID, and never begins one again that is over. People who try their set-up send the same
sample event again and again, with the same OCID and the same `eventTime`. Each such occurrence gets its own notice.

A message is identified by its partition and offset: the notice that took it keeps the highest offset of each partition
in an annotation, written together with what the message says. A stream that is read again therefore changes nothing,
and the same event under a new offset counts as sent again.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from haulout.core.walltime import TICK
from haulout.kinds.notice import MaintenanceNotice, Stage
from haulout.kinds.reports import Report, folded, planned

HEARD = "oci.haulout.dev/heard-at"  # when the last message about it was read
MAINTENANCE = "oci.haulout.dev/maintenance"  # what OCI calls it, where its notice has a name of its own
ENDED_BY_MESSAGE = "oci.haulout.dev/ended-by-message"
_OFFSET = "oci.haulout.dev/offset-"  # of the last message, by partition
_DIGITS = 20  # so that the larger offset is the larger text
_SAME_TIME = timedelta(milliseconds=1)  # the precision of an eventTime
_OVER = (Stage.ENDED, Stage.CANCELLED)
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a message is on the stream."""

    partition: int
    offset: int

    @property
    def notes(self) -> Mapping[str, str]:
        """The annotation that says that a message was taken."""
        return {f"{_OFFSET}{self.partition}": f"{self.offset:0{_DIGITS}}"}


@dataclass(frozen=True, slots=True)
class Run:
    """Messages that belong to one occurrence, as one report; `position` is that of the first."""

    report: Report
    position: Position | None

    @property
    def is_over(self) -> bool:
        """Whether it says that the maintenance is over."""
        return self.report.stage in _OVER


@dataclass(slots=True)
class Occurrences:
    """The notices of one maintenance."""

    maintenance: str
    _notices: dict[str, MaintenanceNotice] = field(default_factory=dict)

    @staticmethod
    def of(maintenance: str, notices: Iterable[MaintenanceNotice]) -> "Occurrences":
        """Return those that are about a maintenance."""
        return Occurrences(maintenance, {it.name: it for it in notices if maintenance_of(it) == maintenance})

    def put(self, notice: MaintenanceNotice) -> None:
        """Note how a notice is now."""
        self._notices[notice.name] = notice

    def has_taken(self, position: Position | None) -> bool:
        """Tell whether a message was taken before."""
        if position is None:
            return False
        return any(
            it.metadata.annotations.get(key, "") >= value
            for it in self._notices.values()
            for key, value in position.notes.items()
        )

    @property
    def latest(self) -> MaintenanceNotice | None:
        """The notice that is not over, or else the one that was created last."""
        return max(self._notices.values(), key=lambda it: (not is_over(it), _age(it)), default=None)

    def about_latest(self, report: Report) -> Report:
        """Return a report about the latest notice."""
        return report if self.latest is None else about(self.latest, report)

    def another(self, run: Run) -> Report:
        """Return a report about a new notice; the same message leads to the same name."""
        report, position = run.report, run.position
        if position is None:
            return self.about_latest(report)
        notice_id = f"{self.maintenance}.offset-{position.partition}-{position.offset}"
        return replace(report, notice_id=notice_id, notes={**report.notes, MAINTENANCE: self.maintenance})


def position_of(partition: object, offset: object) -> Position | None:
    """Return where a message is; None if the stream does not say."""
    written = str(partition), str(offset)
    if not all(_NUMBER.fullmatch(it) for it in written):
        return None
    return Position(int(written[0]), int(written[1]))


def runs(messages: Sequence[tuple[Report, Position | None]]) -> Iterator[Run]:
    """Yield what messages about one maintenance say; an open stage after an end begins another run."""
    run: Run | None = None
    for report, position in messages:
        if run is None or (run.is_over and report.stage not in _OVER):
            if run is not None:
                yield run
            run = Run(report, position)
            continue
        (together,) = folded([run.report, _after(run.report.at, report)])
        run = replace(run, report=together)
    if run is not None:
        yield run


def in_order(notice: MaintenanceNotice | None, report: Report) -> Report:
    """Return a report that outweighs another plan that was said before with the same `eventTime`."""
    told = None if notice is None or planned(notice.spec) == report.plan else notice.spec.reported_at
    return report if told is None else _after(told, report)


def _after(told: datetime, report: Report) -> Report:
    is_same = report.at <= told < report.at + _SAME_TIME
    return replace(report, at=told + TICK) if is_same else report


def is_over(notice: MaintenanceNotice) -> bool:
    """Tell whether nothing more is expected of it."""
    return notice.spec.stage in _OVER


def maintenance_of(notice: MaintenanceNotice) -> str:
    """Return what OCI calls the maintenance of a notice."""
    return notice.metadata.annotations.get(MAINTENANCE) or notice.spec.notice_id


def about(notice: MaintenanceNotice, report: Report) -> Report:
    """Return a report about one notice of its maintenance."""
    return replace(report, notice_id=notice.spec.notice_id)


def heard(at: datetime) -> Mapping[str, str]:
    """Return the annotation that says when a message was read."""
    return {HEARD: f"{at:%Y-%m-%dT%H:%M:%SZ}"}


def heard_at(notice: MaintenanceNotice) -> datetime | None:
    """Return when somebody last spoke of a maintenance, whatever time its messages claim."""
    try:
        read_at = datetime.fromisoformat(notice.metadata.annotations.get(HEARD, ""))
    except ValueError:
        read_at = None
    known = (read_at, notice.spec.reported_at, notice.metadata.creation_timestamp)
    return max((it for it in known if it is not None and it.tzinfo is not None), default=None)


def _age(notice: MaintenanceNotice) -> tuple[float, int, str]:
    created = notice.metadata.creation_timestamp
    # Names that end in an offset: the longer one has the higher offset.
    return 0.0 if created is None else created.timestamp(), len(notice.spec.notice_id), notice.spec.notice_id
