"""Find the notice for an event, and end notices whose event EC2 no longer lists. Pure.

    known = KnownNotices(notices)
    reports = known.new_reports(event)

EC2 and AWS Health have different IDs for the same maintenance. A notice has all IDs of its maintenance as annotations.
A notice without an ID of a service yet is matched by instance and start, or else, since one service may have moved the
maintenance before the other reported it, by instance and kind.

A finished notice stays finished. If EC2 lists the same event again with another time, that is a new maintenance with
its own notice.

The metadata service tells an instance what the queue and EC2 tell the operator. It may lag behind EC2, and has fewer
fields. So its events add missing data to an existing notice, and change nothing else but the start.

An agent may write any machine into a notice of its node. A notice that names another node than the one on the machine
is not about that machine (`node_of`).
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from haulout.api.maintenancenotice import (
    FINISHED_STAGES,
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    NoticeStage,
    is_finished,
    object_name,
)
from haulout.api.notice_reports import MaintenancePlan, NoticeReport, merge_report, missing_annotations, plan_of
from haulout.api.objects import machine_key
from haulout.controllers.notices.node_lookup import MACHINE_ADDRESS
from haulout.core.walltime import TICK
from haulout.providers.aws.instance_events import (
    LIFECYCLE_GROUP,
    LIFECYCLE_HOOK,
    SHOWN_BY_IMDS,
    SOURCE,
    EventType,
    InstanceEvent,
)
from haulout.providers.aws.instance_status import InstanceStatus

_SAME_START = timedelta(minutes=1)
_HEALTH_GRACE_PERIOD = timedelta(hours=2)  # how long after its end an event that only Health reported is kept open
_MAX_CLOCK_SKEW = timedelta(minutes=5)
# A spot instance is often stopped later than announced. Its notice must not end before.
SPOT_GRACE_PERIOD = timedelta(minutes=10)
_COUNTERPART = {EventType.SCHEDULED_EVENT: EventType.HEALTH, EventType.HEALTH: EventType.SCHEDULED_EVENT}
_STOPPING_EVENT_TYPES = (
    EventType.SCHEDULED_EVENT,
    EventType.HEALTH,
    EventType.SPOT,
    EventType.LIFECYCLE,
    EventType.TARGET_LIFECYCLE_STATE,
)

# Returns the name of the node that runs on an instance; empty if none does, or several claim to.
NodeOfInstance = Callable[[str], str]


def no_node(instance: str) -> str:
    del instance
    return ""


class KnownNotices:
    """The existing notices, by instance. It is a copy that may be stale: `AwsNoticeWriter` reads before it writes."""

    def __init__(self, notices: Iterable[MaintenanceNotice] = (), *, node_of: NodeOfInstance = no_node) -> None:
        self._by_instance: dict[str, dict[str, MaintenanceNotice]] = {}
        self._names: set[str] = set()
        self._node_of = node_of
        for notice in notices:
            self.remember(notice)

    def remember(self, notice: MaintenanceNotice) -> None:
        """Add a notice, or replace it with a newer version."""
        self._names.add(notice.name)
        self._by_instance.setdefault(machine_key(notice.spec.provider_id), {})[notice.name] = notice

    def has(self, name: str) -> bool:
        return name in self._names

    def open_notices(self) -> Iterator[tuple[str, MaintenanceNotice]]:
        """Yield the open notices, each with its instance."""
        for instance in self._by_instance:
            yield from ((instance, notice) for notice in self.notices_of(instance) if not is_finished(notice))

    def new_reports(self, event: InstanceEvent) -> Iterator[NoticeReport]:
        """Yield the reports of an event that change a notice or create one."""
        for report in self._reports(event):
            found = self._by_instance.get(event.instance, {}).get(report.name)
            if found is None or _changes_notice(found, report):
                yield report

    def stale_reports(self, status: InstanceStatus, *, at: datetime, has_node: bool) -> Iterator[NoticeReport]:
        """Yield the ends of notices whose event is not in EC2's response as of `at`."""
        listed = {event.event_id for event in status.events}
        for notice in self.notices_of(status.instance):
            if is_finished(notice) or _is_newer(notice.spec, at):
                continue
            if _is_stale(notice, status, listed, at=at, has_node=has_node):
                yield NoticeReport(
                    source=SOURCE,
                    notice_id=notice.spec.notice_id,
                    at=at,
                    provider_id=status.instance,
                    stage=end_stage(notice.spec.start, at),
                )

    def notices_of(self, instance: str) -> tuple[MaintenanceNotice, ...]:
        """Return the notices of an instance: open ones first, then those with the latest start."""
        node = self._node_of(instance)
        found = self._by_instance.get(instance, {}).values()
        own_notices = [notice for notice in found if not node or notice.spec.node_name in ("", node)]
        return tuple(sorted(sorted(own_notices, key=_start, reverse=True), key=is_finished))

    def _unused_notice_id(self, notice_id: str) -> str:
        """Return an ID without a notice: this one, or the first free one with a number appended."""
        numbered = (f"{notice_id}-{number}" for number in itertools.count(2))
        return next(
            candidate
            for candidate in itertools.chain([notice_id], numbered)
            if not self.has(object_name(SOURCE, candidate))
        )

    def _reports(self, event: InstanceEvent) -> Iterator[NoticeReport]:
        notices = self.notices_of(event.instance)
        same_id = _first(notices, event, _has_event_id)
        if same_id is not None and _is_new_maintenance(same_id, event):
            if not is_finished(same_id):
                yield replace(_report(event, same_id.spec.notice_id), stage=NoticeStage.CANCELLED, plan=None)
            yield _report(event, f"{event.notice_id}-{event.at:%Y%m%dt%H%M}")
            return
        matches = (same_id, _first(notices, event, _is_correlated), _first(notices, event, _is_likely_same))
        found = next((match for match in matches if match is not None), None)
        if found is not None:
            yield _report_for(found, _with_corrected_time(event, found.spec))
        elif not _is_irrelevant_end(event):
            yield _report(event, self._unused_notice_id(event.notice_id))


def has_event_type(notice: MaintenanceNotice, event_type: EventType) -> bool:
    """Return whether a notice has an ID of this event type."""
    return event_type in notice.metadata.annotations


def end_stage(start: datetime | None, at: datetime) -> NoticeStage:
    """Return the final stage of a maintenance that is no longer reported: before its start it was cancelled."""
    return NoticeStage.CANCELLED if start is not None and at < start else NoticeStage.ENDED


def _start(notice: MaintenanceNotice) -> float:
    return notice.spec.start.timestamp() if notice.spec.start is not None else 0.0


def _first(
    notices: Iterable[MaintenanceNotice],
    event: InstanceEvent,
    is_match: Callable[[MaintenanceNotice, InstanceEvent], bool],
) -> MaintenanceNotice | None:
    return next((notice for notice in notices if is_match(notice, event)), None)


def _has_event_id(notice: MaintenanceNotice, event: InstanceEvent) -> bool:
    return notice.metadata.annotations.get(event.event_type) == event.event_id


def _is_new_maintenance(notice: MaintenanceNotice, event: InstanceEvent) -> bool:
    """Return whether EC2 schedules a maintenance again that had begun or was over."""
    if (
        event.event_type is not EventType.SCHEDULED_EVENT
        or event.stage is not NoticeStage.SCHEDULED
        or event.plan is None
    ):
        return False
    return notice.spec.stage in (NoticeStage.STARTED, *FINISHED_STAGES) and event.plan.start != notice.spec.start


def _is_correlated(notice: MaintenanceNotice, event: InstanceEvent) -> bool:
    event_type = event.event_type
    match event_type:
        case EventType.SCHEDULED_EVENT | EventType.HEALTH:
            return (
                has_event_type(notice, _COUNTERPART[event_type])
                and not has_event_type(notice, event_type)
                and _has_same_start(notice.spec, event)
            )
        case EventType.SPOT:
            is_known = _is_older(event, notice.spec) or _has_same_start(notice.spec, event)
            return has_event_type(notice, event_type) and (not is_finished(notice) or is_known)
        case EventType.REBALANCE | EventType.STATE_CHANGE:
            return has_event_type(notice, event_type) and (not is_finished(notice) or _is_older(event, notice.spec))
        case EventType.LIFECYCLE:
            is_same_hook = all(
                notice.metadata.annotations.get(annotation) == event.annotations.get(annotation)
                for annotation in (LIFECYCLE_GROUP, LIFECYCLE_HOOK)
            )
            lacks_hook = has_event_type(notice, EventType.TARGET_LIFECYCLE_STATE) and not has_event_type(
                notice, event_type
            )
            return not is_finished(notice) and (lacks_hook or (has_event_type(notice, event_type) and is_same_hook))
        case EventType.TARGET_LIFECYCLE_STATE:  # an instance is terminated only once
            is_termination = has_event_type(notice, event_type) or has_event_type(notice, EventType.LIFECYCLE)
            return is_termination and notice.spec.stage != NoticeStage.CANCELLED


def _is_likely_same(notice: MaintenanceNotice, event: InstanceEvent) -> bool:
    """Return whether an open notice is probably about the same maintenance, although no ID says so."""
    if is_finished(notice) or event.stage in FINISHED_STAGES:
        return False
    if event.event_type is EventType.STATE_CHANGE:
        return _ends_in_a_stop(notice)
    if event.event_type not in _COUNTERPART or has_event_type(notice, event.event_type):
        return False
    is_same_kind = event.plan is not None and event.plan.kind == notice.spec.kind
    return has_event_type(notice, _COUNTERPART[event.event_type]) and is_same_kind


def _is_older(event: InstanceEvent, spec: MaintenanceNoticeSpec) -> bool:
    return spec.reported_at is not None and event.at <= spec.reported_at


def _ends_in_a_stop(notice: MaintenanceNotice) -> bool:
    return notice.spec.kind in (MaintenanceKind.STOP, MaintenanceKind.TERMINATE) and any(
        has_event_type(notice, event_type) for event_type in _STOPPING_EVENT_TYPES
    )


def _has_same_start(spec: MaintenanceNoticeSpec, event: InstanceEvent) -> bool:
    start = None if event.plan is None else event.plan.start
    return start is not None and spec.start is not None and abs(start - spec.start) < _SAME_START


def _is_irrelevant_end(event: InstanceEvent) -> bool:
    """Return whether the event is the end of something unknown, which needs no notice.

    Events of Health are excluded: its messages arrive in any order, and the last one may arrive first.
    """
    return event.stage in FINISHED_STAGES and event.event_type is not EventType.HEALTH


def _is_newer(spec: MaintenanceNoticeSpec, at: datetime) -> bool:
    """Return whether the notice was reported after `at`; beyond the allowed clock skew our clock was wrong then."""
    return spec.reported_at is not None and at < spec.reported_at <= at + _MAX_CLOCK_SKEW


def _with_corrected_time(event: InstanceEvent, spec: MaintenanceNoticeSpec) -> InstanceEvent:
    """Return the event with a time after the notice's, if that was written with a wrong clock.

    EC2 lists the current state, so its event must not count as outdated.
    """
    reported_at = spec.reported_at
    if (
        event.event_type is not EventType.SCHEDULED_EVENT
        or reported_at is None
        or reported_at <= event.at + _MAX_CLOCK_SKEW
    ):
        return event
    return replace(event, at=reported_at + TICK)


def _report_for(notice: MaintenanceNotice, event: InstanceEvent) -> NoticeReport:
    report = _report(event, notice.spec.notice_id)
    if has_event_type(notice, event.event_type):
        annotations = event.annotations if event.is_from_imds else {}  # the notice keeps the ID that it has
        report = replace(report, notes={**annotations, **_address_annotation(event)})
    if event.is_from_imds and event.plan is not None and notice.spec.reported_at is not None:
        return replace(report, plan=_rescheduled_plan(notice.spec, event.plan))
    if event.event_type is EventType.SPOT and SHOWN_BY_IMDS in notice.metadata.annotations:
        return replace(report, plan=None)  # the metadata service gave the exact time
    if event.event_type is EventType.STATE_CHANGE and not has_event_type(notice, EventType.STATE_CHANGE):
        return replace(report, plan=None, notes=_address_annotation(event))
    if (
        event.event_type is EventType.HEALTH
        and has_event_type(notice, EventType.SCHEDULED_EVENT)
        and event.plan is not None
    ):
        return replace(report, plan=_rescheduled_plan(notice.spec, event.plan))
    return report


def _rescheduled_plan(spec: MaintenanceNoticeSpec, plan: MaintenancePlan) -> MaintenancePlan | None:
    """Return EC2's plan with the times of a source that knows less; None if the start is the same."""
    if plan.start == spec.start or plan.start is None:
        return None
    fits = spec.deadline is not None and plan.start <= spec.deadline
    return replace(
        plan_of(spec),
        start=plan.start,
        end=plan.end,
        deadline=spec.deadline if fits else None,
        reschedulable=spec.reschedulable and fits,
    )


def _report(event: InstanceEvent, notice_id: str) -> NoticeReport:
    return NoticeReport(
        source=SOURCE,
        notice_id=notice_id,
        at=event.at,
        provider_id=event.instance,
        stage=event.stage,
        plan=event.plan,
        machine_name=event.machine_name,
        notes={event.event_type.value: event.event_id, **event.annotations, **_address_annotation(event)},
    )


def _address_annotation(event: InstanceEvent) -> Mapping[str, str]:
    return {MACHINE_ADDRESS: event.machine_address} if event.machine_address else {}


def _changes_notice(notice: MaintenanceNotice, report: NoticeReport) -> bool:
    """Return whether a report changes anything but its time: a repeated list must not cause writes."""
    merged_spec = msgspec.structs.replace(merge_report(notice.spec, report), reported_at=notice.spec.reported_at)
    return merged_spec != notice.spec or bool(missing_annotations(notice.metadata.annotations, report))


def _is_stale(
    notice: MaintenanceNotice, status: InstanceStatus, listed_ids: Collection[str], *, at: datetime, has_node: bool
) -> bool:
    annotations, spec = notice.metadata.annotations, notice.spec
    if status.is_terminated and not has_node:
        return True
    if EventType.SCHEDULED_EVENT in annotations:
        return annotations[EventType.SCHEDULED_EVENT] not in listed_ids and not status.unreadable
    is_running = status.state == "running"
    if EventType.HEALTH in annotations:
        last = spec.end or spec.start
        return last is not None and at >= last + _HEALTH_GRACE_PERIOD
    if EventType.SPOT in annotations:
        return is_running and spec.start is not None and at >= spec.start + SPOT_GRACE_PERIOD
    return EventType.STATE_CHANGE in annotations and is_running
