"""The whole operator on the sandbox, and somebody who looks on as the dashboard does.

async with watched(a_cluster(clock).with_nodes(3), tmp_path) as world:
    async with world.looking(node="n1") as page:
        await page.until(lambda: page.states("n1") == ["idle", "draining"])
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from haulout.app.configured import Configured
from haulout.app.notices import Notices
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.app.vitals import Vitals
from haulout.history import record
from haulout.kinds.notice import definition
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.web.api.answering import encoded
from haulout.web.api.leader import Leader
from haulout.web.api.source import Viewer
from support.clusters import ClusterPlan
from support.eventually import eventually
from support.forewarned import NOWHERE
from support.live import SandboxCluster
from support.maintaining import entitled
from support.outside import FakeOutside
from support.profiled import NAMESPACE


class Page:
    """What somebody has on the screen, put together from events as a browser does."""

    def __init__(self, cluster: SandboxCluster, fleet: RawObject) -> None:
        self.events: list[tuple[str, RawObject]] = []
        self.ids: list[str] = []
        self.tiles = {it["name"]: it for it in fleet["nodes"]}
        self.summary: RawObject = {}
        self.node: RawObject = {}
        self.is_reset = False
        self._cluster = cluster
        self._seen: dict[str, list[RawObject]] = {name: [it] for name, it in self.tiles.items()}

    def take(self, told: bytes) -> None:
        """Take what was sent."""
        for block in told.decode().split("\n\n"):
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
                self._seen.setdefault(tile["name"], []).append(tile)
            for name in data.get("gone", ()):
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
        for tile in self._seen.get(node, ()):
            if not found or found[-1] != tile["state"]:
                found.append(tile["state"])
        return found

    async def until(self, probe: Callable[[], object], **more: Any) -> None:
        """Wait until something is to be seen."""
        await eventually(self._cluster.clock, probe, **{"within": timedelta(minutes=10), **more})


class World:
    """A cluster, its operator, and those who look."""

    def __init__(self, cluster: SandboxCluster, vitals: Vitals) -> None:
        self.cluster = cluster
        self.vitals = vitals

    @property
    def source(self) -> Leader:
        """What the dashboard is fed from."""
        assert isinstance(self.vitals.source, Leader)
        return self.vitals.source

    async def detail(self, name: str) -> RawObject:
        """Return a node as the API tells it."""
        found: RawObject = json.loads(encoded(await self.source.detail(name)))
        return found

    @asynccontextmanager
    async def looking(self, **wanted: str) -> AsyncIterator[Page]:
        """Look on, as one who reads at once."""
        fleet = json.loads(encoded(await self.source.fleet()))
        async with self.source.looking(**wanted) as viewer, asyncio.TaskGroup() as group:
            page = Page(self.cluster, fleet)
            reading = group.create_task(_read(viewer, page))
            yield page
            reading.cancel()

    async def order(self, node: str, *, name: str = "patch") -> None:
        """Order a maintenance."""
        await self.cluster.create(
            {
                "apiVersion": NODE_MAINTENANCES.api_version,
                "kind": NODE_MAINTENANCES.kind,
                "metadata": {"name": name},
                "spec": {"nodeName": node, "reason": "a new kernel"},
            }
        )


async def _read(viewer: Viewer, page: Page) -> None:
    while (told := await viewer.next()) is not None:
        page.take(told)


@asynccontextmanager
async def watched(plan: ClusterPlan, configuration: str = "", folder: Path = NOWHERE.parent) -> AsyncIterator[World]:
    """Run the whole operator, by a configuration if there is one."""
    file, vitals = folder / "maintenance.yaml", Vitals()
    if configuration:
        file.write_text(configuration, encoding="utf-8")

    async def program(client: Client) -> None:
        configured = Configured(file, environ={}, clock=client.clock, may_lack=not configuration)
        settings = OperatorSettings(namespace=NAMESPACE, identity="operator_1")
        profiles = Profiles(configured, FakeOutside())
        await run_operator(client, settings, profiles=profiles, notices=Notices(), vitals=vitals)

    defined = entitled(plan).with_definition(definition()).with_definition(record.definition())
    async with defined.on_the_sandbox() as cluster:
        cluster.run(program)
        await eventually(cluster.clock, lambda: vitals.source is not None)
        await cluster.clock.sleep(timedelta(seconds=1))
        yield World(cluster, vitals)
