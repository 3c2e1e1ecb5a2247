"""The Compute API as an event source: polls all machines of a project that are nodes of this cluster.

A list shows what is planned. Before a notice is ended, the machine is read individually, and so is a machine with a
notice that is missing from the list. A machine that is not found counts as deleted if its project responded before.
Neither an error nor a zone that did not respond ends a notice. The projects are configured, or taken from the provider
IDs of nodes.

`start_early` begins a maintenance early, once its node is empty: performMaintenance. Google's `canReschedule` means
that the maintenance may begin at once. It can never be moved to a later time. The current state is read first: a
maintenance that has begun needs no call, and what Google would refuse is refused with a better message. The request ID
is derived from the notice and its start, so that a repeated call is harmless. The operation is awaited for a short
time, since it may fail at once; one that is still running counts as agreed, and may take as long as the maintenance.
"""

import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeStage, is_finished
from haulout.api.notice_reports import NoticeReport
from haulout.api.objects import Node
from haulout.core.backoff import POLL_FAILED
from haulout.core.retry import Retry
from haulout.core.timeouts import await_with_timeout
from haulout.errors import CloudError, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.cloud_calls import CloudCaller
from haulout.providers.event_source import BaseEventSource
from haulout.providers.gcp import SOURCE
from haulout.providers.gcp.compute_api import NOT_FOUND, Compute, Document, Page, explain_error, is_retryable
from haulout.providers.gcp.correlation import (
    is_planned_ahead,
    reports_of_missing_machine,
    reports_of_upcoming,
)
from haulout.providers.gcp.settings import GcpSettings
from haulout.providers.gcp.upcoming_maintenance import (
    UnreadableMaintenance,
    UpcomingMaintenance,
    VirtualMachine,
    parse_machine,
    parse_provider_id,
    parse_upcoming,
)
from haulout.providers.notice_writer import NoticeWriter, write_if_changed
from haulout.providers.poller import Poller

log = logging.getLogger(__name__)

_MAX_PAGES = 1000
_POLL_SOON_AFTER = timedelta(seconds=20)

InstanceLocation = tuple[str, str, str]

_REQUEST_NAMESPACE = uuid.UUID("7d1c6f0e-52a0-4a55-9b0c-6f3f0f5a3f5e")  # arbitrary, but must never change
_OPERATION_TIMEOUT = timedelta(seconds=60)
_UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class Observation:
    """A machine, its planned maintenance, and when it was read."""

    machine: VirtualMachine
    upcoming: UpcomingMaintenance | None
    at: datetime


@dataclass(slots=True)
class Listing:
    """The result of listing projects, and what is missing from it.

    Only a complete list shows that a machine is gone.
    """

    observations: dict[InstanceLocation, Observation] = field(default_factory=dict)
    complete_projects: set[str] = field(default_factory=set)  # projects whose list was read completely
    missing_zones: set[tuple[str, str]] = field(default_factory=set)  # project and zone
    unreadable: set[InstanceLocation] = field(default_factory=set)  # machines whose maintenance could not be parsed
    problems: list[str] = field(default_factory=list)

    def is_missing(self, location: InstanceLocation) -> bool:
        """Return whether a machine is missing from a list that was read completely."""
        is_listed = location in self.observations or location in self.unreadable
        return location[0] in self.complete_projects and location[:2] not in self.missing_zones and not is_listed


@dataclass(slots=True)
class PollRound:
    """The nodes and notices of one poll."""

    notice_writer: NoticeWriter
    nodes: dict[InstanceLocation, str]
    notices: dict[InstanceLocation, dict[str, MaintenanceNotice]]

    def notices_of(self, location: InstanceLocation) -> tuple[MaintenanceNotice, ...]:
        return tuple(self.notices.get(location, {}).values())

    def reports(self, location: InstanceLocation, observation: Observation) -> list[NoticeReport]:
        """Return the reports that follow from an observation."""
        machine, existing = observation.machine, self.notices_of(location)
        end_reports = reports_of_missing_machine(machine.number, existing, at=observation.at)
        node = self.nodes.get(location, "")
        return [
            *end_reports,
            *reports_of_upcoming(machine, observation.upcoming, existing, at=observation.at, node=node),
        ]

    def needs_confirmation(self, location: InstanceLocation, reports: Sequence[NoticeReport]) -> bool:
        """Return whether the machine must be read individually: a maintenance ended, or reappeared."""
        is_announced_again = (
            all(is_finished(item) for item in self.notices_of(location))
            and bool(self.notices_of(location))
            and bool(reports)
        )
        return is_announced_again or any(item.stage in (NoticeStage.CANCELLED, NoticeStage.ENDED) for item in reports)

    def open_locations(self) -> Iterator[InstanceLocation]:
        """Yield the machines that have open notices."""
        yield from (location for location in self.notices if not all(map(is_finished, self.notices_of(location))))


class GcpComputeEventSource(BaseEventSource):
    """Polls the maintenance of machines in projects. The caller runs the node informer."""

    def __init__(self, compute: Compute, *, client: Client, nodes: Informer[Node], settings: GcpSettings) -> None:
        super().__init__(SOURCE, client.clock)
        self._compute = compute
        self._clock = client.clock
        self._nodes = nodes
        self._settings = settings
        self._caller = CloudCaller(
            client.clock, client.random, is_retryable=is_retryable, last_answer=self._last_answer
        )
        self._poller = Poller(
            Retry(client.clock, client.random, POLL_FAILED.up_to(settings.poll_interval)),
            self._current_problems,
            failure="Compute Engine does not answer",
            interval=lambda: settings.poll_interval,
            wake_delay=min(_POLL_SOON_AFTER, settings.poll_interval),
        )

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write Google's maintenance as notices, until cancelled."""
        await self._nodes.wait_synced()
        await self._poller.run(lambda: self._poll_once(notice_writer))

    def poll_soon(self) -> None:
        """Poll again within seconds instead of after the poll interval."""
        self._poller.wake()

    # Poll

    async def _poll_once(self, notice_writer: NoticeWriter) -> Sequence[str]:
        poll_round = PollRound(
            notice_writer,
            _nodes_by_location(self._nodes.all()),
            _notices_by_location(await notice_writer.list_by_source(SOURCE)),
        )
        projects = self._settings.projects or sorted(
            {item[0] for item in (*poll_round.nodes, *poll_round.open_locations())}
        )
        listing = await self._list(projects)
        to_confirm = []
        for location in dict.fromkeys((*poll_round.nodes, *poll_round.notices)):
            observation = listing.observations.get(location)
            if observation is None:
                continue
            reports = poll_round.reports(location, observation)
            if poll_round.needs_confirmation(location, reports):
                to_confirm.append(location)
            else:
                await self._write(poll_round, location, reports)
        to_confirm += [item for item in poll_round.open_locations() if listing.is_missing(item)]
        for location in to_confirm:
            await self._confirm(poll_round, location, listing)
        return listing.problems

    async def _list(self, projects: Sequence[str]) -> Listing:
        listing = Listing()
        for project in projects:
            try:
                await self._list_project(project, listing)
            except CloudError as error:
                listing.problems.append(f"Compute Engine does not answer, retrying: {explain_error(error)}")
        return listing

    async def _list_project(self, project: str, listing: Listing) -> None:
        page_token, doing = "", f"listing instances of {project}"
        for _ in range(_MAX_PAGES):
            at, request = self._clock.now(), self._page_request(project, page_token)
            found = await self._caller.call(request, doing=doing)
            for document in found.instances:
                self._observe(project, document, listing, at)
            listing.missing_zones |= {(project, zone) for zone in found.missing_zones}
            listing.problems += [f"{doing}: zone {zone_name} does not answer" for zone_name in found.missing_zones]
            page_token = found.next_page_token
            if not page_token:
                listing.complete_projects.add(project)
                return
        raise CloudError(f"the list does not end after {_MAX_PAGES} pages", doing=doing)

    def _page_request(self, project: str, page_token: str) -> Callable[[], Awaitable[Page]]:
        return lambda: self._compute.instances(project, filter_expression=self._settings.filter, page_token=page_token)

    def _observe(self, project: str, document: Document, listing: Listing, at: datetime) -> Observation | None:
        try:
            machine = parse_machine(document, project=project)
        except UnreadableMaintenance as error:
            self.quarantine.add(where=f"instances of {project}", why=str(error), what=document)
            return None
        location = project, machine.zone, machine.name
        try:
            listing.observations[location] = Observation(machine, _parse_resource_status(document), at)
        except UnreadableMaintenance as error:
            listing.unreadable.add(location)
            self.quarantine.add(where=f"instance {machine.name}", why=str(error), what=document)
        return listing.observations.get(location)

    async def _confirm(self, poll_round: PollRound, location: InstanceLocation, listing: Listing) -> None:
        """Read a machine individually, and write what follows, including the end of a maintenance."""
        at, single = self._clock.now(), Listing()
        try:
            document = await self._caller.call(
                lambda: self._compute.instance(*location), doing=f"asking for instance {location[2]}"
            )
        except CloudError as error:
            if error.status != NOT_FOUND:
                listing.problems.append(f"Compute Engine does not answer, retrying: {explain_error(error)}")
            else:
                await self._write(
                    poll_round, location, list(reports_of_missing_machine("", poll_round.notices_of(location), at=at))
                )
            return
        observation = self._observe(location[0], document, single, at)
        if observation is not None:
            await self._write(poll_round, location, poll_round.reports(location, observation))

    async def _write(self, poll_round: PollRound, location: InstanceLocation, reports: Sequence[NoticeReport]) -> None:
        existing = poll_round.notices.get(location, {})
        for report in reports:
            await write_if_changed(poll_round.notice_writer, existing.get(report.name), report, self.quarantine)


class GcpEarlyStartSource(GcpComputeEventSource):
    """A `GcpComputeEventSource` that can also begin maintenance early."""

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Ask Google to begin now; return once it has agreed.

        Raise `RescheduleRefused` if it refuses, and another `ExternalError` if it does not answer.
        """
        await start_early(self._compute, notice, caller=self._caller)
        self.poll_soon()


def _parse_resource_status(document: Document) -> UpcomingMaintenance | None:
    status = document.get("resourceStatus")
    return parse_upcoming(status.get("upcomingMaintenance")) if isinstance(status, dict) else None


def _nodes_by_location(nodes: Collection[Node]) -> dict[InstanceLocation, str]:
    """Return the node of each machine; empty if several nodes claim the machine."""
    found: dict[InstanceLocation, list[str]] = {}
    for node in nodes:
        location = parse_provider_id(node.spec.provider_id)
        if location is not None:
            found.setdefault(location, []).append(node.name)
    return {location: names[0] if len(names) == 1 else "" for location, names in found.items()}


def _notices_by_location(notices: Sequence[MaintenanceNotice]) -> dict[InstanceLocation, dict[str, MaintenanceNotice]]:
    found: dict[InstanceLocation, dict[str, MaintenanceNotice]] = {}
    for notice in notices:
        location = parse_provider_id(notice.spec.provider_id)
        if location is not None:
            found.setdefault(location, {})[notice.name] = notice
    return found


async def start_early(compute: Compute, notice: MaintenanceNotice, *, caller: CloudCaller) -> None:
    """Return once Google has agreed; raise `RescheduleRefused` if it refuses, `CloudError` if it does not answer."""
    location = parse_provider_id(notice.spec.provider_id)
    if location is None:
        raise RescheduleRefused(
            f"{notice.name}: {notice.spec.provider_id or 'nothing'} is not an instance of Google Cloud"
        )
    if not is_planned_ahead(notice):
        raise RescheduleRefused(f"{notice.name}: it begins at once anyway; only planned maintenance can begin early")
    try:
        document = await caller.call(lambda: compute.instance(*location), doing=f"asking for instance {location[2]}")
        if _has_started(notice, *_parse_instance(notice, document, project=location[0])):
            return
        operation = await caller.call(
            lambda: compute.perform_maintenance(*location, request_id=_request_id(notice)),
            doing=f"beginning {notice.name}",
        )
        problem = _operation_error(await _wait_for_operation(compute, location, operation))
    except CloudError as error:
        if is_retryable(error) or error.status == _UNAUTHORIZED:
            raise
        raise RescheduleRefused(f"{notice.name}: {explain_error(error)}") from error
    if problem:
        raise RescheduleRefused(f"{notice.name}: Google does not begin it: {problem}")


def _parse_instance(
    notice: MaintenanceNotice, document: Document, *, project: str
) -> tuple[VirtualMachine, UpcomingMaintenance | None]:
    status = document.get("resourceStatus")
    try:
        upcoming = parse_upcoming(status.get("upcomingMaintenance") if isinstance(status, Mapping) else None)
        return parse_machine(document, project=project), upcoming
    except UnreadableMaintenance as error:
        raise RescheduleRefused(f"{notice.name}: the instance data of Google cannot be read: {error}") from error


def _has_started(notice: MaintenanceNotice, machine: VirtualMachine, upcoming: UpcomingMaintenance | None) -> bool:
    if not notice.spec.notice_id.startswith(f"{machine.number}-"):
        raise RescheduleRefused(f"{notice.name}: the machine is gone, and another has its name")
    if upcoming is None or upcoming.stage is NoticeStage.ENDED:
        raise RescheduleRefused(f"{notice.name}: Google plans no maintenance of {machine.name} any more")
    if upcoming.stage is NoticeStage.STARTED:
        return True
    if not upcoming.can_start_early:
        raise RescheduleRefused(f"{notice.name}: Google does not let it begin early")
    return False


def _request_id(notice: MaintenanceNotice) -> str:
    start = notice.spec.start
    return str(uuid.uuid5(_REQUEST_NAMESPACE, f"{notice.uid} {'' if start is None else start.isoformat()}"))


async def _wait_for_operation(compute: Compute, location: tuple[str, str, str], operation: Document) -> Document:
    """Return the finished operation; if it does not finish in time, return it as it was."""
    if operation.get("status") == "DONE" or not operation.get("name"):
        return operation
    project, zone, _ = location
    pending = compute.operation(project, zone, str(operation["name"]))
    try:
        return await await_with_timeout(pending, doing="waiting for the operation", within=_OPERATION_TIMEOUT)
    except CloudError as error:
        # The request was accepted. Whether the operation can be read says nothing about the maintenance.
        if error.status in (0, NOT_FOUND) or is_retryable(error):
            return operation
        raise


def _operation_error(operation: Document) -> str:
    failed = operation.get("error")
    errors = failed.get("errors") if isinstance(failed, Mapping) else None
    messages = [item.get("message") or item.get("code") for item in errors or () if isinstance(item, Mapping)]
    return "; ".join(str(item) for item in messages if item) or str(operation.get("httpErrorMessage") or "")
