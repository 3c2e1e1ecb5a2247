"""The node agent, wired: its connection to the cluster, cloud detection, event source, health and metrics.

Everything imported here costs memory on every node: no aiohttp, no uvloop, no drains, no profiles.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from random import Random

from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.config import Connection
from haulout.kube.transports.h11_http import minimal_transport
from haulout.providers.agent import health
from haulout.providers.agent.agent import Agent, AgentContext, detect_cloud, metadata_services, new_event_source
from haulout.providers.agent.metrics import AgentMetrics
from haulout.providers.http_fetch import Fetch, http_fetch

log = logging.getLogger(__name__)

_USER_AGENT = "haulout-agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The command line flags of the agent."""

    node: str
    cloud: str  # empty: detect
    kubeconfig: str | None = None
    context: str | None = None
    health_port: int | None = None
    metrics_port: int | None = None


def load_connection(options: AgentOptions, environ: Mapping[str, str]) -> Connection:
    """Return the connection to the cluster; raise `ConfigError` for invalid settings before any request is sent."""
    metadata_services(environ)
    return config.load(kubeconfig=options.kubeconfig, context=options.context, environ=environ)


async def run_agent(options: AgentOptions, connection: Connection, environ: Mapping[str, str]) -> None:
    clock, random = RealClock(), Random()  # noqa: S311 - for jitter between retries, not for secrets
    transport = minimal_transport(connection, clock=clock, user_agent=_USER_AGENT)
    client = Client(transport, clock=clock, random=random, field_manager=_USER_AGENT)
    status, metrics = _AgentStatus(), AgentMetrics()
    log.info("agent of node %s started; API server: %s", options.node, connection.server)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if options.health_port is not None:
                await stack.enter_async_context(health.serve_health(status, port=options.health_port))
            if options.metrics_port is not None:
                await stack.enter_async_context(_serve_metrics(status, metrics, client, port=options.metrics_port))
            cloud = options.cloud or await detect_cloud(metadata_services(environ), clock=clock, random=random)
            fetch_from = partial(_counting_fetch, metrics, cloud)
            source = new_event_source(
                cloud, AgentContext(node=options.node, client=client, environ=environ, fetch_for=fetch_from)
            )
            log.info("receiving events from %s", cloud)
            agent = status.agent = Agent(client, source, node=options.node)
            await agent.run()
    except asyncio.CancelledError:
        log.info("agent stopped")
    finally:
        await client.close()


def _counting_fetch(metrics: AgentMetrics, cloud: str, address: str) -> Fetch:
    return metrics.count_requests(cloud, http_fetch(address))


def _serve_metrics(
    status: "_AgentStatus", metrics: AgentMetrics, client: Client, *, port: int
) -> AbstractAsyncContextManager[int]:
    from haulout.httpserver.metrics import CONTENT_TYPE, Collector, Exposition  # most agents serve no metrics

    def collect() -> Iterator[Collector]:
        yield from metrics.collect(None if status.agent is None else status.agent.source)
        yield from client.metrics.collect(now=client.clock.now())

    page = Exposition(collect)

    def answer(path: bytes) -> tuple[HTTPStatus, Sequence[str]]:
        if path != b"/metrics":
            return HTTPStatus.NOT_FOUND, ("not found",)
        return HTTPStatus.OK, page.text().decode().splitlines()

    return health.serve(answer, host=None, port=port, what="metrics", content_type=CONTENT_TYPE)


class _AgentStatus:
    """The health of the agent, also before the cloud is known."""

    agent: Agent | None = None

    @property
    def is_up(self) -> bool:
        return self.agent is not None and self.agent.is_up

    def problems(self) -> tuple[str, ...]:
        return ("the cloud is not detected yet",) if self.agent is None else tuple(self.agent.problems())
