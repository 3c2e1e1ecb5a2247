"""Auto Scaling terminations whose lifecycle hooks nothing completes. Pure.

The agent on a node sees that Auto Scaling terminates its instance, but has no AWS permissions. If the operator has none
either, or does not listen to AWS at all, a lifecycle hook runs to its heartbeat timeout: the instance terminates later
than it could, or before its node is empty. The notice says so in one event.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeStage
from haulout.controllers.notices.notice_events import NoticeEvent
from haulout.providers.aws.instance_events import SOURCE, EventType

EVENT_REASON = "LifecycleHookNotCompleted"
_GRACE_PERIOD = timedelta(minutes=1)  # time for the operator, if it has permissions, to find the hook
_MESSAGE = (
    "Auto Scaling terminates the instance, and nothing completes its lifecycle hooks: if it has any, they run to"
    " their heartbeat timeout, whether the node is empty or not"
)


def uncompleted_at(notice: MaintenanceNotice) -> datetime | None:
    """Return when to record the event; None if it does not apply or was recorded already."""
    spec, annotations = notice.spec, notice.metadata.annotations
    is_waiting = spec.source == SOURCE and spec.stage == NoticeStage.SCHEDULED and spec.reported_at is not None
    if not is_waiting or EventType.TARGET_LIFECYCLE_STATE not in annotations or EventType.LIFECYCLE in annotations:
        return None
    if spec.reported_at is None or any(entry.what == _MESSAGE for entry in notice.status.history):
        return None
    return spec.reported_at + _GRACE_PERIOD


def uncompleted_events(notice: MaintenanceNotice, *, now: datetime) -> Iterator[NoticeEvent]:
    """Yield the event that nothing completes the hooks, once it is due."""
    at = uncompleted_at(notice)
    if at is not None and now >= at:
        yield NoticeEvent(EVENT_REASON, _MESSAGE, is_warning=True)
