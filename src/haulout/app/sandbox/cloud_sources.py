"""Event sources for a sandbox: they read from simulated clouds in the same process, without any SDK."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

from haulout.api.objects import Node
from haulout.app.notices import MakeSources
from haulout.app.sandbox.azure_agents import AzureAgents
from haulout.app.sandbox.interface import CloudMachines, GcpModel
from haulout.errors import CloudError
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.event_source import EventSource
from haulout.providers.gcp.compute_api import RestCompute
from haulout.providers.gcp.compute_event_source import GcpEarlyStartSource
from haulout.providers.gcp.settings import GcpSettings, GoogleEarlyStart
from haulout.providers.gcp.tokens import MetadataTokenIssuer, TokenCache
from haulout.providers.http_fetch import Fetch, FetchedResponse
from haulout.providers.oci.event_source import OciEventSource
from haulout.providers.oci.stream_consumer import ConsumerOptions

_INSTANCE = "sandbox"
_POLL_INTERVAL = timedelta(seconds=30)
_TIMEOUT = timedelta(seconds=10)


def sources_of(fleet: CloudMachines) -> MakeSources:
    """Return the factory of sources for the clouds that have machines in the scenario."""

    def make(client: Client, nodes: Informer[Node]) -> Sequence[EventSource]:
        makers = {"oci": _oci, "aws": _aws, "azure": AzureAgents, "gcp": _gcp}
        return [makers[cloud](fleet, client, nodes) for cloud in sorted(fleet.clouds)]

    return make


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
