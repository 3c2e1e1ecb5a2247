"""Maintenance notices under the operator: their controller, and the sources that listen to clouds.

Only the leader sees to them, wherever the definition of MaintenanceNotice is installed, or as soon as it is. Without a
source that is still of use: people and other tools write notices as well.

The controller and each source are parts of their own (`haulout.app.parts`): should one break it is started again by
itself, and the others go on. A source that starts again is made anew, as a successor would make it; what it needs to go
on is in the notices, and in what the cloud has not been told to forget. No source listens before notices can be
written: what it heard could not be kept.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from haulout.app.announcing import Announcer
from haulout.app.aside import Aside
from haulout.app.notice_tallies import NoticeTallies
from haulout.app.parts import Part
from haulout.app.short_notices import lease_suggestion
from haulout.core.metering import Histogram, Tally
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.lease_timing import LeaseTiming
from haulout.kube.objects import Node
from haulout.notices.controller import By, Controller
from haulout.notices.inbox import Inbox
from haulout.notices.sources import Mover, Source, Starter
from haulout.profiles.words import counted

log = logging.getLogger(__name__)

Sources = Callable[[Client, Cache[Node]], Sequence[Source]]
"""Makes all sources there are, always as many and in the same order; nothing is connected yet when it returns."""


def no_sources(client: Client, nodes: Cache[Node]) -> Sequence[Source]:
    """Listen to nobody."""
    del client, nodes
    return ()


@dataclass(slots=True)
class Listening:
    """A source: the part that runs it, and how it stands."""

    source: Source
    aside: Aside
    runs: bool = False
    part: Part = field(init=False)

    def __post_init__(self) -> None:
        self.part = Part(f"source {self.name}")

    @property
    def name(self) -> str:
        """What `spec.source` of its notices says."""
        return self.source.name

    def troubles(self) -> Sequence[str]:
        """Return what keeps it from its work, and what it could not read."""
        broken = (self.part.trouble,) if self.part.trouble else ()
        return (*broken, *(self.source.troubles() if self.runs else ()))

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what its cloud says."""
        return self.runs and self.source.is_up


@dataclass(slots=True)
class Notices:
    """What notices need, and what is known while we see to them. It outlives our leadership."""

    sources: Sources = no_sources
    controller: Controller | None = None  # while we see to them, and not another
    listening: tuple[Listening, ...] = ()  # the same
    first: asyncio.Event = field(default_factory=asyncio.Event)  # set once there is a notice
    leases: LeaseTiming = field(default_factory=LeaseTiming)  # under which this replica leads
    hearers: list[Callable[[str], None]] = field(default_factory=list)  # called with the name of each that changed
    suggested: set[str] = field(default_factory=set)  # what was logged about these
    tallies: NoticeTallies = field(default_factory=NoticeTallies)
    part: Part = field(default_factory=partial(Part, "notices"))
    hearing: Part = field(default_factory=partial(Part, "listening to clouds"))

    def source(self, name: str) -> Source | None:
        """Return the source of notices that say this, if it runs here."""
        return next((it.source for it in self.listening if it.name == name and it.runs), None)

    def mover(self, name: str) -> Mover | None:
        """Return the same source, if its cloud can be asked for another time."""
        source = self.source(name)
        return source if isinstance(source, Mover) else None

    def starter(self, name: str) -> Starter | None:
        """Return the same source, if its cloud can be told to begin."""
        source = self.source(name)
        return source if isinstance(source, Starter) else None

    def troubles(self) -> tuple[str, ...]:
        """Return what somebody should look after."""
        obstacle, is_bad = self._obstacle()
        waits = (f"notices wait: {obstacle}",) if is_bad else ()
        broken = tuple(it.trouble for it in (self.part, self.hearing) if it.trouble)
        sources = tuple(line for it in self.listening for line in it.troubles())
        return (*(broken or waits), *self._left_out(), *self._suggested(), *sources)

    def suggest_leases_for(self, *sources: str) -> None:
        """Log, once, that leases should be shorter, if they should for notices of these sources."""
        found = lease_suggestion(self.leases, sources)
        if found and found not in self.suggested:
            self.suggested.add(found)
            log.warning("%s", found)

    def told(self) -> Iterator[str]:
        """Yield how it stands, a line each, with a plus if that is good and a minus if it is not."""
        obstacle, is_bad = self._obstacle()
        if self.controller is None:
            bad = self.part.trouble
            yield f"[-] notices: {bad}" if bad else "[+] notices: this replica does not see to them; the leader does"
        elif obstacle:
            yield f"[{'-' if is_bad else '+'}] notices: {obstacle}"
        else:
            yield f"[+] notices: this replica sees to {counted(len(self.controller.notices), 'notice')}"
        for it in self.listening:
            bad = next(iter(it.troubles()), "")
            good = "this replica listens" if it.runs else "it waits until notices can be written"
            yield f"[-] source {it.name}: {bad}" if bad else f"[+] source {it.name}: {good}"

    def counted(self) -> Iterator[Tally | Histogram]:
        """Yield all numbers, as they are now."""
        notices = () if self.controller is None else self.controller.notices.all()
        running = [it.source for it in self.listening if it.runs]
        self.tallies.look(notices, running=running, up={it.name: it.is_up for it in self.listening})
        yield from self.tallies.all()

    def _suggested(self) -> Iterator[str]:
        """Yield how leases should be shorter, for what is listened to and what there are notices of."""
        notices = () if self.controller is None else self.controller.notices.all()
        sources = {*(it.name for it in self.listening), *(it.spec.source for it in notices)}
        if found := lease_suggestion(self.leases, sources):
            yield found

    def _left_out(self) -> Iterator[str]:
        misfits = {} if self.controller is None else self.controller.notices.misfits
        for name, problem in misfits.items():
            more = "" if len(misfits) == 1 else f" (and {len(misfits) - 1} more)"
            yield f"notice {name} is left out, as it does not fit its kind{more}: {problem}"
            return

    def _obstacle(self) -> tuple[str, bool]:
        """Return why notices cannot be read, and whether that is bad: who wants none need not install any."""
        if self.controller is None:
            return "", False
        health = self.controller.notices.health()
        if health.is_missing:
            missing = f"{MAINTENANCE_NOTICES.kind} is not installed; `haulout manifests --crds-only` has it"
            return missing, bool(self.listening)
        if health.problem:
            return health.problem, True
        return "" if health.synced else "they are being read", False


async def see_to_notices(
    client: Client,
    notices: Notices,
    *,
    events: EventRecorder,
    nodes: Cache[Node],
    announcer: Announcer,
    by: By,
) -> None:
    """See to notices, and listen to all sources, until cancelled; others run `events` and `nodes`."""
    seeing = _Seeing(client, notices, events=events, nodes=nodes, announcer=announcer, by=by)
    async with asyncio.TaskGroup() as group:
        group.create_task(notices.part.run(seeing.control, client=client, tell=seeing.tell))
        group.create_task(notices.hearing.run(seeing.listen, client=client, tell=seeing.tell))


class _Seeing:
    """Sees to notices for as long as we lead."""

    def __init__(
        self,
        client: Client,
        notices: Notices,
        *,
        events: EventRecorder,
        nodes: Cache[Node],
        announcer: Announcer,
        by: By,
    ) -> None:
        self._client = client
        self._notices = notices
        self._events = events
        self._nodes = nodes
        self._announcer = announcer
        self._by = by
        self._can_write = asyncio.Event()

    async def control(self) -> None:
        """Keep notices up to date; until cancelled."""
        controller = Controller(
            self._client,
            events=self._events,
            nodes=self._nodes,
            mover_of=self._notices.mover,
            starter_of=self._notices.starter,
            by=self._by,
            observe=self._notices.tallies.count_review,
        )
        controller.notices.subscribe(self._note)
        self._notices.controller = controller
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(controller.run())
                await controller.notices.wait_synced()
                self._can_write.set()
        finally:
            self._notices.controller = None

    def _note(self, before: MaintenanceNotice | None, after: MaintenanceNotice | None) -> None:
        self._notices.first.set()
        for hear in self._notices.hearers:
            hear((after or before or MaintenanceNotice()).name)
        if before is None and after is not None:
            self._notices.suggest_leases_for(after.spec.source)

    async def listen(self) -> None:
        """Listen to all sources, each as a part of its own; until cancelled."""
        telling = partial(Aside, announcer=self._announcer, clock=self._client.clock)
        self._notices.listening = tuple(Listening(it, telling(it.name)) for it in self._made())
        try:
            await self._can_write.wait()
            self._notices.suggest_leases_for(*(it.name for it in self._notices.listening))
            async with asyncio.TaskGroup() as group:
                for at, it in enumerate(self._notices.listening):
                    group.create_task(it.part.run(partial(self._listen_to, at), client=self._client, tell=self.tell))
        finally:
            self._notices.listening = ()

    async def _listen_to(self, at: int) -> None:
        listening = self._notices.listening[at]
        source = listening.source = self._made()[at]
        listening.runs = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(listening.aside.run(source.quarantine))
                await source.run(Inbox(self._client))
                raise RuntimeError("it has ended, and nobody told it to")
        finally:
            listening.runs = False
            self._notices.tallies.settle(source)

    def _made(self) -> Sequence[Source]:
        return self._notices.sources(self._client, self._nodes)

    async def tell(self, note: str) -> None:
        """Tell people what broke."""
        await self._announcer.warn(note, reason="NoticesBroke", action="SeeToNotices")
