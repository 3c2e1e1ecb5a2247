"""Agents for the Azure machines of a sandbox, all in the operator's process, as one event source.

On real clusters each agent runs on its node. Here an agent starts when its node joins and stops when the node is
deleted.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from haulout.api.objects import Node
from haulout.app.sandbox.interface import CloudMachines
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.agent.agent import Agent
from haulout.providers.azure.event_source import AzureEarlyStartSource
from haulout.providers.azure.scheduled_events import SOURCE
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine


class AzureAgents:
    """An event source that runs one agent per Azure machine."""

    name = SOURCE

    def __init__(self, fleet: CloudMachines, client: Client, nodes: Informer[Node]) -> None:
        self.quarantine = Quarantine(SOURCE, client.clock)
        self._fleet = fleet
        self._client = client
        self._nodes = nodes
        self._agents: dict[str, Agent] = {}
        self._changed = asyncio.Event()

    @property
    def messages_processed(self) -> int:
        """How many times the agents wrote a notice."""
        return sum(agent.source.messages_processed for agent in self._agents.values())

    @property
    def is_up(self) -> bool:
        """Whether all agents reach Azure."""
        return all(agent.is_up for agent in self._agents.values())

    def problems(self) -> Sequence[str]:
        """Return the problems of all agents."""
        return tuple(problem for agent in self._agents.values() for problem in agent.problems())

    def time_since_last_answer(self) -> timedelta | None:
        """Return the longest time without an answer among the agents."""
        silences = [item.source.time_since_last_answer() for item in self._agents.values()]
        return max((item for item in silences if item is not None), default=None)

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Run an agent per node, until cancelled."""
        del notice_writer  # each agent has its own
        tasks: dict[str, asyncio.Task[None]] = {}
        unsubscribe = self._nodes.subscribe(lambda *_: self._changed.set())
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    machines = self._machines()
                    for node in [name for name in tasks if name not in machines]:
                        tasks.pop(node).cancel()
                        del self._agents[node]
                    for node in [name for name in machines if name not in tasks]:
                        agent = self._agents[node] = self._agent(node, machines[node])
                        tasks[node] = group.create_task(agent.run())
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            unsubscribe()

    def _machines(self) -> dict[str, str]:
        members = (self._fleet.member(item.name) for item in self._nodes.all())
        return {item.node: item.instance for item in members if item is not None and item.cloud == SOURCE}

    def _agent(self, node: str, machine: str) -> Agent:
        clock, random = self._client.clock, self._client.random
        fetch = self._fleet.azure_model.metadata(machine)
        return Agent(self._client, AzureEarlyStartSource(fetch, node=node, clock=clock, random=random), node=node)
