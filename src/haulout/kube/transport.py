"""The transport interface: how requests reach a cluster.

`Client` prepares requests and decodes responses; a transport moves the bytes, and holds the credentials. There are two
implementations: HTTP (`haulout.kube.transports.http`), and in-process to a simulated cluster. The client cannot tell
them apart.

A transport returns whatever status the server sends. It raises only `Unreachable` (no response), `CredentialsError`,
`MalformedResponse` (a truncated response), `LimitExceeded`, and what a request's `before_send` raises. It never
retries, except once after a 401 with refreshed credentials, because only the transport knows that they were stale.

`impersonation_headers` builds the headers with which a request acts as another user. The API server authorizes that,
and its audit log has both users.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, runtime_checkable
from urllib.parse import quote

import msgspec

Headers = tuple[tuple[str, str], ...]

_NAME_CHARACTERS = "!#$&'*+-.^_`|~"  # besides letters and digits: RFC 9110, 5.6.2


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token. Its value is not in the repr."""

    value: str = field(repr=False)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request, relative to the server's address."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    # Additional headers; names may repeat. Impersonation headers replace all those of the transport.
    headers: tuple[tuple[str, str], ...] = ()
    # A token instead of the transport's own credentials and impersonation, none of which are sent then.
    token: Token | None = None
    # For a stream, this limits the time until the response begins, not its duration.
    timeout: timedelta = timedelta(seconds=30)
    # Called on an open connection, immediately before the first byte is sent. May raise to cancel the request.
    before_send: Callable[[], None] | None = None


class Response(msgspec.Struct, frozen=True):
    """A complete response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    # The decoded body, which only an in-process server sets. It must not be modified.
    content: Any = None


class DecodedEvent(NamedTuple):
    """A watch event that an in-process server sends without encoding it. It must not be modified."""

    type: str
    object: Any


class Stream(Protocol):
    """A streaming response: a watch. `lines` yields complete lines without their line end.

    For a status other than 200, the only line is the whole (short) error body.
    """

    status: int
    headers: Mapping[str, str]

    def lines(self) -> AsyncIterator[bytes]:
        """Yield each line as it arrives.

        End when the server ends the stream; raise `Unreachable` when it breaks off.
        """
        ...


@runtime_checkable
class DecodedStream(Protocol):
    """A stream that can yield events without encoding them."""

    def events(self) -> AsyncIterator[bytes | DecodedEvent]:
        """Yield each line as it arrives, like `lines`, or the decoded event."""
        ...


class Transport(Protocol):
    """Sends requests to one cluster and returns the responses."""

    server: str  # for messages: the address, or the name of a simulated cluster

    async def send(self, request: Request) -> Response:
        """Send `request` and read the whole response."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Send `request` and read the response as it arrives. Leaving the context closes it."""
        ...

    async def close(self) -> None:
        """Close all connections. Further requests fail with `Unreachable`."""
        ...


def impersonation_headers(
    user: str, *, groups: Iterable[str] = (), extra: Mapping[str, Iterable[str]] | None = None, uid: str = ""
) -> Headers:
    """Return the impersonation headers. Raise `ValueError` if a value cannot be sent in a header."""
    found = [("Impersonate-User", user)]
    found += [("Impersonate-Uid", uid)] if uid else []
    found += [("Impersonate-Group", group) for group in groups]
    for key, values in (extra or {}).items():
        # The server decodes percent-escapes in the key. That allows keys with slashes, which header names may not
        # contain: example.com/team.
        name = f"Impersonate-Extra-{quote(key, safe=_NAME_CHARACTERS)}"
        found += [(name, value) for value in values]
    # Whitespace around a header's value is removed in transit: "admin " would arrive as another user.
    if not all(value.isprintable() and value == value.strip() for _, value in found):
        raise ValueError("expected names without line breaks and other control characters, and no space around them")
    return tuple(found)
