"""Asking EC2 for another time.

What EC2 allows is checked here first, so that the answer is one that people understand.
"""

from datetime import datetime, timedelta

from haulout.errors import CannotMove, CloudError
from haulout.kinds.notice import MaintenanceNotice
from haulout.notices.sources.aws.cloud import Ec2, explained, is_busy
from haulout.notices.sources.aws.readings import Family, instance_of
from haulout.notices.sources.calls import Patient

_AHEAD = timedelta(minutes=60)
_TOO_LATE = timedelta(minutes=5)
_NOT_A_NO = ("ExpiredToken", "RequestExpired", "AuthFailure", "UnauthorizedOperation", "SignatureDoesNotMatch")


def refusal(notice: MaintenanceNotice, to: datetime, *, now: datetime) -> str:
    """Return why EC2 would not move a maintenance to this time; empty if it would."""
    spec = notice.spec
    if Family.EVENT not in notice.metadata.annotations:
        return "only scheduled events of EC2 can be moved, and this is none"
    if spec.start is None or spec.deadline is None:
        return "EC2 gives no deadline for this event, so that it cannot be moved"
    if now >= spec.start - _TOO_LATE:
        return f"it begins at {spec.start:%Y-%m-%d %H:%M} UTC, and EC2 moves nothing in the last 5 minutes before"
    if to < now + _AHEAD:
        return "EC2 moves events only to times that are at least 60 minutes ahead"
    if to > spec.deadline:
        return f"EC2 does not move it beyond its deadline, {spec.deadline:%Y-%m-%d %H:%M} UTC"
    return ""


async def move(ec2: Ec2, notice: MaintenanceNotice, to: datetime, *, now: datetime, patient: Patient) -> None:
    """Return once EC2 has agreed; raises `CannotMove` if it says no, `CloudError` if it says nothing."""
    if notice.spec.start == to:
        return
    why = refusal(notice, to, now=now)
    instance = instance_of(notice.spec.provider_id)
    if why or instance is None:
        raise CannotMove(f"{notice.name}: {why or f'{notice.spec.provider_id} is no instance of EC2'}")
    event = notice.metadata.annotations[Family.EVENT]
    try:
        await patient.ask(lambda: ec2.move_event(instance, event, to=to), doing=f"moving {event}")
    except CloudError as error:
        if is_busy(error) or error.code in _NOT_A_NO:
            raise
        raise CannotMove(f"{notice.name}: {explained(error)}") from error
