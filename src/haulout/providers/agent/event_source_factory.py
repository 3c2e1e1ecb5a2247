"""The event sources that an agent can run, and how each is created.

cloud = await detect_cloud(metadata_services(os.environ), …)
source = new_event_source(cloud, AgentContext(node="aks-np1-0", client=client, environ=os.environ))
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from haulout.kube.client import Client
from haulout.providers.aws import agent_settings as aws_settings
from haulout.providers.azure import settings as azure_settings
from haulout.providers.event_source import EventSource
from haulout.providers.gcp import settings as gcp_settings
from haulout.providers.http_fetch import Fetch, http_fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """The environment of an agent: node, client, and environment variables."""

    node: str
    client: Client
    environ: Mapping[str, str]
    fetch_for: Callable[[str], Fetch] = http_fetch  # returns a `Fetch` for the address of a metadata service


def _aws(context: AgentContext) -> EventSource:
    from haulout.providers.aws.imds_event_source import ImdsEventSource

    settings = aws_settings.read(context.environ)
    return ImdsEventSource(
        context.fetch_for(settings.metadata),
        node=context.node,
        clock=context.client.clock,
        random=context.client.random,
        event_types=settings.event_types,
        drains_for_network_maintenance=settings.drains_for_network_maintenance,
    )


def _azure(context: AgentContext) -> EventSource:
    from haulout.providers.azure.early_start import AzureEarlyStartSource
    from haulout.providers.azure.event_source import AzureEventSource
    from haulout.providers.azure.settings import AzureEarlyStart

    settings = azure_settings.read(context.environ)
    kind = AzureEarlyStartSource if settings.early_start is AzureEarlyStart.AFTER_DRAIN else AzureEventSource
    return kind(
        context.fetch_for(settings.metadata),
        node=context.node,
        machine=settings.machine,
        clock=context.client.clock,
        random=context.client.random,
    )


def _gcp(context: AgentContext) -> EventSource:
    from haulout.providers.gcp.metadata_event_source import GcpMetadataEventSource, boot_id

    return GcpMetadataEventSource(
        context.fetch_for(gcp_settings.metadata_server(context.environ)),
        node=context.node,
        clock=context.client.clock,
        random=context.client.random,
        current_boot_id=boot_id(),
    )


EventSourceFactory = Callable[[AgentContext], EventSource]
_FACTORIES: Mapping[str, EventSourceFactory] = {"aws": _aws, "azure": _azure, "gcp": _gcp}
CLOUDS = tuple(_FACTORIES)


def new_event_source(cloud: str, context: AgentContext) -> EventSource:
    """Return the event source of a cloud, without connecting; raise `ConfigError` for invalid settings."""
    return _FACTORIES[cloud](context)


def metadata_services(environ: Mapping[str, str]) -> Mapping[str, Fetch]:
    """Return a `Fetch` for the metadata service of each cloud."""
    return {
        "aws": http_fetch(aws_settings.read(environ).metadata),
        "azure": http_fetch(azure_settings.read(environ).metadata),
        "gcp": http_fetch(gcp_settings.metadata_server(environ)),
    }
