"""Crash tests: kill the operator directly before or after each of its writes, start a new one, compare the end states.

    async def scenario(run: CrashRun) -> None:
        async with a_cluster(run.clock).with_nodes(3).on_the_sandbox() as cluster:
            run.start_operator(cluster.cluster)                # from here on the operator runs
            await cluster.eventually(lambda: …)                # until its work is done

    assert_survives_crashes(scenario, operator=lambda client: Operator(client).run())

The scenario runs once without a crash to count the operator's writes. Then it is replayed twice per write, each time on
a new event loop and identical up to the crash: once the write takes effect and its response is lost, once it is never
sent. The end state must be the same, and the invariants must hold on the whole history. A failure names the number of
the write, which can be run alone with `only`.

An operator that does all its work in the API server (`writes_only_to_api`) leaves its successor nothing but the stored
objects. Then a crash before a write equals one after the previous write, unless another client wrote or time passed in
between, and one of the two is enough. An operator that calls any other service between two writes does not qualify.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from haulout.errors import KubeError
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout_sandbox.apiserver.storage.store import Write
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.clusters.process import Process, Program
from support.expectations.end_state import end_state
from support.expectations.history_text import changed_fields, join_limited
from support.invariants import Invariant, check

T = TypeVar("T")

_OPERATOR = "operator"
_RESTART_DELAY = timedelta(seconds=2)
_SIMULTANEOUS_SECONDS = 0.1  # seconds that are no time at all: answers take some
_REPORTING_KINDS = {"events", "leases"}


@dataclass(frozen=True, slots=True)
class Crash:
    """The crash of the first operator process, at its write of this number, from 1 on."""

    number: int
    before: bool = False  # the write is never sent; otherwise it takes effect, and no answer is heard

    def __str__(self) -> str:
        """Return it in words."""
        return f"a crash {'before' if self.before else 'after'} write {self.number}"


@dataclass(slots=True)
class SentWrite:
    """A write of the operator; when it was sent and answered, in seconds and in writes of all."""

    request: Request
    sent_at: tuple[float, int]
    answered_at: tuple[float, int] | None = None


class CrashesNotSurvived(AssertionError):
    """A run with a crash at some write ended in another state than the run without one."""


def counts_as_write(request: Request) -> bool:
    """Tell whether a request is a write that matters: not one that is only asked, told or renewed."""
    if request.method == "GET" or ("dryRun", "All") in request.query:
        return False
    return not any(part in request.path for part in ("/leases", "/events", "reviews"))


@dataclass(slots=True)
class CrashRun:
    """The run of a scenario, which starts the operator."""

    operator: Program
    counts: Callable[[Request], bool] = counts_as_write
    crash: Crash | None = None
    restart_delay: timedelta = _RESTART_DELAY
    clock: VirtualClock = field(default_factory=VirtualClock)
    sent_writes: list[SentWrite] = field(default_factory=list)
    process: Process | None = None

    def start_operator(self, cluster: Cluster) -> Process:
        """Run the operator in `cluster`."""
        self.process = Process(
            cluster, _OPERATOR, self.operator, clock=VirtualClock(), wrap_transport=self._wrap_transport
        )
        self.process.start()
        return self.process

    @property
    def history(self) -> Sequence[Write]:
        """The history of the scenario's cluster."""
        if self.process is None:
            raise RuntimeError("the story never began: it must call stage.begin(cluster)")
        return self.process.cluster.api.history

    def _wrap_transport(self, transport: Transport) -> Transport:
        return _CrashingTransport(transport, self)

    def should_crash(self, request: Request) -> bool:
        """Count a request; tell whether the crash comes at this one."""
        if not self.counts(request):
            return False
        self.sent_writes.append(SentWrite(request, self.elapsed()))
        return self.crash is not None and len(self.sent_writes) == self.crash.number

    def elapsed(self) -> tuple[float, int]:
        """Return how much time has passed, and how many writes."""
        return self.clock.monotonic(), len(self.history)

    def kill_operator(self) -> None:
        """Kill the operator, and start a new one after a while."""
        process = self.process
        if process is not None:
            process.kill()
            process.cluster.start_program(self._restart_later(process), name="revival of the operator")

    async def _restart_later(self, process: Process) -> None:
        await process.cluster.clock.sleep(self.restart_delay)
        process.start()


Scenario = Callable[[CrashRun], Awaitable[object]]


class _CrashingTransport:
    """A transport that ends its process at a chosen write."""

    def __init__(self, transport: Transport, run: CrashRun) -> None:
        self.server = transport.server
        self._transport = transport
        self._run = run

    async def send(self, request: Request) -> Response:
        before = len(self._run.sent_writes)
        is_crash = self._run.should_crash(request)
        counted = self._run.sent_writes[before:]
        if not is_crash:
            response = await self._transport.send(request)
            for write in counted:
                write.answered_at = self._run.elapsed()
            return response
        if self._run.crash is not None and not self._run.crash.before:
            with suppress(KubeError):
                await self._transport.send(request)
        self._run.kill_operator()
        await asyncio.Event().wait()  # the process that waits for the response is killed
        raise AssertionError("a dead process went on")

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


@dataclass(slots=True)
class CrashSampling:
    """How many of the crashes of a scenario are tried; None: all of them."""

    max_crashes: int | None = None

    def select(self, crashes: Sequence[T]) -> Sequence[T]:
        """Return those to try: the first, the last, and others at even distances."""
        if self.max_crashes is None or len(crashes) <= self.max_crashes:
            return crashes
        return [crashes[index * (len(crashes) - 1) // (self.max_crashes - 1)] for index in range(self.max_crashes)]


CRASH_SAMPLING = CrashSampling()
"""Of this process: whoever has little time says so here."""


def assert_survives_crashes(
    scenario: Scenario,
    *,
    operator: Program,
    compare: Callable[[Sequence[Write]], Any] = end_state,
    invariants: Sequence[Invariant] = (),
    counts: Callable[[Request], bool] = counts_as_write,
    restart_delay: timedelta = _RESTART_DELAY,
    writes_only_to_api: bool = False,
    only: Crash | None = None,
) -> int:
    """Run `scenario` with a crash at each write of the operator; raise unless all end in the same state.

    At each, that is, unless `CRASH_SAMPLING` says how many are enough.

    Returns how many writes there were. `compare` makes of a history what must be equal. `writes_only_to_api` says that
    the operator does nothing but in the API server: then crashes that leave the same are tried once.
    """
    reference = CrashRun(operator, counts, restart_delay=restart_delay)
    problem = _run_scenario(scenario, reference, invariants)
    if problem:
        raise CrashesNotSurvived(f"even without a crash: {problem}")
    expected = compare(reference.history)
    problems = []
    crashes = (
        [only] if only else CRASH_SAMPLING.select(list(_crashes(reference, writes_only_to_api=writes_only_to_api)))
    )
    for crash in crashes:
        run = CrashRun(operator, counts, crash=crash, restart_delay=restart_delay)
        problem = _run_scenario(scenario, run, invariants) or _difference(expected, compare(run.history))
        if problem:
            problems.append(f"{crash} ({_describe_request(run, crash)}): {problem}\n    alone: only={crash!r}")
    if problems:
        raise CrashesNotSurvived(f"{len(problems)} of {len(crashes)} crashes:\n  " + "\n  ".join(problems))
    return len(reference.sent_writes)


def _crashes(reference: CrashRun, *, writes_only_to_api: bool) -> Iterator[Crash]:
    for number in range(1, len(reference.sent_writes) + 1):
        if not (
            writes_only_to_api
            and number > 1
            and _is_unchanged_between(reference, *reference.sent_writes[number - 2 : number])
        ):
            yield Crash(number, before=True)
        yield Crash(number)


def _is_unchanged_between(reference: CrashRun, one: SentWrite, other: SentWrite) -> bool:
    """Tell whether the cluster was the same after the one write as before the other, but for what is only told."""
    if one.answered_at is None or one.answered_at > other.sent_at:
        return False
    (answered_at, writes_after), (sent_at, writes_before) = one.answered_at, other.sent_at
    between = reference.history[writes_after:writes_before]
    only_reports = all(write.username == _OPERATOR and write.kind.plural in _REPORTING_KINDS for write in between)
    return only_reports and sent_at - answered_at <= _SIMULTANEOUS_SECONDS


def _run_scenario(scenario: Scenario, run: CrashRun, invariants: Sequence[Invariant]) -> str:
    """Run a scenario to its end; return its problem."""

    async def run_to_end() -> None:
        await scenario(run)

    try:
        run_virtual(run_to_end())
    except Exception as error:  # noqa: BLE001 - whatever a story raises is its verdict, and told with its crash
        return _first_error_text(error)
    if run.crash is not None and len(run.sent_writes) < run.crash.number:
        return f"the replay had only {len(run.sent_writes)} writes: the story does not repeat itself"
    return "; ".join(map(str, check(run.history, *invariants)))


def _first_error_text(error: BaseException) -> str:
    """Return what an error says; of a group, what its first says."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _difference(expected: Any, found: Any) -> str:
    return (
        "" if expected == found else f"it came to another end: {join_limited(changed_fields(expected, found), most=8)}"
    )


def _describe_request(run: CrashRun, crash: Crash) -> str:
    if len(run.sent_writes) < crash.number:
        return "which never came"
    request = run.sent_writes[crash.number - 1].request
    return f"{request.method} {request.path}"
