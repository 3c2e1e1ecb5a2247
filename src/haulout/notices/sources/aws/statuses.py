"""What DescribeInstanceStatus says: scheduled events of an instance, and whether it is there. Pure.

EC2 tells when an event is over by a prefix of its description, and keeps it for some days; some just vanish. It never
tells that one has begun. An event that is still listed after its NotBefore counts as begun: the node stays out of
service until EC2 says that it is over.

An answer is read as boto3 gives it. What makes no sense in one event is said, and the others are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from haulout.kinds.notice import Kind, Stage
from haulout.notices.sources.aws.readings import Family, Reading, instance_of, instant, name_in, plan_of

_KINDS = {
    "instance-reboot": Kind.REBOOT,
    "system-reboot": Kind.REBOOT,
    "instance-stop": Kind.STOP,
    "instance-retirement": Kind.TERMINATE,
}
_ENDINGS = {"[completed]": Stage.ENDED, "[canceled]": Stage.CANCELLED, "[cancelled]": Stage.CANCELLED}
_GONE = ("shutting-down", "terminated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How one instance is, and what is planned for it."""

    instance: str
    state: str = ""  # empty: there is no such instance
    readings: tuple[Reading, ...] = ()
    nonsense: tuple[str, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Tell whether it will never be back."""
        return not self.state or self.state in _GONE


def read_status(written: Mapping[str, Any], *, at: datetime) -> Status | None:
    """Return what is said about an instance; None if it is not said about which."""
    instance = instance_of(written.get("InstanceId"))
    if instance is None:
        return None
    events = written.get("Events") or ()
    found = [_read(instance, it, at) for it in events] if isinstance(events, Sequence) else ["Events is no list"]
    state = written.get("InstanceState")
    name = state.get("Name") if isinstance(state, Mapping) else None
    return Status(
        instance=instance,
        state=name if isinstance(name, str) and name else "unknown",
        readings=tuple(it for it in found if isinstance(it, Reading)),
        nonsense=tuple(it for it in found if isinstance(it, str)),
    )


def maintenance_kind(description: str) -> Kind:
    """Return what maintenance of the system does: network maintenance is over in moments, the rest restarts it."""
    text = description.lower()
    return Kind.FREEZE if "network" in text and "power" not in text else Kind.REBOOT


def _read(instance: str, event: object, at: datetime) -> Reading | str:
    if not isinstance(event, Mapping):
        return f"{instance}: an event that is no object: {event!r:.100}"
    called = name_in(event.get("InstanceEventId"))
    if not called:
        return f"{instance}: an event without InstanceEventId: {dict(event)!r:.100}"
    start = instant(event.get("NotBefore"))
    if start is None:
        return f"{instance}: event {called} without an instant as NotBefore: {event.get('NotBefore')!r:.100}"
    code, written = str(event.get("Code") or ""), str(event.get("Description") or "")
    ending, description = _ending(written)
    return Reading(
        family=Family.EVENT,
        called=called,
        instance=instance,
        at=at,
        stage=ending or (Stage.STARTED if at >= start else Stage.SCHEDULED),
        plan=plan_of(
            maintenance_kind(description) if code == "system-maintenance" else _KINDS.get(code, Kind.UNKNOWN),
            reason=code,
            description=description,
            start=start,
            end=instant(event.get("NotAfter")),
            deadline=instant(event.get("NotBeforeDeadline")),
        ),
    )


def _ending(description: str) -> tuple[Stage | None, str]:
    text = description.strip()
    for prefix, stage in _ENDINGS.items():
        if text.lower().startswith(prefix):
            return stage, text[len(prefix) :].strip()
    return None, text
