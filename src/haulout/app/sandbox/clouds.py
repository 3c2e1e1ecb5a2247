"""The event sources of a sandbox: they read from simulated clouds in the same process, without any SDK.

The event sources are the real ones; only what they call is simulated. `AzureAgents` runs the agents of all Azure
machines as one event source: on real clusters each agent runs on its node, here it starts when its node joins and stops
when the node is deleted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial

from haulout.api.objects import Node
from haulout.app.sandbox.interface import CloudMachines, GcpModel
from haulout.errors import CloudError
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.agent.agent import Agent
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.azure.event_source import AzureEarlyStartSource
from haulout.providers.azure.scheduled_events import SOURCE
from haulout.providers.component import EventSourceComponent
from haulout.providers.event_source import EventSource
from haulout.providers.gcp.compute_api import RestCompute
from haulout.providers.gcp.compute_event_source import GcpEarlyStartSource
from haulout.providers.gcp.settings import GcpSettings, GoogleEarlyStart
from haulout.providers.gcp.tokens import MetadataTokenIssuer, TokenCache
from haulout.providers.http_fetch import Fetch, FetchedResponse
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci.event_source import OciEventSource
from haulout.providers.oci.stream_consumer import ConsumerOptions
from haulout.providers.quarantine import Quarantine

_INSTANCE = "sandbox"
_POLL_INTERVAL = timedelta(seconds=30)
_TIMEOUT = timedelta(seconds=10)


def sources_of(fleet: CloudMachines) -> Sequence[EventSourceComponent]:
    """Return the sources of the clouds that have machines in the scenario."""
    makers = {"oci": _oci, "aws": _aws, "azure": AzureAgents, "gcp": _gcp}
    return [EventSourceComponent(cloud, partial(makers[cloud], fleet)) for cloud in sorted(fleet.clouds)]


def _oci(fleet: CloudMachines, client: Client, _: Informer[Node]) -> EventSource:
    cloud = fleet.oci_model
    return OciEventSource(
        cloud.compute(),
        streaming=cloud.streaming(),
        consumer_options=ConsumerOptions(instance=_INSTANCE),
        compartments=cloud.compartments,
        clock=client.clock,
        random=client.random,
    )


def _aws(fleet: CloudMachines, client: Client, nodes: Informer[Node]) -> EventSource:
    cloud = fleet.aws_model
    return AwsEventSource(ec2=cloud, auto_scaling=cloud, sqs=cloud, client=client, nodes=nodes, settings=AwsSettings())


def _gcp(fleet: CloudMachines, client: Client, nodes: Informer[Node]) -> EventSource:
    fetch = gcp_fetch(fleet.gcp_model)
    settings = GcpSettings(poll_interval=_POLL_INTERVAL, early_start=GoogleEarlyStart.AFTER_DRAIN)
    compute = RestCompute(fetch, TokenCache(MetadataTokenIssuer(fetch), clock=client.clock))
    return GcpEarlyStartSource(compute, client=client, nodes=nodes, settings=settings)


def gcp_fetch(cloud: GcpModel, *, machine: str = "") -> Fetch:
    """Return a client of the simulated Google Cloud; with a machine, of its metadata server."""

    async def fetch(
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = _TIMEOUT,
    ) -> FetchedResponse:
        path = f"/machines/{machine}{target}" if machine else target
        try:
            async with asyncio.timeout(within.total_seconds()):
                return FetchedResponse(*await cloud.answer(method, path, headers, body or b""))
        except TimeoutError:
            raise CloudError(f"no answer within {within.total_seconds():g} s", doing=f"{method} {path}") from None

    return fetch


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
        return all(agent.is_up for agent in self._agents.values())

    def problems(self) -> Sequence[str]:
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
