"""Instances of EC2 with their scheduled events.

An event that is moved is shown at its new time only a little later, as EC2 does.
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
_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
_ZONE = "eu-west-1a"
_MOST = 100
_AHEAD, _TOO_LATE = timedelta(minutes=60), timedelta(minutes=5)


@dataclass(slots=True)
class Instance:
    """An instance."""

    called: str
    state: str = "running"
    tags: dict[str, str] = field(default_factory=dict)
    events: dict[str, Document] = field(default_factory=dict)
    moves: list[tuple[datetime, str, datetime]] = field(default_factory=list)  # when shown, of which event, to when
    spot: Document | None = None  # what its metadata service shows, besides events
    rebalance: Document | None = None
    target: str = "InService"  # what Auto Scaling wants it to be; empty: it is in no group


@dataclass(slots=True)
class Instances:
    """All instances of an account in a region."""

    clock: Clock
    realm: str = "0" * 8  # tells its names from those of other clouds, in hexadecimal digits
    shown_after: timedelta = timedelta(minutes=1)
    page_size: int = _MOST
    by_name: dict[str, Instance] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def launch(self, tags: dict[str, str], *, called: str = "") -> str:
        """Return a new instance."""
        called = called or f"i-{self.realm}{next(self._numbers):09x}"
        self.by_name[called] = Instance(called, tags=tags)
        return called

    def schedule(self, instance: str, event: Document) -> str:
        """Plan an event; return its name."""
        called = f"instance-event-{self.realm}{next(self._numbers):09x}"
        self.by_name[instance].events[called] = {"InstanceEventId": called, **event}
        return called

    def statuses(self, instances: Sequence[str], *, page: str) -> tuple[list[Document], str]:
        """Return how instances are, whatever their state; how all are, if none is named."""
        if len(instances) > _MOST:
            raise _refused("InvalidParameterValue", f"at most {_MOST} instances can be asked about")
        self._known(instances)
        asked = instances or tuple(self.by_name)
        first = int(page or 0)
        following = first + self.page_size
        found = [self._status(self.by_name[it]) for it in asked[first:following]]
        return found, str(following) if following < len(asked) else ""

    def describe(self, instances: Sequence[str]) -> list[Document]:
        """Return instances with their tags; all, if none is named."""
        self._known(instances)
        return [self._described(self.by_name[it]) for it in instances or tuple(self.by_name)]

    def move(self, instance: str, event: str, *, to: datetime) -> Document:
        """Move an event, if that is allowed."""
        self._known([instance])
        found = self.by_name[instance].events.get(event)
        if found is None:
            raise _refused("InvalidInstanceEventIDNotFound", f"The event ID '{event}' does not exist")
        now, start, deadline = self.clock.now(), found["NotBefore"], found.get("NotBeforeDeadline")
        if deadline is None:
            raise _refused("UnsupportedOperation", f"The event '{event}' cannot be rescheduled")
        if start - now < _TOO_LATE:
            raise _refused("InvalidParameterValue", f"The event '{event}' starts too soon to be rescheduled")
        if not now + _AHEAD <= to <= deadline:
            raise _refused("InvalidParameterValue", f"The event '{event}' cannot be moved to {to}")
        self.by_name[instance].moves.append((now + self.shown_after, event, to))
        return found | {"NotBefore": to}

    def _known(self, instances: Sequence[str]) -> None:
        unknown = [it for it in instances if it not in self.by_name]
        if not unknown:
            return
        several = len(unknown) > 1
        words = ("IDs", "do") if several else ("ID", "does")
        raise _refused(
            "InvalidInstanceID.NotFound", f"The instance {words[0]} '{', '.join(unknown)}' {words[1]} not exist"
        )

    def _status(self, instance: Instance) -> Document:
        now = self.clock.now()
        for at, event, to in instance.moves:
            if at <= now and event in instance.events:
                lasts = to - instance.events[event]["NotBefore"]
                moved = {
                    key: instance.events[event][key] + lasts for key in ("NotAfter",) if key in instance.events[event]
                }
                instance.events[event] = instance.events[event] | {"NotBefore": to} | moved
        instance.moves = [it for it in instance.moves if it[0] > now]
        return {
            "InstanceId": instance.called,
            "AvailabilityZone": _ZONE,
            "InstanceState": _state(instance),
            "Events": list(instance.events.values()),
        }

    def _described(self, instance: Instance) -> Document:
        return {
            "InstanceId": instance.called,
            "PrivateDnsName": f"{instance.called}.ec2.internal",
            "PrivateIpAddress": address_of(instance.called),
            "Placement": {"AvailabilityZone": _ZONE},
            "State": _state(instance),
            "Tags": [{"Key": key, "Value": value} for key, value in instance.tags.items()],
        }


def address_of(instance: str) -> str:
    """Return the private address of an instance."""
    number = int(instance[-6:], 16)
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _state(instance: Instance) -> Document:
    return {"Code": _CODES[instance.state], "Name": instance.state}


def _refused(code: str, message: str) -> CloudError:
    return CloudError(message, doing="EC2", status=_BAD_REQUEST, code=code)
