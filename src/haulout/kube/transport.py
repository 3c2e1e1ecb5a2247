"""How requests reach a cluster: the seam between what is asked and how the bytes travel.

The client above prepares requests and understands answers; a transport below only moves bytes, and knows the
credentials. There are two kinds: HTTP (`haulout.kube.transports.http`), and in-process to a simulated cluster. Nothing
above this line can tell them apart.

A transport answers with whatever status the server gave. It raises only `Unreachable` (no answer), `CredentialsError`,
`GarbledAnswer` (the answer broke off), and what a request's `before_send` raises. It never retries, except once after a
401 with fresh credentials: only it can know that they were stale.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, which no repr shows."""

    value: str = field(repr=False)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request, relative to the server's address."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    # Further ones; a name may come more than once. Those of impersonation replace the transport's own, all at once.
    headers: tuple[tuple[str, str], ...] = ()
    # Who asks, instead of whoever the transport is: then nothing of its own credentials or impersonation is sent.
    token: Token | None = None
    # For a stream this bounds the time until the answer begins, not how long it may last.
    timeout: timedelta = timedelta(seconds=30)
    # Asked when a connection is there and nothing stands between this and the first byte; raises to keep it back.
    before_send: Callable[[], None] | None = None


class Response(msgspec.Struct, frozen=True):
    """An answer, read to its end. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    # What the body would say, had it been written: only from a server in the same process. Nobody may change it.
    content: Any = None


class DecodedEvent(NamedTuple):
    """A line of a watch that was never written: what a server in the same process tells. Nobody may change it."""

    type: str
    object: Any


class Stream(Protocol):
    """An answer that goes on: a watch. `lines` yields complete lines without their line end.

    For a status other than 200 the whole of the (short) error body is the only line.
    """

    status: int
    headers: Mapping[str, str]

    def lines(self) -> AsyncIterator[bytes]:
        """Yield each line as it arrives; ends when the server ends it, raises `Unreachable` when it breaks off."""
        ...


@runtime_checkable
class DecodedStream(Protocol):
    """A stream that need not write down what it has to say."""

    def events(self) -> AsyncIterator[bytes | DecodedEvent]:
        """Yield each line as it arrives, as `lines` does, or what it says."""
        ...


class Transport(Protocol):
    """Moves requests to one cluster and answers back."""

    server: str  # for people: the address, or the name of a simulated cluster

    async def send(self, request: Request) -> Response:
        """Send `request` and read the whole answer."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Send `request` and read the answer as it comes; leaving the context ends it."""
        ...

    async def close(self) -> None:
        """Give up all connections."""
        ...
