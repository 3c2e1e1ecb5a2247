"""The API of a hub: clusters and commands."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from haulout.api.clusterapi import ClusterKey
from haulout.controllers.clusterapi.cluster_budget import LimitUsage, parse_limit
from haulout.controllers.clusterapi.status import (
    ConnectionState,
    MachineRequestStatus,
    RequestType,
    WorkloadClusterStatus,
)
from haulout.dashboard.api.backend import HttpError, TimelineQuery
from haulout.dashboard.api.cluster_summary import MAX_ACTIVE, cluster_banners, summarize_cluster
from haulout.dashboard.api.health import OperatorInfo
from haulout.dashboard.api.management_backend import KEEP_AFTER_LAST_VIEWER, ManagementBackend
from haulout.dashboard.api.types import Health, Mode
from haulout.errors import Unreachable
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual_time import VirtualClock

T0 = datetime(2026, 5, 1, 10, tzinfo=UTC)
PROD = WorkloadClusterStatus(
    key=ClusterKey("team-a", "prod"), connection_state=ConnectionState.CONNECTED, machines=3, enabled=2, nodes=2
)
OTHER_CLUSTER = WorkloadClusterStatus(key=ClusterKey("team-b", "prod"), connection_state=ConnectionState.CONNECTED)
LEAVING = MachineRequestStatus(
    name="prod-1", node="n1", request_type=RequestType.DELETION, reason="n1 has to approve", since=T0
)
REQUESTED = MachineRequestStatus(name="prod-2", node="n2", reason="n2 has to approve", since=T0)


class FakeClusters:
    """A hub with given cluster statuses."""

    def __init__(self, *statuses: WorkloadClusterStatus) -> None:
        self.statuses = statuses
        self.reads = 0
        self._callbacks: list[Callable[[], None]] = []

    def cluster_statuses(self) -> tuple[WorkloadClusterStatus, ...]:
        """Return what is known."""
        self.reads += 1
        return self.statuses

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Let somebody know."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def set_statuses(self, *statuses: WorkloadClusterStatus) -> None:
        """Stand in another way."""
        self.statuses = statuses
        for callback in self._callbacks:
            callback()


@asynccontextmanager
async def a_management_backend(
    clock: VirtualClock, clusters: FakeClusters, uses: Callable[[], tuple[LimitUsage, ...]] = tuple
) -> AsyncIterator[ManagementBackend]:
    async def health(viewers: int) -> Health:
        return Health(identity="me", version="1", started=T0, viewers=viewers)

    async def read_uses() -> tuple[LimitUsage, ...]:
        return uses()

    client = Client(ApiServer(clock).transport("hub"), clock=clock, random=Random(0))
    backend = ManagementBackend(
        client,
        clusters,
        operator_info=OperatorInfo(identity="me", since=T0, cluster="mgmt"),
        health=health,
        read_uses=read_uses,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(backend.run())
        yield backend
        task.cancel()


def test_cluster_tile_has_state_and_active_machines() -> None:
    tile = summarize_cluster(
        replace(PROD, requests=(LEAVING, REQUESTED)), [LimitUsage(limit=parse_limit("2"), holders=("team-a/prod",))]
    )
    assert (tile.key, tile.connection, tile.state, tile.budgets) == (
        "team-a/prod",
        "connected",
        "in-maintenance",
        ("all clusters",),
    )
    assert [(machine.name, machine.request, machine.message) for machine in tile.active] == [
        ("prod-1", "deletion", "n1 has to approve"),
        ("prod-2", "maintenance", "n2 has to approve"),
    ]


def test_cluster_that_waits_for_the_budget_is_not_in_maintenance() -> None:
    tile = summarize_cluster(
        replace(PROD, requests=(REQUESTED,), waiting_reason="1 of 1 cluster is in maintenance: a/b")
    )
    assert (tile.state, tile.waiting_for) == ("waiting", "1 of 1 cluster is in maintenance: a/b")
    assert [command.title for command in tile.active[0].commands] == [
        "Withdraw the request",
        "Show the Machine and its conditions",
    ]


def test_active_machines_of_a_tile_are_limited_and_counted() -> None:
    machines = tuple(replace(LEAVING, name=f"m{number:04}") for number in range(1000))
    tile = summarize_cluster(replace(PROD, requests=machines))
    assert (len(tile.active), tile.active_count) == (MAX_ACTIVE, 1000)


@pytest.mark.parametrize(
    ("machine", "reach", "titles"),
    [
        (
            LEAVING,
            ConnectionState.CONNECTED,
            [
                "Show what it waits for",
                "Approve it by hand",
                "Delete the Machine without preparing its node",
                "Show the Machine and its conditions",
            ],
        ),
        (
            LEAVING,
            ConnectionState.UNREACHABLE,
            ["Delete the Machine without preparing its node", "Show the Machine and its conditions"],
        ),
        (replace(LEAVING, is_approved=True), ConnectionState.CONNECTED, ["Show the Machine and its conditions"]),
        (
            REQUESTED,
            ConnectionState.CONNECTED,
            [
                "Show what it waits for",
                "Approve it by hand",
                "Withdraw the request",
                "Show the Machine and its conditions",
            ],
        ),
        (
            replace(REQUESTED, is_approved=True),
            ConnectionState.CONNECTED,
            ["End the maintenance", "Show the Machine and its conditions"],
        ),
    ],
)
def test_machine_commands_depend_on_request_and_connection(
    machine: MachineRequestStatus, reach: ConnectionState, titles: list[str]
) -> None:
    tile = summarize_cluster(replace(PROD, connection_state=reach, requests=(machine,)))
    assert [command.title for command in tile.active[0].commands] == titles


def test_commands_are_complete_and_ready_to_paste() -> None:
    tile = summarize_cluster(replace(PROD, requests=(LEAVING, REQUESTED)))
    prefix = "runtime-extension-maintenance-controller.cloud.sap"
    assert [command.command for command in tile.active[0].commands] == [
        "haulout why n1 --kubeconfig team-a-prod.kubeconfig",
        f"kubectl --kubeconfig team-a-prod.kubeconfig label node n1 {prefix}/approve-deletion=true",
        f"kubectl -n team-a label machines.cluster.x-k8s.io prod-1 {prefix}/enabled-",
        "kubectl -n team-a describe machines.cluster.x-k8s.io prod-1",
    ]
    assert tile.active[1].commands[2].command == (
        f"kubectl -n team-a label machines.cluster.x-k8s.io prod-2 {prefix}/maintenance-"
    )
    read = "kubectl -n team-a get secret prod-kubeconfig -o jsonpath='{.data.value}'"
    assert [command.command for command in tile.commands] == [
        f"{read} | base64 -d > team-a-prod.kubeconfig && kubectl --kubeconfig team-a-prod.kubeconfig get nodes",
        "kubectl -n team-a get machines.cluster.x-k8s.io -l cluster.x-k8s.io/cluster-name=prod",
    ]


def test_hostile_names_are_quoted_in_commands() -> None:
    evil = "$(rm -rf /)"
    machine = replace(LEAVING, name=evil, node=evil)
    tile = summarize_cluster(replace(PROD, key=ClusterKey(evil, evil), requests=(machine,)))
    for item in (*tile.commands, *tile.active[0].commands):
        command_words = [word for word in shlex.split(item.command) if "rm" in word]
        assert command_words, item.command
        assert all(evil in word for word in command_words), item.command


def test_unreachable_clusters_have_a_banner() -> None:
    unreachable_clusters = [
        summarize_cluster(replace(PROD, key=ClusterKey("a", str(item)), connection_state=ConnectionState.UNREACHABLE))
        for item in range(5)
    ]
    assert [item.message for item in cluster_banners(unreachable_clusters)] == [
        "5 clusters cannot be reached: a/0, a/1, a/2 and 2 more"
    ]
    assert [item.message for item in cluster_banners(unreachable_clusters[:1])] == ["1 cluster cannot be reached: a/0"]
    unreadable = summarize_cluster(replace(PROD, connection_state=ConnectionState.UNREADABLE, reason="too long"))
    assert [item.message for item in cluster_banners([unreachable_clusters[0], unreadable])] == [
        "1 cluster cannot be reached: a/0",
        f"1 cluster cannot be read: {PROD.key}",
    ]
    assert cluster_banners([summarize_cluster(PROD)]) == ()


async def test_hub_summary_has_management_mode_and_cluster_budgets(clock: VirtualClock) -> None:
    uses = (LimitUsage(limit=parse_limit("2"), holders=("team-a/prod",), waiting=("team-b/prod",)),)
    async with a_management_backend(clock, FakeClusters(OTHER_CLUSTER, PROD), lambda: uses) as backend:
        summary, clusters = await backend.summary(), await backend.clusters()
        assert (summary.mode, summary.cluster, summary.total) == (Mode.MANAGEMENT, "mgmt", 0)
        assert [(item.name, item.used, item.limit, item.text) for item in summary.budgets] == [
            ("all clusters", 1, 2, "at most 2 clusters in maintenance at once")
        ]
        assert ([item.key for item in clusters.clusters], clusters.total) == (["team-a/prod", "team-b/prod"], 2)
        assert (await backend.fleet()).total == 0
        assert (await backend.notices()).notices == ()
        assert await backend.detail("n1") is None
        assert (await backend.health()).viewers == 0


async def test_hub_refuses_timeline_and_configuration_requests(clock: VirtualClock) -> None:
    async with a_management_backend(clock, FakeClusters()) as backend:
        with pytest.raises(HttpError, match="this is a hub, which has no timeline"):
            await backend.timeline(TimelineQuery())
        with pytest.raises(HttpError, match="this is a hub, which has no configuration"):
            await backend.configuration()


async def test_subscriber_receives_cluster_changes_only(clock: VirtualClock) -> None:
    clusters = FakeClusters(PROD, OTHER_CLUSTER)
    async with a_management_backend(clock, clusters) as backend, backend.subscribe() as viewer:
        message = await viewer.next() or b""
        assert b'"mode":"management"' in message
        clusters.set_statuses(replace(PROD, requests=(REQUESTED,)))
        message = await viewer.next() or b""
        assert b"event: clusters" in message
        assert b'"state":"in-maintenance"' in message
        assert b'"deleted":["team-b/prod"]' in message
        clusters.set_statuses(replace(PROD, requests=(REQUESTED,)))
        assert await viewer.next() == b": still here\n\n"


async def test_frequent_changes_are_batched(clock: VirtualClock) -> None:
    clusters = FakeClusters(PROD)
    async with a_management_backend(clock, clusters) as backend, backend.subscribe() as viewer:
        await viewer.next()
        for number in range(100):
            clusters.set_statuses(replace(PROD, nodes=number))
            await clock.sleep(timedelta(milliseconds=10))
        message = b""
        while b'"nodes":99' not in message:
            message += await viewer.next() or b""
        assert message.count(b"event: clusters") <= 6


async def test_clusters_are_not_read_without_viewers(clock: VirtualClock) -> None:
    clusters = FakeClusters(PROD)
    async with a_management_backend(clock, clusters) as backend:
        await clock.sleep(timedelta(hours=1))
        assert clusters.reads == 0
        await backend.clusters()
        await clock.sleep(2 * KEEP_AFTER_LAST_VIEWER)
        before = clusters.reads
        await clock.sleep(timedelta(hours=1))
        assert clusters.reads == before
        clusters.set_statuses(OTHER_CLUSTER)
        assert [cluster.key for cluster in (await backend.clusters()).clusters] == ["team-b/prod"]


async def test_unreadable_budget_is_a_banner(clock: VirtualClock) -> None:
    def broken() -> tuple[LimitUsage, ...]:
        raise Unreachable("no route", sent=False)

    async with a_management_backend(clock, FakeClusters(PROD), broken) as backend:
        assert (await backend.clusters()).total == 1
        assert [banner.message for banner in (await backend.summary()).banners] == [
            "cannot read the usage of the budget across clusters: no route"
        ]
