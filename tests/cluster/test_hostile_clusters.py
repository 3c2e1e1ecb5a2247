"""A hub process with clusters that exceed their limits: its memory stays bounded, and other clusters stay connected."""

import asyncio
import base64
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
import yaml

from controlplane import free_port
from haulout.api.resources import SECRETS
from haulout.core.clock import RealClock
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.https_server import HttpsServer
from support.platforms.hub import HubClusters, WorkloadCluster, kubeconfig
from support.servers.certificates import Authority
from support.servers.hostile_server import Bomb, BombServer, bomb_server, gzip_bomb

pytestmark = pytest.mark.real_time

AUTHORITY = Authority()
TOKEN = "first"
LIMIT = 400 << 20  # of the hub's container
REASONS = {
    Bomb.GZIP: "the answer is longer than 4194304 bytes",
    Bomb.ENDLESS_BODY: "the answer is longer than 4194304 bytes",
    Bomb.UNDECODABLE_OBJECTS: "cannot be decoded",
    Bomb.DEEP: "expected JSON from a Kubernetes API server",
    Bomb.ENDLESS_PAGES: "listing nodes: more than 50000 objects",
    Bomb.GROWTH: "in all caches of the cluster",
    # Its own limit is 64 MiB. While the cluster that grows holds more than 36 MiB, the limit for all comes first.
    Bomb.LARGE_ROWS: " MiB in ",
    Bomb.FLOOD: "the watch sends more than 50000 lines at once and 2000 a second",
    Bomb.LONG_LINE: "a line of the stream is longer than 4194304 bytes",
}


@asynccontextmanager
async def serve_api(api: ApiServer, folder: Path) -> AsyncIterator[str]:
    tls = AUTHORITY.issue("127.0.0.1").server_context(folder)
    async with HttpsServer(api, tokens={TOKEN: "hub"}).serve(host="127.0.0.1", tls=tls) as port:
        yield f"https://127.0.0.1:{port}"


def a_kubeconfig_for(server: str) -> bytes:
    """Return a kubeconfig for a server with a certificate of ours."""
    described = yaml.safe_load(kubeconfig(server, TOKEN))
    if server.startswith("https"):
        described["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(AUTHORITY.pem).decode()
    return yaml.safe_dump(described).encode()


async def point_secret_to(hub_clusters: HubClusters, workload: WorkloadCluster, url: str) -> None:
    """Put an address on the network into the Secret of a cluster."""
    value = base64.b64encode(a_kubeconfig_for(url)).decode()
    patch = merge_patch({"data": {"value": value}})
    await hub_clusters.admin.patch(SECRETS, workload.key.kubeconfig_secret, patch, namespace=workload.key.namespace)


class HubProcess:
    """`haulout run --mode management`."""

    def __init__(self, folder: Path, server: str) -> None:
        self._log = folder / "hub.log"
        self._port = free_port()
        config = folder / "kubeconfig"
        config.write_bytes(a_kubeconfig_for(server))
        ports = ["--health-port", str(self._port)]
        command = ["run", "--mode", "management", "--no-leader-election", "--kubeconfig", str(config), *ports]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([sys.executable, "-m", "haulout", *command], stderr=log)

    @property
    def peak(self) -> int:
        """The most memory that it had so far, in bytes."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))

    @property
    def log(self) -> str:
        """What it logged."""
        return self._log.read_text()

    async def readiness(self) -> str:
        """Return its readiness report."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self._port}/readyz?verbose=1") as answer,
            ):
                return await answer.text()
        except aiohttp.ClientError:
            return ""

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        assert self._process.wait(30) == 0, self.log
        assert "Traceback" not in self.log


@pytest.fixture
def hubs() -> Iterator[list[HubProcess]]:
    started: list[HubProcess] = []
    yield started
    for item in started:
        item.stop()


@asynccontextmanager
async def clusters(
    hub_clusters: HubClusters, bombs: Mapping[str, Bomb], folder: Path
) -> AsyncIterator[Sequence[BombServer]]:
    """Serve a good cluster, `team/good`, and one for each bomb by its name, with a Machine in each."""
    async with AsyncExitStack() as stack:
        good = await hub_clusters.add_cluster("team", "good")
        await point_secret_to(hub_clusters, good, await stack.enter_async_context(serve_api(good.api, folder)))
        await hub_clusters.add_machine(good, "good")
        servers = []
        for name, bomb in bombs.items():
            workload = await hub_clusters.add_cluster("team", name)
            servers.append(await stack.enter_async_context(bomb_server(bomb)))
            await point_secret_to(hub_clusters, workload, servers[-1].url)
            await hub_clusters.add_machine(workload, name)
        yield servers


@pytest.mark.parametrize(
    "bombs",
    [
        pytest.param(
            (Bomb.GZIP, Bomb.ENDLESS_BODY, Bomb.UNDECODABLE_OBJECTS, Bomb.DEEP, Bomb.ENDLESS_PAGES), id="lists"
        ),
        pytest.param((Bomb.GROWTH, Bomb.LARGE_ROWS, Bomb.FLOOD, Bomb.LONG_LINE), id="watches"),
    ],
)
async def test_hub_memory_stays_bounded_and_other_clusters_connected_under_hostile_responses(
    bombs: Sequence[Bomb], hubs: list[HubProcess], tmp_path: Path
) -> None:
    gzip_bomb()
    world = await HubClusters(RealClock()).install_crds()
    names = {str(bomb): bomb for bomb in bombs}
    async with serve_api(world.api, tmp_path) as management, clusters(world, names, tmp_path) as servers:
        hub = HubProcess(tmp_path, management)
        hubs.append(hub)
        await world.eventually(lambda: world.has_hook("team/good"))

        for bomb in bombs:
            await wait_for_readiness_line(world, hub, f"cluster team/{bomb} is unreadable: ", REASONS[bomb])
        await check_good_cluster(world, hub)
        await check_recovery(world, hub, servers)


async def test_hub_memory_stays_bounded_when_all_clusters_together_exceed_the_limit(
    hubs: list[HubProcess], tmp_path: Path
) -> None:
    """Ten clusters of 40 MB each, of which each may have 64 MiB: two of them fit into the 100 MiB for all."""
    world = await HubClusters(RealClock()).install_crds()
    names = {f"heavy-{number}": Bomb.HEAVY for number in range(10)}
    async with serve_api(world.api, tmp_path) as management, clusters(world, names, tmp_path) as servers:
        hub = HubProcess(tmp_path, management)
        hubs.append(hub)
        await world.eventually(lambda: world.has_hook("team/good"))

        await wait_for_readiness_line(
            world, hub, "is unreadable: ", "more than 100 MiB in the caches of all workload clusters"
        )
        await wait_for_readiness_line(world, hub, "3 of 11 clusters are connected")
        await check_good_cluster(world, hub)
        await check_recovery(world, hub, servers)


async def check_good_cluster(hub_clusters: HubClusters, hub: HubProcess) -> None:
    """Check that the good cluster is connected, and that the memory of the hub is bounded."""
    later = await hub_clusters.add_machine(
        hub_clusters.workload_clusters[next(iter(hub_clusters.workload_clusters))], "later"
    )
    await hub_clusters.eventually(lambda: hub_clusters.has_hook(later))
    assert "cluster team/good" not in await hub.readiness()
    assert hub.peak < LIMIT, f"{hub.peak >> 20} MiB"


async def check_recovery(hub_clusters: HubClusters, hub: HubProcess, servers: Sequence[BombServer]) -> None:
    """Check that all clusters are connected after their responses are valid, and that the hub used bounded memory."""
    for server in servers:
        server.bomb = Bomb.NONE
        server.close()
    await wait_for_readiness_line(hub_clusters, hub, f"{1 + len(servers)} of {1 + len(servers)} clusters are connected")
    assert hub.peak < LIMIT, f"{hub.peak >> 20} MiB"
    print(f"peak {hub.peak >> 20} MiB")  # noqa: T201 - shown with -s


async def wait_for_readiness_line(
    hub_clusters: HubClusters, hub: HubProcess, *parts: str, seconds: float = 300
) -> None:
    """Wait for a line about readiness that has all the parts."""

    async def has_line() -> bool:
        return any(all(part in line for part in parts) for line in (await hub.readiness()).splitlines())

    async with asyncio.timeout(seconds):
        while not await has_line():
            await hub_clusters.clock.sleep(timedelta(milliseconds=200))
