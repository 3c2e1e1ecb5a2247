"""The sources of notices in a sandbox: they listen to the stand-ins of clouds in the same process, without any SDK."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

from haulout.app.notices import Sources
from haulout.app.sandbox.azure_agents import AzureAgents
from haulout.app.sandbox.interface import GcpModel, Machines
from haulout.errors import CloudError
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.sources import Source
from haulout.notices.sources.aws.settings import Settings
from haulout.notices.sources.aws.source import AwsSource
from haulout.notices.sources.fetching import Fetch, Fetched
from haulout.notices.sources.gcp.compute import RestCompute
from haulout.notices.sources.gcp.settings import Begin
from haulout.notices.sources.gcp.settings import Settings as GcpSettings
from haulout.notices.sources.gcp.source import BeginningComputeSource
from haulout.notices.sources.gcp.tokens import FromMetadata, Tokens
from haulout.notices.sources.oci.consumer import Place
from haulout.notices.sources.oci.source import OciSource

_INSTANCE = "sandbox"
_LOOK_EVERY = timedelta(seconds=30)
_WITHIN = timedelta(seconds=10)


def listening_to(fleet: Machines) -> Sources:
    """Return how the sources are made that listen to the clouds which have machines in a scenario."""

    def make(client: Client, nodes: Cache[Node]) -> Sequence[Source]:
        makers = {"oci": _oci, "aws": _aws, "azure": AzureAgents, "gcp": _gcp}
        return [makers[cloud](fleet, client, nodes) for cloud in sorted(fleet.clouds)]

    return make


def _oci(fleet: Machines, client: Client, _: Cache[Node]) -> Source:
    cloud = fleet.oci_model
    return OciSource(
        cloud.compute(),
        streaming=cloud.streaming(),
        place=Place(instance=_INSTANCE),
        compartments=cloud.compartments,
        clock=client.clock,
        random=client.random,
    )


def _aws(fleet: Machines, client: Client, nodes: Cache[Node]) -> Source:
    cloud = fleet.aws_model
    return AwsSource(ec2=cloud, groups=cloud, sqs=cloud, client=client, nodes=nodes, settings=Settings())


def _gcp(fleet: Machines, client: Client, nodes: Cache[Node]) -> Source:
    fetch = asking(fleet.gcp_model)
    settings = GcpSettings(look_every=_LOOK_EVERY, begin=Begin.AFTER_DRAIN)
    compute = RestCompute(fetch, Tokens(FromMetadata(fetch), clock=client.clock))
    return BeginningComputeSource(compute, client=client, nodes=nodes, settings=settings)


def asking(cloud: GcpModel, *, machine: str = "") -> Fetch:
    """Return how Google Cloud is asked in the same process; with a machine, its metadata server."""

    async def fetch(
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = _WITHIN,
    ) -> Fetched:
        path = f"/machines/{machine}{target}" if machine else target
        try:
            async with asyncio.timeout(within.total_seconds()):
                return Fetched(*await cloud.answer(method, path, headers, body or b""))
        except TimeoutError:
            raise CloudError(f"no answer within {within.total_seconds():g} s", doing=f"{method} {path}") from None

    return fetch
