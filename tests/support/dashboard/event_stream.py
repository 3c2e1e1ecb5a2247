"""The whole operator on the sandbox, and a client that follows the event stream as the dashboard does.

async with watched_operator(a_cluster(clock).with_nodes(3)) as operator:
    async with operator.open_page(node="n1") as page:
        await page.wait_until(lambda: page.states("n1") == ["idle", "draining"])
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from haulout.api import maintenancerecord
from haulout.api.maintenancenotice import definition
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.dashboard.api.backend import EventStream
from haulout.dashboard.api.node_backend import NodeBackend
from haulout.dashboard.api.responses import encode
from haulout.kube.client import Client
from support.clusters.cluster_plan import ClusterPlan
from support.clusters.live_cluster import SandboxCluster
from support.expectations.eventually import eventually
from support.fakes.external_client import FakeExternalClient
from support.operators.announced_maintenance import MISSING_FILE
from support.operators.freezes import with_freezes
from support.operators.nodemaintenance import with_operator_rbac
from support.operators.profiles import NAMESPACE


class DashboardPage:
    """The state of a page, assembled from events as a browser does."""

    def __init__(self, cluster: SandboxCluster, fleet: RawObject) -> None:
        self.events: list[tuple[str, RawObject]] = []
        self.ids: list[str] = []
        self.tiles = {tile["name"]: tile for tile in fleet["nodes"]}
        self.summary: RawObject = {}
        self.node: RawObject = {}
        self.is_reset = False
        self._cluster = cluster
        self._tile_history: dict[str, list[RawObject]] = {name: [tile] for name, tile in self.tiles.items()}

    def feed(self, chunk: bytes) -> None:
        """Process received bytes."""
        for block in chunk.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "event" not in fields:
                continue
            kind, data = fields["event"], json.loads(fields["data"])
            self.events.append((kind, data))
            self.ids += [fields["id"]] if "id" in fields else []
            self._apply(kind, data)

    def _apply(self, kind: str, data: RawObject) -> None:
        if kind == "nodes":
            for tile in data.get("changed", ()):
                self.tiles[tile["name"]] = tile
                self._tile_history.setdefault(tile["name"], []).append(tile)
            for name in data.get("deleted", ()):
                del self.tiles[name]
        elif kind == "summary":
            self.summary = data
        elif kind == "node":
            self.node = data
        elif kind == "reset":
            self.is_reset = True

    def states(self, node: str) -> list[str]:
        """Return the states that a node has had, each once in a row."""
        found: list[str] = []
        for tile in self._tile_history.get(node, ()):
            if not found or found[-1] != tile["state"]:
                found.append(tile["state"])
        return found

    async def wait_until(self, probe: Callable[[], object], **more: Any) -> None:
        """Wait until the page satisfies a condition."""
        await eventually(self._cluster.clock, probe, **{"within": timedelta(minutes=10), **more})


class WatchedOperator:
    """A cluster, its operator, and open dashboard pages."""

    def __init__(self, cluster: SandboxCluster, operator_status: OperatorStatus) -> None:
        self.cluster = cluster
        self.operator_status = operator_status

    @property
    def backend(self) -> NodeBackend:
        """The backend of the dashboard."""
        assert isinstance(self.operator_status.source, NodeBackend)
        return self.operator_status.source

    async def detail(self, name: str) -> RawObject:
        """Return the detail of a node from the API."""
        found: RawObject = json.loads(encode(await self.backend.detail(name)))
        return found

    @asynccontextmanager
    async def open_page(self, **wanted: str) -> AsyncIterator[DashboardPage]:
        """Open a page that reads each event at once."""
        fleet = json.loads(encode(await self.backend.fleet()))
        async with self.backend.subscribe(**wanted) as viewer, asyncio.TaskGroup() as group:
            page = DashboardPage(self.cluster, fleet)
            reading = group.create_task(_feed_page(viewer, page))
            yield page
            reading.cancel()

    async def create_maintenance(self, node: str, *, name: str = "patch") -> None:
        """Create a NodeMaintenance."""
        await self.cluster.create(
            {
                "apiVersion": NODE_MAINTENANCES.api_version,
                "kind": NODE_MAINTENANCES.kind,
                "metadata": {"name": name},
                "spec": {"nodeName": node, "reason": "a new kernel"},
            }
        )


async def _feed_page(viewer: EventStream, page: DashboardPage) -> None:
    while (chunk := await viewer.next()) is not None:
        page.feed(chunk)


@asynccontextmanager
async def watched_operator(
    plan: ClusterPlan, configuration: str = "", folder: Path = MISSING_FILE.parent
) -> AsyncIterator[WatchedOperator]:
    """Run the whole operator, with a configuration if one is given."""
    file, operator_status = folder / "maintenance.yaml", OperatorStatus()
    operator_status.is_served.set()  # the test reads the backend, without HTTP
    if configuration:
        file.write_text(configuration, encoding="utf-8")

    async def program(client: Client) -> None:
        configured = ProfilesFile(file, environ={}, clock=client.clock, is_optional=not configuration)
        settings = OperatorSettings(namespace=NAMESPACE, identity="operator_1")
        profiles = ProfilesComponent(configured, FakeExternalClient())
        await run_operator(client, settings, profiles=profiles, notices=NoticesComponent(), status=operator_status)

    with_crds = with_operator_rbac(plan).with_crd(definition()).with_crd(maintenancerecord.custom_resource_definition())
    async with with_freezes(with_crds).on_the_sandbox() as cluster:
        cluster.run(program)
        await eventually(cluster.clock, lambda: operator_status.source is not None)
        await cluster.clock.sleep(timedelta(seconds=1))
        yield WatchedOperator(cluster, operator_status)
