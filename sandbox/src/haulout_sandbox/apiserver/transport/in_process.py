"""The transport from one client process to the API server, with latency and faults.

Each transport stands for a process: it has a name in the history and its own faults, and can be cut off or frozen
without effect on the others. Half of a request's latency passes before it takes effect and half after, so that a client
that gives up in between does not know the outcome.
"""

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.core.clock import Clock
from haulout.errors import KubeError, Unreachable
from haulout.kube.transport import DecodedEvent, Request, Response, Stream, Token
from haulout_sandbox.apiserver.admission.webhook import WebhookCall, WebhookCallsNeeded, WebhookResult
from haulout_sandbox.apiserver.admission.webhook_client import WebhookClient, call_webhooks
from haulout_sandbox.apiserver.auth.rbac import User
from haulout_sandbox.apiserver.handlers.request_handler import RequestHandler
from haulout_sandbox.apiserver.request_targets import AdmissionState
from haulout_sandbox.apiserver.status import RetryLater, StatusError, json_response
from haulout_sandbox.apiserver.storage.store import Store
from haulout_sandbox.apiserver.storage.watch import Watch, encode_event
from haulout_sandbox.apiserver.transport.connection import Connection, ConnectionBroken, InFlightRequest
from haulout_sandbox.apiserver.transport.faults import EventFaults, Faults, Outcome, RequestFaults, matches

DEFAULT_LATENCY = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request, and when it was sent."""

    sent_at: datetime
    request: Request


class InProcessTransport:
    """A `haulout.kube.transport.Transport` to an `ApiServer`."""

    def __init__(
        self,
        server: RequestHandler,
        store: Store,
        clock: Clock,
        *,
        name: str,
        user: User,
        latency: timedelta,
        webhooks: WebhookClient,
        request_log_size: int,
    ) -> None:
        self.server = f"memory of {name}"
        self.name = name
        self.user = user
        self.latency = latency
        self.faults = Faults()
        self.request_log_size = request_log_size
        self.is_trusted = False  # belongs to the cluster itself (`fast_path`)
        self.requests: list[SentRequest] = []  # the latest ones
        self._server = server
        self._store = store
        self._clock = clock
        self._webhooks = webhooks
        self._connection = Connection()
        self._is_closed = False

    def sent_requests(self, *, method: str = "", path: str = "") -> list[Request]:
        """Return the requests so far with this method and `path` in their path."""
        return [sent.request for sent in self.requests if matches(sent.request, method=method, path=path)]

    def acting_as(self, user: User) -> "InProcessTransport":
        """Return a transport for another user that shares this one's connection and faults."""
        other = copy.copy(self)
        other.user = user
        return other

    def cut(self) -> None:
        """Partition the network: requests fail at once, those in flight and all streams break."""
        self._connection.set_state(is_cut=True)

    def disconnect(self) -> None:
        """Break requests in flight and all streams; new ones succeed."""
        self._connection.break_requests()

    def silence(self) -> None:
        """Freeze: the server accepts requests but sends nothing, also on streams."""
        self._connection.set_state(is_frozen=True)

    def mend(self) -> None:
        """End `cut` and `silence`. Broken streams stay broken; silenced ones continue."""
        self._connection.set_state(is_cut=False, is_frozen=False)

    async def send(self, request: Request) -> Response:
        """Send `request` and read the complete response."""
        response = await self._exchange(request)
        if isinstance(response, Response):
            return response
        try:
            async with asyncio.timeout(request.timeout.total_seconds()):
                with self._streaming(request, response) as stream:
                    lines = [line + b"\n" async for line in stream.lines()]
        except TimeoutError:
            raise _timed_out(request) from None
        return Response(stream.status, stream.headers, b"".join(lines))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send `request` and read the response as it arrives."""
        response = await self._exchange(request)
        with self._streaming(request, response) as stream:
            yield stream

    async def close(self) -> None:
        """Close all connections for good."""
        self.close_permanently()

    def close_permanently(self) -> None:
        """Cut the transport off; `mend` has no effect any more."""
        self._is_closed = True
        self.cut()

    async def _exchange_for(self, token: Token, request: Request) -> Response | Watch:
        """Handle the request for the user of a bearer token."""
        try:
            user = self._server.access_control.authenticate(f"Bearer {token.value}", now=self._clock.now())
        except StatusError as error:
            return json_response(error.status["code"], error.status)
        other = self.acting_as(user)
        return await other._exchange(msgspec.structs.replace(request, token=None))  # noqa: SLF001 - one of its own kind

    async def _exchange(self, request: Request) -> Response | Watch:
        if request.token is not None:
            return await self._exchange_for(request.token, request)
        self._log_request(request)
        faults = self.faults.for_request(request)
        connection = self._connection
        if connection.is_cut or self._is_closed or self._server.is_down:
            await self._clock.sleep(timedelta())
            raise self._unreachable(request, sent=False)
        if request.before_send:
            request.before_send()
        deadline = asyncio.get_running_loop().time() + request.timeout.total_seconds()
        try:
            return await self._round_trip(
                request, faults, InFlightRequest(connection, connection.break_count, deadline)
            )
        except ConnectionBroken:
            raise self._unreachable(request, sent=True) from None
        except TimeoutError:
            raise _timed_out(request) from None

    async def _round_trip(
        self, request: Request, faults: RequestFaults, in_flight: InFlightRequest
    ) -> Response | Watch:
        connection, half_latency = self._connection, self.latency.total_seconds() / 2
        if half_latency or faults.delay:
            await in_flight.wait(half_latency + faults.delay.total_seconds())
        else:
            await in_flight.yield_once()
        if faults.before_effect is not None:
            return _raise_or_return(faults.before_effect)
        if connection.is_frozen or faults.never_arrives:
            await in_flight.wait(None, until=lambda: not connection.is_frozen and not faults.never_arrives)
        if faults.arrives_after is not None:
            self._deliver_later(faults.arrives_after, request)
            await in_flight.wait(None)
        response = await self._handle(request, faults, in_flight)
        if half_latency:
            await in_flight.wait(half_latency)
        if connection.is_frozen or faults.never_responds:
            await in_flight.wait(None, until=lambda: not connection.is_frozen and not faults.never_responds)
        return response if faults.after_effect is None else _raise_or_return(faults.after_effect)

    def _log_request(self, request: Request) -> None:
        if self.request_log_size:
            self.requests.append(SentRequest(self._clock.now(), request))
        if len(self.requests) > self.request_log_size:
            del self.requests[: (self.request_log_size + 1) // 2]

    async def _handle(self, request: Request, faults: RequestFaults, in_flight: InFlightRequest) -> Response | Watch:
        attempt, state, as_of = 0, AdmissionState(), faults.as_of
        if faults.staleness is not None:
            as_of = self._store.revision_at(self._clock.now() - faults.staleness)
        while True:
            try:
                return self._server.handle(
                    request, user=self.user, attempt=attempt, as_of=as_of, state=state, is_trusted=self.is_trusted
                )
            except RetryLater as retry:
                await in_flight.wait(retry.delay.total_seconds())
                attempt += 1
            except WebhookCallsNeeded as pending:
                state.results |= await self._call_webhooks(pending.calls, in_flight)

    async def _call_webhooks(
        self, calls: Sequence[WebhookCall], in_flight: InFlightRequest
    ) -> dict[str, WebhookResult]:
        """Return the results of webhooks, unless the connection breaks first."""
        # Time passes, so that a webhook that changes the object in each run reaches the timeout.
        await in_flight.wait(self.latency.total_seconds())
        failure: ConnectionBroken | TimeoutError | None = None
        async with asyncio.TaskGroup() as group:
            task = group.create_task(call_webhooks(self._webhooks, calls))
            task.add_done_callback(lambda _: self._connection.wake_waiters())
            try:
                await in_flight.wait(None, until=task.done)
            except (ConnectionBroken, TimeoutError) as error:
                failure = error
                task.cancel()
        if failure is not None:
            raise failure
        return task.result()

    def _deliver_later(self, delay: timedelta, request: Request) -> None:
        def deliver() -> None:
            try:
                self._server.handle(request, user=self.user)
            except (RetryLater, WebhookCallsNeeded):
                return  # the server would try again or call webhooks, but the client has gone

        asyncio.get_running_loop().call_later(delay.total_seconds(), deliver)

    @contextmanager
    def _streaming(self, request: Request, response: Response | Watch) -> Iterator["InProcessStream"]:
        if isinstance(response, Response):
            yield InProcessStream(response.status, response.headers, first=response.body)
            return
        feed = _WatchFeed(response, self._connection, self.faults, request, self._clock, self.latency)
        feed.encodes = not self.is_trusted
        with feed.subscribed(self._store):
            yield InProcessStream(200, response.headers, feed=feed)

    def _unreachable(self, request: Request, *, sent: bool) -> Unreachable:
        problem = "the connection broke" if sent else "no connection"
        return Unreachable(f"{request.method} {request.path}: {problem} to {self.server}", sent=sent)


class _WatchFeed:
    """Pulls lines from a watch over a connection, with their faults."""

    def __init__(
        self, watch: Watch, connection: Connection, faults: Faults, request: Request, clock: Clock, latency: timedelta
    ) -> None:
        self._watch = watch
        self._connection = connection
        self._faults = faults
        self._request = request
        self._clock = clock
        self._latency = latency.total_seconds()
        self._break_count = connection.break_count
        self.encodes = True  # encode lines, rather than return decoded events
        self._next_line: tuple[bytes | DecodedEvent, EventFaults] | None = (
            None  # kept for a reader that is cancelled and returns
        )
        self._swapped: list[bytes | DecodedEvent] = []
        self._failure: KubeError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._delivery_timer: asyncio.TimerHandle | None = None  # wakes the sleeper when a line has arrived
        self._watch_timer: asyncio.TimerHandle | None = None  # wakes the sleeper when the watch has a bookmark or ends

    @contextmanager
    def subscribed(self, store: Store) -> Iterator[None]:
        """Subscribe to writes and to the connection while the context lasts."""
        with (
            self._connection.listeners.subscribe(self._on_connection_change),
            store.subscribe(self._watch.kind, self._on_write),
        ):
            try:
                yield
            finally:
                for timer in (self._delivery_timer, self._watch_timer):
                    if timer is not None:
                        timer.cancel()

    def ready_lines(self) -> Iterable[bytes | DecodedEvent]:
        """Return lines that are available and have no fault: one, or all for trusted transports.

        A trusted reader consumes all lines without waiting, so nothing can happen between two of them.
        """
        if (
            not self._watch.may_have_events
            or self._connection.is_frozen
            or self._next_line is not None
            or self._swapped
        ):
            return ()
        if self._faults.affects_events:
            return ()
        self._check()
        if not self.encodes:
            return self._watch.pull_all(self._clock.monotonic())
        line = self._pull()
        return () if line is None else (line,)

    def _pull(self) -> bytes | DecodedEvent | None:
        event = self._watch.pull(self._clock.monotonic())
        # Faults apply to the encoded line.
        return encode_event(event) if event is not None and (self.encodes or self._faults.affects_events) else event

    async def next_lines(self) -> list[bytes | DecodedEvent] | None:
        """Return the next lines, perhaps none yet, or None at the end."""
        self._check()
        if self._next_line is None:
            # Until the watch timer fires, only writes produce events.
            is_quiet = self._watch_timer is not None and not self._watch.may_have_events and not self._watch.is_ended
            line = None if is_quiet or self._connection.is_frozen else self._pull()
            if line is None and self._watch.is_ended and not self._connection.is_frozen:
                return None
            if line is None:
                await self._wait()
                return []
            self._next_line = line, self._faults.for_event(self._request)
        line, faults = self._next_line
        if faults.delay:
            await self._connection.wait(faults.delay.total_seconds(), break_count=self._break_count)
            self._check()
        self._next_line = None
        return self._apply_faults(line, faults)

    def _check(self) -> None:
        if self._connection.break_count != self._break_count:
            raise Unreachable("the connection broke in the middle of a stream", sent=True)
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    async def _wait(self) -> None:
        """Return when there may be lines to read."""
        loop = asyncio.get_running_loop()
        if self._watch_timer is None and not self._connection.is_frozen:
            self._watch_timer = loop.call_later(
                max(self._watch.next_check_at - self._clock.monotonic(), 0), self._on_watch_timer
            )
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _on_write(self) -> None:
        """Note a write; it arrives after the latency."""
        self._watch.notify()
        if self._waiter is None or self._delivery_timer is not None or self._connection.is_frozen:
            return
        if not self._latency:
            self._wake()
        else:
            self._delivery_timer = asyncio.get_running_loop().call_later(self._latency, self._on_delivery)

    def _on_connection_change(self) -> None:
        if self._connection.break_count != self._break_count:
            self._wake()
        else:
            self._on_write()

    def _on_delivery(self) -> None:
        self._delivery_timer = None
        self._wake()

    def _on_watch_timer(self) -> None:
        self._watch_timer = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _apply_faults(self, line: bytes | DecodedEvent, faults: EventFaults) -> list[bytes | DecodedEvent]:
        if faults.error is not None:
            self._failure = faults.error
            return []
        self._failure = faults.error_after
        lines: list[bytes | DecodedEvent] = [line]
        if faults.transform is not None:
            lines = [*faults.transform(line if isinstance(line, bytes) else encode_event(line))]
        if faults.swap:
            self._swapped += lines
            return []
        swapped, self._swapped = self._swapped, []
        return lines + swapped


class InProcessStream:
    """A `haulout.kube.transport.Stream`; a reader may stop at any time without leaking resources."""

    def __init__(
        self, status: int, headers: Mapping[str, str], *, first: bytes = b"", feed: _WatchFeed | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self._ready: deque[bytes | DecodedEvent] = deque([first] if first else [])
        self._feed = feed

    def lines(self) -> AsyncIterator[bytes]:
        return _EncodedLines(self)

    def events(self) -> AsyncIterator[bytes | DecodedEvent]:
        """Yield decoded events to trusted clients, and lines to others."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes | DecodedEvent]:
        return self

    async def __anext__(self) -> bytes | DecodedEvent:
        ready, feed = self._ready, self._feed
        while not ready:
            if feed is None:
                raise StopAsyncIteration
            ready.extend(feed.ready_lines())
            if not ready:
                lines = await feed.next_lines()
                if lines is None:
                    raise StopAsyncIteration
                ready.extend(lines)
        return ready.popleft()


class _EncodedLines:
    def __init__(self, stream: InProcessStream) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        line = await anext(self._stream)
        return line if isinstance(line, bytes) else encode_event(line)


def _timed_out(request: Request) -> Unreachable:
    seconds = request.timeout.total_seconds()
    return Unreachable(f"{request.method} {request.path}: no answer within {seconds:g} s", sent=True)


def _raise_or_return(outcome: Outcome) -> Response:
    if isinstance(outcome, KubeError):
        raise outcome.with_traceback(None)
    return outcome
