"""Create a client from the command line flags: the only place that wires configuration, transport and client.

A user at a terminal is not an operator: an operator waits and retries, but a user wants an error after a few seconds if
the server does not answer. A signal (`asyncio_runner`) also ends the credential plugins that were started.

`authorization_header` has the user's token for the operator's dashboard, from `HAULOUT_TOKEN`.
"""

from collections.abc import AsyncIterator, Mapping
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

TOKEN_VARIABLE = "HAULOUT_TOKEN"  # noqa: S105 - the name of a variable, not its value
_COOKIE = "haulout-token"


@dataclass(frozen=True, slots=True)
class Session:
    """A connection to a cluster, and its client."""

    connection: Connection
    client: Client


@asynccontextmanager
async def connect(*, kubeconfig: str | None, context: str | None) -> AsyncIterator[Session]:
    """Yield a session with the selected cluster; no request is sent before the client is used."""
    clock = RealClock()
    connection = config.load(kubeconfig=kubeconfig, context=context, clock=clock)
    transport = HttpTransport(connection, clock=clock)
    random = Random()  # noqa: S311 - for jitter between retries, not for secrets
    client = Client(_ImpatientTransport(transport, clock), clock=clock, random=random)
    try:
        yield Session(connection, client)
    except Unauthorized as error:
        raise CredentialsError(_rejected_credentials_message(connection, error)) from error
    except (ServerFailure, TooManyRequests) as error:
        advice = "try again later, or ask the administrator of the cluster"
        raise KubeError(f"{connection.server} does not work: {error}; {advice}") from error
    finally:
        await client.close()


class _ImpatientTransport:
    """A transport with a short timeout and no retries for the first answer; after it, the usual ones apply.

    The time to get credentials does not count: a user may have to log in.
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
            # Timers of event loops may fire some milliseconds early.
            if self._clock.monotonic() - started < 0.9 * FIRST_ANSWER_TIMEOUT.total_seconds():
                raise
            raise KubeError(str(error)) from error  # the client does not retry a plain KubeError
        self._has_answered = True
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


def _rejected_credentials_message(connection: Connection, error: Unauthorized) -> str:
    who = f"the credentials of {connection.user!r}" if connection.user else "a request without credentials"
    advice = "log in again, or use another context"
    return f"{connection.server} does not accept {who} ({connection.origin}): {error.message}; {advice}"


def authorization_header(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the Authorization header with the token, if it is set."""
    token = environ.get(TOKEN_VARIABLE, "").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def cookie_header(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a cookie with the token, for requests through the API server's proxy, which drops `Authorization`."""
    token = environ.get(TOKEN_VARIABLE, "").strip()
    return {"Cookie": f"{_COOKIE}={token}"} if token else {}
