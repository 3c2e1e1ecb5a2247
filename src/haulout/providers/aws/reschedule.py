"""Move a scheduled event of EC2 to another time.

EC2's rules are checked here first, so that a refusal has a clear message.
"""

from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.errors import CloudError, RescheduleRefused
from haulout.providers.aws.api import Ec2, explain_error, is_retryable
from haulout.providers.aws.instance_events import EventType, parse_instance_id
from haulout.providers.retry import Retrier

_MIN_TIME_AHEAD = timedelta(minutes=60)
_FROZEN_BEFORE_START = timedelta(minutes=5)
_RETRYABLE_CODES = ("ExpiredToken", "RequestExpired", "AuthFailure", "UnauthorizedOperation", "SignatureDoesNotMatch")


def refusal_reason(notice: MaintenanceNotice, to: datetime, *, now: datetime) -> str:
    """Return why EC2 would not move the event to this time; empty if it would."""
    spec = notice.spec
    if EventType.SCHEDULED_EVENT not in notice.metadata.annotations:
        return "only scheduled events of EC2 can be moved, and this is not one"
    if spec.start is None or spec.deadline is None:
        return "EC2 gives no deadline for this event, so that it cannot be moved"
    if now >= spec.start - _FROZEN_BEFORE_START:
        return (
            f"it begins at {spec.start:%Y-%m-%d %H:%M} UTC, and EC2 moves no event in the "
            "last 5 minutes before it begins"
        )
    if to < now + _MIN_TIME_AHEAD:
        return "EC2 moves events only to times that are at least 60 minutes ahead"
    if to > spec.deadline:
        return f"EC2 does not move it beyond its deadline, {spec.deadline:%Y-%m-%d %H:%M} UTC"
    return ""


async def reschedule(ec2: Ec2, notice: MaintenanceNotice, to: datetime, *, now: datetime, retrier: Retrier) -> None:
    """Return once EC2 has agreed; raise `RescheduleRefused` if it refuses, `CloudError` if it does not answer."""
    if notice.spec.start == to:
        return
    reason = refusal_reason(notice, to, now=now)
    instance = parse_instance_id(notice.spec.provider_id)
    if reason or instance is None:
        raise RescheduleRefused(f"{notice.name}: {reason or f'{notice.spec.provider_id} is not an EC2 instance'}")
    event = notice.metadata.annotations[EventType.SCHEDULED_EVENT]
    try:
        await retrier.call(lambda: ec2.move_event(instance, event, to=to), doing=f"moving {event}")
    except CloudError as error:
        if is_retryable(error) or error.code in _RETRYABLE_CODES:
            raise
        raise RescheduleRefused(f"{notice.name}: {explain_error(error)}") from error
