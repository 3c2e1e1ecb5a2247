"""The way from one client process to the sandbox's API server, and everything that can happen on it.

Each transport is a process of its own: it has a name in the history, its own faults, and can be cut off or frozen
without the others noticing. Half of a request's latency passes before it takes effect and half after, so that a
client that gives up in between does not know what happened.
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
from haulout.kube.transport import Request, Response, Stream, Token, Told
from haulout_sandbox.apiserver.faults import Faults, LinePlan, Outcome, RequestPlan, matches
from haulout_sandbox.apiserver.line import BrokeOff, Line, Way
from haulout_sandbox.apiserver.rbac import User
from haulout_sandbox.apiserver.server import Server
from haulout_sandbox.apiserver.status import NotYet, Refused, answer
from haulout_sandbox.apiserver.store import Store
from haulout_sandbox.apiserver.targets import Case
from haulout_sandbox.apiserver.watch import Watch, line_of
from haulout_sandbox.apiserver.webhook_callers import Caller, verdicts
from haulout_sandbox.apiserver.webhooks import NeedsAdmission, Question, Verdict

USUAL_LATENCY = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was made, and when."""

    at: datetime
    request: Request


class InProcessTransport:
    """A `haulout.kube.transport.Transport` to a `ApiServer`."""

    def __init__(
        self,
        server: Server,
        store: Store,
        clock: Clock,
        *,
        name: str,
        user: User,
        latency: timedelta,
        webhooks: Caller,
        remembers: int,
    ) -> None:
        self.server = f"memory of {name}"
        self.name = name
        self.user = user
        self.latency = latency
        self.faults = Faults()
        self.remembers = remembers
        self.trusted = False  # belongs to the cluster itself (`lane`)
        self.requests: list[Asked] = []  # the latest
        self._server = server
        self._store = store
        self._clock = clock
        self._webhooks = webhooks
        self._line = Line()
        self._is_closed = False

    def asked(self, *, method: str = "", path: str = "") -> list[Request]:
        """Return the requests made so far, of this method and with `path` in their path."""
        return [it.request for it in self.requests if matches(it.request, method=method, path=path)]

    def acting_as(self, user: User) -> "InProcessTransport":
        """Return the same line for somebody else: its faults and its fate are one with this one's."""
        other = copy.copy(self)
        other.user = user
        return other

    def cut(self) -> None:
        """Partition: requests fail at once, those under way and all streams break."""
        self._line.change(is_cut=True)

    def disconnect(self) -> None:
        """Break requests under way and all streams; new ones go through."""
        self._line.drop()

    def silence(self) -> None:
        """Freeze: the server accepts requests and says nothing any more, on streams neither."""
        self._line.change(is_frozen=True)

    def mend(self) -> None:
        """End both. What broke stays broken; what was only silent goes on."""
        self._line.change(is_cut=False, is_frozen=False)

    async def send(self, request: Request) -> Response:
        """Send `request` and read the whole answer."""
        answer = await self._exchange(request)
        if isinstance(answer, Response):
            return answer
        try:
            async with asyncio.timeout(request.timeout.total_seconds()):
                with self._streaming(request, answer) as stream:
                    lines = [line + b"\n" async for line in stream.lines()]
        except TimeoutError:
            raise _no_answer(request) from None
        return Response(stream.status, stream.headers, b"".join(lines))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send `request` and read the answer as it comes."""
        answer = await self._exchange(request)
        with self._streaming(request, answer) as stream:
            yield stream

    async def close(self) -> None:
        """Give up all connections, for good."""
        self.sever()

    def sever(self) -> None:
        """Cut it off for good: it cannot be mended."""
        self._is_closed = True
        self.cut()

    async def _exchange_for(self, token: Token, request: Request) -> Response | Watch:
        """Ask for whoever holds a token."""
        try:
            user = self._server.gate.identified(f"Bearer {token.value}", now=self._clock.now())
        except Refused as refused:
            return answer(refused.status["code"], refused.status)
        other = self.acting_as(user)
        return await other._exchange(msgspec.structs.replace(request, token=None))  # noqa: SLF001 - one of its own kind

    async def _exchange(self, request: Request) -> Response | Watch:
        if request.token is not None:
            return await self._exchange_for(request.token, request)
        self._remember(request)
        plan = self.faults.for_request(request)
        line = self._line
        if line.is_cut or self._is_closed or self._server.is_down:
            await self._clock.sleep(timedelta())
            raise self._broken(request, sent=False)
        if request.may_leave:
            request.may_leave()
        deadline = asyncio.get_running_loop().time() + request.timeout.total_seconds()
        try:
            return await self._travel(request, plan, Way(line, line.breaks, deadline))
        except BrokeOff:
            raise self._broken(request, sent=True) from None
        except TimeoutError:
            raise _no_answer(request) from None

    async def _travel(self, request: Request, plan: RequestPlan, way: Way) -> Response | Watch:
        line, half = self._line, self.latency.total_seconds() / 2
        if half or plan.delay:
            await way.wait(half + plan.delay.total_seconds())
        else:
            await way.yield_once()
        if plan.before is not None:
            return _come_out(plan.before)
        if line.is_frozen or plan.never_arrives:
            await way.wait(None, until=lambda: not line.is_frozen and not plan.never_arrives)
        if plan.arrives_late is not None:
            self._arrive_in(plan.arrives_late, request)
            await way.wait(None)
        answer = await self._served(request, plan, way)
        if half:
            await way.wait(half)
        if line.is_frozen or plan.never_answers:
            await way.wait(None, until=lambda: not line.is_frozen and not plan.never_answers)
        return answer if plan.after is None else _come_out(plan.after)

    def _remember(self, request: Request) -> None:
        if self.remembers:
            self.requests.append(Asked(self._clock.now(), request))
        if len(self.requests) > self.remembers:
            del self.requests[: (self.remembers + 1) // 2]

    async def _served(self, request: Request, plan: RequestPlan, way: Way) -> Response | Watch:
        attempt, case, as_of = 0, Case(), plan.as_of
        if plan.behind is not None:
            as_of = self._store.revision_at(self._clock.now() - plan.behind)
        while True:
            try:
                return self._server.answer(
                    request, user=self.user, attempt=attempt, as_of=as_of, case=case, trusted=self.trusted
                )
            except NotYet as not_yet:
                await way.wait(not_yet.wait.total_seconds())
                attempt += 1
            except NeedsAdmission as needs:
                case.verdicts |= await self._heard(needs.questions, way)

    async def _heard(self, questions: Sequence[Question], way: Way) -> dict[str, Verdict]:
        """Return what webhooks say, unless the line breaks first: then nobody waits for it."""
        # So that even a webhook that always changes the object comes to an end: the timeout.
        await way.wait(self.latency.total_seconds())
        ended: BrokeOff | TimeoutError | None = None
        async with asyncio.TaskGroup() as group:
            task = group.create_task(verdicts(self._webhooks, questions))
            task.add_done_callback(lambda _: self._line.nudge())
            try:
                await way.wait(None, until=task.done)
            except (BrokeOff, TimeoutError) as end:
                ended = end
                task.cancel()
        if ended is not None:
            raise ended
        return task.result()

    def _arrive_in(self, late: timedelta, request: Request) -> None:
        def arrive() -> None:
            try:
                self._server.answer(request, user=self.user)
            except (NotYet, NeedsAdmission):
                return  # the server would look again, or ask, but nobody waits for it any more

        asyncio.get_running_loop().call_later(late.total_seconds(), arrive)

    @contextmanager
    def _streaming(self, request: Request, answer: Response | Watch) -> Iterator["InProcessStream"]:
        if isinstance(answer, Response):
            yield InProcessStream(answer.status, answer.headers, first=answer.body)
            return
        feed = _Feed(answer, self._line, self.faults, request, self._clock, self.latency)
        feed.writes = not self.trusted
        with feed.hearing(self._store):
            yield InProcessStream(200, answer.headers, feed=feed)

    def _broken(self, request: Request, *, sent: bool) -> Unreachable:
        what = "the connection broke" if sent else "no connection"
        return Unreachable(f"{request.method} {request.path}: {what} to {self.server}", sent=sent)


class _Feed:
    """Pulls the lines of a watch over a line, with their faults."""

    def __init__(
        self, watch: Watch, line: Line, faults: Faults, request: Request, clock: Clock, latency: timedelta
    ) -> None:
        self._watch = watch
        self._line = line
        self._faults = faults
        self._request = request
        self._clock = clock
        self._latency = latency.total_seconds()
        self._breaks = line.breaks
        self.writes = True  # lines, rather than to tell what they would say
        self._coming: tuple[bytes | Told, LinePlan] | None = None  # survives a reader that is cancelled and comes back
        self._swapped: list[bytes | Told] = []
        self._failure: KubeError | None = None
        self._sleeper: asyncio.Future[None] | None = None
        self._news: asyncio.TimerHandle | None = None  # is on its way to the sleeper
        self._alarm: asyncio.TimerHandle | None = None  # for when the watch wants to be looked at, whoever sleeps

    @contextmanager
    def hearing(self, store: Store) -> Iterator[None]:
        """Hear of what is written, and of the line, while the context lasts."""
        with self._line.bells.heard_by(self._line_changed), store.heard_by(self._watch.kind, self._hear):
            try:
                yield
            finally:
                for timer in (self._news, self._alarm):
                    if timer is not None:
                        timer.cancel()

    def at_once(self) -> Iterable[bytes | Told]:
        """Return lines that are there and to which nothing happens: one, or all to those who are trusted.

        Whoever is told reads on without waiting for anything, so nothing can happen between one line and the next.
        """
        if not self._watch.has_news or self._line.is_frozen or self._coming is not None or self._swapped:
            return ()
        if self._faults.strike_lines:
            return ()
        self._check()
        if not self.writes:
            return self._watch.pull_all(self._clock.monotonic())
        line = self._pulled()
        return () if line is None else (line,)

    def _pulled(self) -> bytes | Told | None:
        told = self._watch.pull(self._clock.monotonic())
        # What may befall a line befalls the text of it.
        return line_of(told) if told is not None and (self.writes or self._faults.strike_lines) else told

    async def more(self) -> list[bytes | Told] | None:
        """Return the next lines, perhaps none yet, or None at the end."""
        self._check()
        if self._coming is None:
            # Until the alarm rings there is nothing to say but what is written.
            is_quiet = self._alarm is not None and not self._watch.has_news and not self._watch.ended
            line = None if is_quiet or self._line.is_frozen else self._pulled()
            if line is None and self._watch.ended and not self._line.is_frozen:
                return None
            if line is None:
                await self._wait()
                return []
            self._coming = line, self._faults.for_line(self._request)
        line, plan = self._coming
        if plan.delay:
            await self._line.wait(plan.delay.total_seconds(), breaks=self._breaks)
            self._check()
        self._coming = None
        return self._delivered(line, plan)

    def _check(self) -> None:
        if self._line.breaks != self._breaks:
            raise Unreachable("the connection broke in the middle of a stream", sent=True)
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    async def _wait(self) -> None:
        """Return when there may be something to read."""
        loop = asyncio.get_running_loop()
        if self._alarm is None and not self._line.is_frozen:
            self._alarm = loop.call_later(max(self._watch.wakes_at - self._clock.monotonic(), 0), self._ring)
        self._sleeper = loop.create_future()
        try:
            await self._sleeper
        finally:
            self._sleeper = None

    def _hear(self) -> None:
        """Note that something was written; it takes its time to get here."""
        self._watch.note()
        if self._sleeper is None or self._news is not None or self._line.is_frozen:
            return
        if not self._latency:
            self._wake()
        else:
            self._news = asyncio.get_running_loop().call_later(self._latency, self._tell)

    def _line_changed(self) -> None:
        if self._line.breaks != self._breaks:
            self._wake()
        else:
            self._hear()

    def _tell(self) -> None:
        self._news = None
        self._wake()

    def _ring(self) -> None:
        self._alarm = None
        self._wake()

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def _delivered(self, line: bytes | Told, plan: LinePlan) -> list[bytes | Told]:
        if plan.fails is not None:
            self._failure = plan.fails
            return []
        self._failure = plan.then_fails
        lines: list[bytes | Told] = [line]
        if plan.change is not None:
            lines = [*plan.change(line if isinstance(line, bytes) else line_of(line))]
        if plan.swap:
            self._swapped += lines
            return []
        swapped, self._swapped = self._swapped, []
        return lines + swapped


class InProcessStream:
    """A `haulout.kube.transport.Stream`; nothing is left over if a reader stops half-way."""

    def __init__(
        self, status: int, headers: Mapping[str, str], *, first: bytes = b"", feed: _Feed | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self._ready: deque[bytes | Told] = deque([first] if first else [])
        self._feed = feed

    def lines(self) -> AsyncIterator[bytes]:
        """Yield each line as it arrives."""
        return _Lines(self)

    def told(self) -> AsyncIterator[bytes | Told]:
        """Yield what each line says, to those who are trusted; to others the line."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes | Told]:
        return self

    async def __anext__(self) -> bytes | Told:
        ready, feed = self._ready, self._feed
        while not ready:
            if feed is None:
                raise StopAsyncIteration
            ready.extend(feed.at_once())
            if not ready:
                lines = await feed.more()
                if lines is None:
                    raise StopAsyncIteration
                ready.extend(lines)
        return ready.popleft()


class _Lines:
    """The lines of a stream, written."""

    def __init__(self, stream: InProcessStream) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        line = await anext(self._stream)
        return line if isinstance(line, bytes) else line_of(line)


def _no_answer(request: Request) -> Unreachable:
    seconds = request.timeout.total_seconds()
    return Unreachable(f"{request.method} {request.path}: no answer within {seconds:g} s", sent=True)


def _come_out(outcome: Outcome) -> Response:
    if isinstance(outcome, KubeError):
        raise outcome.with_traceback(None)
    return outcome
