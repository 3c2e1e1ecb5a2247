"""Components beside the hub's controller: MachineDrainRules and, if enabled, Metal3 BareMetalHosts.

    async with open_hub_components(client, events=events, status=status, settings=settings) as components:
        hub = ClusterApiController(…, drain_rules=components.drain_rules)
        components.start_for(hub)
        await hub.run()

Each has its own supervisor: a component that fails restarts alone, and the hub continues.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from haulout.api.clusterapi import Cluster, Machine
from haulout.app.clusterapi.hub_status import HubStatus
from haulout.controllers.clusterapi.controller import ClusterApiController
from haulout.controllers.clusterapi.machine_drain_rules import MachineDrainRuleInformer
from haulout.controllers.clusterapi.metal3 import Metal3Controller, Metal3Settings
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder


class HubComponents:
    """The components that run beside one hub controller."""

    def __init__(
        self,
        client: Client,
        group: asyncio.TaskGroup,
        *,
        events: EventRecorder,
        status: HubStatus,
        settings: ClusterApiSettings,
    ) -> None:
        self._client = client
        self._group = group
        self._events = events
        self._status = status
        self._settings = settings
        self._rules: MachineDrainRuleInformer | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def drain_rules(self, machine: Machine, cluster: Cluster | None) -> str | None:
        """Return the drain rules annotation for the node of a Machine; None: keep the current one."""
        return None if self._rules is None else self._rules.annotation_for(machine, cluster)

    def start_for(self, hub: ClusterApiController) -> None:
        """Start the components for a hub controller."""

        async def watch_drain_rules() -> None:
            version = (await hub.wait_for_machines()).resource.version
            rules = self._rules = MachineDrainRuleInformer(self._client, events=self._events, on_change=hub.enqueue_all)
            await rules.run(version)

        async def power_hosts() -> None:
            guard = Metal3Settings(unguarded=self._settings.metal3_unguarded)
            metal3 = Metal3Controller(
                self._client, await hub.wait_for_machines(), node_of=hub.node_of, events=self._events, settings=guard
            )
            unsubscribe = hub.subscribe(metal3.enqueue_waiting)
            self._status.metal3_controller = metal3
            try:
                await metal3.run()
            finally:
                self._status.metal3_controller = None
                unsubscribe()

        self._create_task(self._status.drain_rules_supervisor.run(watch_drain_rules, client=self._client))
        if self._settings.metal3:
            self._create_task(self._status.metal3_supervisor.run(power_hosts, client=self._client))

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self._group.create_task(work))


@asynccontextmanager
async def open_hub_components(
    client: Client, *, events: EventRecorder, status: HubStatus, settings: ClusterApiSettings
) -> AsyncIterator[HubComponents]:
    """Yield components that can be started for a hub controller; they end with the context."""
    try:
        async with asyncio.TaskGroup() as group:
            components = HubComponents(client, group, events=events, status=status, settings=settings)
            try:
                yield components
            finally:
                for task in components.tasks:
                    task.cancel()
    except BaseExceptionGroup as failures:  # supervisors contain other failures: only the hub's ends the context
        raise failures.exceptions[0] from None
