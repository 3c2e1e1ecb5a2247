"""What AWS was found to say about one instance, before it is known which notice that is about.

Several services speak of the same things. Each has its own way to tell one maintenance from another (`EventType`), and
a notice remembers in annotations by which names it is known: so whoever hears of it again finds it, after a restart
too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan
from haulout.core import httpdate

SOURCE = "aws"
LIFECYCLE_GROUP = "aws.haulout.dev/lifecycle-group"
LIFECYCLE_HOOK = "aws.haulout.dev/lifecycle-hook"
# A token that begins so is none: the action is known by its hook only.
HOOK_TOKEN_PREFIX = "hook:"  # noqa: S105 - a prefix of identifiers
SHOWN_BY_IMDS = (
    "aws.haulout.dev/metadata"  # the metadata service of the instance has shown it, so it can stop to show it
)

_INSTANCE = re.compile(r"i-[0-9a-f]{2,40}")
_MAX_REASON = 1024  # as the schema of notices has it
_MAX_DESCRIPTION = 4096
_MAX_EVENT_ID = 900


class UnreadableEvent(ValueError):
    """Something that cannot be understood: what was found, and what was expected."""


class EventType(StrEnum):
    """Who speaks; the value is the annotation that has the name which the maintenance goes by there."""

    SCHEDULED_EVENT = "aws.haulout.dev/instance-event"  # EC2: InstanceEventId
    HEALTH = "aws.haulout.dev/health-event"  # AWS Health: eventArn
    SPOT = "aws.haulout.dev/spot-interruption"  # the id of the message
    REBALANCE = "aws.haulout.dev/rebalance-recommendation"
    STATE_CHANGE = "aws.haulout.dev/state-change"
    LIFECYCLE = "aws.haulout.dev/lifecycle-token"
    TARGET_LIFECYCLE_STATE = (
        "aws.haulout.dev/lifecycle-target-state"  # instance metadata: it knows neither hook nor token
    )

    @property
    def short_name(self) -> str:
        """The part that tells them apart, for names."""
        return self.value.rpartition("/")[2].partition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEvent:
    """What was said about one maintenance of one instance."""

    event_type: EventType
    event_id: str
    instance: str
    at: datetime
    stage: NoticeStage = NoticeStage.SCHEDULED
    plan: MaintenancePlan | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    machine_name: str = ""  # for nodes that do not say on which instance they run
    machine_address: str = ""

    @property
    def is_from_imds(self) -> bool:
        """Tell whether the instance itself was told."""
        return SHOWN_BY_IMDS in self.annotations

    @property
    def notice_id(self) -> str:
        """What its notice is called, if there is none yet.

        The queue and the metadata service have no common name for an interruption, a recommendation or a termination.
        So the instance names it: the operator and an agent that hear of it at the same time write the same object.
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
    """Return the id of an instance, of a name, an ARN or a providerID; None if it is something else."""
    if not isinstance(text, str):
        return None
    last = text.strip().rpartition("/")[2]
    return last if _INSTANCE.fullmatch(last) else None


def parse_event_id(text: object) -> str:
    """Return the name of a maintenance if it can be one: short, and of one line."""
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
    """Return a plan that a notice can hold, whatever was said: an end before the start is none."""
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
    """Return an instant that AWS wrote, in any of its ways; None if it is none."""
    if isinstance(value, datetime):
        return _in_utc(value)
    if not isinstance(value, str) or not value.strip():
        return None
    for read in (datetime.fromisoformat, httpdate.parse):
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
