"""The agents of a sandbox's nodes that are machines of Azure: all of them in the operator's process, as one source.

In life each runs on its own node. Here an agent begins when its node joins, and ends when that is gone.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from haulout.app.sandbox.interface import Machines
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.agent.running import Agent
from haulout.notices.inbox import Inbox
from haulout.notices.sources.azure.reading import SOURCE
from haulout.notices.sources.azure.together import AzureStarter
from haulout.notices.sources.quarantine import Quarantine


class AzureAgents:
    """An agent for each machine of Azure."""

    name = SOURCE

    def __init__(self, fleet: Machines, client: Client, nodes: Cache[Node]) -> None:
        self.quarantine = Quarantine(SOURCE, client.clock)
        self._fleet = fleet
        self._client = client
        self._nodes = nodes
        self._agents: dict[str, Agent] = {}
        self._changed = asyncio.Event()

    @property
    def taken(self) -> int:
        """How many times a notice was written."""
        return sum(it.source.taken for it in self._agents.values())

    @property
    def is_up(self) -> bool:
        """Tell whether all of them hear what Azure says."""
        return all(it.is_up for it in self._agents.values())

    def troubles(self) -> Sequence[str]:
        """Return what keeps any of them from its work."""
        return tuple(line for it in self._agents.values() for line in it.troubles())

    def silence(self) -> timedelta | None:
        """Return how long the one waits that has waited longest."""
        heard = [it.source.silence() for it in self._agents.values()]
        return max((it for it in heard if it is not None), default=None)

    async def run(self, inbox: Inbox) -> None:
        """Run an agent for each node, until cancelled."""
        del inbox  # each has its own
        tasks: dict[str, asyncio.Task[None]] = {}
        unsubscribe = self._nodes.subscribe(lambda *_: self._changed.set())
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    here = self._machines()
                    for node in [it for it in tasks if it not in here]:
                        tasks.pop(node).cancel()
                        del self._agents[node]
                    for node in [it for it in here if it not in tasks]:
                        agent = self._agents[node] = self._agent(node, here[node])
                        tasks[node] = group.create_task(agent.run())
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            unsubscribe()

    def _machines(self) -> dict[str, str]:
        members = (self._fleet.member(it.name) for it in self._nodes.all())
        return {it.node: it.instance for it in members if it is not None and it.cloud == SOURCE}

    def _agent(self, node: str, machine: str) -> Agent:
        clock, random = self._client.clock, self._client.random
        fetch = self._fleet.azure_model.metadata(machine)
        return Agent(self._client, AzureStarter(fetch, node=node, clock=clock, random=random), node=node)
