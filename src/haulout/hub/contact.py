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

from haulout.core.clock import Alarm, Clock
from haulout.errors import ApiError, KubeError, LimitExceeded
from haulout.hub.standing import Reach
from haulout.kube.transport import Request, Response, Stream, Transport

GRACE = timedelta(seconds=10)  # that a cluster may be silent before that is said
PATIENCE = timedelta(seconds=10)  # that an answer may take

_WEB_PAGE = "text/html"
_UNAUTHORIZED, _FORBIDDEN, _FAILED = 401, 403, 500


class Contact:
    """How one cluster answers; `changed` is called when it is another `Reach`."""

    def __init__(self, clock: Clock, *, changed: Callable[[], None]) -> None:
        self.problem = ""
        self.heard: datetime | None = None  # when it last answered
        self.since = clock.now()  # of the reach
        self.failing_since: datetime | None = None
        self.trouble = asyncio.Event()  # somebody should see what is the matter
        self._clock = clock
        self._changed = changed
        self._connected = False  # all of its nodes are known
        self._is_unreadable = False
        self._said = Reach.CONNECTING
        self._alarm: Alarm | None = None

    @property
    def reach(self) -> Reach:
        """Whether it can be spoken to."""
        return self._said

    def connected(self) -> None:
        """Take note that all of its nodes are known, for the first time or again."""
        self._connected = True
        self._is_unreadable = False
        self.succeeded()
        self._say()

    def succeeded(self) -> None:
        """Take note of an answer."""
        self.heard = self._clock.now()
        if self.failing_since is not None and not self._is_unreadable:
            self.failing_since = None
            self.problem = ""
            self._say()

    def unreadable(self, problem: str) -> None:
        """Take note that it answers, but that its nodes cannot be followed: they are not known any more."""
        self._connected = False
        self.failed(problem, is_unreadable=True)

    def failed(self, problem: str, *, is_unreadable: bool = False) -> None:
        """Take note that there was no answer, or none of use."""
        self.problem = problem
        self._is_unreadable = is_unreadable
        if self.failing_since is None:
            self.failing_since = self._clock.now()
            self._alarm = self._clock.call_at(self.failing_since + GRACE, self._say)
        self._say()
        self.trouble.set()

    def close(self) -> None:
        """Forget what was to be said later."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _say(self) -> None:
        now = self._clock.now()
        is_failing = self.failing_since is not None
        is_silent = self.failing_since is not None and now - self.failing_since >= GRACE
        if self._is_unreadable:
            reach = Reach.UNREADABLE
        elif is_silent or (is_failing and not self._connected):
            reach = Reach.UNREACHABLE
        else:
            reach = Reach.CONNECTED if self._connected else Reach.CONNECTING
        if not is_failing and self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if reach is not self._said:
            self._said = reach
            self.since = self.failing_since or now
            self._changed()


class Observed:
    """A transport whose answers tell how it stands with the cluster; none is waited for long."""

    def __init__(self, transport: Transport, contact: Contact) -> None:
        self.server = transport.server
        self._transport = transport
        self._contact = contact

    async def send(self, request: Request) -> Response:
        """Send `request` and read the whole answer."""
        try:
            response = await self._transport.send(_hurried(request))
        except LimitExceeded:
            raise  # it has answered
        except KubeError as error:
            self._contact.failed(str(error))
            raise
        self._note(request, response)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send `request` and read the answer as it comes."""
        try:
            async with self._transport.stream(_hurried(request)) as stream:
                self._note(request, stream)
                yield stream
        except (ApiError, LimitExceeded):
            raise  # it has answered
        except KubeError as error:
            self._contact.failed(str(error))
            raise

    async def close(self) -> None:
        """Give up all connections."""
        await self._transport.close()

    def _note(self, request: Request, answer: Response | Stream) -> None:
        """Take an answer for what it says of our way there; that a write is refused is another matter."""
        status = answer.status
        is_of_no_use = status == _FORBIDDEN or status >= _FAILED
        if status == _UNAUTHORIZED or (request.method == "GET" and is_of_no_use):
            self._contact.failed(f"{self.server} answers with status {status}")
        elif answer.headers.get("content-type", "").startswith(_WEB_PAGE):  # a proxy's, most often
            self._contact.failed(f"{self.server} answers with a web page: it is no API server")
        else:
            self._contact.succeeded()


def _hurried(request: Request) -> Request:
    return msgspec.structs.replace(request, timeout=min(request.timeout, PATIENCE))
