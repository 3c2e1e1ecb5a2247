"""From what the user typed to a client: the one place that wires configuration, transport and client together."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from haulout.core.clock import RealClock
from haulout.errors import CredentialsError, Unauthorized
from haulout.kube.client import Client
from haulout.kube.network import config
from haulout.kube.network.config import Connection
from haulout.kube.network.http import HttpTransport

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """A cluster, and the way we reach it."""

    connection: Connection
    client: Client


@asynccontextmanager
async def connect(*, kubeconfig: str | None, context: str | None) -> AsyncIterator[Session]:
    """Yield a session with the cluster that the user means; nothing is sent before the client is used."""
    clock = RealClock()
    connection = config.load(kubeconfig=kubeconfig, context=context, clock=clock)
    transport = HttpTransport(connection, clock=clock)
    random = Random()  # noqa: S311 - for jitter between tries, nothing secret
    client = Client(transport, clock=clock, random=random)
    try:
        yield Session(connection, client)
    except Unauthorized as error:
        raise CredentialsError(_not_accepted(connection, error)) from error
    finally:
        await client.close()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end, on uvloop where it is installed."""
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        return runner.run(main)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _not_accepted(connection: Connection, error: Unauthorized) -> str:
    who = f"the credentials of {connection.user!r}" if connection.user else "a request without credentials"
    where = f"context {connection.context!r} in {connection.source}"
    return (
        f"{connection.server} does not accept {who} ({where}): {error.message}; log in again, or name another context"
    )
