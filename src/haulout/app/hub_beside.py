"""What goes with a hub: MachineDrainRules are followed for it, and BareMetalHosts are seen to if that is wanted.

    async with beside(client, events=events, vitals=vitals, settings=settings) as companions:
        hub = Hub(…, drain_rules=companions.drain_rules)
        companions.join(hub)
        await hub.run()

Each is a part by itself: one that breaks starts again alone, and the hub goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from haulout.app.hub_vitals import HubVitals
from haulout.hub.controller import Hub
from haulout.hub.hosts import Metal3Settings
from haulout.hub.metal3 import Metal3
from haulout.hub.rule_book import RuleBook
from haulout.hub.settings import HubSettings
from haulout.kinds.clusterapi import Cluster, Machine
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder


class Companions:
    """Those who run beside one hub."""

    def __init__(
        self,
        client: Client,
        group: asyncio.TaskGroup,
        *,
        events: EventRecorder,
        vitals: HubVitals,
        settings: HubSettings,
    ) -> None:
        self._client = client
        self._group = group
        self._events = events
        self._vitals = vitals
        self._settings = settings
        self._book: RuleBook | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def drain_rules(self, machine: Machine, cluster: Cluster | None) -> str | None:
        """Return what the node of a Machine is to say of MachineDrainRules; None: what it says now."""
        return None if self._book is None else self._book.annotation(machine, cluster)

    def join(self, hub: Hub) -> None:
        """Run beside a hub."""

        async def follow_rules() -> None:
            version = (await hub.wait_found()).resource.version
            book = self._book = RuleBook(self._client, events=self._events, changed=hub.look_at_all)
            await book.run(version)

        async def see_to_hosts() -> None:
            guard = Metal3Settings(unguarded=self._settings.metal3_unguarded)
            metal3 = Metal3(
                self._client, await hub.wait_found(), node_of=hub.node_of, events=self._events, settings=guard
            )
            leave = hub.subscribe(metal3.nudge)
            self._vitals.hosts = metal3
            try:
                await metal3.run()
            finally:
                self._vitals.hosts = None
                leave()

        self._start(self._vitals.rules.run(follow_rules, client=self._client))
        if self._settings.metal3:
            self._start(self._vitals.metal3.run(see_to_hosts, client=self._client))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self._group.create_task(work))


@asynccontextmanager
async def beside(
    client: Client, *, events: EventRecorder, vitals: HubVitals, settings: HubSettings
) -> AsyncIterator[Companions]:
    """Yield those who can join a hub; they end with the context."""
    try:
        async with asyncio.TaskGroup() as group:
            companions = Companions(client, group, events=events, vitals=vitals, settings=settings)
            try:
                yield companions
            finally:
                for task in companions.tasks:
                    task.cancel()
    except BaseExceptionGroup as failures:  # they have parts of their own: what ends the context is the hub's
        raise failures.exceptions[0] from None
