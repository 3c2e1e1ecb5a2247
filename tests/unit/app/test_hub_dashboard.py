"""The dashboard of a hub, also before it starts and after it restarts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

import pytest

from haulout.api.clusterapi import EXTENSION_LEASE, ClusterKey
from haulout.app.hub_dashboard import run_hub_dashboard
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget, UnlimitedClusterBudget, new_cluster_budget
from haulout.controllers.clusterapi.status import ConnectionState, WorkloadClusterStatus
from haulout.dashboard.api.backend import Backend
from haulout.dashboard.api.health import RecentWarnings
from haulout.kube.client import Client
from haulout.runtime.supervisor import Supervisor
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.platforms.cluster_budget import NAMESPACE, a_cluster_object, a_management_cluster, parse_key

LOST = WorkloadClusterStatus(
    key=ClusterKey("team-a", "prod"), connection_state=ConnectionState.UNREACHABLE, reason="connection refused"
)


@dataclass
class FakeHub:
    """A hub with one cluster."""

    machines: object | None = field(default_factory=object)
    callbacks: list[Callable[[], None]] = field(default_factory=list)

    def cluster_statuses(self) -> tuple[WorkloadClusterStatus, ...]:
        """Return it."""
        return (LOST,)

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Record the callback."""
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)


@dataclass
class FakeVitals:
    """The status of the hub."""

    hub: FakeHub | None = None
    source: Backend | None = None
    started: datetime | None = None
    recent_warnings: RecentWarnings | None = None
    supervisor: Supervisor = field(default_factory=lambda: Supervisor("the hub"))
    drain_rules_supervisor: Supervisor = field(default_factory=lambda: Supervisor("MachineDrainRules"))
    metal3_supervisor: Supervisor = field(default_factory=lambda: Supervisor("Metal3"))
    dashboard_supervisor: Supervisor = field(default_factory=lambda: Supervisor("the dashboard"))


@asynccontextmanager
async def running_dashboard(
    clock: VirtualClock, api: ApiServer, vitals: FakeVitals, admission: ClusterBudget | None = None
) -> AsyncIterator[Backend]:
    client = Client(api.transport("hub"), clock=clock, random=Random(0))
    async with asyncio.TaskGroup() as group:
        showing = run_hub_dashboard(
            client, vitals, admission or UnlimitedClusterBudget(), namespace=NAMESPACE, identity="me", cluster="mgmt"
        )
        task = group.create_task(showing)
        await clock.sleep(timedelta())
        assert vitals.source is not None
        yield vitals.source
        task.cancel()
    assert vitals.source is None


async def test_hub_dashboard_shows_clusters_and_the_budget(clock: VirtualClock) -> None:
    api = a_management_cluster(clock, a_cluster_object("team-a/prod"))
    client = Client(api.transport("hub"), clock=clock, random=Random(0))
    budget = new_cluster_budget(client, ("1",), namespace=NAMESPACE)
    assert not await budget.acquire(parse_key("team-a/prod"))
    async with running_dashboard(clock, api, FakeVitals(hub=FakeHub()), budget) as source:
        assert [(it.key, it.budgets) for it in (await source.clusters()).clusters] == [
            ("team-a/prod", ("all clusters",))
        ]
        assert [(it.used, it.limit) for it in (await source.summary()).budgets] == [(1, 1)]


async def test_hub_dashboard_streams_clusters_of_a_restarted_hub(clock: VirtualClock) -> None:
    vitals = FakeVitals()
    async with running_dashboard(clock, ApiServer(clock), vitals) as source:
        assert (await source.clusters()).total == 0
        vitals.hub = FakeHub()
        async with source.subscribe() as viewer:
            events = b""
            while b"event: clusters" not in events:
                events += await viewer.next() or b""
        assert b"team-a/prod" in events


async def test_hub_dashboard_shows_a_banner_without_cluster_api(clock: VirtualClock) -> None:
    async with running_dashboard(clock, ApiServer(clock), FakeVitals(hub=FakeHub(machines=None))) as source:
        assert "Cluster API was not found" in (await source.summary()).banners[0].message


async def test_hub_health_lists_components_clusters_and_the_lease(clock: VirtualClock) -> None:
    async with running_dashboard(clock, ApiServer(clock), FakeVitals(hub=FakeHub())) as source:
        health = await source.health()
        assert [(it.name, it.is_healthy) for it in health.components] == [
            ("the hub", True),
            ("MachineDrainRules", True),
            ("Metal3", True),
            ("the dashboard", True),
            ("cluster team-a/prod", False),
        ]
        assert [it.name for it in health.leases] == [EXTENSION_LEASE]


def test_cluster_budget_flags_are_parsed(clock: VirtualClock) -> None:
    client = Client(ApiServer(clock).transport("hub"), clock=clock, random=Random(0))
    assert isinstance(new_cluster_budget(client, (), namespace=NAMESPACE), UnlimitedClusterBudget)
    with pytest.raises(ValueError, match="expected a number of clusters"):
        new_cluster_budget(client, ("many",), namespace=NAMESPACE)
