"""What may be notified of our objects: the events that the section `notifications` of a configuration can name. Pure.

An event is read from the object itself, so that whoever looks at it finds the same: `key` tells one occurrence from the
next, and is written to the object before a message is sent. `haulout.controllers.nodemaintenance.notification` and
`haulout.controllers.notices.notification` read events, `haulout.controllers.profiles.notify.object_notifications`
decides which are sent.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class EventName(StrEnum):
    """What can happen to an object."""

    NODE_MAINTENANCE_STARTED = "NodeMaintenanceStarted"
    NODE_MAINTENANCE_BLOCKED = "NodeMaintenanceBlocked"
    NODE_MAINTENANCE_SUCCEEDED = "NodeMaintenanceSucceeded"
    NODE_MAINTENANCE_FAILED = "NodeMaintenanceFailed"
    NOTICE_RECEIVED = "NoticeReceived"
    NOTICE_LATE = "NoticeLate"
    NOTICE_ENDED = "NoticeEnded"

    @property
    def state(self) -> str:
        """The last word of it: `Blocked`."""
        return self.removeprefix("NodeMaintenance").removeprefix("Notice")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEvent:
    """Something that happened to an object; `is_ongoing` if it is still so."""

    name: EventName
    key: str
    at: datetime
    message: str  # a sentence for people, without an end mark
    is_ongoing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InvolvedBlocker:
    """What an object waits for."""

    kind: str
    object: str
    reason: str
    remedy: str = ""
    pod: str = ""
    workload: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvolvedObject:
    """The object that a notification is about, as far as templates can use it."""

    kind: str
    name: str
    uid: str
    node: str  # empty while that is not known
    phase: str
    reason: str = ""
    requested_by: str = ""
    blockers: tuple[InvolvedBlocker, ...] = ()
