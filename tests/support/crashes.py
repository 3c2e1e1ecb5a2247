"""Crash points: stop the operator right before or right after each of its writes, start a new one, compare the ends.

    async def story(stage: Stage) -> None:
        async with a_cluster(stage.clock).with_nodes(3).on_the_sandbox() as cluster:
            stage.begin(cluster.cluster)                       # from here on the operator runs
            await cluster.eventually(lambda: …)                # until its work is done

    survives_crashes(story, operator=lambda client: Operator(client).run())

The story is run once undisturbed and the operator's writes are counted. Then it is replayed, each time on an event loop
of its own and exactly as before up to the crash, twice for each write: once the write takes effect and its answer is
never heard, once it is never sent. What the story came to must be the same, and the invariants must hold on the whole
history. What fails is told by the number of the write, and can be run alone with `only`.

An operator that does all its work in the API server (`inward`) leaves its successor nothing but what is there. Then a
crash before a write is the same as one after the write before it, unless another wrote or time passed in between, and
one of the two is enough. Who calls, mails or asks anybody else between two writes is not such an operator.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from haulout.errors import KubeError
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout_sandbox.apiserver.store import Write
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.event_loops.virtual import VirtualClock, run_virtual
from support.endings import end_state
from support.invariants import Invariant, check
from support.narration import changes, listed
from support.processes import Process, Program

T = TypeVar("T")

_NAME = "operator"
_DOWN_FOR = timedelta(seconds=2)
_AT_ONCE = 0.1  # seconds that are no time at all: answers take some
_ONLY_TOLD = {"events", "leases"}


@dataclass(frozen=True, slots=True)
class Crash:
    """The end of an operator's first life: at its write of this number, from 1 on."""

    number: int
    before: bool = False  # the write is never sent; otherwise it takes effect, and no answer is heard

    def __str__(self) -> str:
        """Return it in words."""
        return f"a crash {'before' if self.before else 'after'} write {self.number}"


@dataclass(slots=True)
class Sent:
    """A write of the operator; when it was sent and answered, in seconds and in writes of all."""

    request: Request
    begun: tuple[float, int]
    answered: tuple[float, int] | None = None


class CrashesNotSurvived(AssertionError):
    """An operator that was stopped at some write came to another end than one that was not."""


def is_counted(request: Request) -> bool:
    """Tell whether a request is a write that matters: not one that is only asked, told or renewed."""
    if request.method == "GET" or ("dryRun", "All") in request.query:
        return False
    return not any(part in request.path for part in ("/leases", "/events", "reviews"))


@dataclass(slots=True)
class Stage:
    """Where a story is run; it tells when the operator begins."""

    operator: Program
    counts: Callable[[Request], bool] = is_counted
    crash: Crash | None = None
    down_for: timedelta = _DOWN_FOR
    clock: VirtualClock = field(default_factory=VirtualClock)
    sent: list[Sent] = field(default_factory=list)
    process: Process | None = None

    def begin(self, cluster: Cluster) -> Process:
        """Run the operator in `cluster`."""
        self.process = Process(cluster, _NAME, self.operator, clock=VirtualClock(), through=self._through)
        self.process.start()
        return self.process

    @property
    def history(self) -> Sequence[Write]:
        """What happened in the story's cluster."""
        if self.process is None:
            raise RuntimeError("the story never began: it must call stage.begin(cluster)")
        return self.process.cluster.api.history

    def _through(self, transport: Transport) -> Transport:
        return _Counting(transport, self)

    def strikes(self, request: Request) -> bool:
        """Count a request; tell whether the crash comes at this one."""
        if not self.counts(request):
            return False
        self.sent.append(Sent(request, self.moment()))
        return self.crash is not None and len(self.sent) == self.crash.number

    def moment(self) -> tuple[float, int]:
        """Return how much time has passed, and how many writes."""
        return self.clock.monotonic(), len(self.history)

    def strike(self) -> None:
        """Kill the operator, and bring a new one after a while."""
        process = self.process
        if process is not None:
            process.kill()
            process.cluster.host(self._revive(process), name="revival of the operator")

    async def _revive(self, process: Process) -> None:
        await process.cluster.clock.sleep(self.down_for)
        process.start()


Story = Callable[[Stage], Awaitable[object]]


class _Counting:
    """A transport that ends its process at a chosen write."""

    def __init__(self, transport: Transport, stage: Stage) -> None:
        self.server = transport.server
        self._transport = transport
        self._stage = stage

    async def send(self, request: Request) -> Response:
        before = len(self._stage.sent)
        strikes = self._stage.strikes(request)
        counted = self._stage.sent[before:]
        if not strikes:
            response = await self._transport.send(request)
            for it in counted:
                it.answered = self._stage.moment()
            return response
        if self._stage.crash is not None and not self._stage.crash.before:
            with suppress(KubeError):
                await self._transport.send(request)
        self._stage.strike()
        await asyncio.Event().wait()  # whoever would hear the answer is no more
        raise AssertionError("a dead process went on")

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


@dataclass(slots=True)
class Thoroughness:
    """How many of the crashes of a story are tried; None: all of them."""

    most: int | None = None

    def chosen(self, crashes: Sequence[T]) -> Sequence[T]:
        """Return those to try: the first, the last, and others at even distances."""
        if self.most is None or len(crashes) <= self.most:
            return crashes
        return [crashes[at * (len(crashes) - 1) // (self.most - 1)] for at in range(self.most)]


THOROUGHNESS = Thoroughness()
"""Of this process: whoever has little time says so here."""


def survives_crashes(
    story: Story,
    *,
    operator: Program,
    compare: Callable[[Sequence[Write]], Any] = end_state,
    invariants: Sequence[Invariant] = (),
    counts: Callable[[Request], bool] = is_counted,
    down_for: timedelta = _DOWN_FOR,
    inward: bool = False,
    only: Crash | None = None,
) -> int:
    """Run `story` with a crash at each write of the operator; raise unless all come to the end of the calm run.

    At each, that is, unless `THOROUGHNESS` says how many are enough.

    Returns how many writes there were. `compare` makes of a history what must be equal. `inward` says that the operator
    does nothing but in the API server: then crashes that leave the same are tried once.
    """
    calm = Stage(operator, counts, down_for=down_for)
    problem = _run(story, calm, invariants)
    if problem:
        raise CrashesNotSurvived(f"even without a crash: {problem}")
    expected = compare(calm.history)
    problems = []
    crashes = [only] if only else THOROUGHNESS.chosen(list(_crashes(calm, inward=inward)))
    for crash in crashes:
        stage = Stage(operator, counts, crash=crash, down_for=down_for)
        problem = _run(story, stage, invariants) or _difference(expected, compare(stage.history))
        if problem:
            problems.append(f"{crash} ({_named(stage, crash)}): {problem}\n    alone: only={crash!r}")
    if problems:
        raise CrashesNotSurvived(f"{len(problems)} of {len(crashes)} crashes:\n  " + "\n  ".join(problems))
    return len(calm.sent)


def _crashes(calm: Stage, *, inward: bool) -> Iterator[Crash]:
    for number in range(1, len(calm.sent) + 1):
        if not (inward and number > 1 and _nothing_between(calm, *calm.sent[number - 2 : number])):
            yield Crash(number, before=True)
        yield Crash(number)


def _nothing_between(calm: Stage, one: Sent, other: Sent) -> bool:
    """Tell whether the cluster was the same after the one write as before the other, but for what is only told."""
    if one.answered is None or one.answered > other.begun:
        return False
    (answered_at, answered_by), (begun_at, begun_by) = one.answered, other.begun
    between = calm.history[answered_by:begun_by]
    alike = all(it.who == _NAME and it.kind.plural in _ONLY_TOLD for it in between)
    return alike and begun_at - answered_at <= _AT_ONCE


def _run(story: Story, stage: Stage, invariants: Sequence[Invariant]) -> str:
    """Run a story to its end; return what went wrong."""

    async def told() -> None:
        await story(stage)

    try:
        run_virtual(told())
    except Exception as error:  # noqa: BLE001 - whatever a story raises is its verdict, and told with its crash
        return _first(error)
    if stage.crash is not None and len(stage.sent) < stage.crash.number:
        return f"the replay had only {len(stage.sent)} writes: the story does not repeat itself"
    return "; ".join(map(str, check(stage.history, *invariants)))


def _first(error: BaseException) -> str:
    """Return what an error says; of a group, what its first says."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _difference(expected: Any, found: Any) -> str:
    return "" if expected == found else f"it came to another end: {listed(changes(expected, found), most=8)}"


def _named(stage: Stage, crash: Crash) -> str:
    if len(stage.sent) < crash.number:
        return "which never came"
    request = stage.sent[crash.number - 1].request
    return f"{request.method} {request.path}"
