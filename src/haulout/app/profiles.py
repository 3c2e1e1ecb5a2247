"""Profiles under the operator: beside maintenances on a person's order, never beside the SAP maintenance-controller.

The operator holds two leases. The first, the Node Maintenance Operator's, makes it the leader. As the leader it stands
for a second one, under the name that the SAP maintenance-controller leads under, in the same namespace, and sees to
profiles only while it has that too. So either of the two old operators can still run while Haulout is tried: it keeps
its part of the work until it is gone, and Haulout does the other. They are taken in this order and only by the leader,
so that replicas cannot hold one each.

A SAP maintenance-controller that runs without `--enable-leader-election` holds no lease, and cannot be noticed.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from haulout.app.announcing import Announcer
from haulout.app.configured import Configured
from haulout.app.names import PROFILES_LEASE
from haulout.app.parts import Part
from haulout.app.rights import ASKED_EVERY, Rights
from haulout.budget.line import Line
from haulout.errors import HandOver, LeadershipLost
from haulout.history.keeper import Keeper
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.leader import LeaderElection
from haulout.kube.objects import Node, RawObject
from haulout.profiles.controller import Controller, Settings
from haulout.profiles.info import as_json
from haulout.profiles.plugin import Outside, State
from haulout.profiles.surroundings import Surroundings
from haulout.profiles.tallies import CONTROLLER, Tallies, Tally
from haulout.profiles.telling import Teller
from haulout.profiles.words import counted

log = logging.getLogger(__name__)

_REPORTER = "maintenance"  # who tells by events, as users of the SAP maintenance-controller know it
_LAST_WORDS = timedelta(seconds=2)
_STANDS_AGAIN_AFTER = timedelta(seconds=1)


@dataclass(slots=True)
class Profiles:
    """What profiles need: their configuration, and the way to the outside; and what is known while they are seen to."""

    configured: Configured
    outside: Outside
    tallies: Tallies = field(default_factory=Tallies)
    controller: Controller | None = None  # while we see to them, and not another
    part: Part = field(default_factory=partial(Part, "profiles"))
    reading: Part = field(default_factory=partial(Part, "following the configuration"))

    def troubles(self) -> tuple[str, ...]:
        """Return what somebody should look after."""
        broken = self.configured.problem
        config = () if broken is None else (f"the last good configuration stays in force: {broken}",)
        left = 0 if self.controller is None else sum(bool(it.problem) for it in self.controller.info.all())
        nodes = (f"nothing is done about {counted(left, 'node')}: /api/v1/info says why",) if left else ()
        return (*(it.trouble for it in (self.part, self.reading) if it.trouble), *config, *nodes)

    def infos(self) -> list[RawObject] | None:
        """Return what `/api/v1/info` answers; None while another sees to profiles."""
        if self.controller is None:
            return None
        return as_json(self.controller.info.all(), label_filter=self.configured.configuration.label_filter)

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
            for profile in self.configured.configuration.profiles:
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
    namespace: str,
    identity: str,
    own_node: str = "",
    nodes: Cache[Node] | None = None,
    line: Line | None = None,
) -> None:
    """See to profiles whenever no SAP maintenance-controller does; until cancelled.

    `nodes` is a copy of them that somebody else keeps up to date, `line` are orders that go first. Raises `HandOver`
    when a profile is about to drain `own_node`, on which this process runs.
    """
    await profiles.configured.has_profiles()
    settings = Settings(namespace=namespace, own_node=own_node)
    lead = partial(_lead, profiles=profiles, settings=settings, identity=identity, nodes=nodes, line=line)
    while True:
        election = LeaderElection(
            client,
            name=PROFILES_LEASE,
            namespace=namespace,
            identity=identity,
            on_new_leader=partial(_tell_who, identity),
        )
        try:
            await election.run(lead)
        except LeadershipLost as error:
            log.warning("%s; profiles wait", error)
        await client.clock.sleep(_STANDS_AGAIN_AFTER)


async def _lead(
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

    history = Keeper(client)
    controller = Controller(
        client,
        teller=Teller(events, clock=client.clock, about_pods=about_pods, tallies=profiles.tallies),
        settings=settings,
        surroundings=surround,
        nodes=nodes,
        history=history,
        line=line,
    )
    async with asyncio.TaskGroup() as group:
        telling = [group.create_task(it.run()) for it in (events, about_pods, history)]
        announcer = Announcer(client, events, settings.namespace)
        rights = Rights(client, announcer, namespace=settings.namespace)
        following = group.create_task(_go_by(profiles.configured, controller, made[0], announcer, rights))
        profiles.controller = controller
        try:
            await controller.run()
        except HandOver as error:
            handed_over = error
        finally:
            profiles.controller = None
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
    used, told = None, None
    while True:
        is_new = configured.configuration is not used
        has_changed = await rights.look(configured.configuration) if is_new or rights.lacking else False
        if is_new or has_changed:
            used = configured.configuration
            usable = rights.usable(used)
            await surroundings.prepare(usable)
            controller.use(usable)
        if is_new:
            log.info("profiles: %s", ", ".join(configured.configuration.profiles) or "none")
        if configured.problem is not told:
            told = configured.problem
            if told is not None:
                note = f"{told}; the last good configuration stays in force"
                await announcer.warn(note, reason="ConfigurationRefused", action="LoadConfiguration")
        await configured.news(within=ASKED_EVERY if rights.lacking else None)


def _tell_who(identity: str, leader: str) -> None:
    if leader not in ("", identity):
        log.warning("%s holds lease %s: profiles are its business until it is gone", leader, PROFILES_LEASE)
