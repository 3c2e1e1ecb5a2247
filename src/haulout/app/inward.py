"""What the operator knows of itself, for the API: its health, its configuration, and what people should know.

    inward = Inward(client, vitals, sight, namespace=…, identity=…)
    Leader(client, sight, heading=Heading(banners=inward.banners, …), more=inward)

Who leads makes one, for as long as it leads.
"""

from collections.abc import Collection, Iterator
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.app.notices import Listening
from haulout.app.parts import Part
from haulout.app.vitals import Vitals
from haulout.errors import KubeError
from haulout.kinds.notice import NoticeCondition
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.profiles import default
from haulout.profiles.barred import in_words
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import Question
from haulout.profiles.plugins.registry import registries
from haulout.web import process
from haulout.web.api import health
from haulout.web.api.banners import Known, banners
from haulout.web.api.notices import told
from haulout.web.api.shapes import Banner, Edit, Fleet, Health, LeaseHealth, Notice, PartHealth, Timeline, WhatIf
from haulout.web.api.shapes import Configuration as ConfigurationTold
from haulout.web.api.sight import Sight
from haulout.web.api.source import Stretch

if TYPE_CHECKING:
    from haulout.web.api.configuration import File
    from haulout.web.api.configuring import Configurations
    from haulout.web.api.timeline import Timelines
    from haulout.web.api.whatif import Consider


class Inward:
    """Tells of this replica, which leads."""

    def __init__(self, client: Client, vitals: Vitals, sight: Sight, *, namespace: str, identity: str) -> None:
        self._client = client
        self._clock = client.clock
        self._vitals = vitals
        self._namespace = namespace
        self._identity = identity
        self._sight = sight

    # What follows is imported when somebody looks for the first time: most of the time nobody does.

    @cached_property
    def _timelines(self) -> "Timelines":
        from haulout.web.api.timeline import Timelines

        return Timelines(self._client, self._sight)

    @cached_property
    def _configurations(self) -> "Configurations":
        from haulout.web.api.configuring import Configurations

        return Configurations(
            file=self._file,
            in_force=self._in_force,
            completed=self._completed,
            nodes=self._names,
            consider=self._consider,
            registries=registries,
            clock=self._clock,
        )

    async def timeline(self, stretch: Stretch, fleet: Fleet) -> Timeline:
        """Return what was, is and comes."""
        from haulout.web.api.timeline import LIMIT, asked_range

        asked = asked_range(stretch.start, stretch.end, now=self._clock.now())
        profiles = self._vitals.profiles
        answers = None if profiles is None else profiles.answers
        return await self._timelines.made(
            stretch.narrowing.of(fleet.nodes),
            asked,
            profiles=self._completed(self._in_force()).profiles,
            answer=_nothing_known if answers is None else answers.known,
            limit=LIMIT if stretch.limit is None else stretch.limit,
        )

    async def configuration(self) -> ConfigurationTold:
        """Return what profiles go by."""
        return await self._configurations.told()

    async def check(self, edit: Edit) -> WhatIf:
        """Return what would change with another configuration."""
        return await self._configurations.what_if(edit.text)

    async def health(self, *, viewers: int) -> Health:
        """Return how this replica is doing."""
        vitals, used = self._vitals, process.taken()
        return Health(
            identity=self._identity,
            version=__version__,
            started=vitals.started or self._clock.now(),
            python=used.python,
            memory_bytes=used.memory_bytes,
            cpu_seconds=used.cpu_seconds,
            viewers=viewers,
            leases=tuple([await self._lease(name) for name in (LEADER_LEASE, PROFILES_LEASE)]),
            watches=health.watches(self._client.meters),
            queues=health.queues(self._client.meters),
            calls=health.calls(self._client.calls, now=self._clock.monotonic()),
            parts=(*self._parts(), *self._sources()),
            troubles=() if vitals.logged is None else vitals.logged.told(self._hidden),
        )

    def banners(self) -> tuple[Banner, ...]:
        """Return what people should know on every page."""
        parts, sources = tuple(self._parts()), tuple(self._sources())
        said = {it.text for it in (*parts, *sources) if not it.is_well}
        profiles = self._vitals.profiles
        controller = None if profiles is None else profiles.controller
        rights = None if profiles is None else profiles.rights
        known = Known(
            leader=self._identity,
            file="" if profiles is None else str(profiles.configured.path),
            problem=None if profiles is None else profiles.configured.problem,
            has_good=profiles is not None and profiles.configured.is_there,
            lacking="" if rights is None or not rights.lacking else in_words(rights.lacking),
            parts=parts,
            sources=sources,
            watches=health.watches(self._client.meters),
            notices=self._late(),
            others=[it for it in self._troubles() if it not in said],
            left_alone=0 if controller is None else sum(bool(it.problem) for it in controller.info.all()),
        )
        return banners(known)

    # How it stands

    def _late(self) -> list[Notice]:
        """Return the notices whose nodes will not be empty in time."""
        notices = self._sight.notices()
        found = () if notices is None else notices.notices.all()
        said = ((it, it.status.condition(NoticeCondition.ON_TIME)) for it in found)
        return [told(it, now=self._clock.now()) for it, on_time in said if on_time and on_time.status == "False"]

    def _troubles(self) -> Iterator[str]:
        if self._vitals.notices is not None:
            yield from self._vitals.notices.troubles()
        yield from self._vitals.machines.troubles()
        yield from dict.fromkeys(self._vitals.history_troubles())

    async def _lease(self, name: str) -> LeaseHealth:
        try:
            return health.lease(name, await leases.find(self._client, name, namespace=self._namespace))
        except KubeError as error:
            return LeaseHealth(name=name, holder=f"nobody can tell: {error}")

    def _parts(self) -> Iterator[PartHealth]:
        vitals = self._vitals
        if vitals.webhook is not None:
            wrong = (*vitals.webhook.unready(), *vitals.webhook.troubles())
            yield PartHealth(name="webhook", is_well=not wrong, text="; ".join(wrong))
        parts: list[Part] = [vitals.machines.part]
        parts += [] if vitals.profiles is None else [vitals.profiles.part, vitals.profiles.reading]
        parts += [] if vitals.notices is None else [vitals.notices.part, vitals.notices.hearing]
        yield from (PartHealth(name=it.name, is_well=not it.trouble, text=it.trouble) for it in parts)

    def _sources(self) -> Iterator[PartHealth]:
        for it in () if self._vitals.notices is None else self._vitals.notices.listening:
            yield self._source(it)

    def _source(self, it: Listening) -> PartHealth:
        wrong = tuple(it.troubles())
        silence = it.source.silence() if it.runs else None
        waits = "" if it.runs else "it waits until notices can be written"
        return PartHealth(
            name=f"source {it.name}",
            is_well=it.is_up or not it.runs,
            text="; ".join(wrong) or waits,
            heard=None if silence is None else self._clock.now() - silence,
        )

    def _hidden(self, text: str) -> str:
        from haulout.web.api.edits import secrets_of

        for secret in secrets_of(self._in_force()):
            text = text.replace(secret, "(hidden)")
        return text

    # The configuration

    def _file(self) -> "File":
        from haulout.web.api.configuration import File

        profiles = self._vitals.profiles
        if profiles is None:
            return File(path="", newest=None, good=None)
        configured = profiles.configured
        return File(
            path=str(configured.path),
            newest=configured.newest,
            good=configured.good,
            problem=configured.problem,
            warnings=tuple(configured.warnings),
            environ=configured.environ,
        )

    def _in_force(self) -> Configuration:
        profiles = self._vitals.profiles
        return default.configuration() if profiles is None else profiles.configured.configuration

    def _recovery(self) -> timedelta | None:
        profiles = self._vitals.profiles
        return None if profiles is None else default.recovery_of(profiles.configured.environ)

    def _completed(self, configuration: Configuration) -> Configuration:
        is_left = any(map(default.is_unfinished_on, self._sight.nodes.all()))
        return default.in_force(configuration, is_left=is_left, recovery=self._recovery())

    def _names(self) -> Collection[str]:
        return sorted(it.name for it in self._sight.nodes.all())

    def _consider(self) -> "Consider":
        """Return what tells which step a node would take: what profiles see, if they are seen to here."""
        from haulout.web.api import bare

        profiles = self._vitals.profiles
        if profiles is not None and profiles.controller is not None and profiles.surroundings is not None:
            return partial(profiles.controller.considered, see=profiles.surroundings.aside)
        notices = self._sight.notices()
        announced = () if notices is None else tuple(notices.notices.all())
        return bare.considering(tuple(self._sight.nodes.all()), announced, self._clock.now())


def _nothing_known(_: Question) -> None:
    """Know no answer: nobody sees to profiles here."""
