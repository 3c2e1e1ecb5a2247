"""EC2 instances with their scheduled events.

A rescheduled event shows its new time only after a delay, as in EC2.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from haulout.core.clock import Clock
from haulout.errors import CloudError

Document = dict[str, Any]

_BAD_REQUEST = 400
_STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
_ZONE = "eu-west-1a"
_MAX_INSTANCES_PER_CALL = 100
_MIN_RESCHEDULE_AHEAD, _RESCHEDULE_CUTOFF = timedelta(minutes=60), timedelta(minutes=5)


@dataclass(slots=True)
class Ec2Instance:
    instance_id: str
    state: str = "running"
    tags: dict[str, str] = field(default_factory=dict)
    events: dict[str, Document] = field(default_factory=dict)
    pending_moves: list[tuple[datetime, str, datetime]] = field(
        default_factory=list
    )  # when to show which event's new time
    spot_action: Document | None = None  # shown by the metadata service, besides events
    rebalance: Document | None = None
    target_lifecycle_state: str = "InService"  # the target state of Auto Scaling; empty if in no group


@dataclass(slots=True)
class Ec2Instances:
    """All instances of an account in a region."""

    clock: Clock
    id_prefix: str = "0" * 8  # distinguishes ids from those of other clouds; hexadecimal digits
    move_visible_after: timedelta = timedelta(minutes=1)
    page_size: int = _MAX_INSTANCES_PER_CALL
    by_id: dict[str, Ec2Instance] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def launch(self, tags: dict[str, str], *, instance_id: str = "") -> str:
        instance_id = instance_id or f"i-{self.id_prefix}{next(self._numbers):09x}"
        self.by_id[instance_id] = Ec2Instance(instance_id, tags=tags)
        return instance_id

    def schedule_event(self, instance: str, event: Document) -> str:
        event_id = f"instance-event-{self.id_prefix}{next(self._numbers):09x}"
        self.by_id[instance].events[event_id] = {"InstanceEventId": event_id, **event}
        return event_id

    def statuses(self, instances: Sequence[str], *, page: str) -> tuple[list[Document], str]:
        """Return the statuses of instances in any state; of all instances if none is named."""
        if len(instances) > _MAX_INSTANCES_PER_CALL:
            raise _client_error(
                "InvalidParameterValue", f"at most {_MAX_INSTANCES_PER_CALL} instances can be asked about"
            )
        self._check_known(instances)
        requested = instances or tuple(self.by_id)
        first = int(page or 0)
        next_index = first + self.page_size
        documents = [self._status_document(self.by_id[instance_id]) for instance_id in requested[first:next_index]]
        return documents, str(next_index) if next_index < len(requested) else ""

    def describe(self, instances: Sequence[str]) -> list[Document]:
        """Return instances with their tags; all instances if none is named."""
        self._check_known(instances)
        return [self._instance_document(self.by_id[instance_id]) for instance_id in instances or tuple(self.by_id)]

    def move_event(self, instance: str, event: str, *, to: datetime) -> Document:
        """Reschedule an event, if that is allowed."""
        self._check_known([instance])
        current = self.by_id[instance].events.get(event)
        if current is None:
            raise _client_error("InvalidInstanceEventIDNotFound", f"The event ID '{event}' does not exist")
        now, start, deadline = self.clock.now(), current["NotBefore"], current.get("NotBeforeDeadline")
        if deadline is None:
            raise _client_error("UnsupportedOperation", f"The event '{event}' cannot be rescheduled")
        if start - now < _RESCHEDULE_CUTOFF:
            raise _client_error("InvalidParameterValue", f"The event '{event}' starts too soon to be rescheduled")
        if not now + _MIN_RESCHEDULE_AHEAD <= to <= deadline:
            raise _client_error("InvalidParameterValue", f"The event '{event}' cannot be moved to {to}")
        self.by_id[instance].pending_moves.append((now + self.move_visible_after, event, to))
        return current | {"NotBefore": to}

    def _check_known(self, instances: Sequence[str]) -> None:
        unknown = [instance for instance in instances if instance not in self.by_id]
        if not unknown:
            return
        is_plural = len(unknown) > 1
        grammar = ("IDs", "do") if is_plural else ("ID", "does")
        raise _client_error(
            "InvalidInstanceID.NotFound", f"The instance {grammar[0]} '{', '.join(unknown)}' {grammar[1]} not exist"
        )

    def _status_document(self, instance: Ec2Instance) -> Document:
        now = self.clock.now()
        for at, event, to in instance.pending_moves:
            if at <= now and event in instance.events:
                offset = to - instance.events[event]["NotBefore"]
                moved = {
                    key: instance.events[event][key] + offset for key in ("NotAfter",) if key in instance.events[event]
                }
                instance.events[event] = instance.events[event] | {"NotBefore": to} | moved
        instance.pending_moves = [move for move in instance.pending_moves if move[0] > now]
        return {
            "InstanceId": instance.instance_id,
            "AvailabilityZone": _ZONE,
            "InstanceState": _state(instance),
            "Events": list(instance.events.values()),
        }

    def _instance_document(self, instance: Ec2Instance) -> Document:
        return {
            "InstanceId": instance.instance_id,
            "PrivateDnsName": f"{instance.instance_id}.ec2.internal",
            "PrivateIpAddress": address_of(instance.instance_id),
            "Placement": {"AvailabilityZone": _ZONE},
            "State": _state(instance),
            "Tags": [{"Key": key, "Value": value} for key, value in instance.tags.items()],
        }


def address_of(instance: str) -> str:
    number = int(instance[-6:], 16)
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _state(instance: Ec2Instance) -> Document:
    return {"Code": _STATE_CODES[instance.state], "Name": instance.state}


def _client_error(code: str, message: str) -> CloudError:
    return CloudError(message, doing="EC2", status=_BAD_REQUEST, code=code)
