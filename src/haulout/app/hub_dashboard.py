"""The dashboard backend of a leading hub: the source of `/api/v2`. Its failures do not affect the hub.

The backend survives a restart of the hub's controller, and reports the failure meanwhile.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.resources import LEASES
from haulout.controllers.clusterapi.component import ClusterApi, HubComponent
from haulout.controllers.clusterapi.status import WorkloadClusterStatus
from haulout.dashboard.api import health
from haulout.dashboard.api.banners import freeze_banners
from haulout.dashboard.api.health import OperatorInfo
from haulout.dashboard.api.management_backend import ManagementBackend
from haulout.dashboard.api.types import Banner, ComponentHealth, Health, LeaseHealth, Level
from haulout.errors import KubeError
from haulout.httpserver import metrics
from haulout.runtime.component import Leader
from haulout.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from haulout.app.replica import ReplicaStatus


class HubDashboard(HubComponent):
    """Runs the backend. It uses the status of the replica, which outlives each term of leadership."""

    title, action = "the dashboard", "RunDashboard"

    def __init__(self, hub: ClusterApi, status: "ReplicaStatus", *, cluster: str) -> None:
        super().__init__()
        self._hub = hub
        self._status = status
        self._cluster = cluster  # display name

    async def lead(self, leader: Leader) -> None:
        client = leader.client
        backend = _HubBackend(self._hub, self._status, leader)
        operator_info = OperatorInfo(
            identity=leader.identity, since=client.clock.now(), cluster=self._cluster, banners=backend.banners
        )
        self._status.source = source = ManagementBackend(
            client, backend, operator_info=operator_info, health=backend.health, read_uses=self._hub.budget_usage
        )
        try:
            await source.run()
        finally:
            self._status.source = None


class _HubBackend:
    """Reads the hub's status, across restarts of its controller."""

    def __init__(self, hub: ClusterApi, status: "ReplicaStatus", leader: Leader) -> None:
        self._hub = hub
        self._status = status
        self._leader = leader
        self._client = leader.client

    def cluster_statuses(self) -> tuple[WorkloadClusterStatus, ...]:
        return () if self._hub.controller is None else self._hub.controller.cluster_statuses()

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call back on changes of this controller; after its restart, readers must subscribe again."""
        return _nothing_to_unsubscribe if self._hub.controller is None else self._hub.controller.subscribe(callback)

    def banners(self) -> tuple[Banner, ...]:
        freezes = self._leader.freezes.current().active(self._client.clock.now())
        problems = (Banner(level=Level.CRITICAL, message=problem, page="health") for problem in self._problems())
        return (*problems, *freeze_banners(freezes))

    async def health(self, viewers: int) -> Health:
        usage, recent_warnings = metrics.resource_usage(), self._status.recent_warnings
        return Health(
            identity=self._leader.identity,
            version=__version__,
            started=self._status.started or self._client.clock.now(),
            python=usage.python,
            memory_bytes=usage.memory_bytes,
            cpu_seconds=usage.cpu_seconds,
            viewers=viewers,
            leases=(await self._lease(),),
            watches=health.watches(self._client.metrics),
            queues=health.queues(self._client.metrics),
            requests=health.calls(self._client.request_metrics, now=self._client.clock.monotonic()),
            components=tuple(self._part_health()),
            warnings=() if recent_warnings is None else recent_warnings.to_api(str),
        )

    def _problems(self) -> Iterator[str]:
        hub = self._hub.controller
        if hub is not None and hub.machines is None:
            yield "Cluster API was not found in this cluster: there are no machines.cluster.x-k8s.io"
        yield from (supervisor.problem for supervisor in self._supervisors() if supervisor.problem)

    def _supervisors(self) -> tuple[Supervisor, ...]:
        return tuple(component.supervisor for component in self._status.components)

    def _part_health(self) -> Iterator[ComponentHealth]:
        yield from (
            ComponentHealth(name=item.name, is_healthy=not item.problem, message=item.problem)
            for item in self._supervisors()
        )
        for item in self.cluster_statuses():
            is_well = not item.connection_state.is_unavailable
            yield ComponentHealth(
                name=f"cluster {item.key}", is_healthy=is_well, message=item.reason, last_response=item.last_response_at
            )

    async def _lease(self) -> LeaseHealth:
        try:
            found = await self._client.find(LEASES, EXTENSION_LEASE, namespace=self._leader.namespace)
        except KubeError as error:
            return LeaseHealth(name=EXTENSION_LEASE, holder=f"unknown: {error}")
        return health.lease(EXTENSION_LEASE, found)


def _nothing_to_unsubscribe() -> None:
    """Do nothing: there is no subscription."""
