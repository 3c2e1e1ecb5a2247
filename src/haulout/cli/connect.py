"""From what the user typed to a client: the one place that wires configuration, transport and client together.

A person at a terminal is not an operator: where the latter waits and tries again, the former wants to hear after a few
seconds that nobody answers, and a signal to end (`asyncio_runner`) takes the programs along that were started on the
way.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import Random

import msgspec

from haulout.cli import asyncio_runner
from haulout.core.clock import Clock, RealClock
from haulout.errors import CredentialsError, KubeError, ServerFailure, TooManyRequests, Unauthorized, Unreachable
from haulout.kube.client import Client
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout.kube.transports import config
from haulout.kube.transports.config import Connection
from haulout.kube.transports.http import HttpTransport

FIRST_ANSWER_TIMEOUT = timedelta(seconds=10)
TERMINATED = asyncio_runner.TERMINATED
run = asyncio_runner.run


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
    client = Client(_ImpatientTransport(transport, clock), clock=clock, random=random)
    try:
        yield Session(connection, client)
    except Unauthorized as error:
        raise CredentialsError(_rejected_credentials_message(connection, error)) from error
    except (ServerFailure, TooManyRequests) as error:
        advice = "try again later, or ask those who run the cluster"
        raise KubeError(f"{connection.server} has trouble: {error}; {advice}") from error
    finally:
        await client.close()


class _ImpatientTransport:
    """A transport that waits for the first answer only briefly, and that once; a server that answered has its time.

    The time that credentials take does not count: a person may have to log in for them.
    """

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self.server = transport.server
        self._transport = transport
        self._clock = clock
        self._has_answered = False

    async def send(self, request: Request) -> Response:
        if self._has_answered:
            return await self._transport.send(request)
        started = self._clock.monotonic()
        try:
            response = await self._transport.send(
                msgspec.structs.replace(request, timeout=min(request.timeout, FIRST_ANSWER_TIMEOUT))
            )
        except Unreachable as error:
            # Timers of event loops go off up to some milliseconds early.
            if self._clock.monotonic() - started < 0.9 * FIRST_ANSWER_TIMEOUT.total_seconds():
                raise
            raise KubeError(str(error)) from error  # which the client does not repeat
        self._has_answered = True
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


def _rejected_credentials_message(connection: Connection, error: Unauthorized) -> str:
    who = f"the credentials of {connection.user!r}" if connection.user else "a request without credentials"
    advice = "log in again, or name another context"
    return f"{connection.server} does not accept {who} ({connection.origin}): {error.message}; {advice}"
