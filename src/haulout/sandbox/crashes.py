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
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from haulout.core.virtual import VirtualClock, run_virtual
from haulout.errors import KubeError
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout.sandbox.apiserver.store import Write
from haulout.sandbox.cluster import Cluster
from haulout.sandbox.endings import end_state
from haulout.sandbox.invariants import Invariant, check
from haulout.sandbox.narration import changes, listed
from haulout.sandbox.processes import Process, Program

_NAME = "operator"
_DOWN_FOR = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Crash:
    """The end of an operator's first life: at its write of this number, from 1 on."""

    number: int
    before: bool = False  # the write is never sent; otherwise it takes effect, and no answer is heard

    def __str__(self) -> str:
        """Return it in words."""
        return f"a crash {'before' if self.before else 'after'} write {self.number}"


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
    sent: list[Request] = field(default_factory=list)
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
        self.sent.append(request)
        return self.crash is not None and len(self.sent) == self.crash.number

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
        if not self._stage.strikes(request):
            return await self._transport.send(request)
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


def survives_crashes(
    story: Story,
    *,
    operator: Program,
    compare: Callable[[Sequence[Write]], Any] = end_state,
    invariants: Sequence[Invariant] = (),
    counts: Callable[[Request], bool] = is_counted,
    down_for: timedelta = _DOWN_FOR,
    only: Crash | None = None,
) -> int:
    """Run `story` with a crash at each write of the operator; raise unless all come to the end of the calm run.

    Returns how many writes there were. `compare` makes of a history what must be equal.
    """
    calm = Stage(operator, counts, down_for=down_for)
    problem = _run(story, calm, invariants)
    if problem:
        raise CrashesNotSurvived(f"even without a crash: {problem}")
    expected = compare(calm.history)
    problems = []
    for crash in [only] if only else list(_crashes(len(calm.sent))):
        stage = Stage(operator, counts, crash=crash, down_for=down_for)
        problem = _run(story, stage, invariants) or _difference(expected, compare(stage.history))
        if problem:
            problems.append(f"{crash} ({_named(stage, crash)}): {problem}\n    alone: only={crash!r}")
    if problems:
        raise CrashesNotSurvived(f"{len(problems)} of {2 * len(calm.sent)} crashes:\n  " + "\n  ".join(problems))
    return len(calm.sent)


def _crashes(writes: int) -> Iterator[Crash]:
    for number in range(1, writes + 1):
        yield Crash(number, before=True)
        yield Crash(number)


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
    request = stage.sent[crash.number - 1]
    return f"{request.method} {request.path}"
