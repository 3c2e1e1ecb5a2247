"""Runs a component of the operator alone, as the leader does."""

import asyncio

from haulout.api.resources import NODES
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.reflector import ListWatch
from haulout.kube.transforms import compact_nodes
from haulout.runtime.component import Component, Leader
from haulout.runtime.handover import Handover


async def ignore_warning(note: str, *, reason: str, action: str) -> None:
    del note, reason, action


async def run_component(client: Client, component: Component, *, own_node: str = "") -> None:
    """Run a component and the informer of nodes until cancelled."""
    nodes = Informer(client, ListWatch(NODES), transform=compact_nodes())
    leader = Leader(
        client=client,
        identity="test",
        namespace="haulout",
        nodes=nodes,
        warn=ignore_warning,
        handover=Handover(own_node),
    )
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(nodes.run())
        try:
            await component.run(leader)
        finally:
            watch.cancel()
