"""The agent of a node, wired: the way to the cluster, the cloud that it is in, its source, and its health.

What this imports is in the memory of every node: no aiohttp, no uvloop, nothing of drains and profiles.
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
from haulout.kube.network import config
from haulout.kube.network.config import Connection
from haulout.kube.network.lean import lean_transport
from haulout.notices.agent import clouds, health
from haulout.notices.agent.clouds import Here
from haulout.notices.agent.detecting import detected
from haulout.notices.agent.running import Agent
from haulout.notices.agent.tallies import AgentTallies
from haulout.notices.sources.fetching import Fetch, over_http

log = logging.getLogger(__name__)

_USER_AGENT = "haulout-agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was typed."""

    node: str
    cloud: str  # empty: whichever answers
    kubeconfig: str | None = None
    context: str | None = None
    health_port: int | None = None
    metrics_port: int | None = None


def way(wishes: Wishes, environ: Mapping[str, str]) -> Connection:
    """Return the way to the cluster; raises `ConfigError` for whatever makes no sense, before anything is asked."""
    clouds.services(environ)
    return config.load(kubeconfig=wishes.kubeconfig, context=wishes.context, environ=environ)


async def run_agent(wishes: Wishes, connection: Connection, environ: Mapping[str, str]) -> None:
    """Work until cancelled."""
    clock, random = RealClock(), Random()  # noqa: S311 - for jitter between tries, nothing secret
    transport = lean_transport(connection, clock=clock, user_agent=_USER_AGENT)
    client = Client(transport, clock=clock, random=random, field_manager=_USER_AGENT)
    standing, tallies = _Detecting(), AgentTallies()
    log.info("the agent of node %s runs, on %s", wishes.node, connection.server)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if wishes.health_port is not None:
                await stack.enter_async_context(health.serving(standing, port=wishes.health_port))
            if wishes.metrics_port is not None:
                await stack.enter_async_context(_exposing(standing, tallies, client, port=wishes.metrics_port))
            cloud = wishes.cloud or await detected(clouds.services(environ), clock=clock, random=random)
            reach = partial(_counted, tallies, cloud)
            source = clouds.made(cloud, Here(node=wishes.node, client=client, environ=environ, reach=reach))
            log.info("it listens to %s", cloud)
            agent = standing.agent = Agent(client, source, node=wishes.node)
            await agent.run()
    except asyncio.CancelledError:
        log.info("the agent ends")
    finally:
        await client.close()


def _counted(tallies: AgentTallies, cloud: str, address: str) -> Fetch:
    return tallies.counting(cloud, over_http(address))


def _exposing(
    standing: "_Detecting", tallies: AgentTallies, client: Client, *, port: int
) -> AbstractAsyncContextManager[int]:
    from haulout.web.metrics import CONTENT_TYPE, Counted, Exposition  # most agents have no metrics

    def counted() -> Iterator[Counted]:
        yield from tallies.all(None if standing.agent is None else standing.agent.source)
        yield from client.meters.look(now=client.clock.now())

    page = Exposition(counted)

    def told(path: bytes) -> tuple[HTTPStatus, Sequence[str]]:
        if path != b"/metrics":
            return HTTPStatus.NOT_FOUND, ("not found",)
        return HTTPStatus.OK, page.text().decode().splitlines()

    return health.answering(told, host=None, port=port, what="metrics", kind=CONTENT_TYPE)


class _Detecting:
    """How an agent stands, from the first moment on."""

    agent: Agent | None = None

    @property
    def is_up(self) -> bool:
        return self.agent is not None and self.agent.is_up

    def troubles(self) -> tuple[str, ...]:
        return ("which cloud this is is not known yet",) if self.agent is None else tuple(self.agent.troubles())
