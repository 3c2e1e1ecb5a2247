"""The way from one client process to the sandbox's API server, and everything that can happen on it.

Each transport is a process of its own: it has a name in the history, its own faults, and can be cut off or frozen
without the others noticing. Half of a request's latency passes before it takes effect and half after, so that a
client that gives up in between does not know what happened.
"""

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from haulout.core.clock import Clock
from haulout.errors import KubeError, Unreachable
from haulout.kube.transport import Request, Response, Stream
from haulout.sandbox.apiserver.faults import Faults, LinePlan, Outcome, RequestPlan, matches
from haulout.sandbox.apiserver.rbac import User
from haulout.sandbox.apiserver.server import Server
from haulout.sandbox.apiserver.status import NotYet
from haulout.sandbox.apiserver.store import Bells, Store
from haulout.sandbox.apiserver.targets import Case
from haulout.sandbox.apiserver.watch import Watch
from haulout.sandbox.apiserver.webhook_callers import Caller, verdicts
from haulout.sandbox.apiserver.webhooks import NeedsAdmission, Question, Verdict


class _Wait(Protocol):
    """Lets time pass, unless the line breaks."""

    async def __call__(self, duration: timedelta | None, *, until: Callable[[], bool] = ...) -> None: ...


USUAL_LATENCY = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was made, and when."""

    at: datetime
    request: Request


class Line:
    """The state of the connection. `breaks` counts: what began before a break is broken, also after it is mended."""

    def __init__(self) -> None:
        self.is_cut = False
        self.is_frozen = False
        self.breaks = 0
        self.bells = Bells()

    def change(self, *, is_cut: bool | None = None, is_frozen: bool | None = None) -> None:
        """Change state and wake whoever waits on the line."""
        if is_cut is not None:
            self.breaks += is_cut
            self.is_cut = is_cut
        if is_frozen is not None:
            self.is_frozen = is_frozen
        self.bells.ring()

    def drop(self) -> None:
        """Break what is under way; what begins from now on is not concerned."""
        self.breaks += 1
        self.bells.ring()

    async def wait(self, duration: timedelta | None, *, breaks: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass (None: for ever) unless `until` comes before; return False if the line broke."""
        bell = asyncio.Event()
        try:
            with self.bells.heard_by(bell):
                async with asyncio.timeout(None if duration is None else duration.total_seconds()):
                    while self.breaks == breaks and not until():
                        bell.clear()
                        await bell.wait()
        except TimeoutError:
            return True
        return self.breaks == breaks


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
        with self._no_answer_is_unreachable(request):
            async with asyncio.timeout(request.timeout.total_seconds()):
                answer = await self._exchange(request)
                if isinstance(answer, Response):
                    return answer
                with self._streaming(request, answer) as stream:
                    lines = [line + b"\n" async for line in stream.lines()]
                return Response(stream.status, stream.headers, b"".join(lines))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send `request` and read the answer as it comes."""
        with self._no_answer_is_unreachable(request):
            async with asyncio.timeout(request.timeout.total_seconds()):
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

    async def _exchange(self, request: Request) -> Response | Watch:
        self._remember(request)
        plan = self.faults.for_request(request)
        if self._line.is_cut or self._is_closed or self._server.is_down:
            await self._clock.sleep(timedelta())
            raise self._broken(request, sent=False)
        if request.may_leave:
            request.may_leave()
        breaks = self._line.breaks

        async def wait(duration: timedelta | None, *, until: Callable[[], bool] = lambda: False) -> None:
            if not await self._line.wait(duration, breaks=breaks, until=until):
                raise self._broken(request, sent=True)

        await wait(self.latency / 2 + plan.delay)
        if plan.before is not None:
            return _come_out(plan.before)
        await wait(None, until=lambda: not self._line.is_frozen and not plan.never_arrives)
        if plan.arrives_late is not None:
            self._arrive_in(plan.arrives_late, request)
            await wait(None)
        answer = await self._served(request, plan, wait)
        await wait(self.latency / 2)
        await wait(None, until=lambda: not self._line.is_frozen and not plan.never_answers)
        return answer if plan.after is None else _come_out(plan.after)

    def _remember(self, request: Request) -> None:
        if self.remembers:
            self.requests.append(Asked(self._clock.now(), request))
        if len(self.requests) > self.remembers:
            del self.requests[: (self.remembers + 1) // 2]

    async def _served(self, request: Request, plan: RequestPlan, wait: "_Wait") -> Response | Watch:
        attempt, case, as_of = 0, Case(), plan.as_of
        if plan.behind is not None:
            as_of = self._store.revision_at(self._clock.now() - plan.behind)
        while True:
            try:
                return self._server.answer(request, user=self.user, attempt=attempt, as_of=as_of, case=case)
            except NotYet as not_yet:
                await wait(not_yet.wait)
                attempt += 1
            except NeedsAdmission as needs:
                case.verdicts |= await self._heard(needs.questions, wait)

    async def _heard(self, questions: Sequence[Question], wait: "_Wait") -> dict[str, Verdict]:
        """Return what webhooks say, unless the line breaks first: then nobody waits for it."""
        await wait(self.latency)  # so that even a webhook that always changes the object comes to an end: the timeout
        broken: Unreachable | None = None
        async with asyncio.TaskGroup() as group:
            task = group.create_task(verdicts(self._webhooks, questions))
            task.add_done_callback(lambda _: self._line.bells.ring())
            try:
                await wait(None, until=task.done)
            except Unreachable as unreachable:
                broken = unreachable
                task.cancel()
        if broken is not None:
            raise broken
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
        feed = _Feed(answer, self._line, lambda: self.faults.for_line(request), self._clock, self.latency)
        with self._line.bells.heard_by(feed.bell), self._store.bells.heard_by(feed.bell):
            yield InProcessStream(200, answer.headers, feed=feed)

    def _broken(self, request: Request, *, sent: bool) -> Unreachable:
        what = "the connection broke" if sent else "no connection"
        return Unreachable(f"{request.method} {request.path}: {what} to {self.server}", sent=sent)

    @contextmanager
    def _no_answer_is_unreachable(self, request: Request) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            seconds = request.timeout.total_seconds()
            raise Unreachable(f"{request.method} {request.path}: no answer within {seconds:g} s", sent=True) from None


class _Feed:
    """Pulls the lines of a watch over a line, with their faults."""

    def __init__(
        self, watch: Watch, line: Line, plan: Callable[[], LinePlan], clock: Clock, latency: timedelta
    ) -> None:
        self.bell = asyncio.Event()  # rung when the store or the line changes
        self._watch = watch
        self._line = line
        self._plan = plan
        self._clock = clock
        self._latency = latency
        self._breaks = line.breaks
        self._coming: tuple[bytes, LinePlan] | None = None  # survives a reader that is cancelled and comes back
        self._swapped: list[bytes] = []
        self._failure: KubeError | None = None

    async def more(self) -> list[bytes] | None:
        """Return the next lines, perhaps none yet, or None at the end."""
        self._check()
        if self._coming is None:
            self.bell.clear()
            line = None if self._line.is_frozen else self._watch.pull(self._clock.monotonic())
            if line is None and self._watch.ended and not self._line.is_frozen:
                return None
            if line is None:
                await self._wait()
                return []
            self._coming = line, self._plan()
        line, plan = self._coming
        if plan.delay:
            await self._line.wait(plan.delay, breaks=self._breaks)
            self._check()
        self._coming = None
        return self._delivered(line, plan)

    def _check(self) -> None:
        if self._line.breaks != self._breaks:
            raise Unreachable("the connection broke in the middle of a stream", sent=True)
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    async def _wait(self) -> None:
        seconds = None if self._line.is_frozen else max(self._watch.wakes_at - self._clock.monotonic(), 0)
        try:
            async with asyncio.timeout(seconds):
                await self.bell.wait()
        except TimeoutError:
            return
        await self._line.wait(self._latency, breaks=self._breaks)

    def _delivered(self, line: bytes, plan: LinePlan) -> list[bytes]:
        if plan.fails is not None:
            self._failure = plan.fails
            return []
        self._failure = plan.then_fails
        lines = [line] if plan.change is None else plan.change(line)
        if plan.swap:
            self._swapped += lines
            return []
        swapped, self._swapped = self._swapped, []
        return lines + swapped


class InProcessStream:
    """A `haulout.kube.transport.Stream`; its own iterator, so that nothing is left over if a reader stops half-way."""

    def __init__(
        self, status: int, headers: Mapping[str, str], *, first: bytes = b"", feed: _Feed | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self._ready = deque([first] if first else [])
        self._feed = feed

    def lines(self) -> AsyncIterator[bytes]:
        """Yield each line as it arrives."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            lines = None if self._feed is None else await self._feed.more()
            if lines is None:
                raise StopAsyncIteration
            self._ready.extend(lines)
        return self._ready.popleft()


def _come_out(outcome: Outcome) -> Response:
    if isinstance(outcome, KubeError):
        raise outcome.with_traceback(None)
    return outcome
