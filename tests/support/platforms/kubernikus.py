"""A cluster of Kubernikus: nodes that are OpenStack servers, and the Kubernikus controller.

async with a_kubernikus_cluster(plan, nodes=3) as (cluster, cloud):
    cluster.run(kubernikus_controller(cloud))
    await request_deletion(cluster, "pool-1")
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from haulout.api.objects import RawObject
from haulout.controllers.kubernikus.controller import KubernikusController
from haulout.controllers.kubernikus.labels import DELETE_NODE, NEEDS_UPDATE, SERVER_ANNOTATION
from haulout.controllers.kubernikus.nova import Nova
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.controllers.nodemaintenance.informers import node_cache
from haulout.drain import cordon
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal
from haulout_sandbox.nodes import Machine
from support.clouds.openstack import NodePool, OpenStackCloud, Paces
from support.clusters.cluster_plan import ClusterPlan
from support.clusters.live_cluster import LiveCluster, SandboxCluster
from support.operators.freezes import freeze_source

Program = Callable[[Client], Coroutine[Any, Any, None]]
INTERVAL = timedelta(seconds=5)
SETTINGS = KubernikusSettings(interval=INTERVAL)
SHORT_DELAYS = Paces(replacement=timedelta(seconds=1), boot=timedelta(seconds=1))


def kubernikus_controller(
    nova: Nova,
    settings: KubernikusSettings = SETTINGS,
    *,
    own_node: str = "",
    on_created: Callable[[KubernikusController], object] = id,
    keeps_history: bool = False,
    reads_freezes: bool = False,
) -> Program:
    """Return the controller as a program, which keeps the history of nodes on demand."""

    async def run_controller(client: Client) -> None:
        events = EventRecorder(client, instance="test")
        nodes = node_cache(client)
        history = HistoryWriter(client) if keeps_history else None
        async with freeze_source(client, reads_freezes=reads_freezes) as freezes, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(component.run())
                for component in (events, nodes, *(() if history is None else (history,)))
            ]
            controller = KubernikusController(
                client,
                nova=nova,
                nodes=nodes,
                journal=Journal("kubernikus", events, history, metrics=client.metrics),
                settings=settings,
                namespace="default",
                handover=Handover(own_node),
                freezes=freezes,
            )
            on_created(controller)
            try:
                await controller.run()
            finally:
                for task in tasks:
                    task.cancel()

    return run_controller


@asynccontextmanager
async def a_kubernikus_cluster(
    plan: ClusterPlan, *, nodes: int, pool: str = "pool", delays: Paces = SHORT_DELAYS, **machine: Any
) -> AsyncIterator[tuple[LiveCluster, OpenStackCloud]]:
    """Run a cluster whose nodes, `pool-1` and so on, are servers, with the cloud's controller."""
    cloud, grown_plan = _with_servers(plan, nodes=nodes, pool=pool, **machine)
    async with (
        grown_plan.running() as cluster,
        _running_node_pool(cluster, cloud, nodes=nodes, pool=pool, delays=delays),
    ):
        yield cluster, cloud


@asynccontextmanager
async def a_kubernikus_cluster_on_the_sandbox(
    plan: ClusterPlan, *, nodes: int, pool: str = "pool", delays: Paces = SHORT_DELAYS, **machine: Any
) -> AsyncIterator[tuple[SandboxCluster, OpenStackCloud]]:
    """Do the same on the sandbox, for faults that a real cluster does not support."""
    cloud, grown_plan = _with_servers(plan, nodes=nodes, pool=pool, **machine)
    async with (
        grown_plan.on_the_sandbox() as cluster,
        _running_node_pool(cluster, cloud, nodes=nodes, pool=pool, delays=delays),
    ):
        yield cluster, cloud


def _with_servers(plan: ClusterPlan, *, nodes: int, pool: str, **machine: Any) -> tuple[OpenStackCloud, ClusterPlan]:
    cloud = OpenStackCloud(plan.clock)
    cloud.ends_within = timedelta(seconds=1)
    server_ids = {name: cloud.boot(name) for name in (f"{pool}-{number}" for number in range(1, nodes + 1))}
    machines = [
        Machine(name=name, provider_id=f"openstack:///{server}", **machine) for name, server in server_ids.items()
    ]
    return cloud, replace(plan, machines=(*plan.machines, *machines))


@asynccontextmanager
async def _running_node_pool(
    cluster: LiveCluster, cloud: OpenStackCloud, *, nodes: int, pool: str, delays: Paces
) -> AsyncIterator[None]:
    servers = NodePool(cluster.kubelets, cloud, name=pool, size=nodes, paces=delays)
    servers.fill()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(servers.run())
        try:
            yield
        finally:
            task.cancel()


async def request_deletion(cluster: LiveCluster, node: str, *, value: str | None = "true") -> None:
    """Set the deletion label of a node; None removes it."""
    await cluster.patch("nodes", node, metadata={"labels": {DELETE_NODE: value}})


def needs_update(cluster: LiveCluster, node: str) -> str | None:
    """Return the label about the kubelet version of a node."""
    found: RawObject = cluster.get("nodes", node)["metadata"]["labels"]
    return found.get(NEEDS_UPDATE)


def is_cordoned(cluster: LiveCluster, node: str) -> bool:
    """Return whether a node is cordoned by us."""
    found = cluster.get("nodes", node)
    marked = {cordon.CORDON_ANNOTATION, cordon.CORDON_BACKUP_ANNOTATION} & found["metadata"].get(
        "annotations", {}
    ).keys()
    return bool(marked) and found["spec"].get("unschedulable", False) is True


def noted_server(cluster: LiveCluster, node: str) -> str:
    """Return the server that is recorded on a node."""
    return str(cluster.get("nodes", node)["metadata"].get("annotations", {}).get(SERVER_ANNOTATION, ""))


def event_notes(cluster: LiveCluster, node: str) -> dict[str, str]:
    """Return the notes of our Events about a node, by reason."""
    events = [event for event in cluster.by_key("events").values() if event.get("action") == "DeleteNode"]
    node_events = [event for event in events if (event.get("regarding") or event["involvedObject"])["name"] == node]
    return {event["reason"]: event.get("note") or event["message"] for event in node_events}


def server_names(cloud: OpenStackCloud) -> list[str]:
    """Return the names of all servers."""
    return sorted(server.name for server in cloud.all_servers.values())
