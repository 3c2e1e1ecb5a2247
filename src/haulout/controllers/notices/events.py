"""Events of a MaintenanceNotice: for its history, as Kubernetes Events, and as notifications. Pure.

Notifications are sent for three of them: received, late, ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeCondition, NoticePhase
from haulout.api.notification_events import EventName, InvolvedObject, ObjectEvent
from haulout.core.timestamps import whole_seconds

HAULOUT = "haulout"


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """Something that happened to a notice; `actor` is who caused it."""

    reason: str
    message: str
    actor: str = HAULOUT
    is_warning: bool = False


def involved_object(notice: MaintenanceNotice) -> InvolvedObject:
    return InvolvedObject(
        kind=MAINTENANCE_NOTICES.kind,
        name=notice.name,
        uid=notice.uid,
        node=notice.node,
        phase=notice.status.phase,
        reason=notice.spec.reason or notice.spec.description,
        requested_by=notice.spec.source,
    )


def notified_events(notice: MaintenanceNotice) -> Iterator[ObjectEvent]:
    """Yield a notice's events in order; none before the first reconcile, so that the node is known."""
    status, created = notice.status, notice.metadata.creation_timestamp
    if not status.phase or created is None:
        return
    is_over = status.phase in (NoticePhase.COMPLETED, NoticePhase.CANCELLED, NoticePhase.MISSED)
    yield ObjectEvent(name=EventName.NOTICE_RECEIVED, key="received", at=created, message=_received_message(notice))
    on_time = status.condition(NoticeCondition.ON_TIME)
    late_at = None if on_time is None or on_time.status != "False" else on_time.last_transition_time
    if late_at is not None and on_time is not None and not is_over:
        message = f"{_describe(notice)} is late: {on_time.message}"
        yield ObjectEvent(
            name=EventName.NOTICE_LATE, key=whole_seconds(late_at), at=late_at, message=message, is_ongoing=True
        )
    if is_over and status.ended_at is not None:
        message = f"{_describe(notice)} ended: {status.phase.lower()}"
        yield ObjectEvent(name=EventName.NOTICE_ENDED, key=status.phase, at=status.ended_at, message=message)


def _received_message(notice: MaintenanceNotice) -> str:
    spec = notice.spec
    when = "at any moment" if spec.start is None else f"not before {spec.start:%Y-%m-%d %H:%M} UTC"
    why = f" ({spec.reason or spec.description})" if spec.reason or spec.description else ""
    return f"{_describe(notice)}: {spec.source or 'an unknown source'} announces {spec.kind}{why}, {when}"


def _describe(notice: MaintenanceNotice) -> str:
    return f"MaintenanceNotice {notice.name} of node {notice.node or '(not known)'}"
