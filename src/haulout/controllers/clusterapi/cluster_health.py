"""Whether a workload cluster responds, learned from the requests that are sent to it anyway.

A broken connection is reopened within a second and is not reported. A cluster is unreachable only if it has not
responded for a while, or never has. A cluster whose responses are too large, or whose node list cannot be decoded, is
unreadable at once and until its nodes are known again, whatever other requests return.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec

from haulout.controllers.clusterapi.status import ConnectionState
from haulout.core.clock import Alarm, Clock
from haulout.errors import ApiError, KubeError, LimitExceeded
from haulout.kube.transport import Request, Response, Stream, Transport

GRACE_PERIOD = timedelta(seconds=10)  # how long a cluster may fail before it counts as unreachable
RESPONSE_TIMEOUT = timedelta(seconds=10)  # timeout of a request

_HTML = "text/html"
_UNAUTHORIZED, _FORBIDDEN, _FAILED = 401, 403, 500


class ClusterHealth:
    """The health of one cluster; `on_change` is called when its `ConnectionState` changes."""

    def __init__(self, clock: Clock, *, on_change: Callable[[], None]) -> None:
        self.problem = ""
        self.last_response_at: datetime | None = None  # time of the last response
        self.since = clock.now()  # since when the connection state holds
        self.failing_since: datetime | None = None
        self.check_needed = asyncio.Event()  # set after a failure: read the Secret again
        self._clock = clock
        self._on_change = on_change
        self._is_connected = False  # all nodes are known
        self._is_unreadable = False
        self._connection_state = ConnectionState.CONNECTING
        self._alarm: Alarm | None = None

    @property
    def connection_state(self) -> ConnectionState:
        return self._connection_state

    def mark_connected(self) -> None:
        """Record that all nodes are known, for the first time or again."""
        self._is_connected = True
        self._is_unreadable = False
        self.mark_responding()
        self._update_connection_state()

    def mark_responding(self) -> None:
        self.last_response_at = self._clock.now()
        if self.failing_since is not None and not self._is_unreadable:
            self.failing_since = None
            self.problem = ""
            self._update_connection_state()

    def mark_unreadable(self, problem: str) -> None:
        """Record that the cluster responds, but its nodes cannot be watched and are no longer known."""
        self._is_connected = False
        self.mark_failed(problem, is_unreadable=True)

    def mark_failed(self, problem: str, *, is_unreadable: bool = False) -> None:
        """Record a failed request, or an unusable response."""
        self.problem = problem
        self._is_unreadable = is_unreadable
        # Only the first of several failures starts the grace period. Otherwise a cluster whose requests fail every
        # few seconds would never count as unreachable.
        if self.failing_since is None:
            self.failing_since = self._clock.now()
            self._alarm = self._clock.call_at(self.failing_since + GRACE_PERIOD, self._update_connection_state)
        self._update_connection_state()
        # The Secret may have changed: new credentials after a 401, another endpoint after a broken connection.
        self.check_needed.set()

    def close(self) -> None:
        """Cancel the pending state change. No callback comes after this."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _update_connection_state(self) -> None:
        now = self._clock.now()
        is_failing = self.failing_since is not None
        is_silent = self.failing_since is not None and now - self.failing_since >= GRACE_PERIOD
        if self._is_unreadable:
            connection_state = ConnectionState.UNREADABLE
        # A cluster that never answered gets no grace period: there is nothing known of it that could still be right.
        elif is_silent or (is_failing and not self._is_connected):
            connection_state = ConnectionState.UNREACHABLE
        else:
            connection_state = ConnectionState.CONNECTED if self._is_connected else ConnectionState.CONNECTING
        if not is_failing and self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if connection_state is not self._connection_state:
            self._connection_state = connection_state
            self.since = self.failing_since or now
            self._on_change()


class HealthReportingTransport:
    """A transport that reports the result of each request to a `ClusterHealth`, and limits its timeout."""

    def __init__(self, transport: Transport, health: ClusterHealth) -> None:
        self.server = transport.server
        self._transport = transport
        self._health = health

    async def send(self, request: Request) -> Response:
        try:
            response = await self._transport.send(_with_timeout(request))
        except LimitExceeded:
            raise  # the cluster responded
        except KubeError as error:
            self._health.mark_failed(str(error))
            raise
        self._record_response(request, response)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        try:
            async with self._transport.stream(_with_timeout(request)) as stream:
                self._record_response(request, stream)
                yield stream
        except (ApiError, LimitExceeded):
            raise  # the cluster responded
        except KubeError as error:
            self._health.mark_failed(str(error))
            raise

    async def close(self) -> None:
        await self._transport.close()

    def _record_response(self, request: Request, response: Response | Stream) -> None:
        """Record a response. A rejected write says nothing about the connection; only 401 does."""
        status = response.status
        # A forbidden write may be a missing permission, or an admission webhook of the cluster; the nodes are still
        # known. A read that is forbidden leaves the hub without nodes, which is as bad as no connection.
        is_unusable = status == _FORBIDDEN or status >= _FAILED
        if status == _UNAUTHORIZED or (request.method == "GET" and is_unusable):
            self._health.mark_failed(f"{self.server} answers with status {status}")
        elif response.headers.get("content-type", "").startswith(_HTML):  # usually a proxy
            self._health.mark_failed(f"{self.server} answers with a web page: it is not an API server")
        else:
            self._health.mark_responding()


def _with_timeout(request: Request) -> Request:
    return msgspec.structs.replace(request, timeout=min(request.timeout, RESPONSE_TIMEOUT))
