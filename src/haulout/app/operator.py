"""The operator: of several processes one leads and does the work; all of them serve the webhook.

It leads under the name that the Node Maintenance Operator leads under, so that an old one in the same namespace and a
new one never work at once.

With a configuration of profiles it sees to these as well: see `haulout.app.profiles`. Should that part break it is
started again by itself, and maintenances go on.

A leader whose own node is to be drained, on whoever's behalf, gives way first: it would evict itself in the middle of
its work. If nobody else comes forward it goes on, and its successor, which must start somewhere else, continues.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from haulout.app.announcing import Announcer
from haulout.app.exposing import exposed
from haulout.app.names import LEADER_LEASE
from haulout.app.profiles import Profiles, see_to_profiles
from haulout.app.vitals import Vitals
from haulout.budget.line import Line
from haulout.errors import HandOver, KubeError, LeadershipLost
from haulout.history.keeper import Keeper
from haulout.kube import leases
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.leader import LeaderElection
from haulout.kube.objects import Node
from haulout.maintenance import lease as node_lease
from haulout.maintenance.controller import Controller, Settings
from haulout.maintenance.sight import node_cache
from haulout.web import health
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
class OperatorSettings:
    """Where and as whom the operator runs."""

    namespace: str
    identity: str
    node: str = ""  # on which this process runs; empty: on none of the cluster
    lease_namespace: str = node_lease.NAMESPACE
    guard_quorum: bool = True  # of etcd, on clusters that are not OpenShift
    webhook: WebhookSettings | None = None  # None: others serve it, or nobody does
    health_port: int | None = None
    metrics: Address | None = None  # where metrics and the API are served, if at all
    lingers: timedelta = timedelta()  # how long these are served at the end, until they were read once more


async def run_operator(
    client: Client, settings: OperatorSettings, *, profiles: Profiles | None = None, vitals: Vitals | None = None
) -> None:
    """Serve what every replica serves, and stand for leadership; until cancelled. `vitals` learn how it goes."""
    webhook = None if settings.webhook is None else _webhook(client, settings.webhook)
    vitals = vitals or Vitals()
    vitals.profiles, vitals.webhook = profiles, webhook
    async with AsyncExitStack() as stack:
        # Before the group, which would wrap what is wrong with a port; and so they answer until all else has ended.
        if settings.health_port is not None:
            checks = health.serving(
                vitals.unready, troubles=vitals.troubles, told=vitals.told, port=settings.health_port
            )
            await stack.enter_async_context(checks)
        if settings.metrics is not None:
            serving = exposed(
                client,
                vitals,
                at=settings.metrics,
                namespace=settings.namespace,
                identity=settings.identity,
                lingers=settings.lingers,
            )
            await stack.enter_async_context(serving)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        if webhook is not None:
            group.create_task(webhook.run())
        if profiles is not None:
            group.create_task(profiles.reading.run(profiles.configured.run, client=client))
        await stand(client, settings, profiles=profiles, vitals=vitals)


def _webhook(client: Client, settings: WebhookSettings) -> "Webhook":
    from haulout.web.webhook import Webhook  # its library for certificates takes eight megabytes

    return Webhook(client, settings)


async def stand(
    client: Client, settings: OperatorSettings, *, profiles: Profiles | None = None, vitals: Vitals | None = None
) -> None:
    """Stand for leadership and, as the leader, see to maintenances and profiles; until cancelled."""
    vitals = vitals or Vitals()
    own_node = settings.node
    while True:
        election = LeaderElection(client, name=LEADER_LEASE, namespace=settings.namespace, identity=settings.identity)
        try:
            lead = partial(_lead, settings=settings, own_node=own_node, profiles=profiles)
            await election.run(partial(_noting, vitals, lead))
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


async def _lead(client: Client, *, settings: OperatorSettings, own_node: str, profiles: Profiles | None) -> None:
    events = EventRecorder(client, instance=settings.identity, controller=_REPORTER)
    how = Settings(
        lease_namespace=settings.lease_namespace,
        own_node=own_node,
        guard_quorum=settings.guard_quorum,
        namespace=settings.namespace,
    )
    nodes = node_cache(client)  # one copy for all: they are what takes the most room
    history, line = Keeper(client), Line()
    controller = Controller(client, events=events, settings=how, nodes=nodes, history=history, line=line)
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        beside = [group.create_task(it) for it in (events.run(), history.run(), _endless(nodes))]
        works = [group.create_task(_until_handed_over(controller.run()))]
        if profiles is not None:
            stack.callback(profiles.configured.subscribe(lambda it: controller.use(it.budget)))
            announcer = Announcer(client, events, settings.namespace)
            seeing = _see_to(client, profiles, settings, own_node=own_node, announcer=announcer, nodes=nodes, line=line)
            works.append(group.create_task(_until_handed_over(seeing)))
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for work in works:
                work.cancel()
            await asyncio.wait(works)
            await asyncio.gather(history.flush(_LAST_WORDS), events.flush(_LAST_WORDS))
            for it in beside:
                it.cancel()
    raise done.pop().result()


async def _until_handed_over(work: Coroutine[Any, Any, None]) -> HandOver:
    """Do what has no end but this one; its errors end the leader."""
    try:
        await work
    except HandOver as error:
        return error
    raise RuntimeError("a part of the operator has ended, and nobody told it to")


async def _see_to(
    client: Client,
    profiles: Profiles,
    settings: OperatorSettings,
    *,
    own_node: str,
    announcer: Announcer,
    nodes: Cache[Node],
    line: Line,
) -> None:
    async def work() -> None:
        await see_to_profiles(
            client,
            profiles,
            namespace=settings.namespace,
            identity=settings.identity,
            own_node=own_node,
            nodes=nodes,
            line=line,
        )

    async def tell(note: str) -> None:
        await announcer.warn(note, reason="ProfilesBroke", action="SeeToProfiles")

    await profiles.part.run(work, client=client, tell=tell)


async def _endless(nodes: Cache[Node]) -> None:
    await nodes.run()


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
