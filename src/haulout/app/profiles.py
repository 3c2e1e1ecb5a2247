"""Profiles under the operator: beside maintenances on a person's order, never beside the SAP maintenance-controller.

The operator holds two leases. The first, the Node Maintenance Operator's, makes it the leader. As the leader it stands
for a second one, under the name that the SAP maintenance-controller leads under, in the same namespace, and sees to
profiles only while it has that too. So either of the two old operators can still run while Haulout is tried: it keeps
its part of the work until it is gone, and Haulout does the other. They are taken in this order and only by the leader,
so that replicas cannot hold one each. A standby observes both, so that after a crash both have run out at once.

Where the file has no profiles they wait for the first notice (`haulout.profiles.default`), and take no lease before;
unless there is something `beside` them that a SAP maintenance-controller would do as well.

A SAP maintenance-controller that runs without `--enable-leader-election` holds no lease, and cannot be noticed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from haulout.app.announcing import Announcer
from haulout.app.configured import Configured
from haulout.app.names import PROFILES_LEASE
from haulout.app.parts import Part, until_handed_over
from haulout.app.rights import ASKED_EVERY, Rights
from haulout.budget.line import Line
from haulout.core.clock import Clock
from haulout.core.metering import Tally
from haulout.drain.tallies import Meter
from haulout.errors import HandOver, LeadershipLost
from haulout.history.backlog import Backlog
from haulout.history.keeper import Keeper
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.leader import LeaderElection
from haulout.kube.objects import Node, RawObject
from haulout.profiles import default
from haulout.profiles.answers import Answers
from haulout.profiles.calendar import lead_time, suitable_start
from haulout.profiles.controller import Controller, Settings
from haulout.profiles.info import as_json
from haulout.profiles.plugin import Outside, State
from haulout.profiles.surroundings import Surroundings
from haulout.profiles.tallies import CONTROLLER, Tallies
from haulout.profiles.telling import Teller
from haulout.profiles.words import counted

log = logging.getLogger(__name__)

_REPORTER = "maintenance"  # who tells by events, as users of the SAP maintenance-controller know it
_LAST_WORDS = timedelta(seconds=2)
_STANDS_AGAIN_AFTER = timedelta(seconds=1)


Beside = Callable[[Client], Coroutine[Any, Any, None]]
"""Does something that a SAP maintenance-controller does beside profiles; until cancelled."""


@dataclass(slots=True)
class Profiles:
    """What profiles need: their configuration, and the way to the outside; and what is known while they are seen to."""

    configured: Configured
    outside: Outside
    tallies: Tallies = field(default_factory=Tallies)
    controller: Controller | None = None  # while we see to them, and not another
    is_idle: bool = False  # we would see to them, if there were anything to do
    answers: Answers | None = None  # of the outside, the same
    surroundings: Surroundings | None = None  # the same
    rights: Rights | None = None  # the same
    meter: Meter | None = None  # counts drains
    unrecorded: Backlog = field(default_factory=Backlog)  # what happened and is not in the history of nodes yet
    recorded: Callable[[str], object] = lambda _: None  # hears of nodes for which a record is made
    beside: tuple[Beside, ...] = ()  # what else that controller would do
    part: Part = field(default_factory=partial(Part, "profiles"))
    reading: Part = field(default_factory=partial(Part, "following the configuration"))
    notifying: Part = field(default_factory=partial(Part, "notifications of objects"))

    def troubles(self) -> tuple[str, ...]:
        """Return what somebody should look after."""
        broken = self.configured.problem
        config = () if broken is None else (f"the last good configuration stays in force: {broken}",)
        left = 0 if self.controller is None else sum(bool(it.problem) for it in self.controller.info.all())
        nodes = (f"nothing is done about {counted(left, 'node')}: /api/v1/info says why",) if left else ()
        return (*(it.trouble for it in (self.part, self.reading, self.notifying) if it.trouble), *config, *nodes)

    def suitable_start(self, node: Node, notice: MaintenanceNotice, *, clock: Clock) -> datetime | None:
        """Return when an announced maintenance suits the windows of profiles; None: nobody minds or can tell."""
        if self.answers is None:
            return None
        profiles = self.configured.configuration.profiles
        return suitable_start(node, notice, profiles, answer=self.answers.known, now=clock.now())

    def lead_time(self, node: Node, notice: MaintenanceNotice) -> timedelta | None:
        """Return how long before its start a node is taken out of service; None: as without a configuration."""
        return lead_time(node, notice, self.configured.configuration.profiles)

    def minds(self, node: Node, notice: MaintenanceNotice) -> bool:
        """Tell whether a profile empties the node for a maintenance; the default one does for all."""
        return not self.configured.configuration.profiles or self.lead_time(node, notice) is not None

    def infos(self) -> list[RawObject] | None:
        """Return what `/api/v1/info` answers; None while another sees to profiles."""
        if self.controller is None:
            return [] if self.is_idle else None
        return as_json(self.controller.info.all(), label_filter=self.configured.configuration.label_filter)

    @property
    def waiting(self) -> int:
        """How many nodes pass all checks of a profile, and wait for room."""
        known = () if self.controller is None else self.controller.info.all()
        return sum(any(way.veto for it in node.reports for way in it.transitions) for node in known)

    def counted(self) -> Iterator[Tally]:
        """Yield all numbers, as they are now."""
        tallies, controller = self.tallies, self.controller
        for gauge in (tallies.nodes, tallies.depth, tallies.troubled):
            gauge.values.clear()
        tallies.configuration_is_good.set(to=self.configured.problem is None)
        if controller is not None:
            known = list(controller.info.all())
            tallies.depth.set(CONTROLLER, CONTROLLER, to=controller.due)
            tallies.troubled.set(to=sum(bool(it.problem) for it in known))
            for profile in controller.profiles:
                for state in State:
                    tallies.nodes.set(profile, state, to=0)
            for it in known:
                for report in it.reports:
                    tallies.nodes.add(report.name, report.next)
        yield from tallies.all()


async def see_to_profiles(
    client: Client,
    profiles: Profiles,
    *,
    election: LeaderElection,
    own_node: str = "",
    nodes: Cache[Node] | None = None,
    line: Line | None = None,
    noticed: asyncio.Event | None = None,
) -> None:
    """See to profiles whenever no SAP maintenance-controller does; until cancelled.

    `nodes` is a copy of them that somebody else keeps up to date, `line` are orders that go first, `noticed` is set
    once there is a notice. `election` is the one for the profiles' lease; it may have observed that for a while. Raises
    `HandOver` when a profile is about to drain `own_node`, on which this process runs.
    """
    wanted = partial(_until_wanted, profiles, nodes=nodes, noticed=noticed)
    if not profiles.beside:
        await wanted()
    settings = Settings(namespace=election.namespace, own_node=own_node)
    see = partial(_see_to, profiles=profiles, settings=settings, identity=election.identity, nodes=nodes, line=line)
    lead = partial(_lead, profiles=profiles, wanted=wanted, see=see)
    while True:
        if election.is_held_by_another():
            warn_of_holder(election.leader)
        try:
            await election.run(lead, fence=client.may_write)
        except LeadershipLost as error:
            log.warning("%s; profiles wait", error)
        await client.clock.sleep(_STANDS_AGAIN_AFTER)


async def _until_wanted(profiles: Profiles, *, nodes: Cache[Node] | None, noticed: asyncio.Event | None) -> None:
    """Return when there is something to do: by the file, or by default."""
    found = asyncio.Event()

    async def wait_for(it: Awaitable[object]) -> None:
        await it
        found.set()

    waits: list[Awaitable[object]] = [profiles.configured.has_profiles()]
    waits += [] if noticed is None else [noticed.wait()]
    waits += [] if nodes is None else [_any_unfinished(nodes)]
    profiles.is_idle = True
    try:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(wait_for(it)) for it in waits]
            await found.wait()
            for task in waiting:
                task.cancel()
    finally:
        profiles.is_idle = False


async def _any_unfinished(nodes: Cache[Node]) -> None:
    """Return if the default profile is not done with a node; a notice that was deleted meanwhile tells nobody."""
    await nodes.wait_synced()
    if not any(map(default.is_unfinished_on, nodes.all())):
        await asyncio.Event().wait()


async def _lead(
    client: Client,
    *,
    profiles: Profiles,
    wanted: Callable[[], Awaitable[None]],
    see: Callable[[Client], Awaitable[None]],
) -> None:
    """Do all that no SAP maintenance-controller does now; raises `HandOver`."""

    async def once_wanted() -> None:
        await wanted()
        await see(client)

    async with asyncio.TaskGroup() as group:
        works = [
            group.create_task(until_handed_over(it))
            for it in (once_wanted(), *(beside(client) for beside in profiles.beside))
        ]
        done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        for work in works:
            work.cancel()
    raise done.pop().result()


async def _see_to(
    client: Client,
    *,
    profiles: Profiles,
    settings: Settings,
    identity: str,
    nodes: Cache[Node] | None,
    line: Line | None,
) -> None:
    # Pods are many: what is told of them must not crowd out what is told of nodes.
    events, about_pods = (EventRecorder(client, instance=identity, controller=_REPORTER) for _ in range(2))
    made: list[Surroundings] = []
    handed_over: HandOver | None = None

    def surround(controller: Controller) -> Surroundings:
        made.append(Surroundings(controller, client, outside=profiles.outside))
        return made[0]

    announcer = Announcer(client, events, settings.namespace)
    history = Keeper(client, profiles.unrecorded, warn=announcer.warn_of_history, created=profiles.recorded)
    controller = Controller(
        client,
        teller=Teller(events, clock=client.clock, about_pods=about_pods, tallies=profiles.tallies),
        settings=settings,
        surroundings=surround,
        nodes=nodes,
        history=history,
        line=line,
        meter=profiles.meter,
    )
    async with asyncio.TaskGroup() as group:
        telling = [group.create_task(it.run()) for it in (events, about_pods, history)]
        rights = Rights(client, announcer, namespace=settings.namespace)
        following = group.create_task(_go_by(profiles.configured, controller, made[0], announcer, rights))
        profiles.controller, profiles.answers = controller, made[0].answers
        profiles.surroundings, profiles.rights = made[0], rights
        try:
            await controller.run()
        except HandOver as error:
            handed_over = error
        finally:
            profiles.controller = profiles.answers = profiles.surroundings = profiles.rights = None
            following.cancel()
            await asyncio.gather(*(it.flush(_LAST_WORDS) for it in (history, events, about_pods)))
            for task in telling:
                task.cancel()
    if handed_over is not None:
        raise handed_over


async def _go_by(
    configured: Configured, controller: Controller, surroundings: Surroundings, announcer: Announcer, rights: Rights
) -> None:
    """Have the controller go by the configuration as it is, as far as that is permitted; until cancelled."""
    used, told, is_left, in_force = None, None, False, configured.configuration
    complete = partial(default.in_force, recovery=default.recovery_of(configured.environ))
    while True:
        is_new = configured.configuration is not used
        if is_new:
            used = configured.configuration
            # Once it was in force here, a node of which we have not heard yet may be on its way.
            is_left = is_left or not used.profiles
            in_force = complete(used, is_left=is_left)
        has_changed = await rights.look(in_force) if is_new or rights.lacking else False
        if is_new and not is_left and await controller.any_node(default.is_unfinished_on):
            in_force, is_left = complete(configured.configuration, is_left=True), True
            await rights.look(in_force)
        if is_new or has_changed:
            usable = rights.usable(in_force)
            await surroundings.prepare(usable)
            controller.use(usable)
        if is_new:
            log.info("profiles: %s", ", ".join(in_force.profiles))
        if configured.problem is not told:
            told = configured.problem
            if told is not None:
                note = f"{told}; the last good configuration stays in force"
                await announcer.warn(note, reason="ConfigurationRefused", action="LoadConfiguration")
        await configured.news(within=ASKED_EVERY if rights.lacking else None)


def warn_of_holder(holder: str) -> None:
    """Log that another process is in charge of profiles, for a leader that would be otherwise."""
    log.warning("%s holds lease %s: profiles are its business until it is gone", holder, PROFILES_LEASE)
