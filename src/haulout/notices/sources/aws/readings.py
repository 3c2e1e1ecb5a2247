"""What AWS was found to say about one instance, before it is known which notice that is about.

Several services speak of the same things. Each has its own way to tell one maintenance from another (`Family`), and a
notice remembers in annotations by which names it is known: so whoever hears of it again finds it, after a restart too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from haulout.core import httpdate
from haulout.kinds.notice import Kind, Stage
from haulout.kinds.reports import Plan

SOURCE = "aws"
GROUP = "aws.haulout.dev/lifecycle-group"
HOOK = "aws.haulout.dev/lifecycle-hook"
BY_HOOK = "hook:"  # a token that begins so is none: the action is known by its hook only
METADATA = "aws.haulout.dev/metadata"  # the metadata service of the instance has shown it, so it can stop to show it

_INSTANCE = re.compile(r"i-[0-9a-f]{2,40}")
_LONGEST_REASON = 1024  # as the schema of notices has it
_LONGEST_DESCRIPTION = 4096
_LONGEST_NAME = 900


class Nonsense(ValueError):
    """Something that cannot be understood: what was found, and what was expected."""


class Family(StrEnum):
    """Who speaks; the value is the annotation that has the name which the maintenance goes by there."""

    EVENT = "aws.haulout.dev/instance-event"  # EC2: InstanceEventId
    HEALTH = "aws.haulout.dev/health-event"  # AWS Health: eventArn
    SPOT = "aws.haulout.dev/spot-interruption"  # the id of the message
    REBALANCE = "aws.haulout.dev/rebalance-recommendation"
    STATE = "aws.haulout.dev/state-change"
    LIFECYCLE = "aws.haulout.dev/lifecycle-token"
    TARGET = "aws.haulout.dev/lifecycle-target-state"  # instance metadata: it knows neither hook nor token

    @property
    def word(self) -> str:
        """The part that tells them apart, for names."""
        return self.value.rpartition("/")[2].partition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was said about one maintenance of one instance."""

    family: Family
    called: str
    instance: str
    at: datetime
    stage: Stage = Stage.SCHEDULED
    plan: Plan | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    machine_name: str = ""  # for nodes that do not say on which instance they run
    machine_address: str = ""

    @property
    def is_metadata(self) -> bool:
        """Tell whether the instance itself was told."""
        return METADATA in self.notes

    @property
    def notice_id(self) -> str:
        """What its notice is called, if there is none yet.

        The queue and the metadata service have no common name for an interruption, a recommendation or a termination.
        So the instance names it: the operator and an agent that hear of it at the same time write the same object.
        """
        match self.family:
            case Family.EVENT:
                return self.called
            case Family.HEALTH:
                return f"{self.called}/{self.instance}"
            case Family.STATE:
                return f"{self.family.word}-{self.instance}-{self.called}"
        return f"{self.family.word}-{self.instance}"


def instance_of(written: object) -> str | None:
    """Return the id of an instance, of a name, an ARN or a providerID; None if it is something else."""
    if not isinstance(written, str):
        return None
    last = written.strip().rpartition("/")[2]
    return last if _INSTANCE.fullmatch(last) else None


def name_in(written: object) -> str:
    """Return the name of a maintenance if it can be one: short, and of one line."""
    if not isinstance(written, str) or not written.isprintable() or len(written) > _LONGEST_NAME:
        return ""
    return written.strip()


def plan_of(
    kind: Kind,
    *,
    reason: str,
    description: str = "",
    start: datetime | None = None,
    end: datetime | None = None,
    deadline: datetime | None = None,
) -> Plan:
    """Return a plan that a notice can hold, whatever was said: an end before the start is none."""
    return Plan(
        kind=kind,
        reason=reason[:_LONGEST_REASON],
        description=description[:_LONGEST_DESCRIPTION],
        start=start,
        end=_from(start, end),
        deadline=_from(start, deadline),
        reschedulable=_from(start, deadline) is not None,
    )


def instant(written: object) -> datetime | None:
    """Return an instant that AWS wrote, in any of its ways; None if it is none."""
    if isinstance(written, datetime):
        return _in_utc(written)
    if not isinstance(written, str) or not written.strip():
        return None
    for read in (datetime.fromisoformat, httpdate.parse):
        try:
            return _in_utc(read(written.strip()))
        except ValueError:
            continue
    return None


def _in_utc(found: datetime) -> datetime | None:
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    try:
        return aware.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        return None


def _from(start: datetime | None, later: datetime | None) -> datetime | None:
    return later if later is not None and (start is None or start <= later) else None
