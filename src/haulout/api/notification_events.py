"""The events of Haulout's objects that can be notified: the names in section `notifications` of the configuration.

An event is derived from the object itself, so that every process derives the same: `key` distinguishes occurrences, and
is written to the object before a message is sent. `haulout.controllers.nodemaintenance.notification` and
`haulout.controllers.notices.events` derive events; `haulout.controllers.profiles.notify.object_notifier` decides which
of them are sent. This module does no I/O.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class EventName(StrEnum):
    """The events that can be notified. The values are names in users' configurations, so they never change."""

    NODE_MAINTENANCE_STARTED = "NodeMaintenanceStarted"
    NODE_MAINTENANCE_BLOCKED = "NodeMaintenanceBlocked"
    NODE_MAINTENANCE_SUCCEEDED = "NodeMaintenanceSucceeded"
    NODE_MAINTENANCE_FAILED = "NodeMaintenanceFailed"
    NOTICE_RECEIVED = "NoticeReceived"
    NOTICE_LATE = "NoticeLate"
    NOTICE_ENDED = "NoticeEnded"

    @property
    def state(self) -> str:
        """The state in the name, for templates: `Blocked` of `NodeMaintenanceBlocked`."""
        return self.removeprefix("NodeMaintenance").removeprefix("Notice")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEvent:
    """An event of an object. `is_ongoing` tells whether its cause still exists."""

    name: EventName
    key: str
    at: datetime
    message: str  # a sentence for users, without a full stop
    is_ongoing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InvolvedBlocker:
    """A blocker for which an object waits."""

    kind: str
    object: str
    reason: str
    remedy: str = ""
    pod: str = ""
    workload: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvolvedObject:
    """The object of a notification, with the fields that templates can use."""

    kind: str
    name: str
    uid: str
    node: str  # empty while it is unknown
    phase: str
    reason: str = ""
    requested_by: str = ""
    blockers: tuple[InvolvedBlocker, ...] = ()
