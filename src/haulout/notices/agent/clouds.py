"""Which sources an agent can run, and how each is made.

    cloud = await detected(services(os.environ), …)
    source = made(cloud, Here(node="aks-np1-0", client=client, environ=os.environ))

A cloud is added by a function here, which imports its source when it is called: what is not needed takes no memory.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from haulout.kube.client import Client
from haulout.notices.sources import Source
from haulout.notices.sources.aws import agent_settings as aws_settings
from haulout.notices.sources.azure import settings as azure_settings
from haulout.notices.sources.fetching import Fetch, over_http
from haulout.notices.sources.gcp import settings as gcp_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where an agent runs, and what it was told."""

    node: str
    client: Client
    environ: Mapping[str, str]
    reach: Callable[[str], Fetch] = over_http  # a metadata service, by its address


def _aws(here: Here) -> Source:
    from haulout.notices.sources.aws.metadata_source import AwsMetadataSource

    settings = aws_settings.read(here.environ)
    return AwsMetadataSource(
        here.reach(settings.metadata),
        node=here.node,
        clock=here.client.clock,
        random=here.client.random,
        families=settings.families,
        drains_for_network=settings.drains_for_network,
    )


def _azure(here: Here) -> Source:
    from haulout.notices.sources.azure.settings import Start
    from haulout.notices.sources.azure.source import AzureSource
    from haulout.notices.sources.azure.together import AzureStarter

    settings = azure_settings.read(here.environ)
    kind = AzureStarter if settings.start is Start.AFTER_DRAIN else AzureSource
    return kind(
        here.reach(settings.metadata),
        node=here.node,
        machine=settings.machine,
        clock=here.client.clock,
        random=here.client.random,
    )


def _gcp(here: Here) -> Source:
    from haulout.notices.sources.gcp.metadata import GcpMetadataSource, boot_id

    return GcpMetadataSource(
        here.reach(gcp_settings.metadata_server(here.environ)),
        node=here.node,
        clock=here.client.clock,
        random=here.client.random,
        boot=boot_id(),
    )


Make = Callable[[Here], Source]
_SOURCES: Mapping[str, Make] = {"aws": _aws, "azure": _azure, "gcp": _gcp}
CLOUDS = tuple(_SOURCES)


def made(cloud: str, here: Here) -> Source:
    """Return the source of a cloud, of which nothing is asked yet; raises `ConfigError` for what makes no sense."""
    return _SOURCES[cloud](here)


def services(environ: Mapping[str, str]) -> Mapping[str, Fetch]:
    """Return the metadata services of all clouds, as they are reached from here."""
    return {
        "aws": over_http(aws_settings.read(environ).metadata),
        "azure": over_http(azure_settings.read(environ).metadata),
        "gcp": over_http(gcp_settings.metadata_server(environ)),
    }
