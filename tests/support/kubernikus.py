"""A cluster of Kubernikus: nodes that are servers of OpenStack, and the controller that sees to them.

async with kubernikus(plan, nodes=3) as (cluster, cloud):
    cluster.run(seeing_to(cloud))
    await order(cluster, "pool-1")
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from haulout.drain import cordon
from haulout.history.keeper import Keeper
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import RawObject
from haulout.kubernikus.controller import Controller
from haulout.kubernikus.keys import DELETE_NODE, NEEDS_UPDATE, SERVER
from haulout.kubernikus.nova import Nova
from haulout.kubernikus.settings import Settings
from haulout.maintenance.sight import node_cache
from haulout_sandbox.nodes import Machine
from support.clusters import ClusterPlan
from support.live import LiveCluster, SandboxCluster
from support.openstack import NodePool, OpenStackCloud, Paces

Program = Callable[[Client], Coroutine[Any, Any, None]]
INTERVAL = timedelta(seconds=5)
SETTINGS = Settings(interval=INTERVAL)
SOON = Paces(replacement=timedelta(seconds=1), boot=timedelta(seconds=1))


def seeing_to(
    nova: Nova,
    settings: Settings = SETTINGS,
    *,
    own_node: str = "",
    made: Callable[[Controller], object] = id,
    remembers: bool = False,
) -> Program:
    """Return the controller as a program; one that remembers keeps the history of nodes."""

    async def see_to(client: Client) -> None:
        events = EventRecorder(client, instance="test")
        nodes = node_cache(client)
        history = Keeper(client) if remembers else None
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(it.run()) for it in (events, nodes, *(() if history is None else (history,)))]
            controller = Controller(
                client,
                nova=nova,
                nodes=nodes,
                events=events,
                settings=settings,
                namespace="default",
                own_node=own_node,
                history=history,
            )
            made(controller)
            try:
                await controller.run()
            finally:
                for task in beside:
                    task.cancel()

    return see_to


@asynccontextmanager
async def kubernikus(
    plan: ClusterPlan, *, nodes: int, pool: str = "pool", paces: Paces = SOON, **machine: Any
) -> AsyncIterator[tuple[LiveCluster, OpenStackCloud]]:
    """Run a cluster whose nodes, `pool-1` and so on, are servers, with the cloud's controller."""
    cloud, grown = _with_servers(plan, nodes=nodes, pool=pool, **machine)
    async with grown.running() as cluster, _replacing(cluster, cloud, nodes=nodes, pool=pool, paces=paces):
        yield cluster, cloud


@asynccontextmanager
async def kubernikus_on_the_sandbox(
    plan: ClusterPlan, *, nodes: int, pool: str = "pool", paces: Paces = SOON, **machine: Any
) -> AsyncIterator[tuple[SandboxCluster, OpenStackCloud]]:
    """Do the same on the sandbox, for tests of what a real cluster cannot suffer."""
    cloud, grown = _with_servers(plan, nodes=nodes, pool=pool, **machine)
    async with grown.on_the_sandbox() as cluster, _replacing(cluster, cloud, nodes=nodes, pool=pool, paces=paces):
        yield cluster, cloud


def _with_servers(plan: ClusterPlan, *, nodes: int, pool: str, **machine: Any) -> tuple[OpenStackCloud, ClusterPlan]:
    cloud = OpenStackCloud(plan.clock)
    cloud.ends_within = timedelta(seconds=1)
    made = {name: cloud.boot(name) for name in (f"{pool}-{number}" for number in range(1, nodes + 1))}
    machines = [Machine(name=name, provider_id=f"openstack:///{server}", **machine) for name, server in made.items()]
    return cloud, replace(plan, machines=(*plan.machines, *machines))


@asynccontextmanager
async def _replacing(
    cluster: LiveCluster, cloud: OpenStackCloud, *, nodes: int, pool: str, paces: Paces
) -> AsyncIterator[None]:
    servers = NodePool(cluster.kubelets, cloud, name=pool, size=nodes, paces=paces)
    servers.fill()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(servers.run())
        try:
            yield
        finally:
            task.cancel()


async def order(cluster: LiveCluster, node: str, *, value: str | None = "true") -> None:
    """Order that a node goes; with None, withdraw that."""
    await cluster.change("nodes", node, metadata={"labels": {DELETE_NODE: value}})


def needs_update(cluster: LiveCluster, node: str) -> str | None:
    """Return what is said of a node's kubelet."""
    found: RawObject = cluster.get("nodes", node)["metadata"]["labels"]
    return found.get(NEEDS_UPDATE)


def is_cordoned(cluster: LiveCluster, node: str) -> bool:
    """Tell whether a node takes no pods, with our mark."""
    found = cluster.get("nodes", node)
    marked = {cordon.MARK, cordon.BACKUP} & found["metadata"].get("annotations", {}).keys()
    return bool(marked) and found["spec"].get("unschedulable", False) is True


def noted(cluster: LiveCluster, node: str) -> str:
    """Return the server that is written down on a node."""
    return str(cluster.get("nodes", node)["metadata"].get("annotations", {}).get(SERVER, ""))


def told(cluster: LiveCluster, node: str) -> dict[str, str]:
    """Return what was told of a node by events of ours: the notes, by their reasons."""
    events = [it for it in cluster.all("events").values() if it.get("action") == "DeleteNode"]
    about = [it for it in events if (it.get("regarding") or it["involvedObject"])["name"] == node]
    return {it["reason"]: it.get("note") or it["message"] for it in about}


def names(cloud: OpenStackCloud) -> list[str]:
    """Return the names of all servers."""
    return sorted(it.name for it in cloud.all_servers.values())
