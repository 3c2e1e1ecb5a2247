"""What a hub shows, whichever of its lives it is in."""

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
    """A hub that knows one cluster."""

    machines: object | None = field(default_factory=object)
    told: list[Callable[[], None]] = field(default_factory=list)

    def cluster_statuses(self) -> tuple[WorkloadClusterStatus, ...]:
        """Return it."""
        return (LOST,)

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Note who wants to know."""
        self.told.append(callback)
        return lambda: self.told.remove(callback)


@dataclass
class FakeVitals:
    """How it is doing."""

    hub: FakeHub | None = None
    source: Backend | None = None
    started: datetime | None = None
    recent_warnings: RecentWarnings | None = None
    supervisor: Supervisor = field(default_factory=lambda: Supervisor("the hub"))
    drain_rules_supervisor: Supervisor = field(default_factory=lambda: Supervisor("MachineDrainRules"))
    metal3_supervisor: Supervisor = field(default_factory=lambda: Supervisor("Metal3"))
    dashboard_supervisor: Supervisor = field(default_factory=lambda: Supervisor("the dashboard"))


@asynccontextmanager
async def facing(
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


async def test_clusters_and_the_budget_are_shown(clock: VirtualClock) -> None:
    api = a_management_cluster(clock, a_cluster_object("team-a/prod"))
    client = Client(api.transport("hub"), clock=clock, random=Random(0))
    budget = new_cluster_budget(client, ("1",), namespace=NAMESPACE)
    assert not await budget.acquire(parse_key("team-a/prod"))
    async with facing(clock, api, FakeVitals(hub=FakeHub()), budget) as source:
        assert [(it.key, it.budgets) for it in (await source.clusters()).clusters] == [
            ("team-a/prod", ("all clusters",))
        ]
        assert [(it.used, it.limit) for it in (await source.summary()).budgets] == [(1, 1)]


async def test_a_hub_that_starts_again_is_seen(clock: VirtualClock) -> None:
    vitals = FakeVitals()
    async with facing(clock, ApiServer(clock), vitals) as source:
        assert (await source.clusters()).total == 0
        vitals.hub = FakeHub()
        async with source.subscribe() as viewer:
            told = b""
            while b"event: clusters" not in told:
                told += await viewer.next() or b""
        assert b"team-a/prod" in told


async def test_without_cluster_api_that_is_said_on_every_page(clock: VirtualClock) -> None:
    async with facing(clock, ApiServer(clock), FakeVitals(hub=FakeHub(machines=None))) as source:
        assert "Cluster API was not found" in (await source.summary()).banners[0].message


async def test_health_tells_of_parts_clusters_and_the_lease(clock: VirtualClock) -> None:
    async with facing(clock, ApiServer(clock), FakeVitals(hub=FakeHub())) as source:
        health = await source.health()
        assert [(it.name, it.is_healthy) for it in health.components] == [
            ("the hub", True),
            ("MachineDrainRules", True),
            ("Metal3", True),
            ("the dashboard", True),
            ("cluster team-a/prod", False),
        ]
        assert [it.name for it in health.leases] == [EXTENSION_LEASE]


def test_what_was_typed_becomes_a_budget(clock: VirtualClock) -> None:
    client = Client(ApiServer(clock).transport("hub"), clock=clock, random=Random(0))
    assert isinstance(new_cluster_budget(client, (), namespace=NAMESPACE), UnlimitedClusterBudget)
    with pytest.raises(ValueError, match="expected a number of clusters"):
        new_cluster_budget(client, ("many",), namespace=NAMESPACE)
