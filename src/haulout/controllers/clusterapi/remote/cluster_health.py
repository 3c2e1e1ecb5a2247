"""Whether a workload cluster answers: learned from every request that is sent to it anyway.

A connection that breaks is opened anew within a second, and nobody needs to hear of that. Only a cluster that does not
answer for a while, or has never done so, is called unreachable. One whose answers are too large, or no lists of nodes,
is called unreadable at once, and until its nodes are known again: that it answers other requests is no news.
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

GRACE_PERIOD = timedelta(seconds=10)  # that a cluster may be silent before that is said
RESPONSE_TIMEOUT = timedelta(seconds=10)  # that an answer may take

_HTML = "text/html"
_UNAUTHORIZED, _FORBIDDEN, _FAILED = 401, 403, 500


class ClusterHealth:
    """How one cluster answers; `on_change` is called when it is another `ConnectionState`."""

    def __init__(self, clock: Clock, *, on_change: Callable[[], None]) -> None:
        self.problem = ""
        self.last_response_at: datetime | None = None  # when it last answered
        self.since = clock.now()  # of the reach
        self.failing_since: datetime | None = None
        self.check_needed = asyncio.Event()  # somebody should see what is the matter
        self._clock = clock
        self._on_change = on_change
        self._is_connected = False  # all of its nodes are known
        self._is_unreadable = False
        self._connection_state = ConnectionState.CONNECTING
        self._alarm: Alarm | None = None

    @property
    def connection_state(self) -> ConnectionState:
        """Whether it can be spoken to."""
        return self._connection_state

    def mark_connected(self) -> None:
        """Take note that all of its nodes are known, for the first time or again."""
        self._is_connected = True
        self._is_unreadable = False
        self.mark_responding()
        self._update_connection_state()

    def mark_responding(self) -> None:
        """Take note of an answer."""
        self.last_response_at = self._clock.now()
        if self.failing_since is not None and not self._is_unreadable:
            self.failing_since = None
            self.problem = ""
            self._update_connection_state()

    def mark_unreadable(self, problem: str) -> None:
        """Take note that it answers, but that its nodes cannot be followed: they are not known any more."""
        self._is_connected = False
        self.mark_failed(problem, is_unreadable=True)

    def mark_failed(self, problem: str, *, is_unreadable: bool = False) -> None:
        """Take note that there was no answer, or none of use."""
        self.problem = problem
        self._is_unreadable = is_unreadable
        if self.failing_since is None:
            self.failing_since = self._clock.now()
            self._alarm = self._clock.call_at(self.failing_since + GRACE_PERIOD, self._update_connection_state)
        self._update_connection_state()
        self.check_needed.set()

    def close(self) -> None:
        """Forget what was to be said later."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _update_connection_state(self) -> None:
        now = self._clock.now()
        is_failing = self.failing_since is not None
        is_silent = self.failing_since is not None and now - self.failing_since >= GRACE_PERIOD
        if self._is_unreadable:
            connection_state = ConnectionState.UNREADABLE
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
    """A transport whose answers tell how it stands with the cluster; none is waited for long."""

    def __init__(self, transport: Transport, health: ClusterHealth) -> None:
        self.server = transport.server
        self._transport = transport
        self._health = health

    async def send(self, request: Request) -> Response:
        """Send `request` and read the whole answer."""
        try:
            response = await self._transport.send(_with_timeout(request))
        except LimitExceeded:
            raise  # it has answered
        except KubeError as error:
            self._health.mark_failed(str(error))
            raise
        self._record_response(request, response)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send `request` and read the answer as it comes."""
        try:
            async with self._transport.stream(_with_timeout(request)) as stream:
                self._record_response(request, stream)
                yield stream
        except (ApiError, LimitExceeded):
            raise  # it has answered
        except KubeError as error:
            self._health.mark_failed(str(error))
            raise

    async def close(self) -> None:
        """Give up all connections."""
        await self._transport.close()

    def _record_response(self, request: Request, response: Response | Stream) -> None:
        """Take an answer for what it says of our way there; that a write is refused is another matter."""
        status = response.status
        is_unusable = status == _FORBIDDEN or status >= _FAILED
        if status == _UNAUTHORIZED or (request.method == "GET" and is_unusable):
            self._health.mark_failed(f"{self.server} answers with status {status}")
        elif response.headers.get("content-type", "").startswith(_HTML):  # a proxy's, most often
            self._health.mark_failed(f"{self.server} answers with a web page: it is no API server")
        else:
            self._health.mark_responding()


def _with_timeout(request: Request) -> Request:
    return msgspec.structs.replace(request, timeout=min(request.timeout, RESPONSE_TIMEOUT))
