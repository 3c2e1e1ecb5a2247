"""What the metadata service of an instance says about its maintenance. Pure.

Each of its documents becomes the same readings that the queue and EC2 make of the same event, with the note `METADATA`:
an agent ends only what its instance was shown, because EC2 and the queue may know of things that this service does not
show yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import msgspec

from haulout.kinds.notice import Kind, Stage
from haulout.notices.sources.aws.joining import SPOT_IS_LATE
from haulout.notices.sources.aws.readings import METADATA, Family, Nonsense, Reading, instant, plan_of
from haulout.notices.sources.aws.statuses import read_status
from haulout.notices.sources.fetching import UNREADABLE

_SHOWN = {METADATA: "shown"}
_TERMINATED = ("Terminated", "Warmed:Terminated")
_ENDINGS = {"completed": Stage.ENDED, "canceled": Stage.CANCELLED, "cancelled": Stage.CANCELLED}


class _Spot(msgspec.Struct, frozen=True):
    action: str = ""
    time: str = ""


class _Rebalance(msgspec.Struct, frozen=True, rename="camel"):
    notice_time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a document shows, and what could not be read of it."""

    readings: tuple[Reading, ...] = ()
    nonsense: tuple[str, ...] = ()


class Read(Protocol):
    """Reads a document of an instance."""

    def __call__(self, body: bytes, *, instance: str, at: datetime) -> Shown:
        """Return what it shows as of now; raises `Nonsense` if that is nothing at all."""
        ...


def read_spot(body: bytes, *, instance: str, at: datetime) -> Shown:
    """Return that EC2 takes the instance back, unless it should have done so long ago; raises `Nonsense`."""
    try:
        found = msgspec.json.decode(body, type=_Spot)
    except UNREADABLE as error:
        raise Nonsense(f"expected a spot instance action: {error}") from None
    start = instant(found.time)
    if not found.action or start is None:
        raise Nonsense(f"expected a spot instance action with an action and a time, found {body!r:.100}")
    if at >= start + SPOT_IS_LATE:
        return Shown()
    kind = Kind.TERMINATE if found.action == "terminate" else Kind.STOP
    description = "EC2 takes the spot instance back"
    plan = plan_of(kind, reason=f"spot-{found.action}", description=description, start=start)
    return _one(Reading(family=Family.SPOT, called=found.time, instance=instance, at=at, plan=plan, notes=_SHOWN))


def read_rebalance(body: bytes, *, instance: str, at: datetime) -> Shown:
    """Return that EC2 recommends to replace the instance; raises `Nonsense`."""
    try:
        found = msgspec.json.decode(body, type=_Rebalance)
    except UNREADABLE as error:
        raise Nonsense(f"expected a rebalance recommendation: {error}") from None
    if instant(found.notice_time) is None:
        raise Nonsense(f"expected a rebalance recommendation with a noticeTime, found {body!r:.100}")
    plan = plan_of(
        Kind.TERMINATE,
        reason="rebalance-recommendation",
        description="the spot instance is likely to be taken back soon",
    )
    called = found.notice_time
    return _one(Reading(family=Family.REBALANCE, called=called, instance=instance, at=at, plan=plan, notes=_SHOWN))


def read_target_state(body: bytes, *, instance: str, at: datetime) -> Shown:
    """Return that Auto Scaling terminates the instance, if it wants it in no other state."""
    state = body.decode("utf-8", "replace").strip()
    if state not in _TERMINATED:
        return Shown()
    plan = plan_of(Kind.TERMINATE, reason="autoscaling", description="Auto Scaling terminates the instance")
    return _one(Reading(family=Family.TARGET, called=state, instance=instance, at=at, plan=plan, notes=_SHOWN))


def read_events(body: bytes, *, instance: str, at: datetime) -> Shown:
    """Return the scheduled events; raises `Nonsense` if it is no list of them."""
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise Nonsense(f"expected a list of scheduled events: {error}") from None
    if not isinstance(found, list):
        raise Nonsense(f"expected a list of scheduled events, found {body!r:.100}")
    states = {str(it.get("EventId")): str(it.get("State") or "") for it in found if isinstance(it, Mapping)}
    status = read_status({"InstanceId": instance, "Events": [_as_ec2_has_it(it) for it in found]}, at=at)
    if status is None:
        raise Nonsense(f"expected the id of an instance, found {instance!r:.100}")
    readings = tuple(_in_state(it, states.get(it.called, "")) for it in status.readings)
    return Shown(readings=readings, nonsense=status.nonsense)


def _one(reading: Reading) -> Shown:
    return Shown(readings=(reading,))


def _as_ec2_has_it(event: object) -> object:
    return {**event, "InstanceEventId": event.get("EventId")} if isinstance(event, Mapping) else event


def _in_state(reading: Reading, state: str) -> Reading:
    return replace(reading, stage=_ENDINGS.get(state.lower(), reading.stage), notes=_SHOWN)
