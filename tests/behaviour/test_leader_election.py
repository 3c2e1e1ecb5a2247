"""At most one candidate leads, and one does, during faults of connections and of the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby

from haulout.api.objects import Object
from haulout.api.resources import LEASES, Resource
from haulout.errors import KubeError, LeadershipLost
from haulout.kube.client import Client
from haulout.kube.leaderelection import LeaderElection
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.kube.patches import merge_patch
from support.builders.objects import a_config_map
from support.clusters.backends import ClusterBackend, NetworkConnection
from support.expectations.eventually import eventually

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=Object)


@dataclass
class Candidate:
    """Takes part in elections repeatedly; while it leads, it writes its name continuously."""

    name: str
    cluster: ClusterBackend
    client: Client
    connection: NetworkConnection
    written: list[tuple[int, str]]
    lease: timedelta
    terms: int = 0
    election: LeaderElection = field(init=False)

    def __post_init__(self) -> None:
        """Create its election."""
        self.election = LeaderElection(
            self.client,
            name="leader",
            namespace=self.cluster.namespace,
            identity=self.name,
            config=LeaderElectionConfig(
                lease_duration=self.lease, renew_deadline=self.lease * 2 / 3, retry_period=timedelta(seconds=0.4)
            ),
        )

    async def run(self) -> None:
        """Take part in elections until cancelled."""
        while True:
            try:
                await self.election.run(self._work)
            except LeadershipLost:
                continue

    async def _work(self, client: Client) -> None:
        self.terms += 1
        while True:
            try:
                done = await client.patch(
                    CONFIG_MAPS, "work", merge_patch({"data": {"by": f"{self.name}-{len(self.written)}"}}),
                    namespace=self.cluster.namespace,
                )  # fmt: skip
                self.written.append((int(done.resource_version), self.name))
            except LeadershipLost:
                raise
            except KubeError:
                pass  # the server is away; whether we still lead is for the election to say
            await self.cluster.clock.sleep(timedelta(milliseconds=50))


class Election:
    """Three candidates and what they wrote."""

    def __init__(self, candidates: list[Candidate], written: list[tuple[int, str]]) -> None:
        self.candidates = candidates
        self.written = written
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def leader(self) -> Candidate | None:
        """Return the current leader."""
        leading = [candidate for candidate in self.candidates if candidate.election.is_leader()]
        assert len(leading) <= 1
        return leading[0] if leading else None

    def has_other_leader(self, deposed: Candidate) -> bool:
        """Return whether another candidate leads."""
        return self.leader() not in (None, deposed)

    def expect_no_interleaving(self) -> None:
        """In the order in which the server took the writes, each term's writes stand together."""
        blocks = [name for name, _ in groupby(name for _, name in sorted(self.written))]
        terms = sum(candidate.terms for candidate in self.candidates)
        assert blocks
        assert len(blocks) <= terms, f"writes of two leaders are mixed: {blocks}"


@asynccontextmanager
async def an_election(cluster: ClusterBackend, *, lease: timedelta = timedelta(seconds=3)) -> AsyncIterator[Election]:
    admin = await cluster.client()
    await admin.create(CONFIG_MAPS, a_config_map("work"), namespace=cluster.namespace)
    written: list[tuple[int, str]] = []
    candidates = [
        Candidate(name, cluster, *await cluster.client_with_connection(), written, lease)
        for name in ("ada", "bob", "cyd")
    ]
    election = Election(candidates, written)
    async with asyncio.TaskGroup() as tasks:
        election.tasks = {candidate.name: tasks.create_task(candidate.run()) for candidate in candidates}
        await eventually(cluster.clock, lambda: election.leader() is not None and election.written)
        yield election
        for task in election.tasks.values():
            task.cancel()
    election.expect_no_interleaving()


async def test_leader_with_a_cut_connection_is_replaced(cluster: ClusterBackend) -> None:
    async with an_election(cluster) as election:
        deposed = election.leader()
        assert deposed is not None
        deposed.connection.cut()
        await eventually(cluster.clock, lambda: election.has_other_leader(deposed), within=timedelta(seconds=10))
        deposed.connection.mend()
        await cluster.clock.sleep(timedelta(seconds=2))


async def test_leader_with_a_silent_connection_is_replaced(cluster: ClusterBackend) -> None:
    async with an_election(cluster) as election:
        deposed = election.leader()
        assert deposed is not None
        deposed.connection.silence()
        await eventually(cluster.clock, lambda: election.has_other_leader(deposed), within=timedelta(seconds=10))
        deposed.connection.mend()
        await cluster.clock.sleep(timedelta(seconds=2))


async def test_leader_that_stops_releases_the_lease_at_once(cluster: ClusterBackend) -> None:
    async with an_election(cluster, lease=timedelta(minutes=2)) as election:
        retired = election.leader()
        assert retired is not None
        election.tasks[retired.name].cancel()
        # Far less than the lease lasts: without a release nobody could lead by then.
        await eventually(cluster.clock, lambda: election.has_other_leader(retired), within=timedelta(seconds=60))


async def test_server_crash_ends_with_one_leader(cluster: ClusterBackend) -> None:
    async with an_election(cluster) as election:
        for _ in range(2):
            await cluster.crash()
            await eventually(cluster.clock, lambda: election.leader() is not None, within=timedelta(seconds=30))
            await cluster.clock.sleep(timedelta(seconds=1))


async def test_deleted_lease_ends_with_one_leader(cluster: ClusterBackend) -> None:
    admin = await cluster.client()
    async with an_election(cluster) as election:
        # A candidate that never observed a holder takes a missing lease at once, as client-go does.
        await eventually(cluster.clock, lambda: all(candidate.election.leader for candidate in election.candidates))
        await admin.delete(LEASES, "leader", namespace=cluster.namespace)
        await cluster.clock.sleep(timedelta(seconds=1))
        await eventually(cluster.clock, lambda: election.leader() is not None, within=timedelta(seconds=10))
    assert (await admin.get(LEASES, "leader", namespace=cluster.namespace)).spec.holder_identity == ""
