"""The dashboard of a hub, also before it starts and after it restarts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random

import pytest

from haulout.api.clusterapi import EXTENSION_LEASE, ClusterKey, machine_resource
from haulout.app.hub_dashboard import HubDashboard
from haulout.app.replica import ReplicaStatus
from haulout.controllers.clusterapi.cluster_budget import UnlimitedClusterBudget, new_cluster_budget
from haulout.controllers.clusterapi.component import ClusterApi, MachineDrainRules
from haulout.controllers.clusterapi.controller import ClusterApiController
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.controllers.clusterapi.status import ConnectionState, WorkloadClusterStatus
from haulout.dashboard.api.backend import Backend
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.runtime.freezes import NoFreezes
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.expectations.eventually import eventually
from support.operators.components import run_component
from support.platforms.cluster_budget import NAMESPACE, a_cluster_object, a_management_cluster, parse_key

LOST = WorkloadClusterStatus(
    key=ClusterKey("team-a", "prod"), connection_state=ConnectionState.UNREACHABLE, reason="connection refused"
)


class FakeHub(ClusterApi):
    """A hub with one cluster, while it has a controller."""

    def __init__(self) -> None:
        super().__init__(ClusterApiSettings(), connect=_no_connection)

    def start(self, client: Client, *, machines: bool = True) -> None:
        """Let there be a controller; without Machines, Cluster API is not found."""
        controller = ClusterApiController(
            client, connect=_no_connection, events=EventRecorder(client, instance="me"), freezes=NoFreezes()
        )
        controller.cluster_statuses = lambda: (LOST,)  # type: ignore[method-assign]
        if machines:
            controller.machines = Informer(client, ListWatch(machine_resource("v1beta2")), transform=as_is)
        self.controller = controller


def _no_connection(_: bytes, key: ClusterKey) -> AbstractAsyncContextManager[Client]:
    raise AssertionError(f"there is no cluster {key}")


def a_client(clock: VirtualClock, api: ApiServer) -> Client:
    return Client(api.transport("hub"), clock=clock, random=Random(0))


@asynccontextmanager
async def running_dashboard(clock: VirtualClock, api: ApiServer, hub: FakeHub) -> AsyncIterator[Backend]:
    client, status = a_client(clock, api), ReplicaStatus()
    status.components = (hub, MachineDrainRules(hub), HubDashboard(hub, status, cluster="mgmt"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_component(client, status.components[-1]))
        await eventually(clock, lambda: status.source is not None)
        assert status.source is not None
        yield status.source
        task.cancel()
    assert status.source is None


async def test_hub_dashboard_shows_clusters_and_the_budget(clock: VirtualClock) -> None:
    api = a_management_cluster(clock, a_cluster_object("team-a/prod"))
    hub, client = FakeHub(), a_client(clock, api)
    hub.start(client)
    hub.budget = new_cluster_budget(client, ("1",), namespace=NAMESPACE)
    assert not await hub.budget.acquire(parse_key("team-a/prod"))
    async with running_dashboard(clock, api, hub) as source:
        assert [(it.key, it.budgets) for it in (await source.clusters()).clusters] == [
            ("team-a/prod", ("all clusters",))
        ]
        assert [(it.used, it.limit) for it in (await source.summary()).budgets] == [(1, 1)]


async def test_hub_dashboard_streams_clusters_of_a_restarted_hub(clock: VirtualClock) -> None:
    hub, api = FakeHub(), ApiServer(clock)
    async with running_dashboard(clock, api, hub) as source:
        assert (await source.clusters()).total == 0
        hub.start(a_client(clock, api))
        async with source.subscribe() as viewer:
            events = b""
            while b"event: clusters" not in events:
                events += await viewer.next() or b""
        assert b"team-a/prod" in events


async def test_hub_dashboard_shows_a_banner_without_cluster_api(clock: VirtualClock) -> None:
    hub, api = FakeHub(), ApiServer(clock)
    hub.start(a_client(clock, api), machines=False)
    async with running_dashboard(clock, api, hub) as source:
        assert "Cluster API was not found" in (await source.summary()).banners[0].message


async def test_hub_health_lists_components_clusters_and_the_lease(clock: VirtualClock) -> None:
    hub, api = FakeHub(), ApiServer(clock)
    hub.start(a_client(clock, api))
    async with running_dashboard(clock, api, hub) as source:
        health = await source.health()
        assert [(it.name, it.is_healthy) for it in health.components] == [
            ("the hub", True),
            ("MachineDrainRules", True),
            ("the dashboard", True),
            ("cluster team-a/prod", False),
        ]
        assert [it.name for it in health.leases] == [EXTENSION_LEASE]


def test_cluster_budget_flags_are_parsed(clock: VirtualClock) -> None:
    client = Client(ApiServer(clock).transport("hub"), clock=clock, random=Random(0))
    assert isinstance(new_cluster_budget(client, (), namespace=NAMESPACE), UnlimitedClusterBudget)
    with pytest.raises(ValueError, match="expected a number of clusters"):
        new_cluster_budget(client, ("many",), namespace=NAMESPACE)
