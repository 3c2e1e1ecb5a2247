"""Azure machines, their scheduled events, and their metadata services.

All machines of a group see the same document, with the events of all of them. An event starts at its time, or when one
of its machines approves it. It is shown until it ends or is cancelled.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.kube.transports.h11_client import FetchedResponse
from haulout_sandbox.clouds.faults import Faults
from haulout_sandbox.clouds.metadata_fetch import MetadataFetch

EVENTS_PATH, INSTANCE_PATH = "/metadata/scheduledevents", "/metadata/instance"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_COLD_AFTER = timedelta(days=1)  # without a request for this long, Azure disables scheduled events
SUBSCRIPTION = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledEvent:
    event_id: str
    event_type: str
    machines: tuple[str, ...]
    group: str
    start: datetime
    duration_seconds: int
    source: str
    description: str
    has_started: bool = False
    was_approved: bool = False


class AzureCloud:
    """An Azure cloud. `warm_up` is how long the first request of a machine takes, and one after a day without any."""

    def __init__(self, clock: Clock, *, warm_up: timedelta = timedelta(), id_seed: str = "sandbox") -> None:
        self.clock = clock
        self.faults = Faults(clock)
        self.warm_up = warm_up
        self.events: dict[str, ScheduledEvent] = {}
        self.groups: dict[str, str] = {}  # groups of machines
        self.approvals: list[tuple[str, str]] = []  # machine and event of each approval, in order
        self._random = Random(id_seed)
        self._incarnations: dict[str, int] = {}  # by group
        self._last_called: dict[str, datetime] = {}  # the last request of each machine

    # Simulated events

    def launch(self, name: str, *, group: str = "default") -> str:
        """Add a machine to a group; return its name."""
        self.groups[name] = group
        self._incarnations.setdefault(group, 1)
        return name

    def delete(self, name: str) -> None:
        self.groups.pop(name, None)

    def schedule(
        self,
        machines: Sequence[str],
        event_type: str,
        *,
        start: datetime,
        duration_seconds: int = -1,
        source: str = "Platform",
        description: str = "Host server is undergoing maintenance.",
    ) -> str:
        """Schedule an event for machines of one group; return its id."""
        group = self.groups[machines[0]]
        event_id = str(uuid.UUID(int=self._random.getrandbits(128), version=4)).upper()
        self._store_event(
            ScheduledEvent(
                event_id=event_id,
                event_type=event_type,
                machines=tuple(machines),
                group=group,
                start=start.replace(microsecond=0),
                duration_seconds=duration_seconds,
                source=source,
                description=description,
            )
        )
        return event_id

    def fail_host(self, machine: str) -> str:
        """Fail the host of a machine: the event has already started when it is first shown."""
        event = self.schedule([machine], "Reboot", start=self.clock.now(), description="Host server has failed.")
        self.start_event(event)
        return event

    def reschedule(self, event_id: str, start: datetime) -> None:
        self._store_event(replace(self.events[event_id], start=start.replace(microsecond=0)))

    def start_event(self, event_id: str) -> None:
        """Start an event, if it has not started."""
        if not self.events[event_id].has_started:
            self._store_event(replace(self.events[event_id], has_started=True))

    def remove_event(self, event_id: str) -> None:
        """End or cancel an event, so that it is no longer shown."""
        removed = self.events.pop(event_id, None)
        if removed is not None:
            self._incarnations[removed.group] += 1

    def _store_event(self, event: ScheduledEvent) -> None:
        self.events[event.event_id] = event
        self._incarnations[event.group] += 1

    # Requests of machines

    def metadata(self, machine: str) -> MetadataFetch:
        """Return a client of the machine's metadata service."""
        return MetadataFetch(
            lambda method, target, headers, body: self.handle(machine, method, target, headers=headers, body=body)
        )

    async def handle(
        self, machine: str, method: str, target: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> FetchedResponse:
        """Answer a request of a machine; raise `CloudError` with status 0 if no response arrives."""
        path, _, query = target.partition("?")
        operation = {
            (EVENTS_PATH, "GET"): "GetEvents",
            (EVENTS_PATH, "POST"): "Approve",
            (INSTANCE_PATH, "GET"): "GetInstance",
        }.get((path, method), "Unknown")
        if operation == "GetEvents":
            await self._wait_for_warm_up(machine)
        lower_headers = {name.lower(): value for name, value in headers.items()}
        try:
            return await self.faults.call(
                operation, lambda: self._respond(machine, operation, query, headers=lower_headers, body=body)
            )
        except CloudError as error:
            if not error.status:
                raise
            retry_headers = (
                {} if error.retry_after is None else {"retry-after": f"{error.retry_after.total_seconds():.0f}"}
            )
            return FetchedResponse(error.status, retry_headers, error.message.encode())

    async def _wait_for_warm_up(self, machine: str) -> None:
        now = self.clock.now()
        last_called = self._last_called.get(machine)
        if last_called is None or now - last_called > _COLD_AFTER:
            await self.clock.sleep(self.warm_up)
        self._last_called[machine] = self.clock.now()

    def _respond(
        self, machine: str, operation: str, query: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> FetchedResponse:
        if headers.get("metadata", "").lower() != "true":
            return _bad_request("Required metadata header not specified")
        if machine not in self.groups or operation == "Unknown":
            return FetchedResponse(404, {}, b'{"error": "Not found"}')
        if "api-version=" not in query:
            return _bad_request("Bad request. api-version is invalid or was not specified in the request.")
        match operation:
            case "GetInstance":
                return _json_response(_instance_document(machine, self.groups[machine]))
            case "Approve":
                return self._approve(machine, body or b"")
        return _json_response(self.events_document(machine))

    def events_document(self, machine: str) -> dict[str, Any]:
        """Return the document that a machine sees."""
        group = self.groups[machine]
        for event in [candidate for candidate in self.events.values() if candidate.group == group]:
            if self.clock.now() >= event.start:
                self.start_event(event.event_id)
        events = [_event_document(candidate) for candidate in self.events.values() if candidate.group == group]
        return {"DocumentIncarnation": self._incarnations[group], "Events": events}

    def _approve(self, machine: str, body: bytes) -> FetchedResponse:
        try:
            event_ids = [element["EventId"] for element in msgspec.json.decode(body)["StartRequests"]]
        except (msgspec.DecodeError, KeyError, TypeError):
            return _bad_request("The request is malformed")
        group = self.groups[machine]
        if not all(element in self.events and self.events[element].group == group for element in event_ids):
            return _bad_request("There is no such event")
        for event_id in event_ids:
            self.approvals.append((machine, event_id))
            self.start_event(event_id)
            self.events[event_id] = replace(self.events[event_id], was_approved=True)
        return FetchedResponse(200, {}, b"")


def _event_document(event: ScheduledEvent) -> dict[str, Any]:
    return {
        "EventId": event.event_id,
        "EventStatus": "Started" if event.has_started else "Scheduled",
        "EventType": event.event_type,
        "ResourceType": "VirtualMachine",
        "Resources": list(event.machines),
        "NotBefore": "" if event.has_started else format_rfc1123(event.start),
        "Description": event.description,
        "EventSource": event.source,
        "DurationInSeconds": event.duration_seconds,
    }


def format_rfc1123(at: datetime) -> str:
    return f"{_DAYS[at.weekday()]}, {at.day:02} {_MONTHS[at.month - 1]} {at.year} {at:%H:%M:%S} GMT"


def _instance_document(machine: str, group: str) -> dict[str, Any]:
    prefix = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/sandbox/providers/Microsoft.Compute"
    compute = {
        "azEnvironment": "AzurePublicCloud",
        "location": "westeurope",
        "name": machine,
        "resourceGroupName": "sandbox",
        "resourceId": f"{prefix}/virtualMachines/{machine}",
        "subscriptionId": SUBSCRIPTION,
        "vmScaleSetName": group,
        "vmSize": "Standard_D4s_v5",
    }
    return {"compute": compute, "network": {"interface": []}}


def _json_response(document: object) -> FetchedResponse:
    return FetchedResponse(200, {"content-type": "application/json"}, msgspec.json.encode(document))


def _bad_request(message: str) -> FetchedResponse:
    return FetchedResponse(400, {"content-type": "application/json"}, msgspec.json.encode({"error": message}))
