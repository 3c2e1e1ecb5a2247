"""Connections to our ports: how many may be open, how long each may take, and how much memory all of them may hold.

Every connection is counted from the moment it is accepted, before its TLS handshake. A port has a limit for all
connections and one for each remote address, which is half of it. At a limit the new connection replaces the one that
has waited longest for its peer: one in its handshake, without a complete request, idle between two requests, or not
read by its peer. If the port is full, the address with most connections loses one. So a new connection is refused only
if every other one is being answered, and a probe gets through however many idle connections there are, even from its
own address (a node's address may be shared by pods behind SNAT).

Each wait for a peer has a deadline: for the handshake, for the headers of the first and of every later request, between
requests, for the body, and for reading the answer. What peers have sent and what they have not read yet is bounded for
all ports together: beyond that, the connection that holds most is closed.

Nothing here may log or echo what a peer has sent: it may be a token.
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

from haulout.core.clock import RealClock
from haulout.core.metrics import Metric, MetricKind, MetricVec
from haulout.core.realtime import real_seconds

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = timedelta(seconds=5)
HEADERS_TIMEOUT = timedelta(seconds=10)
BODY_TIMEOUT = timedelta(seconds=30)
READ_TIMEOUT = timedelta(seconds=30)  # the peer reads something of the answer
CLOSE_TIMEOUT = timedelta(seconds=2)  # after we have closed our side
IDLE_TIMEOUT = timedelta(seconds=90)  # between two requests
MAX_BUFFERED_BYTES = 32 << 20  # by all ports: request bytes, and answers that are not read yet

SWEEP_EVERY = timedelta(seconds=1)
_STALLED_AFTER = 3  # seconds between two sweeps: the process was stopped, and peers could not be heard
_CHECK_EVERY = 256 << 10  # received bytes
_BUFFER = 32 << 10  # of a transport, before it pauses
_MANY_CONNECTIONS = 64  # connections whose memory is worth giving back
_RELEASE_INTERVAL = timedelta(seconds=20)
_NEVER = timedelta(days=365).total_seconds()
_HEADERS = {"X-Content-Type-Options": "nosniff", "Server": "haulout"}  # aiohttp would name its version, and Python's

_BAD_REQUEST_ERRORS = HttpProcessingError, web.RequestPayloadError  # both quote the request

OPEN = Metric(
    "haulout_http_connections",
    "Connections that are open.",
    ("server",),
    kind=MetricKind.GAUGE,
    details="`server` is webhook, metrics (HTTPS), health or dashboard.",
)
CLOSED = Metric(
    "haulout_http_connections_closed_total",
    "Connections that a limit closed.",
    ("server", "reason"),
    details="`reason` is refused, replaced, memory, handshake, headers, idle, body, read or closing.",
)
BAD_REQUESTS = Metric("haulout_http_bad_requests_total", "Requests that are not valid HTTP.", ("server",))
METRICS = (OPEN, CLOSED, BAD_REQUESTS)


class CloseReason(StrEnum):
    """Why we close a connection."""

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
    """What the connections of one port may do."""

    server: str  # in metrics and logs
    max_connections: int
    handshake: timedelta = HANDSHAKE_TIMEOUT
    headers: timedelta = HEADERS_TIMEOUT
    body: timedelta = BODY_TIMEOUT
    read: timedelta = READ_TIMEOUT
    idle: timedelta = IDLE_TIMEOUT

    @property
    def max_connections_per_address(self) -> int:
        """Half of them. Users behind one Ingress share an address, and one API server may be the only caller."""
        return max(1, self.max_connections // 2)


# With TLS a connection costs about 55 KiB, without about 12 KiB: all of these together less than 35 MiB.
WEBHOOK = ConnectionLimits(server="webhook", max_connections=256)
SECURE_METRICS = ConnectionLimits(server="metrics", max_connections=64)
HEALTH = ConnectionLimits(server="health", max_connections=128, idle=timedelta(seconds=15))
DASHBOARD = ConnectionLimits(
    server="dashboard", max_connections=1000
)  # 500 of them may be event streams (`haulout.dashboard.stream.stream_limits`)


class BufferLimit:
    """What connections hold of their peers' bytes, over all ports."""

    def __init__(self, max_bytes: int = MAX_BUFFERED_BYTES) -> None:
        self.max_bytes = max_bytes
        self._open: set[Connection] = set()
        self._unchecked = 0
        self._released_at = -math.inf

    def add(self, connection: "Connection") -> None:
        """Count this one."""
        self._open.add(connection)

    def discard(self, connection: "Connection") -> None:
        """Do not count it any more."""
        self._open.discard(connection)

    def received(self, count: int) -> None:
        """Check the limit if many bytes were received since the last check."""
        self._unchecked += count
        if self._unchecked >= _CHECK_EVERY:
            self.check()

    def check(self) -> None:
        """Close connections, those that hold most first, until the rest is within the limit."""
        self._unchecked = 0
        buffered = {connection: connection.buffered_bytes for connection in self._open}
        total = sum(buffered.values())
        while total > self.max_bytes:
            largest = max(buffered, key=buffered.__getitem__)
            total -= buffered.pop(largest)
            largest.slot.close(CloseReason.MEMORY)

    def release_free_memory(self, now: float) -> bool:
        """Give free memory back to the system, unless that was done just now.

        glibc keeps what lies below memory that is in use until it is asked for it. Connections are cycles of objects.
        """
        if now - self._released_at < _RELEASE_INTERVAL.total_seconds():
            return False
        self._released_at = now
        gc.collect()
        with suppress(AttributeError, OSError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
        return True


_MEMORY = BufferLimit()
_CLOSED, _BAD_REQUESTS = MetricVec(CLOSED), MetricVec(BAD_REQUESTS)
_TABLES: set["ConnectionTable"] = set()


def collect() -> Iterator[MetricVec]:
    """Yield what is counted, as it is now."""
    opened = MetricVec(OPEN)
    for table in _TABLES:
        opened.add(table.limits.server, amount=len(table))
    yield opened
    yield _CLOSED
    yield _BAD_REQUESTS


class ConnectionSlot:
    """One connection's place among those of its port, from accept to its end."""

    __slots__ = ("_socket", "address", "connection", "since", "table")

    def __init__(self, table: "ConnectionTable", accepted: socket.socket, address: str, *, since: float) -> None:
        self.table = table
        self.address = address
        self.since = since  # when its peer or we began what now goes on
        self.connection: Connection | None = None  # None: in its handshake
        self._socket = accepted

    @property
    def is_waiting_for_peer(self) -> bool:
        """Whether the peer is to do something, and not we."""
        return self.connection is None or self.connection.is_waiting_for_peer

    def close(self, reason: CloseReason) -> None:
        """Close it at once."""
        _CLOSED.add(self.table.limits.server, reason)
        log.debug("a connection of %s to %s is closed: %s", self.address, self.table.limits.server, reason)
        self.table.discard(self)
        if self.connection is not None:
            self.connection.abort()
            return
        with suppress(OSError):  # the handshake ends with an error, and whoever waits for it closes the socket
            self._socket.shutdown(socket.SHUT_RDWR)


class ConnectionTable:
    """All connections of one port."""

    def __init__(self, limits: ConnectionLimits, *, memory: BufferLimit | None = None) -> None:
        self.limits = limits
        self.memory = memory or _MEMORY
        self.clock = RealClock()  # deadlines are about peers, whose time runs at its usual speed in a sandbox, too
        self._slots: set[ConnectionSlot] = set()
        self._by_address: Counter[str] = Counter()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self._peak = 0

    def __len__(self) -> int:
        return len(self._slots)

    def open(self) -> None:
        """Show these in metrics, until `close`."""
        _TABLES.add(self)

    def close(self) -> None:
        """Stop the sweeps, and end all handshakes: what the server knows, it closes by itself."""
        _TABLES.discard(self)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for slot in tuple(self._slots):
            if slot.connection is None:
                slot.close(CloseReason.CLOSING)

    def admit(self, accepted: socket.socket, address: str) -> ConnectionSlot | None:
        """Return the slot of a connection that was accepted just now, at the cost of another; None: refuse it."""
        now = self.clock.monotonic()
        if not self._ensure_capacity(address, now):
            _CLOSED.add(self.limits.server, CloseReason.REFUSED)
            log.debug("a connection of %s to %s is refused: all others are being answered", address, self.limits.server)
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
        """Do not count it any more; harmless if it is not counted."""
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
        max(candidates, key=lambda slot: (self._by_address[slot.address], now - slot.since)).close(CloseReason.REPLACED)
        return True

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(real_seconds(SWEEP_EVERY), self._sweep)

    def _sweep(self) -> None:
        now = self.clock.monotonic()
        is_late, self._swept_at = now - self._swept_at > _STALLED_AFTER, now
        if not is_late:  # else what peers have sent meanwhile is to be read first
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
    """One connection after its handshake."""

    __slots__ = ("_body", "_headers_since", "_opened", "_received", "_unread", "_unread_since", "slot")

    def __init__(self, server: web.Server, slot: ConnectionSlot) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # as aiohttp's own runner does
            keepalive_timeout=_NEVER,  # idle connections are closed by `overdue`
            lingering_time=slot.table.limits.headers.total_seconds(),
            read_bufsize=_BUFFER,
            auto_decompress=False,  # no caller of ours compresses, and a body could grow a thousandfold
        )
        self.slot = slot
        self._opened: asyncio.Transport | None = None  # aiohttp forgets its own when it begins to close it
        self._body: StreamReader | None = None  # of the request that is being answered
        self._received = 0  # bytes since the last answer
        self._headers_since: float | None = None
        self._unread = 0
        self._unread_since = 0.0

    @property
    def buffered_bytes(self) -> int:
        """How much it holds of what its peer has sent, and of what its peer has not read."""
        return self._received + self._unread_bytes

    @property
    def is_waiting_for_peer(self) -> bool:
        """Whether the peer is to send or read something before we go on."""
        return self._body is None or not self._body.is_eof() or bool(self._unread_bytes)

    def overdue(self, now: float) -> CloseReason | None:
        """Return which deadline has passed, if any."""
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
        """Close it without waiting for its peer."""
        if self._opened is not None:
            self._opened.abort()

    def begin_request(self, request: web.BaseRequest) -> None:
        """Take note that a request has its headers."""
        self._restart_timer()
        self._body = request.content

    # What aiohttp calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._opened = cast("asyncio.Transport", transport)
        self._opened.set_write_buffer_limits(high=_BUFFER)
        if (limit_reads := getattr(transport, "set_read_buffer_limits", None)) is not None:
            limit_reads(high=_BUFFER)  # that of TLS: 256 KiB
        self._restart_timer()
        self._headers_since = self.slot.since
        self.slot.connection = self
        self.slot.table.memory.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give the slot back."""
        super().connection_lost(exc)
        self._opened = None
        self.slot.table.discard(self.slot)
        self.slot.table.memory.discard(self)

    def data_received(self, data: bytes) -> None:
        """Take what the peer has sent; whatever that is, nothing of it is logged."""
        if self._body is None and self._headers_since is None:
            self._headers_since = self.slot.table.clock.monotonic()
        self._received += len(data)
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - the event loop would log it with what was received
            log.error("a request cannot be parsed: %s at %s", type(error).__name__, _raise_location(error))  # noqa: TRY400
            self.abort()
        self.slot.table.memory.received(len(data))

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send it, and wait for the next request."""
        self.slot.table.memory.check()
        if isinstance(resp, web.HTTPExpectationFailed):
            resp.text = "expectation failed\n"  # it would quote the header
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
        """Return the answer to what is not HTTP, or to a request whose handler failed."""
        if isinstance(exc, _BAD_REQUEST_ERRORS):
            status = HTTPStatus.BAD_REQUEST
        self.log_exception("a request cannot be answered", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer was sent")
        answer = web.Response(status=status, text=f"{HTTPStatus(status).phrase.lower()}\n", headers=_HEADERS)
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a defect with where it is, and what is wrong with a request without anything of it."""
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
        """Tell whether the peer has read nothing of an answer for so long."""
        unread, before = self._unread_bytes, self._unread
        if not unread or not before or unread < before:
            self._unread_since = now
        self._unread = unread
        return bool(unread) and now - self._unread_since > timeout.total_seconds()


def harden(app: web.Application) -> None:
    """Have all that an application answers carry our headers, and its connections know what they do."""

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
    """Return where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
