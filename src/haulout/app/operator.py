"""The operator: of several processes one leads and does the work; all of them serve the webhook.

It leads under the name that the Node Maintenance Operator leads under, so that an old one in the same namespace and a
new one never work at once.

With a configuration of profiles it sees to these as well (`haulout.app.profiles`), and beside them to nodes of
Kubernikus (`haulout.app.kubernikus`) and to nodes on ESX hosts (`haulout.app.esx`) if there are files about these; to
maintenance notices (`haulout.app.notices`) and Machines (`haulout.app.machines`) wherever they are installed. Should
one of these parts break it is started again by itself, and all else goes on.

A leader whose own node is to be drained, on whoever's behalf, gives way first: it would evict itself in the middle of
its work. If nobody else comes forward it goes on, and its successor, which must start somewhere else, continues.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from haulout.app.announcing import Announcer
from haulout.app.esx import Esx, see_to_esx
from haulout.app.exposing import guard_metrics
from haulout.app.facing import face_viewers
from haulout.app.kubernikus import Kubernikus, see_to_kubernikus
from haulout.app.machines import Machines, see_to_machines
from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.app.notices import Notices, see_to_notices
from haulout.app.notifications import see_to_notifications
from haulout.app.parts import until_handed_over
from haulout.app.profiles import Beside, Profiles, see_to_profiles, warn_of_holder
from haulout.app.serving import ReplicaSettings, serving
from haulout.app.vitals import Vitals
from haulout.budget.limits import NO_BUDGET
from haulout.budget.line import Line
from haulout.core.clock import Clock
from haulout.drain.tallies import ESX, KUBERNIKUS, ORDER, PROFILE
from haulout.errors import HandOver, KubeError, LeadershipLost
from haulout.history.keeper import Keeper
from haulout.history.retention import Retention, RetentionSettings
from haulout.kinds.notice import MaintenanceNotice
from haulout.kinds.openshift import MACHINE_OF_NODE
from haulout.kube import leases
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.leader import LeaderElection
from haulout.kube.objects import Node
from haulout.maintenance import lease as node_lease
from haulout.maintenance.controller import Controller, Settings
from haulout.maintenance.sight import node_cache
from haulout.notices.controller import By
from haulout.web.api.sight import Sight
from haulout.web.listening import Address
from haulout.web.wishes import WebhookSettings

if TYPE_CHECKING:
    from haulout.web.webhook import Webhook

log = logging.getLogger(__name__)

_REPORTER = "NodeMaintenance"  # who tells by events, as users of the Node Maintenance Operator know it
_LAST_WORDS = timedelta(seconds=2)
_SUCCESSOR_WITHIN = timedelta(seconds=15)
_LOOKED_FOR_EVERY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings(ReplicaSettings):
    """Where and as whom the operator runs."""

    node: str = ""  # on which this process runs; empty: on none of the cluster
    lease_namespace: str = node_lease.NAMESPACE
    guard_quorum: bool = True  # of etcd, on clusters that are not OpenShift
    webhook: WebhookSettings | None = None  # None: others serve it, or nobody does
    retention: RetentionSettings = field(default_factory=RetentionSettings)  # of the history of deleted nodes
    guarded_metrics: Address | None = None  # where metrics are served over HTTPS, with the webhook's certificate


async def run_operator(
    client: Client,
    settings: OperatorSettings,
    *,
    profiles: Profiles | None = None,
    notices: Notices | None = None,
    machines: Machines | None = None,
    kubernikus: Kubernikus | None = None,
    esx: Esx | None = None,
    vitals: Vitals | None = None,
) -> None:
    """Serve what every replica serves, and stand for leadership; until cancelled. `vitals` learn how it goes.

    Without `notices` it listens to no cloud, and sees to the notices that people and others write.
    """
    webhook = None if settings.webhook is None else _webhook(client, settings.webhook)
    vitals, notices = vitals or Vitals(), notices or Notices()
    vitals.profiles, vitals.notices, vitals.webhook = profiles, notices, webhook
    notices.leases = settings.leases
    vitals.machines, vitals.client = machines or vitals.machines, client
    vitals.kubernikus = kubernikus or vitals.kubernikus
    vitals.esx = esx or vitals.esx
    for part in (profiles, vitals.kubernikus, vitals.esx):
        if part is not None:
            part.recorded = vitals.recorded
    if profiles is not None:
        profiles.meter = vitals.drains.of(PROFILE)
    async with AsyncExitStack() as stack:
        # Before the group, which would wrap what is wrong with a port; and so they answer until all else has ended.
        await stack.enter_async_context(serving(client, vitals, settings))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        if webhook is not None:
            group.create_task(webhook.run())
            if settings.guarded_metrics is not None:
                group.create_task(guard_metrics(client, vitals, webhook.presented, at=settings.guarded_metrics))
        if profiles is not None:
            group.create_task(profiles.reading.run(profiles.configured.run, client=client))
        await stand(client, settings, profiles=profiles, notices=notices, vitals=vitals)


def _webhook(client: Client, settings: WebhookSettings) -> "Webhook":
    from haulout.web.webhook import Webhook  # not all serve one

    return Webhook(client, settings)


async def stand(
    client: Client,
    settings: OperatorSettings,
    *,
    profiles: Profiles | None = None,
    notices: Notices | None = None,
    vitals: Vitals | None = None,
) -> None:
    """Stand for leadership and, as the leader, see to maintenances, notices, Machines and profiles; until cancelled."""
    vitals, notices = vitals or Vitals(), notices or Notices()
    own_node = settings.node
    # They outlive a term: what was observed of a lease counts in the next one.
    elect = partial(
        LeaderElection, client, namespace=settings.namespace, identity=settings.identity, timing=settings.leases
    )
    election = elect(name=LEADER_LEASE)

    def warn_if_leading(holder: str) -> None:
        if vitals.leads and holder != settings.identity:
            warn_of_holder(holder)

    of_profiles = None if profiles is None else elect(name=PROFILES_LEASE, on_new_leader=warn_if_leading)
    while True:
        try:
            lead = partial(
                _lead,
                settings=settings,
                own_node=own_node,
                profiles=profiles,
                notices=notices,
                vitals=vitals,
                election=of_profiles,
            )
            await election.run(partial(_noting, vitals, lead), observing=of_profiles)
        except LeadershipLost as error:
            log.warning("%s; standing again", error)
        except HandOver as error:
            log.info("%s: letting another lead", error)
            own_node = settings.node if await _has_successor(client, settings) else ""


async def _noting(vitals: Vitals, lead: Callable[[Client], Awaitable[None]], client: Client) -> None:
    vitals.leads = True
    try:
        await lead(client)
    finally:
        vitals.leads = False


async def _lead(
    client: Client,
    *,
    settings: OperatorSettings,
    own_node: str,
    profiles: Profiles | None,
    notices: Notices,
    vitals: Vitals,
    election: LeaderElection | None,
) -> None:
    events = EventRecorder(client, instance=settings.identity, controller=_REPORTER)
    about_notices = EventRecorder(client, instance=settings.identity)
    announcer = Announcer(client, events, settings.namespace)
    how = Settings(
        lease_namespace=settings.lease_namespace,
        own_node=own_node,
        guard_quorum=settings.guard_quorum,
        namespace=settings.namespace,
    )
    nodes = node_cache(client)  # one copy for all: they are what takes the most room
    retention = Retention(client, nodes, is_off=lambda: history.is_off, settings=settings.retention)
    history = Keeper(client, vitals.unrecorded, warn=announcer.warn_of_history, created=retention.add)
    history.subscribe(retention.survey)
    line = Line()
    meter = vitals.drains.of(ORDER)
    controller = Controller(client, events=events, settings=how, nodes=nodes, history=history, line=line, meter=meter)
    async with AsyncExitStack() as stack:
        stack.enter_context(vitals.leading(controller, nodes, retention))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        running = events.run(), about_notices.run(), history.run(), nodes.run(), retention.run()
        beside = [group.create_task(it) for it in running]
        noticing = see_to_notices(
            client,
            notices,
            events=about_notices,
            nodes=nodes,
            announcer=announcer,
            by=By() if profiles is None else _by(profiles, vitals.machines, client.clock),
        )
        who = settings.identity
        replacing = see_to_machines(client, vitals.machines, identity=who, nodes=nodes, announcer=announcer)
        sight = Sight(
            clock=client.clock,
            nodes=nodes,
            maintenances=controller.maintenances,
            line=line,
            profiles=lambda: None if profiles is None else profiles.controller,
            notices=lambda: notices.controller,
            budget=lambda: NO_BUDGET if profiles is None else profiles.configured.configuration.budget,
        )
        beside.append(
            group.create_task(
                face_viewers(
                    client,
                    vitals,
                    sight,
                    namespace=settings.namespace,
                    identity=who,
                    cluster=settings.cluster,
                    history=history,
                )
            )
        )
        works = [group.create_task(until_handed_over(it)) for it in (controller.run(), noticing, replacing)]
        integrations = _integrations(vitals, identity=who, nodes=nodes, announcer=announcer, own_node=own_node)
        if profiles is None:
            works += [group.create_task(until_handed_over(it(client))) for it in integrations]
        else:
            profiles.beside = integrations
        if profiles is not None and election is not None:
            stack.callback(profiles.configured.subscribe(lambda it: controller.use(it.budget)))
            notifying = see_to_notifications(
                client,
                profiles,
                events=events,
                maintenances=controller.maintenances,
                notices=notices,
                announcer=announcer,
            )
            works.append(group.create_task(until_handed_over(notifying)))
            seeing = _see_to(
                client,
                profiles,
                election,
                own_node=own_node,
                announcer=announcer,
                nodes=nodes,
                line=line,
                noticed=notices.first,
            )
            works.append(group.create_task(until_handed_over(seeing)))
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for work in works:
                work.cancel()
            await asyncio.wait(works)
            await asyncio.gather(*(it.flush(_LAST_WORDS) for it in (history, events, about_notices)))
            for it in beside:
                it.cancel()
    raise done.pop().result()


def _integrations(
    vitals: Vitals, *, identity: str, nodes: Cache[Node], announcer: Announcer, own_node: str
) -> tuple[Beside, ...]:
    """Return what the SAP maintenance-controller does beside profiles, where that is configured."""
    found: list[Beside] = []
    if vitals.kubernikus is not None:
        vitals.kubernikus.meter = vitals.drains.of(KUBERNIKUS)
        found.append(
            partial(
                see_to_kubernikus,
                kubernikus=vitals.kubernikus,
                identity=identity,
                nodes=nodes,
                announcer=announcer,
                own_node=own_node,
            )
        )
    if vitals.esx is not None:
        vitals.esx.meter = vitals.drains.of(ESX)
        found.append(
            partial(see_to_esx, esx=vitals.esx, identity=identity, nodes=nodes, announcer=announcer, own_node=own_node)
        )
    return tuple(found)


def _by(profiles: Profiles, machines: Machines, clock: Clock) -> By:
    """Return what is done about notices: by profiles, and by replacing Machines."""

    def is_minded(node: Node, notice: MaintenanceNotice) -> bool:
        is_replaced = machines.controller is not None and MACHINE_OF_NODE in node.metadata.annotations
        return is_replaced or profiles.minds(node, notice)

    calendar = partial(profiles.suitable_start, clock=clock)
    return By(calendar=calendar, lead_of=profiles.lead_time, is_minded=is_minded)


async def _see_to(
    client: Client,
    profiles: Profiles,
    election: LeaderElection,
    *,
    own_node: str,
    announcer: Announcer,
    nodes: Cache[Node],
    line: Line,
    noticed: asyncio.Event,
) -> None:
    async def work() -> None:
        await see_to_profiles(
            client,
            profiles,
            election=election,
            own_node=own_node,
            nodes=nodes,
            line=line,
            noticed=noticed,
        )

    async def tell(note: str) -> None:
        await announcer.warn(note, reason="ProfilesBroke", action="SeeToProfiles")

    await profiles.part.run(work, client=client, tell=tell)


async def _has_successor(client: Client, settings: OperatorSettings) -> bool:
    """Tell whether somebody else leads; wait for that a while."""
    clock = client.clock
    until = clock.monotonic() + _SUCCESSOR_WITHIN.total_seconds()
    while clock.monotonic() < until:
        try:
            lease = await leases.find(client, LEADER_LEASE, namespace=settings.namespace)
        except KubeError:
            lease = None
        if lease is not None and lease.spec.holder_identity not in (None, "", settings.identity):
            return True
        await clock.sleep(_LOOKED_FOR_EVERY)
    log.info("nobody else leads: going on, though this process runs on the node that is drained")
    return False
