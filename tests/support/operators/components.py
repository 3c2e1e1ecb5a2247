"""Runs a component of the operator alone, as the leader does."""

import asyncio

from haulout.app.operator import shared_informers
from haulout.kube.client import Client
from haulout.runtime.component import Component, Leader
from haulout.runtime.handover import Handover


async def ignore_warning(note: str, *, reason: str, action: str) -> None:
    del note, reason, action


async def run_component(client: Client, component: Component, *, own_node: str = "") -> None:
    """Run a component and the informers of nodes and freezes until cancelled."""
    informers = shared_informers(client)
    leader = Leader(
        client=client,
        identity="test",
        namespace="haulout",
        informers=informers,
        warn=ignore_warning,
        handover=Handover(own_node),
    )
    async with asyncio.TaskGroup() as group:
        watches = [group.create_task(informers.nodes.run()), group.create_task(informers.freezes.run())]
        try:
            await informers.freezes.wait_known()
            await component.run(leader)
        finally:
            for watch in watches:
                watch.cancel()
