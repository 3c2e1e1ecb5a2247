"""Connection limits of our HTTP ports: how many connections, for how long, and with how much buffered data.

Every connection counts from the moment it is accepted, before its TLS handshake. A port has a limit for all
connections, and a limit per remote address, which is half of it. At a limit, a new connection replaces the connection
that has waited longest for its peer: in its handshake, without a complete request, idle between two requests, or with
an unread response. If the whole port is full, the address with the most connections loses one. A new connection is
refused only if the server is answering requests on all others. A probe therefore succeeds however many idle connections
exist, even from its own address (pods behind SNAT may share the address of a node).

Each wait for a peer has a deadline: for the handshake, for the headers of the first and of every later request, between
requests, for the body, and for reading the response. Received and unread bytes are bounded over all ports: beyond the
bound, the connection with the most buffered bytes is closed.

Nothing here may log or echo what a peer sent: it may be a token.
"""

import asyncio
import ctypes
import gc
import logging
import math
import socket
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Any, cast

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from haulout.core.clock import RealClock, real_seconds
from haulout.core.metrics import MetricVec, counter, gauge

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = timedelta(seconds=5)
HEADERS_TIMEOUT = timedelta(seconds=10)
BODY_TIMEOUT = timedelta(seconds=30)
READ_TIMEOUT = timedelta(seconds=30)  # without progress by the peer in reading the response
CLOSE_TIMEOUT = timedelta(seconds=2)  # after the server has closed its side
# As kube-apiserver: IdleTimeout in staging/src/k8s.io/apiserver/pkg/server/secure_serving.go.
IDLE_TIMEOUT = timedelta(seconds=90)  # between two requests
MAX_BUFFERED_BYTES = 32 << 20  # over all ports: received request bytes plus unread response bytes

# One timer for each port, not for each connection: timers of thousands of connections would be set and cancelled for
# every request.
SWEEP_EVERY = timedelta(seconds=1)
_STALLED_AFTER = 3  # seconds between two sweeps: the process was suspended and could not read from its peers
_CHECK_EVERY = 256 << 10  # received bytes between two checks of the limit
_BUFFER = 32 << 10  # bytes in a transport's buffer before it pauses
_MANY_CONNECTIONS = 64  # peak of connections from which on free memory is returned to the system
_RELEASE_INTERVAL = timedelta(seconds=20)
_NEVER = timedelta(days=365).total_seconds()
_HEADERS = {"X-Content-Type-Options": "nosniff", "Server": "haulout"}  # aiohttp's default names its version

_BAD_REQUEST_ERRORS = HttpProcessingError, web.RequestPayloadError  # the messages of both quote the request

OPEN = gauge(
    "haulout_http_connections",
    "Connections that are open.",
    "server",
    details="`server` is webhook, metrics (HTTPS), health or dashboard.",
)
CLOSED = counter(
    "haulout_http_connections_closed_total",
    "Connections that a limit closed.",
    "server",
    "reason",
    details="`reason` is refused, replaced, memory, handshake, headers, idle, body, read or closing.",
)
BAD_REQUESTS = counter("haulout_http_bad_requests_total", "Requests that are not valid HTTP.", "server")
METRICS = (OPEN, CLOSED, BAD_REQUESTS)


class CloseReason(StrEnum):
    """Why the server closes a connection; the value is a label of the metric."""

    REFUSED = "refused"
    REPLACED = "replaced"
    MEMORY = "memory"
    HANDSHAKE = "handshake"
    HEADERS = "headers"
    IDLE = "idle"
    BODY = "body"
    READ = "read"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits and deadlines of the connections of one port."""

    server: str  # value of the label in metrics, and the name in logs
    max_connections: int
    handshake: timedelta = HANDSHAKE_TIMEOUT
    headers: timedelta = HEADERS_TIMEOUT
    body: timedelta = BODY_TIMEOUT
    read: timedelta = READ_TIMEOUT
    idle: timedelta = IDLE_TIMEOUT

    @property
    def max_connections_per_address(self) -> int:
        """Half of all connections.

        Not less: users behind one Ingress share an address, and one API server may be the only caller.
        """
        return max(1, self.max_connections // 2)


# A connection costs about 55 KiB with TLS and about 12 KiB without. All of these together cost less than 35 MiB.
WEBHOOK = ConnectionLimits(server="webhook", max_connections=256)
SECURE_METRICS = ConnectionLimits(server="metrics", max_connections=64)
HEALTH = ConnectionLimits(server="health", max_connections=128, idle=timedelta(seconds=15))
# 500 of them may be event streams (`haulout.dashboard.stream.broadcaster`).
DASHBOARD = ConnectionLimits(server="dashboard", max_connections=1000)


class BufferLimit:
    """Limits the buffered bytes of all connections, over all ports."""

    def __init__(self, max_bytes: int = MAX_BUFFERED_BYTES) -> None:
        self.max_bytes = max_bytes
        self._open: set[Connection] = set()
        self._unchecked = 0
        self._released_at = -math.inf

    def add(self, connection: "Connection") -> None:
        self._open.add(connection)

    def discard(self, connection: "Connection") -> None:
        self._open.discard(connection)

    def received(self, count: int) -> None:
        """Check the limit if many bytes were received since the last check."""
        self._unchecked += count
        if self._unchecked >= _CHECK_EVERY:
            self.check()

    def check(self) -> None:
        """Close the connections with the most buffered bytes until the rest is within the limit."""
        self._unchecked = 0
        buffered = {connection: connection.buffered_bytes for connection in self._open}
        total = sum(buffered.values())
        while total > self.max_bytes:
            largest = max(buffered, key=buffered.__getitem__)
            total -= buffered.pop(largest)
            largest.slot.close(CloseReason.MEMORY)

    def release_free_memory(self, now: float) -> bool:
        """Return free memory to the system, at most once per _RELEASE_INTERVAL; return whether it did.

        glibc keeps free memory below memory that is in use until `malloc_trim`. Connections are reference cycles, so
        collect garbage first.
        """
        if now - self._released_at < _RELEASE_INTERVAL.total_seconds():
            return False
        self._released_at = now
        gc.collect()
        with suppress(AttributeError, OSError):  # another C library, without malloc_trim
            ctypes.CDLL(None).malloc_trim(0)
        return True


_MEMORY = BufferLimit()
_CLOSED, _BAD_REQUESTS = MetricVec(CLOSED), MetricVec(BAD_REQUESTS)
_TABLES: set["ConnectionTable"] = set()


def collect() -> Iterator[MetricVec]:
    opened = MetricVec(OPEN)
    for table in _TABLES:
        opened.add(table.limits.server, amount=len(table))
    yield opened
    yield _CLOSED
    yield _BAD_REQUESTS


class ConnectionSlot:
    """One connection in the table of its port, from accept to close."""

    __slots__ = ("_socket", "address", "connection", "since", "table")

    def __init__(self, table: "ConnectionTable", accepted: socket.socket, address: str, *, since: float) -> None:
        self.table = table
        self.address = address
        self.since = since  # monotonic start of the current wait or request
        self.connection: Connection | None = None  # None during the TLS handshake
        self._socket = accepted

    @property
    def is_waiting_for_peer(self) -> bool:
        """Whether the server waits for the peer, not the peer for the server."""
        return self.connection is None or self.connection.is_waiting_for_peer

    def close(self, reason: CloseReason) -> None:
        """Close the connection at once, without a response: the peer may be the reason for closing it."""
        _CLOSED.add(self.table.limits.server, reason)
        log.debug("a connection of %s to %s is closed: %s", self.address, self.table.limits.server, reason)
        self.table.discard(self)
        if self.connection is not None:
            self.connection.abort()
            return
        with suppress(OSError):  # the handshake then fails, and its awaiting task closes the socket
            self._socket.shutdown(socket.SHUT_RDWR)


class ConnectionTable:
    """All connections of one port, from accept to close, with their limits."""

    def __init__(self, limits: ConnectionLimits, *, memory: BufferLimit | None = None) -> None:
        self.limits = limits
        self.memory = memory or _MEMORY
        self.clock = RealClock()  # peers run in real time, even if a sandbox simulates time
        self._slots: set[ConnectionSlot] = set()
        self._by_address: Counter[str] = Counter()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self._peak = 0

    def __len__(self) -> int:
        return len(self._slots)

    def open(self) -> None:
        """Export the metrics of this port until `close`."""
        _TABLES.add(self)

    def close(self) -> None:
        """Stop the sweeps and abort all handshakes; the aiohttp server closes the connections that have a protocol."""
        _TABLES.discard(self)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for slot in tuple(self._slots):
            if slot.connection is None:
                slot.close(CloseReason.CLOSING)

    def admit(self, accepted: socket.socket, address: str) -> ConnectionSlot | None:
        """Return the slot of a newly accepted connection, closing another one if necessary; None: refuse it."""
        now = self.clock.monotonic()
        if not self._ensure_capacity(address, now):
            _CLOSED.add(self.limits.server, CloseReason.REFUSED)
            log.debug("a connection of %s to %s is refused: all connections are in use", address, self.limits.server)
            return None
        slot = ConnectionSlot(self, accepted, address, since=now)
        self._slots.add(slot)
        self._by_address[address] += 1
        self._peak = max(self._peak, len(self._slots))
        if self._sweep_timer is None:
            self._swept_at = now
            self._sweep_later()
        return slot

    def discard(self, slot: ConnectionSlot) -> None:
        """Remove a connection from the table; a no-op if it is not in there."""
        if slot not in self._slots:
            return
        self._slots.remove(slot)
        self._by_address[slot.address] -= 1
        if not self._by_address[slot.address]:
            del self._by_address[slot.address]

    def _ensure_capacity(self, address: str, now: float) -> bool:
        if self._by_address[address] >= self.limits.max_connections_per_address:
            candidates = [slot for slot in self._slots if slot.address == address and slot.is_waiting_for_peer]
        elif len(self._slots) >= self.limits.max_connections:
            candidates = [slot for slot in self._slots if slot.is_waiting_for_peer]
        else:
            return True
        if not candidates:
            return False
        # The address with the most connections first: a single client that opens many must not displace all others.
        max(candidates, key=lambda slot: (self._by_address[slot.address], now - slot.since)).close(CloseReason.REPLACED)
        return True

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(real_seconds(SWEEP_EVERY), self._sweep)

    def _sweep(self) -> None:
        now = self.clock.monotonic()
        is_late, self._swept_at = now - self._swept_at > _STALLED_AFTER, now
        if not is_late:  # after a suspension, first read what the peers sent meanwhile
            self._close_overdue(now)
            self.memory.check()
        if (
            self._peak >= _MANY_CONNECTIONS
            and len(self._slots) < self._peak // 4
            and self.memory.release_free_memory(now)
        ):
            self._peak = len(self._slots)
        self._sweep_timer = None
        if self._slots or self._peak >= _MANY_CONNECTIONS:
            self._sweep_later()

    def _close_overdue(self, now: float) -> None:
        for slot in tuple(self._slots):
            reason = self._handshake_overdue(slot, now) if slot.connection is None else slot.connection.overdue(now)
            if reason is not None:
                slot.close(reason)

    def _handshake_overdue(self, slot: ConnectionSlot, now: float) -> CloseReason | None:
        return CloseReason.HANDSHAKE if now - slot.since > self.limits.handshake.total_seconds() else None


class Connection(web.RequestHandler):
    """One connection after its TLS handshake.

    It overrides aiohttp's protocol, because aiohttp has no deadlines for headers, bodies and slow readers.
    """

    __slots__ = ("_body", "_headers_since", "_opened", "_received", "_unread", "_unread_since", "slot")

    def __init__(self, server: web.Server, slot: ConnectionSlot) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # as aiohttp's own runner does
            keepalive_timeout=_NEVER,  # `overdue` closes idle connections
            lingering_time=slot.table.limits.headers.total_seconds(),
            read_bufsize=_BUFFER,
            auto_decompress=False,  # none of our callers compresses, and a compressed body could expand a thousandfold
        )
        self.slot = slot
        self._opened: asyncio.Transport | None = None  # aiohttp drops its own when it begins to close
        self._body: StreamReader | None = None  # of the request in progress
        self._received = 0  # bytes since the last response
        self._headers_since: float | None = None
        self._unread = 0
        self._unread_since = 0.0

    @property
    def buffered_bytes(self) -> int:
        """Received bytes of the current request plus response bytes that the peer has not read."""
        return self._received + self._unread_bytes

    @property
    def is_waiting_for_peer(self) -> bool:
        """Whether the peer has to send or read something before the server can continue."""
        return self._body is None or not self._body.is_eof() or bool(self._unread_bytes)

    def overdue(self, now: float) -> CloseReason | None:
        """Return the deadline that has passed, if any."""
        limits, since = self.slot.table.limits, self.slot.since
        if self._opened is None or self._opened.is_closing():
            return CloseReason.CLOSING if now - since > CLOSE_TIMEOUT.total_seconds() else None
        if self._is_unread(now, limits.read):
            return CloseReason.READ
        if self._body is not None:
            return CloseReason.BODY if not self._body.is_eof() and now - since > limits.body.total_seconds() else None
        if self._headers_since is not None:
            return CloseReason.HEADERS if now - self._headers_since > limits.headers.total_seconds() else None
        return CloseReason.IDLE if now - since > limits.idle.total_seconds() else None

    def abort(self) -> None:
        """Close the connection without waiting for its peer."""
        if self._opened is not None:
            self._opened.abort()

    def begin_request(self, request: web.BaseRequest) -> None:
        """Record that the headers of a request are complete."""
        self._restart_timer()
        self._body = request.content

    # Callbacks of aiohttp and asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the deadline for the first request."""
        super().connection_made(transport)
        self._opened = cast("asyncio.Transport", transport)
        # The handler of a large response pauses here until the peer reads. Without a limit, all of it would be in
        # memory.
        self._opened.set_write_buffer_limits(high=_BUFFER)
        if (limit_reads := getattr(transport, "set_read_buffer_limits", None)) is not None:
            limit_reads(high=_BUFFER)  # the default for TLS is 256 KiB
        self._restart_timer()
        self._headers_since = self.slot.since
        self.slot.connection = self
        self.slot.table.memory.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._opened = None
        self.slot.table.discard(self.slot)
        self.slot.table.memory.discard(self)

    def data_received(self, data: bytes) -> None:
        """Parse what the peer sent; never log any of it."""
        if self._body is None and self._headers_since is None:
            self._headers_since = self.slot.table.clock.monotonic()
        self._received += len(data)
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - the event loop would log the error together with the received bytes
            log.error("a request cannot be parsed: %s at %s", type(error).__name__, _raise_location(error))  # noqa: TRY400
            self.abort()
        self.slot.table.memory.received(len(data))

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response, then start the deadline for the next request."""
        self.slot.table.memory.check()
        if isinstance(resp, web.HTTPExpectationFailed):
            resp.text = "expectation failed\n"  # the default text quotes the header
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._restart_timer()
            self._body, self._received, self._headers_since = None, 0, None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes the request
    ) -> web.StreamResponse:
        """Return the response to invalid HTTP, or to a request whose handler failed."""
        if isinstance(exc, _BAD_REQUEST_ERRORS):
            status = HTTPStatus.BAD_REQUEST
        self.log_exception("a request cannot be answered", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer was sent")
        answer = web.Response(status=status, text=f"{HTTPStatus(status).phrase.lower()}\n", headers=_HEADERS)
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a programming error with its traceback, and a bad request without any of its content."""
        server, error = self.slot.table.limits.server, kw.get("exc_info")
        if isinstance(error, _BAD_REQUEST_ERRORS):
            _BAD_REQUESTS.add(server)
            log.debug("a bad request of %s to %s: %s", self.slot.address, server, type(error).__name__)
        else:
            log.error(*args, **kw, extra={"server": server})

    # Helpers

    def _restart_timer(self) -> None:
        self.slot.since = self.slot.table.clock.monotonic()

    @property
    def _unread_bytes(self) -> int:
        return 0 if self._opened is None else self._opened.get_write_buffer_size()

    def _is_unread(self, now: float, timeout: timedelta) -> bool:
        """Return whether the peer has read nothing of a response for `timeout`."""
        unread, before = self._unread_bytes, self._unread
        if not unread or not before or unread < before:
            self._unread_since = now
        self._unread = unread
        return bool(unread) and now - self._unread_since > timeout.total_seconds()


def harden(app: web.Application) -> None:
    """Add our headers to all responses of an application, and notify connections when a request begins."""

    @web.middleware
    async def begin(request: web.Request, handler: Handler) -> web.StreamResponse:
        if isinstance(request.protocol, Connection):
            request.protocol.begin_request(request)
        return await handler(request)

    async def add_headers(_: web.Request, answer: web.StreamResponse) -> None:
        answer.headers.update(_HEADERS)

    app.middlewares.insert(0, begin)
    app.on_response_prepare.append(add_headers)


def _raise_location(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
