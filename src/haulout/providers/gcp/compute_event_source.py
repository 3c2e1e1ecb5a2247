"""The Compute API as a source of notices: every few minutes, all machines of a project that are nodes here.

A list shows what is planned. That something is not planned any more has to be said by the machine itself: it is asked
for by its name before a notice is ended, and so is one that no list shows. A machine that is not found is gone if its
project answered before. An error never says that something is over, nor does a zone that did not answer.

Which projects are looked into is configured, or else said by the nodes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeStage
from haulout.api.notice_reports import NoticeReport
from haulout.api.objects import Node
from haulout.core.backoff import Backoff
from haulout.errors import CloudError, KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers import deduplication
from haulout.providers.gcp import SOURCE, early_start
from haulout.providers.gcp.compute_api import NOT_FOUND, Compute, Document, Page, explain_error, is_retryable
from haulout.providers.gcp.correlation import is_finished, reports_of_missing_machine, reports_of_upcoming
from haulout.providers.gcp.settings import GcpSettings
from haulout.providers.gcp.upcoming_maintenance import (
    Machine,
    UnreadableMaintenance,
    UpcomingMaintenance,
    parse_machine,
    parse_provider_id,
    parse_upcoming,
)
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine
from haulout.providers.retry import Retrier

log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.3)
_MAX_PAGES = 1000
_POLL_SOON_AFTER = timedelta(seconds=20)

InstanceLocation = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Observation:
    """A machine, and what is planned for it, as of when."""

    machine: Machine
    upcoming: UpcomingMaintenance | None
    at: datetime


@dataclass(slots=True)
class Listing:
    """What lists showed."""

    observations: dict[InstanceLocation, Observation] = field(default_factory=dict)
    complete_projects: set[str] = field(default_factory=set)  # projects whose lists came to their ends
    missing_zones: set[tuple[str, str]] = field(default_factory=set)  # projects and zones
    unreadable: set[InstanceLocation] = field(default_factory=set)  # what is said of them makes no sense
    problems: list[str] = field(default_factory=list)

    def is_missing(self, location: InstanceLocation) -> bool:
        """Tell whether a machine should have been shown, and was not."""
        is_listed = location in self.observations or location in self.unreadable
        return location[0] in self.complete_projects and location[:2] not in self.missing_zones and not is_listed


@dataclass(slots=True)
class PollRound:
    """One look at everything: who is a node, and what notices there are."""

    notice_writer: NoticeWriter
    nodes: dict[InstanceLocation, str]
    notices: dict[InstanceLocation, dict[str, MaintenanceNotice]]

    def notices_of(self, location: InstanceLocation) -> tuple[MaintenanceNotice, ...]:
        """Return the notices about a machine."""
        return tuple(self.notices.get(location, {}).values())

    def reports(self, location: InstanceLocation, observation: Observation) -> list[NoticeReport]:
        """Return what follows from what was seen."""
        machine, existing = observation.machine, self.notices_of(location)
        end_reports = reports_of_missing_machine(machine.number, existing, at=observation.at)
        node = self.nodes.get(location, "")
        return [
            *end_reports,
            *reports_of_upcoming(machine, observation.upcoming, existing, at=observation.at, node=node),
        ]

    def needs_confirmation(self, location: InstanceLocation, reports: Sequence[NoticeReport]) -> bool:
        """Tell whether the machine itself has to say it: that something is over, or back."""
        is_announced_again = (
            all(is_finished(item) for item in self.notices_of(location))
            and bool(self.notices_of(location))
            and bool(reports)
        )
        return is_announced_again or any(item.stage in (NoticeStage.CANCELLED, NoticeStage.ENDED) for item in reports)

    def open_locations(self) -> Iterator[InstanceLocation]:
        """Yield the machines that have notices which are not over."""
        yield from (location for location in self.notices if not all(map(is_finished, self.notices_of(location))))


class GcpComputeEventSource:
    """Maintenance of the machines of projects; somebody else runs the cache of nodes."""

    name = SOURCE
    messages_processed = 0  # there are no messages

    def __init__(self, compute: Compute, *, client: Client, nodes: Informer[Node], settings: GcpSettings) -> None:
        self.quarantine = Quarantine(SOURCE, client.clock)
        self._compute = compute
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._settings = settings
        self._retrier = Retrier(client.clock, client.random, is_retryable=is_retryable)
        self._problems: Sequence[str] = ()
        self._wake = asyncio.Event()

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what Google says."""
        return not self._problems

    def problems(self) -> Sequence[str]:
        """Return what keeps it from its work, a line each."""
        return (*self._problems, *self.quarantine.problems())

    def time_since_last_answer(self) -> timedelta | None:
        """Return how long ago Google last answered."""
        return self._retrier.last_answer.age()

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Report what Google says, until cancelled."""
        await self._nodes.wait_synced()
        failures = 0
        while True:
            problems = await self._poll(notice_writer)
            self._set_problems(problems)
            failures = failures + 1 if problems else 0
            pause = _BACKOFF.delay(failures, self._client.random) if failures else self._settings.poll_interval
            await self._wait(min(pause, self._settings.poll_interval))

    def poll_soon(self) -> None:
        """Look again within some seconds, not only when it is time."""
        self._wake.set()

    async def _wait(self, pause: timedelta) -> None:
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self._wake.wait()
        except TimeoutError:
            return
        await self._clock.sleep(min(_POLL_SOON_AFTER, self._settings.poll_interval))
        self._wake.clear()

    async def _poll(self, notice_writer: NoticeWriter) -> Sequence[str]:
        try:
            return await self._poll_once(notice_writer)
        except KubeError as error:
            return [f"notices cannot be read or written, which is tried again: {error}"]

    def _set_problems(self, problems: Sequence[str]) -> None:
        lines = [f"{SOURCE}: {problem}" for problem in dict.fromkeys(problems)]
        for line in lines:
            if line not in self._problems:
                log.warning("%s", line)
        self._problems = lines

    # One look

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
                listing.problems.append(f"Compute does not answer, which is tried again: {explain_error(error)}")
        return listing

    async def _list_project(self, project: str, listing: Listing) -> None:
        page_token, doing = "", f"listing instances of {project}"
        for _ in range(_MAX_PAGES):
            at, request = self._clock.now(), self._page_request(project, page_token)
            found = await self._retrier.call(request, doing=doing)
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
        """Have the machine itself say what is planned, and that something is over if it is."""
        at, single = self._clock.now(), Listing()
        try:
            document = await self._retrier.call(
                lambda: self._compute.instance(*location), doing=f"asking for instance {location[2]}"
            )
        except CloudError as error:
            if error.status != NOT_FOUND:
                listing.problems.append(f"Compute does not answer, which is tried again: {explain_error(error)}")
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
            await deduplication.write_if_changed(
                poll_round.notice_writer, existing.get(report.name), report, self.quarantine
            )


class GcpEarlyStartSource(GcpComputeEventSource):
    """The same, for those who want maintenance to begin as soon as a node is empty: it is a `Starter`."""

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Have a maintenance begin now; raises `CannotMove` if Google says no, `OutsideError` if nothing."""
        await early_start.start_early(self._compute, notice, retrier=self._retrier)
        self.poll_soon()


def _parse_resource_status(document: Document) -> UpcomingMaintenance | None:
    status = document.get("resourceStatus")
    return parse_upcoming(status.get("upcomingMaintenance")) if isinstance(status, dict) else None


def _nodes_by_location(nodes: Collection[Node]) -> dict[InstanceLocation, str]:
    """Return nodes by the machines that they say they run on; what several claim is nobody's."""
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
