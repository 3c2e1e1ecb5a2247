"""An event of AWS about one instance, before it is matched with a notice.

Several services report the same maintenance, each with its own ID (`EventType`). A notice has these IDs as annotations,
so that a repeated event finds its notice, after a restart too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from haulout.api import annotations
from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan
from haulout.core import timestamps

SOURCE = "aws"
LIFECYCLE_GROUP = annotations.AWS_LIFECYCLE_GROUP
LIFECYCLE_HOOK = annotations.AWS_LIFECYCLE_HOOK
# A token with this prefix is not a token: the lifecycle action is identified by its hook.
HOOK_TOKEN_PREFIX = "hook:"  # noqa: S105 - a prefix of identifiers
SHOWN_BY_IMDS = annotations.AWS_METADATA  # the metadata service of the instance has shown the event

_INSTANCE = re.compile(r"i-[0-9a-f]{2,40}")
_MAX_REASON = 1024  # limit of the notices' schema
_MAX_DESCRIPTION = 4096
_MAX_EVENT_ID = 900


class UnreadableEvent(ValueError):
    """A message or document that cannot be parsed: what was found, and what was expected."""


class EventType(StrEnum):
    """The service that reports an event; the value is the annotation with the event's ID in that service."""

    SCHEDULED_EVENT = annotations.AWS_INSTANCE_EVENT  # EC2: InstanceEventId
    HEALTH = annotations.AWS_HEALTH_EVENT  # AWS Health: eventArn
    SPOT = annotations.AWS_SPOT_INTERRUPTION  # the ID of the message
    REBALANCE = annotations.AWS_REBALANCE_RECOMMENDATION
    STATE_CHANGE = annotations.AWS_STATE_CHANGE
    LIFECYCLE = annotations.AWS_LIFECYCLE_TOKEN
    TARGET_LIFECYCLE_STATE = (
        annotations.AWS_LIFECYCLE_TARGET_STATE  # instance metadata: it has neither hook nor token
    )

    @property
    def short_name(self) -> str:
        """The part of the annotation that differs between types, for notice IDs."""
        return self.value.rpartition("/")[2].partition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEvent:
    """An event about one maintenance of one instance."""

    event_type: EventType
    event_id: str
    instance: str
    at: datetime
    stage: NoticeStage = NoticeStage.SCHEDULED
    plan: MaintenancePlan | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    machine_name: str = ""  # for nodes without a provider ID
    machine_address: str = ""

    @property
    def is_from_imds(self) -> bool:
        """Whether the event comes from the instance metadata service."""
        return SHOWN_BY_IMDS in self.annotations

    @property
    def notice_id(self) -> str:
        """The ID of its notice, if there is none yet.

        The queue and the metadata service have no common ID for an interruption, a recommendation or a termination. So
        the ID is derived from the instance: the operator and an agent that receive it at the same time write the same
        object.
        """
        match self.event_type:
            case EventType.SCHEDULED_EVENT:
                return self.event_id
            case EventType.HEALTH:
                return f"{self.event_id}/{self.instance}"
            case EventType.STATE_CHANGE:
                return f"{self.event_type.short_name}-{self.instance}-{self.event_id}"
        return f"{self.event_type.short_name}-{self.instance}"


def parse_instance_id(text: object) -> str | None:
    """Return the instance ID in an ID, an ARN or a provider ID; None if there is none."""
    if not isinstance(text, str):
        return None
    last = text.strip().rpartition("/")[2]
    return last if _INSTANCE.fullmatch(last) else None


def parse_event_id(text: object) -> str:
    """Return the ID of an event if it is valid: one line, and not too long; else empty."""
    if not isinstance(text, str) or not text.isprintable() or len(text) > _MAX_EVENT_ID:
        return ""
    return text.strip()


def new_plan(
    kind: MaintenanceKind,
    *,
    reason: str,
    description: str = "",
    start: datetime | None = None,
    end: datetime | None = None,
    deadline: datetime | None = None,
) -> MaintenancePlan:
    """Return a plan that is valid for a notice: an end or deadline before the start is dropped."""
    return MaintenancePlan(
        kind=kind,
        reason=reason[:_MAX_REASON],
        description=description[:_MAX_DESCRIPTION],
        start=start,
        end=_not_before(start, end),
        deadline=_not_before(start, deadline),
        reschedulable=_not_before(start, deadline) is not None,
    )


def parse_instant(value: object) -> datetime | None:
    """Parse an instant in any of the formats of AWS; None if it is invalid."""
    if isinstance(value, datetime):
        return _in_utc(value)
    if not isinstance(value, str) or not value.strip():
        return None
    # EventBridge envelopes have RFC 3339, the details of AWS Health and instance metadata have HTTP dates.
    for read in (datetime.fromisoformat, timestamps.parse_http_date):
        try:
            return _in_utc(read(value.strip()))
        except ValueError:
            continue
    return None


def _in_utc(found: datetime) -> datetime | None:
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    try:
        return aware.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        return None


def _not_before(start: datetime | None, later: datetime | None) -> datetime | None:
    return later if later is not None and (start is None or start <= later) else None
