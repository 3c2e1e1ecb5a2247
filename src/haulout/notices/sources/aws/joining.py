"""Which notice a reading is about, and what follows when EC2 does not list an event any more. Pure.

    known = Known(notices)
    reports = known.reports(reading)

EC2 and AWS Health speak of the same maintenance under different names. A notice has the names that it is known by as
annotations; one that has no name of a service yet is joined by instance and start, or else, since one of them may have
moved it before the other spoke, by instance and kind.

A notice that is over stays so. If EC2 lists the same event again for another time, that is another maintenance, with a
notice of its own.

The metadata service of an instance tells the instance what the queue and EC2 tell the operator. It may lag behind EC2,
and it knows less. So it adds what is missing to a notice that is there, and changes nothing else but the start.

An agent may write any machine into a notice of its node. A notice that names another node than the one that runs on the
machine is not about that machine (`node_of`).
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from haulout.core.walltime import TICK
from haulout.kinds.machines import machine_key
from haulout.kinds.notice import Kind, MaintenanceNotice, Spec, Stage, name_of
from haulout.kinds.reports import Plan, Report, merged, noted, planned
from haulout.notices.finding import MACHINE_ADDRESS
from haulout.notices.sources.aws.readings import GROUP, HOOK, METADATA, SOURCE, Family, Reading
from haulout.notices.sources.aws.statuses import Status

_SAME_START = timedelta(minutes=1)
_HEALTH_IS_LATE = timedelta(hours=2)  # how long after its time an event that only Health knew of is waited for
_WRONG_CLOCK = timedelta(minutes=5)
SPOT_IS_LATE = timedelta(minutes=10)
_OVER = (Stage.ENDED, Stage.CANCELLED)
_OTHER = {Family.EVENT: Family.HEALTH, Family.HEALTH: Family.EVENT}
_ENDS_IN_A_STOP = (Family.EVENT, Family.HEALTH, Family.SPOT, Family.LIFECYCLE, Family.TARGET)

NodeOf = Callable[[str], str]
"""Returns the name of the node that runs on an instance; empty if none does, or several claim to."""


def no_node(instance: str) -> str:
    """Return that no node is known."""
    del instance
    return ""


class Known:
    """The notices that there are, by instance."""

    def __init__(self, notices: Iterable[MaintenanceNotice] = (), *, node_of: NodeOf = no_node) -> None:
        self._by_instance: dict[str, dict[str, MaintenanceNotice]] = {}
        self._names: set[str] = set()
        self._node_of = node_of
        for notice in notices:
            self.put(notice)

    def put(self, notice: MaintenanceNotice) -> None:
        """Note how a notice is now."""
        self._names.add(notice.name)
        self._by_instance.setdefault(machine_key(notice.spec.provider_id), {})[notice.name] = notice

    def has(self, name: str) -> bool:
        """Tell whether a notice of this name is known."""
        return name in self._names

    def open(self) -> Iterator[tuple[str, MaintenanceNotice]]:
        """Yield the notices that are not over, and their instances."""
        for instance in self._by_instance:
            yield from ((instance, it) for it in self.of(instance) if not is_over(it))

    def reports(self, reading: Reading) -> Iterator[Report]:
        """Yield what is news in a reading."""
        for report in self._reports(reading):
            found = self._by_instance.get(reading.instance, {}).get(report.name)
            if found is None or _is_news(found, report):
                yield report

    def leftovers(self, status: Status, *, at: datetime, has_node: bool) -> Iterator[Report]:
        """Yield what is over since EC2, asked at this moment, says nothing about it any more."""
        listed = {it.called for it in status.readings}
        for notice in self.of(status.instance):
            if is_over(notice) or _is_newer(notice.spec, at):
                continue
            if _is_left(notice, status, listed, at=at, has_node=has_node):
                yield Report(
                    source=SOURCE,
                    notice_id=notice.spec.notice_id,
                    at=at,
                    provider_id=status.instance,
                    stage=ending(notice.spec.start, at),
                )

    def of(self, instance: str) -> tuple[MaintenanceNotice, ...]:
        """Return the notices of an instance, those that are not over first, and then the latest."""
        node = self._node_of(instance)
        found = self._by_instance.get(instance, {}).values()
        ours = [it for it in found if not node or it.spec.node_name in ("", node)]
        return tuple(sorted(sorted(ours, key=_start, reverse=True), key=is_over))

    def _unused(self, notice_id: str) -> str:
        """Return an id of which there is no notice yet, whoever wrote that: this one, or with the first free number."""
        numbered = (f"{notice_id}-{number}" for number in itertools.count(2))
        return next(it for it in itertools.chain([notice_id], numbered) if not self.has(name_of(SOURCE, it)))

    def _reports(self, reading: Reading) -> Iterator[Report]:
        notices = self.of(reading.instance)
        named = _first(notices, reading, _is_named)
        if named is not None and _is_another(named, reading):
            if not is_over(named):
                yield replace(_report(reading, named.spec.notice_id), stage=Stage.CANCELLED, plan=None)
            yield _report(reading, f"{reading.notice_id}-{reading.at:%Y%m%dt%H%M}")
            return
        matches = (named, _first(notices, reading, _is_joined), _first(notices, reading, _is_alike))
        found = next((it for it in matches if it is not None), None)
        if found is not None:
            yield _about(found, _timely(reading, found.spec))
        elif not _is_for_none(reading):
            yield _report(reading, self._unused(reading.notice_id))


def is_over(notice: MaintenanceNotice) -> bool:
    """Tell whether nothing more is expected of it."""
    return notice.spec.stage in _OVER


def is_of(notice: MaintenanceNotice, family: Family) -> bool:
    """Tell whether a notice is known by a name of this family."""
    return family in notice.metadata.annotations


def ending(start: datetime | None, at: datetime) -> Stage:
    """Return how something ended that is not there any more: before its start it was cancelled."""
    return Stage.CANCELLED if start is not None and at < start else Stage.ENDED


def _start(notice: MaintenanceNotice) -> float:
    return notice.spec.start.timestamp() if notice.spec.start is not None else 0.0


def _first(
    notices: Iterable[MaintenanceNotice], reading: Reading, fits: Callable[[MaintenanceNotice, Reading], bool]
) -> MaintenanceNotice | None:
    return next((it for it in notices if fits(it, reading)), None)


def _is_named(notice: MaintenanceNotice, reading: Reading) -> bool:
    return notice.metadata.annotations.get(reading.family) == reading.called


def _is_another(notice: MaintenanceNotice, reading: Reading) -> bool:
    """Tell whether EC2 now plans anew what had begun, or was over."""
    if reading.family is not Family.EVENT or reading.stage is not Stage.SCHEDULED or reading.plan is None:
        return False
    return notice.spec.stage in (Stage.STARTED, *_OVER) and reading.plan.start != notice.spec.start


def _is_joined(notice: MaintenanceNotice, reading: Reading) -> bool:
    family = reading.family
    match family:
        case Family.EVENT | Family.HEALTH:
            return is_of(notice, _OTHER[family]) and not is_of(notice, family) and _same_start(notice.spec, reading)
        case Family.SPOT:
            is_told_of = _is_older(reading, notice.spec) or _same_start(notice.spec, reading)
            return is_of(notice, family) and (not is_over(notice) or is_told_of)
        case Family.REBALANCE | Family.STATE:
            return is_of(notice, family) and (not is_over(notice) or _is_older(reading, notice.spec))
        case Family.LIFECYCLE:
            is_same_hook = all(notice.metadata.annotations.get(it) == reading.notes.get(it) for it in (GROUP, HOOK))
            is_unnamed = is_of(notice, Family.TARGET) and not is_of(notice, family)
            return not is_over(notice) and (is_unnamed or (is_of(notice, family) and is_same_hook))
        case Family.TARGET:  # an instance is terminated once
            is_termination = is_of(notice, family) or is_of(notice, Family.LIFECYCLE)
            return is_termination and notice.spec.stage != Stage.CANCELLED


def _is_alike(notice: MaintenanceNotice, reading: Reading) -> bool:
    """Tell whether a notice that is not over may well be about the same, though it is not said that it is."""
    if is_over(notice) or reading.stage in _OVER:
        return False
    if reading.family is Family.STATE:
        return _ends_in_a_stop(notice)
    if reading.family not in _OTHER or is_of(notice, reading.family):
        return False
    is_same_kind = reading.plan is not None and reading.plan.kind == notice.spec.kind
    return is_of(notice, _OTHER[reading.family]) and is_same_kind


def _is_older(reading: Reading, spec: Spec) -> bool:
    return spec.reported_at is not None and reading.at <= spec.reported_at


def _ends_in_a_stop(notice: MaintenanceNotice) -> bool:
    return notice.spec.kind in (Kind.STOP, Kind.TERMINATE) and any(is_of(notice, it) for it in _ENDS_IN_A_STOP)


def _same_start(spec: Spec, reading: Reading) -> bool:
    start = None if reading.plan is None else reading.plan.start
    return start is not None and spec.start is not None and abs(start - spec.start) < _SAME_START


def _is_for_none(reading: Reading) -> bool:
    """Tell whether there is nothing to say about something that nobody knows of.

    What Health says is not among it: its messages come in any order, and the last word may come first.
    """
    return reading.stage in _OVER and reading.family is not Family.HEALTH


def _is_newer(spec: Spec, at: datetime) -> bool:
    """Tell whether a notice says what was said after this; unless our clock was wrong then."""
    return spec.reported_at is not None and at < spec.reported_at <= at + _WRONG_CLOCK


def _timely(reading: Reading, spec: Spec) -> Reading:
    """Return a reading that is not outweighed by what was said when our clock was wrong: EC2 tells how it is now."""
    said = spec.reported_at
    if reading.family is not Family.EVENT or said is None or said <= reading.at + _WRONG_CLOCK:
        return reading
    return replace(reading, at=said + TICK)


def _about(notice: MaintenanceNotice, reading: Reading) -> Report:
    report = _report(reading, notice.spec.notice_id)
    if is_of(notice, reading.family):
        notes = reading.notes if reading.is_metadata else {}  # it keeps the name that it has
        report = replace(report, notes={**notes, **_address(reading)})
    if reading.is_metadata and reading.plan is not None and notice.spec.reported_at is not None:
        return replace(report, plan=_moved(notice.spec, reading.plan))
    if reading.family is Family.SPOT and METADATA in notice.metadata.annotations:
        return replace(report, plan=None)  # the instance was told the exact time
    if reading.family is Family.STATE and not is_of(notice, Family.STATE):
        return replace(report, plan=None, notes=_address(reading))
    if reading.family is Family.HEALTH and is_of(notice, Family.EVENT) and reading.plan is not None:
        return replace(report, plan=_moved(notice.spec, reading.plan))
    return report


def _moved(spec: Spec, plan: Plan) -> Plan | None:
    """Return what EC2 said with the times of another, who knows less about the rest; None if they are the same."""
    if plan.start == spec.start or plan.start is None:
        return None
    fits = spec.deadline is not None and plan.start <= spec.deadline
    return replace(
        planned(spec),
        start=plan.start,
        end=plan.end,
        deadline=spec.deadline if fits else None,
        reschedulable=spec.reschedulable and fits,
    )


def _report(reading: Reading, notice_id: str) -> Report:
    return Report(
        source=SOURCE,
        notice_id=notice_id,
        at=reading.at,
        provider_id=reading.instance,
        stage=reading.stage,
        plan=reading.plan,
        machine_name=reading.machine_name,
        notes={reading.family.value: reading.called, **reading.notes, **_address(reading)},
    )


def _address(reading: Reading) -> Mapping[str, str]:
    return {MACHINE_ADDRESS: reading.machine_address} if reading.machine_address else {}


def _is_news(notice: MaintenanceNotice, report: Report) -> bool:
    """Tell whether a report changes more than when it was said: a list that says the same again is no news."""
    then = msgspec.structs.replace(merged(notice.spec, report), reported_at=notice.spec.reported_at)
    return then != notice.spec or bool(noted(notice.metadata.annotations, report))


def _is_left(
    notice: MaintenanceNotice, status: Status, listed: Collection[str], *, at: datetime, has_node: bool
) -> bool:
    names, spec = notice.metadata.annotations, notice.spec
    if status.is_gone and not has_node:
        return True
    if Family.EVENT in names:
        return names[Family.EVENT] not in listed and not status.nonsense
    is_running = status.state == "running"
    if Family.HEALTH in names:
        last = spec.end or spec.start
        return last is not None and at >= last + _HEALTH_IS_LATE
    if Family.SPOT in names:
        return is_running and spec.start is not None and at >= spec.start + SPOT_IS_LATE
    return Family.STATE in names and is_running
