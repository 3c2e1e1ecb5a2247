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

from haulout.core.backoff import Backoff
from haulout.errors import CloudError, KubeError
from haulout.kinds.notice import MaintenanceNotice, Stage
from haulout.kinds.reports import Report
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.inbox import Inbox
from haulout.notices.sources import news
from haulout.notices.sources.calls import Patient
from haulout.notices.sources.gcp import SOURCE, beginning
from haulout.notices.sources.gcp.compute import NOT_FOUND, Compute, Document, Page, explained, is_busy
from haulout.notices.sources.gcp.joining import is_over, of_absence, of_upcoming
from haulout.notices.sources.gcp.readings import (
    Machine,
    Unreadable,
    Upcoming,
    machine_of,
    place_of,
    upcoming_of,
)
from haulout.notices.sources.gcp.settings import Settings
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

_PAUSE = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.3)
_MOST_PAGES = 1000
_SOON = timedelta(seconds=20)

Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """A machine, and what is planned for it, as of when."""

    machine: Machine
    upcoming: Upcoming | None
    at: datetime


@dataclass(slots=True)
class Listed:
    """What lists showed."""

    seen: dict[Place, Seen] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)  # projects whose lists came to their ends
    missing: set[tuple[str, str]] = field(default_factory=set)  # projects and zones
    odd: set[Place] = field(default_factory=set)  # what is said of them makes no sense
    troubles: list[str] = field(default_factory=list)

    def lacks(self, place: Place) -> bool:
        """Tell whether a machine should have been shown, and was not."""
        is_shown = place in self.seen or place in self.odd
        return place[0] in self.answered and place[:2] not in self.missing and not is_shown


@dataclass(slots=True)
class Round:
    """One look at everything: who is a node, and what notices there are."""

    inbox: Inbox
    nodes: dict[Place, str]
    notices: dict[Place, dict[str, MaintenanceNotice]]

    def of(self, place: Place) -> tuple[MaintenanceNotice, ...]:
        """Return the notices about a machine."""
        return tuple(self.notices.get(place, {}).values())

    def reports(self, place: Place, seen: Seen) -> list[Report]:
        """Return what follows from what was seen."""
        machine, known = seen.machine, self.of(place)
        gone = of_absence(machine.number, known, at=seen.at)
        node = self.nodes.get(place, "")
        return [*gone, *of_upcoming(machine, seen.upcoming, known, at=seen.at, node=node)]

    def is_to_confirm(self, place: Place, reports: Sequence[Report]) -> bool:
        """Tell whether the machine itself has to say it: that something is over, or back."""
        is_back = all(is_over(it) for it in self.of(place)) and bool(self.of(place)) and bool(reports)
        return is_back or any(it.stage in (Stage.CANCELLED, Stage.ENDED) for it in reports)

    def open(self) -> Iterator[Place]:
        """Yield the machines that have notices which are not over."""
        yield from (place for place in self.notices if not all(map(is_over, self.of(place))))


class GcpComputeSource:
    """Maintenance of the machines of projects; somebody else runs the cache of nodes."""

    name = SOURCE
    taken = 0  # there are no messages

    def __init__(self, compute: Compute, *, client: Client, nodes: Cache[Node], settings: Settings) -> None:
        self.quarantine = Quarantine(SOURCE, client.clock)
        self._compute = compute
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._settings = settings
        self._patient = Patient(client.clock, client.random, is_busy=is_busy)
        self._troubles: Sequence[str] = ()
        self._wake = asyncio.Event()

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what Google says."""
        return not self._troubles

    def troubles(self) -> Sequence[str]:
        """Return what keeps it from its work, a line each."""
        return (*self._troubles, *self.quarantine.troubles())

    def silence(self) -> timedelta | None:
        """Return how long ago Google last answered."""
        return self._patient.pulse.ago()

    async def run(self, inbox: Inbox) -> None:
        """Report what Google says, until cancelled."""
        await self._nodes.wait_synced()
        failures = 0
        while True:
            troubles = await self._looked(inbox)
            self._tell(troubles)
            failures = failures + 1 if troubles else 0
            pause = _PAUSE.delay(failures, self._client.random) if failures else self._settings.look_every
            await self._rest(min(pause, self._settings.look_every))

    def look_soon(self) -> None:
        """Look again within some seconds, not only when it is time."""
        self._wake.set()

    async def _rest(self, pause: timedelta) -> None:
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self._wake.wait()
        except TimeoutError:
            return
        await self._clock.sleep(min(_SOON, self._settings.look_every))
        self._wake.clear()

    async def _looked(self, inbox: Inbox) -> Sequence[str]:
        try:
            return await self._look(inbox)
        except KubeError as error:
            return [f"notices cannot be read or written, which is tried again: {error}"]

    def _tell(self, troubles: Sequence[str]) -> None:
        told = [f"{SOURCE}: {it}" for it in dict.fromkeys(troubles)]
        for line in told:
            if line not in self._troubles:
                log.warning("%s", line)
        self._troubles = told

    # One look

    async def _look(self, inbox: Inbox) -> Sequence[str]:
        turn = Round(inbox, _by_place(self._nodes.all()), _grouped(await inbox.of(SOURCE)))
        projects = self._settings.projects or sorted({it[0] for it in (*turn.nodes, *turn.open())})
        listed = await self._list(projects)
        unsure = []
        for place in dict.fromkeys((*turn.nodes, *turn.notices)):
            seen = listed.seen.get(place)
            if seen is None:
                continue
            reports = turn.reports(place, seen)
            if turn.is_to_confirm(place, reports):
                unsure.append(place)
            else:
                await self._take(turn, place, reports)
        unsure += [it for it in turn.open() if listed.lacks(it)]
        for place in unsure:
            await self._confirm(turn, place, listed)
        return listed.troubles

    async def _list(self, projects: Sequence[str]) -> Listed:
        listed = Listed()
        for project in projects:
            try:
                await self._list_project(project, listed)
            except CloudError as error:
                listed.troubles.append(f"Compute does not answer, which is tried again: {explained(error)}")
        return listed

    async def _list_project(self, project: str, listed: Listed) -> None:
        page, doing = "", f"listing instances of {project}"
        for _ in range(_MOST_PAGES):
            at, asking = self._clock.now(), self._page(project, page)
            found = await self._patient.ask(asking, doing=doing)
            for document in found.instances:
                self._see(project, document, listed, at)
            listed.missing |= {(project, zone) for zone in found.missing}
            listed.troubles += [f"{doing}: zone {it} does not answer" for it in found.missing]
            page = found.next
            if not page:
                listed.answered.add(project)
                return
        raise CloudError(f"the list does not end after {_MOST_PAGES} pages", doing=doing)

    def _page(self, project: str, page: str) -> Callable[[], Awaitable[Page]]:
        return lambda: self._compute.instances(project, wanted=self._settings.filter, page=page)

    def _see(self, project: str, document: Document, listed: Listed, at: datetime) -> Seen | None:
        try:
            machine = machine_of(document, project=project)
        except Unreadable as error:
            self.quarantine.put(where=f"instances of {project}", why=str(error), what=document)
            return None
        place = project, machine.zone, machine.name
        try:
            listed.seen[place] = Seen(machine, _upcoming(document), at)
        except Unreadable as error:
            listed.odd.add(place)
            self.quarantine.put(where=f"instance {machine.name}", why=str(error), what=document)
        return listed.seen.get(place)

    async def _confirm(self, turn: Round, place: Place, listed: Listed) -> None:
        """Have the machine itself say what is planned, and that something is over if it is."""
        at, alone = self._clock.now(), Listed()
        try:
            document = await self._patient.ask(
                lambda: self._compute.instance(*place), doing=f"asking for instance {place[2]}"
            )
        except CloudError as error:
            if error.status != NOT_FOUND:
                listed.troubles.append(f"Compute does not answer, which is tried again: {explained(error)}")
            else:
                await self._take(turn, place, list(of_absence("", turn.of(place), at=at)))
            return
        seen = self._see(place[0], document, alone, at)
        if seen is not None:
            await self._take(turn, place, turn.reports(place, seen))

    async def _take(self, turn: Round, place: Place, reports: Sequence[Report]) -> None:
        known = turn.notices.get(place, {})
        for report in reports:
            await news.take(turn.inbox, known.get(report.name), report, self.quarantine)


class BeginningComputeSource(GcpComputeSource):
    """The same, for those who want maintenance to begin as soon as a node is empty: it is a `Starter`."""

    async def begin(self, notice: MaintenanceNotice) -> None:
        """Have a maintenance begin now; raises `CannotMove` if Google says no, `OutsideError` if nothing."""
        await beginning.begin(self._compute, notice, patient=self._patient)
        self.look_soon()


def _upcoming(document: Document) -> Upcoming | None:
    status = document.get("resourceStatus")
    return upcoming_of(status.get("upcomingMaintenance")) if isinstance(status, dict) else None


def _by_place(nodes: Collection[Node]) -> dict[Place, str]:
    """Return nodes by the machines that they say they run on; what several claim is nobody's."""
    found: dict[Place, list[str]] = {}
    for node in nodes:
        place = place_of(node.spec.provider_id)
        if place is not None:
            found.setdefault(place, []).append(node.name)
    return {place: names[0] if len(names) == 1 else "" for place, names in found.items()}


def _grouped(notices: Sequence[MaintenanceNotice]) -> dict[Place, dict[str, MaintenanceNotice]]:
    found: dict[Place, dict[str, MaintenanceNotice]] = {}
    for notice in notices:
        place = place_of(notice.spec.provider_id)
        if place is not None:
            found.setdefault(place, {})[notice.name] = notice
    return found
