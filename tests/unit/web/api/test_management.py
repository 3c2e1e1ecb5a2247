"""What a hub tells of its clusters, and what a person can type about them."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from haulout.errors import Unreachable
from haulout.hub.admission import Use
from haulout.hub.cluster_limits import read_limit
from haulout.hub.standing import ClusterStanding, MachineStanding, Reach, Why
from haulout.kinds.clusterapi import ClusterKey
from haulout.kube.client import Client
from haulout.web.api.cluster_tiles import MOST_ACTIVE, cluster_banners, cluster_tile
from haulout.web.api.heading import Heading
from haulout.web.api.management import KEPT_FOR, Management
from haulout.web.api.shapes import Health, Mode
from haulout.web.api.source import Stretch, Unanswerable
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual import VirtualClock

T0 = datetime(2026, 5, 1, 10, tzinfo=UTC)
PROD = ClusterStanding(key=ClusterKey("team-a", "prod"), reach=Reach.CONNECTED, machines=3, enabled=2, nodes=2)
OTHER = ClusterStanding(key=ClusterKey("team-b", "prod"), reach=Reach.CONNECTED)
LEAVING = MachineStanding(name="prod-1", node="n1", why=Why.DELETION, reason="n1 has to approve", since=T0)
ASKED = MachineStanding(name="prod-2", node="n2", reason="n2 has to approve", since=T0)


class Fake:
    """A hub that knows what a test tells it."""

    def __init__(self, *standings: ClusterStanding) -> None:
        self.known = standings
        self.looks = 0
        self._told: list[Callable[[], None]] = []

    def standings(self) -> tuple[ClusterStanding, ...]:
        """Return what is known."""
        self.looks += 1
        return self.known

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Let somebody know."""
        self._told.append(callback)
        return lambda: self._told.remove(callback)

    def become(self, *standings: ClusterStanding) -> None:
        """Stand in another way."""
        self.known = standings
        for tell in self._told:
            tell()


@asynccontextmanager
async def managing(
    clock: VirtualClock, hub: Fake, uses: Callable[[], tuple[Use, ...]] = tuple
) -> AsyncIterator[Management]:
    async def health(viewers: int) -> Health:
        return Health(identity="me", version="1", started=T0, viewers=viewers)

    async def used() -> tuple[Use, ...]:
        return uses()

    client = Client(ApiServer(clock).transport("hub"), clock=clock, random=Random(0))
    source = Management(client, hub, heading=Heading(identity="me", since=T0, cluster="mgmt"), health=health, uses=used)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(source.run())
        yield source
        task.cancel()


def test_a_tile_tells_at_a_glance_and_in_full() -> None:
    tile = cluster_tile(replace(PROD, active=(LEAVING, ASKED)), [Use(limit=read_limit("2"), holders=("team-a/prod",))])
    assert (tile.key, tile.reach, tile.state, tile.budgets) == (
        "team-a/prod",
        "connected",
        "in-maintenance",
        ("all clusters",),
    )
    assert [(it.name, it.why, it.reason) for it in tile.active] == [
        ("prod-1", "deletion", "n1 has to approve"),
        ("prod-2", "maintenance", "n2 has to approve"),
    ]


def test_who_waits_for_the_budget_is_not_in_maintenance() -> None:
    tile = cluster_tile(replace(PROD, active=(ASKED,), waits_for="1 of 1 cluster is in maintenance: a/b"))
    assert (tile.state, tile.waits_for) == ("waiting", "1 of 1 cluster is in maintenance: a/b")
    assert [it.title for it in tile.active[0].commands] == ["Withdraw it", "What Cluster API says"]


def test_a_cluster_with_a_thousand_machines_under_way_tells_the_first_and_how_many() -> None:
    machines = tuple(replace(LEAVING, name=f"m{number:04}") for number in range(1000))
    tile = cluster_tile(replace(PROD, active=machines))
    assert (len(tile.active), tile.active_count) == (MOST_ACTIVE, 1000)


@pytest.mark.parametrize(
    ("machine", "reach", "titles"),
    [
        (
            LEAVING,
            Reach.CONNECTED,
            ["Why it waits", "Approve it by hand", "Do not wait for its node", "What Cluster API says"],
        ),
        (LEAVING, Reach.UNREACHABLE, ["Do not wait for its node", "What Cluster API says"]),
        (replace(LEAVING, is_approved=True), Reach.CONNECTED, ["What Cluster API says"]),
        (ASKED, Reach.CONNECTED, ["Why it waits", "Approve it by hand", "Withdraw it", "What Cluster API says"]),
        (replace(ASKED, is_approved=True), Reach.CONNECTED, ["Say that it is done", "What Cluster API says"]),
    ],
)
def test_what_can_be_typed_is_what_helps(machine: MachineStanding, reach: Reach, titles: list[str]) -> None:
    tile = cluster_tile(replace(PROD, reach=reach, active=(machine,)))
    assert [it.title for it in tile.active[0].commands] == titles


def test_commands_are_to_be_pasted_as_they_are() -> None:
    tile = cluster_tile(replace(PROD, active=(LEAVING, ASKED)))
    prefix = "runtime-extension-maintenance-controller.cloud.sap"
    assert [it.command for it in tile.active[0].commands] == [
        "haulout why n1 --kubeconfig team-a-prod.kubeconfig",
        f"kubectl --kubeconfig team-a-prod.kubeconfig label node n1 {prefix}/approve-deletion=true",
        f"kubectl -n team-a label machines.cluster.x-k8s.io prod-1 {prefix}/enabled-",
        "kubectl -n team-a describe machines.cluster.x-k8s.io prod-1",
    ]
    assert tile.active[1].commands[2].command == (
        f"kubectl -n team-a label machines.cluster.x-k8s.io prod-2 {prefix}/maintenance-"
    )
    read = "kubectl -n team-a get secret prod-kubeconfig -o jsonpath='{.data.value}'"
    assert [it.command for it in tile.commands] == [
        f"{read} | base64 -d > team-a-prod.kubeconfig && kubectl --kubeconfig team-a-prod.kubeconfig get nodes",
        "kubectl -n team-a get machines.cluster.x-k8s.io -l cluster.x-k8s.io/cluster-name=prod",
    ]


def test_names_that_a_shell_would_take_for_more_are_quoted() -> None:
    evil = "$(rm -rf /)"
    machine = replace(LEAVING, name=evil, node=evil)
    tile = cluster_tile(replace(PROD, key=ClusterKey(evil, evil), active=(machine,)))
    for it in (*tile.commands, *tile.active[0].commands):
        said = [word for word in shlex.split(it.command) if "rm" in word]
        assert said, it.command
        assert all(evil in word for word in said), it.command


def test_who_cannot_be_reached_is_told_on_every_page() -> None:
    lost = [cluster_tile(replace(PROD, key=ClusterKey("a", str(it)), reach=Reach.UNREACHABLE)) for it in range(5)]
    assert [it.text for it in cluster_banners(lost)] == ["5 clusters cannot be reached: a/0, a/1, a/2 and 2 more"]
    assert [it.text for it in cluster_banners(lost[:1])] == ["1 cluster cannot be reached: a/0"]
    unreadable = cluster_tile(replace(PROD, reach=Reach.UNREADABLE, reason="too long"))
    assert [it.text for it in cluster_banners([lost[0], unreadable])] == [
        "1 cluster cannot be reached: a/0",
        f"1 cluster cannot be read: {PROD.key}",
    ]
    assert cluster_banners([cluster_tile(PROD)]) == ()


async def test_a_hub_says_that_it_is_one_and_knows_its_clusters(clock: VirtualClock) -> None:
    uses = (Use(limit=read_limit("2"), holders=("team-a/prod",), waiting=("team-b/prod",)),)
    async with managing(clock, Fake(OTHER, PROD), lambda: uses) as source:
        summary, clusters = await source.summary(), await source.clusters()
        assert (summary.mode, summary.cluster, summary.total) == (Mode.MANAGEMENT, "mgmt", 0)
        assert [(it.name, it.used, it.limit, it.text) for it in summary.budgets] == [
            ("all clusters", 1, 2, "at most 2 clusters in maintenance at once")
        ]
        assert ([it.key for it in clusters.clusters], clusters.total) == (["team-a/prod", "team-b/prod"], 2)
        assert (await source.fleet()).total == 0
        assert (await source.notices()).notices == ()
        assert await source.detail("n1") is None
        assert (await source.health()).viewers == 0


async def test_what_a_hub_has_not_is_said(clock: VirtualClock) -> None:
    async with managing(clock, Fake()) as source:
        with pytest.raises(Unanswerable, match="this is a hub, which has no timeline"):
            await source.timeline(Stretch())
        with pytest.raises(Unanswerable, match="this is a hub, which has no configuration"):
            await source.configuration()


async def test_changes_are_told_and_nothing_else_is(clock: VirtualClock) -> None:
    hub = Fake(PROD, OTHER)
    async with managing(clock, hub) as source, source.looking() as viewer:
        told = await viewer.next() or b""
        assert b'"mode":"management"' in told
        hub.become(replace(PROD, active=(ASKED,)))
        told = await viewer.next() or b""
        assert b"event: clusters" in told
        assert b'"state":"in-maintenance"' in told
        assert b'"gone":["team-b/prod"]' in told
        hub.become(replace(PROD, active=(ASKED,)))
        assert await viewer.next() == b": still here\n\n"


async def test_many_changes_are_told_together(clock: VirtualClock) -> None:
    hub = Fake(PROD)
    async with managing(clock, hub) as source, source.looking() as viewer:
        await viewer.next()
        for number in range(100):
            hub.become(replace(PROD, nodes=number))
            await clock.sleep(timedelta(milliseconds=10))
        told = b""
        while b'"nodes":99' not in told:
            told += await viewer.next() or b""
        assert told.count(b"event: clusters") <= 6


async def test_nobody_asks_while_nobody_looks(clock: VirtualClock) -> None:
    hub = Fake(PROD)
    async with managing(clock, hub) as source:
        await clock.sleep(timedelta(hours=1))
        assert hub.looks == 0
        await source.clusters()
        await clock.sleep(2 * KEPT_FOR)
        before = hub.looks
        await clock.sleep(timedelta(hours=1))
        assert hub.looks == before
        hub.become(OTHER)
        assert [it.key for it in (await source.clusters()).clusters] == ["team-b/prod"]


async def test_a_budget_that_cannot_be_read_is_said_and_hides_nothing(clock: VirtualClock) -> None:
    def broken() -> tuple[Use, ...]:
        raise Unreachable("no route", sent=False)

    async with managing(clock, Fake(PROD), broken) as source:
        assert (await source.clusters()).total == 1
        assert [it.text for it in (await source.summary()).banners] == [
            "how much of the budget across clusters is used is not known: no route"
        ]
