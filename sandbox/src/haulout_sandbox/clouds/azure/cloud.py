"""Machines of Azure, what is planned for them, and the metadata service that each of them asks.

All machines of a group see the same document, with the events of all of them. An event begins at its time, or when one
of its machines approves it; it is shown until somebody finishes or cancels it.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.kube.network.plain import Fetched
from haulout_sandbox.clouds.faults import Faults

EVENTS, INSTANCE = "/metadata/scheduledevents", "/metadata/instance"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FORGOTTEN_AFTER = timedelta(days=1)  # without a call scheduled events are switched off
SUBSCRIPTION = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event."""

    event_id: str
    kind: str
    machines: tuple[str, ...]
    group: str
    start: datetime
    seconds: int
    by: str
    description: str
    has_begun: bool = False
    was_approved: bool = False


class AzureCloud:
    """A cloud. `warm_up` is how long the first call of a machine takes, and one after a day without any."""

    def __init__(self, clock: Clock, *, warm_up: timedelta = timedelta(), realm: str = "sandbox") -> None:
        self.clock = clock
        self.faults = Faults(clock)
        self.warm_up = warm_up
        self.events: dict[str, Event] = {}
        self.groups: dict[str, str] = {}  # of machines
        self.approvals: list[tuple[str, str]] = []  # who approved what, in their order
        self._random = Random(realm)
        self._incarnations: dict[str, int] = {}  # by group
        self._called: dict[str, datetime] = {}  # when a machine last asked

    # What happens

    def launch(self, name: str, *, group: str = "default") -> str:
        """Return a new machine of a group."""
        self.groups[name] = group
        self._incarnations.setdefault(group, 1)
        return name

    def delete(self, name: str) -> None:
        """Have a machine gone."""
        self.groups.pop(name, None)

    def schedule(
        self,
        machines: Sequence[str],
        kind: str,
        *,
        start: datetime,
        seconds: int = -1,
        by: str = "Platform",
        description: str = "Host server is undergoing maintenance.",
    ) -> str:
        """Plan an event for machines of one group; return its id."""
        group = self.groups[machines[0]]
        event_id = str(uuid.UUID(int=self._random.getrandbits(128), version=4)).upper()
        self._put(
            Event(
                event_id=event_id,
                kind=kind,
                machines=tuple(machines),
                group=group,
                start=start.replace(microsecond=0),
                seconds=seconds,
                by=by,
                description=description,
            )
        )
        return event_id

    def fail(self, machine: str) -> str:
        """Have the host of a machine fail: its event has begun when it is first seen."""
        event = self.schedule([machine], "Reboot", start=self.clock.now(), description="Host server has failed.")
        self.begin(event)
        return event

    def reschedule(self, event_id: str, start: datetime) -> None:
        """Move an event."""
        self._put(replace(self.events[event_id], start=start.replace(microsecond=0)))

    def begin(self, event_id: str) -> None:
        """Begin an event; nothing happens if it has."""
        if not self.events[event_id].has_begun:
            self._put(replace(self.events[event_id], has_begun=True))

    def finish(self, event_id: str) -> None:
        """Have an event over, or called off: it is not shown any more."""
        gone = self.events.pop(event_id, None)
        if gone is not None:
            self._incarnations[gone.group] += 1

    def _put(self, event: Event) -> None:
        self.events[event.event_id] = event
        self._incarnations[event.group] += 1

    # What a machine asks

    def metadata(self, machine: str) -> "Metadata":
        """Return how a machine asks its metadata service."""
        return Metadata(self, machine)

    async def answer(
        self, machine: str, method: str, target: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> Fetched:
        """Answer a machine; raises `CloudError` with the status 0 where no answer comes."""
        path, _, query = target.partition("?")
        operation = {(EVENTS, "GET"): "GetEvents", (EVENTS, "POST"): "Approve", (INSTANCE, "GET"): "GetInstance"}.get(
            (path, method), "Unknown"
        )
        if operation == "GetEvents":
            await self._warm_up(machine)
        named = {name.lower(): value for name, value in headers.items()}
        try:
            return await self.faults.call(
                operation, lambda: self._answered(machine, operation, query, headers=named, body=body)
            )
        except CloudError as error:
            if not error.status:
                raise
            pause = {} if error.retry_after is None else {"retry-after": f"{error.retry_after.total_seconds():.0f}"}
            return Fetched(error.status, pause, error.message.encode())

    async def _warm_up(self, machine: str) -> None:
        now = self.clock.now()
        last = self._called.get(machine)
        if last is None or now - last > _FORGOTTEN_AFTER:
            await self.clock.sleep(self.warm_up)
        self._called[machine] = self.clock.now()

    def _answered(
        self, machine: str, operation: str, query: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> Fetched:
        if headers.get("metadata", "").lower() != "true":
            return _refused("Required metadata header not specified")
        if machine not in self.groups or operation == "Unknown":
            return Fetched(404, {}, b'{"error": "Not found"}')
        if "api-version=" not in query:
            return _refused("Bad request. api-version is invalid or was not specified in the request.")
        match operation:
            case "GetInstance":
                return _json(_instance(machine, self.groups[machine]))
            case "Approve":
                return self._approved(machine, body or b"")
        return _json(self.document(machine))

    def document(self, machine: str) -> dict[str, Any]:
        """Return what a machine is shown."""
        group = self.groups[machine]
        for event in [it for it in self.events.values() if it.group == group]:
            if self.clock.now() >= event.start:
                self.begin(event.event_id)
        events = [_shown(it) for it in self.events.values() if it.group == group]
        return {"DocumentIncarnation": self._incarnations[group], "Events": events}

    def _approved(self, machine: str, body: bytes) -> Fetched:
        try:
            wanted = [it["EventId"] for it in msgspec.json.decode(body)["StartRequests"]]
        except (msgspec.DecodeError, KeyError, TypeError):
            return _refused("The request is malformed")
        group = self.groups[machine]
        if not all(it in self.events and self.events[it].group == group for it in wanted):
            return _refused("There is no such event")
        for event_id in wanted:
            self.approvals.append((machine, event_id))
            self.begin(event_id)
            self.events[event_id] = replace(self.events[event_id], was_approved=True)
        return Fetched(200, {}, b"")


class Metadata:
    """The metadata service of one machine."""

    def __init__(self, cloud: AzureCloud, machine: str) -> None:
        self._cloud = cloud
        self._machine = machine

    async def __call__(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = timedelta(seconds=10),
    ) -> Fetched:
        """Answer, within a time."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                return await self._cloud.answer(self._machine, method, target, headers=headers, body=body)
        except TimeoutError:
            raise CloudError(f"no answer within {within.total_seconds():g} s", doing=f"{method} {target}") from None


def _shown(event: Event) -> dict[str, Any]:
    return {
        "EventId": event.event_id,
        "EventStatus": "Started" if event.has_begun else "Scheduled",
        "EventType": event.kind,
        "ResourceType": "VirtualMachine",
        "Resources": list(event.machines),
        "NotBefore": "" if event.has_begun else written(event.start),
        "Description": event.description,
        "EventSource": event.by,
        "DurationInSeconds": event.seconds,
    }


def written(at: datetime) -> str:
    """Return an instant as RFC 1123 has it."""
    return f"{_DAYS[at.weekday()]}, {at.day:02} {_MONTHS[at.month - 1]} {at.year} {at:%H:%M:%S} GMT"


def _instance(machine: str, group: str) -> dict[str, Any]:
    where = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/sandbox/providers/Microsoft.Compute"
    compute = {
        "azEnvironment": "AzurePublicCloud",
        "location": "westeurope",
        "name": machine,
        "resourceGroupName": "sandbox",
        "resourceId": f"{where}/virtualMachines/{machine}",
        "subscriptionId": SUBSCRIPTION,
        "vmScaleSetName": group,
        "vmSize": "Standard_D4s_v5",
    }
    return {"compute": compute, "network": {"interface": []}}


def _json(found: object) -> Fetched:
    return Fetched(200, {"content-type": "application/json"}, msgspec.json.encode(found))


def _refused(why: str) -> Fetched:
    return Fetched(400, {"content-type": "application/json"}, msgspec.json.encode({"error": why}))
