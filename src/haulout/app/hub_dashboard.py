"""The dashboard backend of a leading hub: the source of `/api/v2`. Its failures do not affect the hub.

    group.create_task(run_hub_dashboard(client, status, admission, namespace=…, identity=…, cluster=…))

The backend survives a restart of the hub's controller, and reports the failure meanwhile.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from haulout import __version__
from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget, LimitedClusterBudget
from haulout.controllers.clusterapi.status import WorkloadClusterStatus
from haulout.dashboard.api import health
from haulout.dashboard.api.health import OperatorInfo
from haulout.dashboard.api.management_backend import ClusterStatuses, ManagementBackend
from haulout.dashboard.api.types import Banner, ComponentHealth, Health, LeaseHealth, Level
from haulout.errors import KubeError
from haulout.httpserver import metrics
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from haulout.dashboard.api.backend import Backend
    from haulout.dashboard.api.health import RecentWarnings


class HubView(ClusterStatuses, Protocol):
    """What the dashboard reads from the hub's controller."""

    @property
    def machines(self) -> object | None:
        """The Machines; None: Cluster API was not found yet."""
        ...


class HubStatusView(Protocol):
    """What the dashboard reads from `haulout.app.hub_status.HubStatus`, which outlives each term of leadership."""

    source: "Backend | None"

    @property
    def hub(self) -> HubView | None: ...

    @property
    def supervisor(self) -> Supervisor: ...

    @property
    def drain_rules_supervisor(self) -> Supervisor: ...

    @property
    def metal3_supervisor(self) -> Supervisor: ...

    @property
    def dashboard_supervisor(self) -> Supervisor: ...

    @property
    def started(self) -> datetime | None: ...

    @property
    def recent_warnings(self) -> "RecentWarnings | None": ...


async def run_hub_dashboard(
    client: Client, status: HubStatusView, admission: ClusterBudget, *, namespace: str, identity: str, cluster: str
) -> None:
    backend = _HubBackend(client, status, namespace=namespace, identity=identity)
    operator_info = OperatorInfo(identity=identity, since=client.clock.now(), cluster=cluster, banners=backend.banners)

    async def work() -> None:
        uses = admission.usage if isinstance(admission, LimitedClusterBudget) else None
        source = ManagementBackend(client, backend, operator_info=operator_info, health=backend.health, read_uses=uses)
        status.source = source
        try:
            await source.run()
        finally:
            status.source = None

    await status.dashboard_supervisor.run(work, client=client)


class _HubBackend:
    """Reads the hub's status, across restarts of its controller."""

    def __init__(self, client: Client, status: HubStatusView, *, namespace: str, identity: str) -> None:
        self._client = client
        self._clock = client.clock
        self._status = status
        self._namespace = namespace
        self._identity = identity

    def cluster_statuses(self) -> tuple[WorkloadClusterStatus, ...]:
        return () if self._status.hub is None else self._status.hub.cluster_statuses()

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call back on changes of this controller; after its restart, readers must subscribe again."""
        return _nothing_to_unsubscribe if self._status.hub is None else self._status.hub.subscribe(callback)

    def banners(self) -> tuple[Banner, ...]:
        return tuple(Banner(level=Level.CRITICAL, message=problem, page="health") for problem in self._problems())

    async def health(self, viewers: int) -> Health:
        usage, recent_warnings = metrics.resource_usage(), self._status.recent_warnings
        return Health(
            identity=self._identity,
            version=__version__,
            started=self._status.started or self._clock.now(),
            python=usage.python,
            memory_bytes=usage.memory_bytes,
            cpu_seconds=usage.cpu_seconds,
            viewers=viewers,
            leases=(await self._lease(),),
            watches=health.watches(self._client.metrics),
            queues=health.queues(self._client.metrics),
            requests=health.calls(self._client.request_metrics, now=self._clock.monotonic()),
            components=tuple(self._part_health()),
            warnings=() if recent_warnings is None else recent_warnings.to_api(str),
        )

    def _problems(self) -> Iterator[str]:
        hub = self._status.hub
        if hub is not None and hub.machines is None:
            yield "Cluster API was not found in this cluster: there are no machines.cluster.x-k8s.io"
        yield from (supervisor.problem for supervisor in self._supervisors() if supervisor.problem)

    def _supervisors(self) -> tuple[Supervisor, ...]:
        return (
            self._status.supervisor,
            self._status.drain_rules_supervisor,
            self._status.metal3_supervisor,
            self._status.dashboard_supervisor,
        )

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
            found = await leases.find(self._client, EXTENSION_LEASE, namespace=self._namespace)
        except KubeError as error:
            return LeaseHealth(name=EXTENSION_LEASE, holder=f"unknown: {error}")
        return health.lease(EXTENSION_LEASE, found)


def _nothing_to_unsubscribe() -> None:
    """Do nothing: there is no subscription."""
