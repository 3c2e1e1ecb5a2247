"""The components of a hub: its controller, and MachineDrainRules and Metal3 beside it.

Each restarts alone after a failure. MachineDrainRules and Metal3 use the Machines of the current controller, and start
again with each new one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from haulout.api.reasons import OperatorEventReason
from haulout.controllers.clusterapi.cluster_accessor import ClientFactory
from haulout.controllers.clusterapi.cluster_budget import (
    ClusterBudget,
    LimitedClusterBudget,
    LimitUsage,
    new_cluster_budget,
)
from haulout.controllers.clusterapi.controller import EVENT_REPORTER, ClusterApiController, ClusterApiNotServed
from haulout.controllers.clusterapi.host_power import Metal3Settings
from haulout.controllers.clusterapi.machine_drain_rules import MachineDrainRuleInformer
from haulout.controllers.clusterapi.metal3 import Metal3Controller
from haulout.controllers.clusterapi.metrics import HOSTS, METRICS, ClusterApiMetrics, host_metrics
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.controllers.clusterapi.status import ConnectionState, MaintenanceState
from haulout.core.metrics import MetricVec
from haulout.runtime.component import Component, Leader
from haulout.runtime.tasks import running

log = logging.getLogger(__name__)

_MAX_CLUSTERS_NAMED = 5  # further clusters are only counted
_UNAVAILABLE = {ConnectionState.UNREACHABLE: "cannot be reached", ConnectionState.UNREADABLE: "is unreadable"}


class HubComponent(Component):
    """A component of a hub."""

    failure_reason = OperatorEventReason.HUB_FAILED


class ClusterApi(HubComponent):
    """Runs the controller that couples Machines with the nodes of workload clusters."""

    title, action = "the hub", "RunHub"
    metrics = METRICS

    def __init__(self, settings: ClusterApiSettings, *, connect: ClientFactory) -> None:
        super().__init__()
        self.controller: ClusterApiController | None = None  # while this replica leads
        self.budget: ClusterBudget | None = None  # while this replica leads
        self._settings = settings
        self._connect = connect
        self._counters = ClusterApiMetrics()
        self._changed = asyncio.Event()  # set when there is another controller, or none; then replaced

    async def lead(self, leader: Leader) -> None:
        events = leader.events(EVENT_REPORTER)
        # With the leader's fenced client: a deposed leader cannot take a slot.
        budget = self.budget = new_cluster_budget(
            leader.client, self._settings.cluster_budget, namespace=leader.namespace
        )
        try:
            async with running(events):
                while True:
                    controller = ClusterApiController(
                        leader.client,
                        connect=self._connect,
                        events=events,
                        settings=self._settings,
                        cluster_budget=budget,
                        freezes=leader.freezes,
                        metrics=self._counters,
                        instance=leader.identity,
                    )
                    self._set_controller(controller)
                    try:
                        await controller.run()
                    # A CRD may be upgraded while the hub runs. A new controller discovers the version; this is not a
                    # failure of the component, and must not count for the supervisor's backoff.
                    except ClusterApiNotServed as error:
                        log.warning("%s: discovering the served version", error)
                    finally:
                        self._set_controller(None)
        finally:
            self.budget = None

    async def use_controller(self, work: Callable[[ClusterApiController], Awaitable[None]]) -> None:
        """Run `work` with the controller, and again with each new one, until cancelled."""
        while True:
            changed, controller = self._changed, self.controller
            async with asyncio.TaskGroup() as group:
                task = None if controller is None else group.create_task(_run(work, controller))
                await changed.wait()
                if task is not None:
                    task.cancel()

    async def budget_usage(self) -> tuple[LimitUsage, ...]:
        """Read the usage of each limit; raise `KubeError`."""
        return await self.budget.usage() if isinstance(self.budget, LimitedClusterBudget) else ()

    def _set_controller(self, controller: ClusterApiController | None) -> None:
        self.controller = controller
        self._changed.set()
        self._changed = asyncio.Event()

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.controller is None:
            return
        unavailable = [item for item in self.controller.cluster_statuses() if item.connection_state.is_unavailable]
        for item in unavailable[:_MAX_CLUSTERS_NAMED]:
            yield f"cluster {item.key} {_UNAVAILABLE[item.connection_state]}: {item.reason}"
        if len(unavailable) > _MAX_CLUSTERS_NAMED:
            yield f"{len(unavailable) - _MAX_CLUSTERS_NAMED} more clusters cannot be reached or read"
        yield from self.controller.problems()

    def status_lines(self) -> Iterator[str]:
        if self.controller is None:
            return
        if self.controller.machines is None:
            yield "[-] hub: Cluster API is not discovered yet"
            return
        clusters = self.controller.cluster_statuses()
        connected = sum(cluster.connection_state is ConnectionState.CONNECTED for cluster in clusters)
        busy = sum(cluster.state is not MaintenanceState.IDLE for cluster in clusters)
        sign = "+" if connected == len(clusters) else "-"
        yield f"[{sign}] hub: {connected} of {len(clusters)} clusters are connected, maintenance is active in {busy}"

    def collect_metrics(self) -> Iterator[MetricVec]:
        yield self._counters.events_recorded
        if self.controller is not None:
            yield from self._counters.cluster_metrics(self.controller.cluster_statuses(), now=self.controller.now())
        if isinstance(self.budget, LimitedClusterBudget):
            yield from self._counters.budget_metrics(self.budget.cached_usage())


class MachineDrainRules(HubComponent):
    """Copies MachineDrainRules to nodes."""

    title, action = "MachineDrainRules", "RunMachineDrainRules"

    def __init__(self, hub: ClusterApi) -> None:
        super().__init__()
        self._hub = hub

    async def lead(self, leader: Leader) -> None:
        events = leader.events(EVENT_REPORTER)

        async def watch(controller: ClusterApiController) -> None:
            # The drain rules are served in the version of the Machines: both are CRDs of one release of Cluster API.
            version = (await controller.wait_for_machines()).resource.version
            rules = MachineDrainRuleInformer(leader.client, events=events, on_change=controller.enqueue_all)
            controller.drain_rules = rules.annotation_for
            await rules.run(version)

        async with running(events):
            await self._hub.use_controller(watch)


class Metal3(HubComponent):
    """Powers off the hosts of Machines that are approved for maintenance."""

    title, action = "Metal3", "RunMetal3"
    metrics = (HOSTS,)

    def __init__(self, hub: ClusterApi, settings: Metal3Settings) -> None:
        super().__init__()
        self.controller: Metal3Controller | None = None  # while this replica leads
        self._hub = hub
        self._settings = settings

    async def lead(self, leader: Leader) -> None:
        events = leader.events(EVENT_REPORTER)

        async def power_hosts(hub: ClusterApiController) -> None:
            controller = self.controller = Metal3Controller(
                leader.client,
                await hub.wait_for_machines(),
                node_of=hub.node_of,
                events=events,
                settings=self._settings,
            )
            unsubscribe = hub.subscribe(controller.enqueue_waiting)
            try:
                await controller.run()
            finally:
                self.controller = None
                unsubscribe()

        async with running(events):
            await self._hub.use_controller(power_hosts)

    def collect_metrics(self) -> Iterator[MetricVec]:
        if self.controller is not None:
            yield host_metrics(self.controller.host_power_counts())


async def _run(work: Callable[[ClusterApiController], Awaitable[None]], controller: ClusterApiController) -> None:
    await work(controller)
