"""What an agent runs: its event source, and the early starter if the source supports that.

    cloud = await detect_cloud(metadata_services(os.environ), clock=clock, random=random)
    source = new_event_source(cloud, AgentContext(node="aks-np1-0", client=client, environ=os.environ))

The cloud of the machine is detected by its metadata service. All clouds use the same address, and answer requests for
another cloud's paths with an error. So each is probed with a request that only it can answer. A machine that has just
booted may need several attempts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import Random

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.controllers.notices.early_start import EarlyStarter
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.errors import CloudError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.reflector import ListWatch
from haulout.providers.aws import settings as aws_settings
from haulout.providers.aws.imds import Ec2InstanceMetadata
from haulout.providers.azure import settings as azure_settings
from haulout.providers.azure.imds import AzureInstanceMetadata
from haulout.providers.event_source import EarlyStartSource, EventSource
from haulout.providers.gcp import settings as gcp_settings
from haulout.providers.http_fetch import Fetch, http_fetch
from haulout.providers.notice_writer import NoticeWriter, node_field_selector

log = logging.getLogger(__name__)

_GCP_HEADER = "metadata-flavor"
_TIMEOUT = timedelta(seconds=5)
_BACKOFF = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=1), jitter=0.3)


class Agent:
    """One event source for one node. There is no leader election: nothing else writes these notices."""

    def __init__(self, client: Client, source: EventSource, *, node: str) -> None:
        self.source = source
        self._notice_writer = NoticeWriter(client)
        self._notices: Informer[MaintenanceNotice] = Informer(
            client, ListWatch(MAINTENANCE_NOTICES, fields=node_field_selector(node)), transform=as_is
        )
        early_start_source = source if isinstance(source, EarlyStartSource) else None
        self._early_starter = (
            EarlyStarter(client, MutationCache(self._notices), early_start_source_of=lambda _: early_start_source)
            if early_start_source
            else None
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.source.run(self._notice_writer))
            if self._early_starter is not None:
                group.create_task(self._notices.run())
                self._notices.subscribe(self._on_notice)
                group.create_task(self._early_starter.run())

    def _on_notice(self, _: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        if new is not None and new.spec.source == self.source.name and self._early_starter is not None:
            self._early_starter.add(new)

    @property
    def is_up(self) -> bool:
        """Whether the event source receives events.

        A failed watch of notices is only a problem: events still arrive.
        """
        return self.source.is_up

    def problems(self) -> Sequence[str]:
        problem = self._notices.health().problem if self._early_starter is not None else None
        cache_problems = (f"cannot watch the MaintenanceNotices of this node: {problem}",) if problem else ()
        return (*self.source.problems(), *cache_problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """The environment of an agent: node, client, and environment variables."""

    node: str
    client: Client
    environ: Mapping[str, str]
    fetch_for: Callable[[str], Fetch] = http_fetch  # returns a `Fetch` for the address of a metadata service


def _aws(context: AgentContext) -> EventSource:
    # The modules of other clouds are not imported: each takes memory on every node.
    from haulout.providers.aws.imds_event_source import ImdsEventSource

    settings = aws_settings.read_agent_settings(context.environ)
    return ImdsEventSource(
        context.fetch_for(settings.metadata),
        node=context.node,
        clock=context.client.clock,
        random=context.client.random,
        event_types=settings.event_types,
        drains_for_network_maintenance=settings.drains_for_network_maintenance,
    )


def _azure(context: AgentContext) -> EventSource:
    from haulout.providers.azure.event_source import AzureEarlyStartSource, AzureEventSource
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
        "aws": http_fetch(aws_settings.read_agent_settings(environ).metadata),
        "azure": http_fetch(azure_settings.read(environ).metadata),
        "gcp": http_fetch(gcp_settings.metadata_server(environ)),
    }


async def detect_cloud(services: Mapping[str, Fetch], *, clock: Clock, random: Random) -> str:
    """Return the cloud that responds, however long that takes; `services` are the metadata services to probe."""
    probes: dict[str, Callable[[Fetch], Awaitable[bool]]] = {
        "aws": partial(_is_aws, clock=clock),
        "azure": _is_azure,
        "gcp": _is_gcp,
    }
    retry = Retry(clock, random, _BACKOFF)
    while True:
        # One after the other, and repeated for ever: after a boot the network may come up later than the agent. All
        # three services share the address 169.254.169.254, so each probe checks for what only its cloud answers.
        for cloud, fetch in services.items():
            if await probes[cloud](fetch):
                return cloud
        problem = f"no metadata service of {' or '.join(services)} answers on this machine; retrying"
        log.log(logging.DEBUG if retry.failures else logging.WARNING, "%s", problem)
        await retry.wait(CloudError(problem, doing="detecting the cloud"))


async def _is_aws(fetch: Fetch, *, clock: Clock) -> bool:
    try:
        return bool(await Ec2InstanceMetadata(fetch, clock=clock).instance())
    except CloudError as error:
        log.debug("not aws: %s", error)
        return False


async def _is_azure(fetch: Fetch) -> bool:
    try:
        return bool(await AzureInstanceMetadata(fetch).machine())
    except CloudError as error:
        log.debug("not azure: %s", error)
        return False


async def _is_gcp(fetch: Fetch) -> bool:
    try:
        answer = await fetch("GET", "/", headers={"Metadata-Flavor": "Google"}, within=_TIMEOUT)
    except CloudError as error:
        log.debug("not gcp: %s", error)
        return False
    return answer.headers.get(_GCP_HEADER) == "Google"
