"""The list of named faults of a process and the cluster around it.

    for fault in FAULTS:
        await inject_fault(operator, fault, random=Random(1))     # returns when the fault is over

Each fault begins, lasts and ends without residue, so that a test can require full recovery afterwards.
`fault_mixture(seed)` is a fault that combines several at once. Random choices inside a fault (which node, how long) use
the given generator.

Rules about single requests and lines of watches are in `haulout_sandbox.apiserver.transport.faults`; crashes at a
chosen write are in `support.faults.crash_test`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import FaultRule, Faults, User
from haulout_sandbox.apiserver.auth.rbac import request_attributes
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.process import Process

_DURATION = timedelta(seconds=40)  # longer than a client waits for an answer
_COMPONENT_PAUSE = timedelta(seconds=60)
_STALE = timedelta(minutes=2)
_CLOCK_JUMP = timedelta(hours=3)
_MIXED_WITHIN_SECONDS = 60
_ANYBODY = User("")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTarget:
    """The process and the cluster that a fault acts on."""

    process: Process
    random: Random

    @property
    def cluster(self) -> Cluster:
        """The cluster around the process."""
        return self.process.cluster

    @property
    def clock(self) -> Clock:
        """The cluster's clock."""
        return self.cluster.clock


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a process, from its start to its end."""

    name: str
    run: Callable[[FaultTarget], Awaitable[None]]

    def __str__(self) -> str:
        """Return its name, as test reports show it."""
        return self.name


async def inject_fault(process: Process, fault: Fault, *, random: Random) -> None:
    """Inject `fault` into `process`; return when it is over."""
    await fault.run(FaultTarget(process=process, random=random))


def fault_mixture(seed: int, *, count: int = 4, faults: Sequence[Fault] | None = None) -> Fault:
    """Return a combination of faults that start at different instants, the same for the same seed."""
    random = Random(f"mixture {seed}")
    chosen = random.choices(FAULTS if faults is None else faults, k=count)
    starts = [timedelta(seconds=random.uniform(0, _MIXED_WITHIN_SECONDS)) for _ in chosen]

    async def run(target: FaultTarget) -> None:
        async def inject_later(number: int) -> None:
            await target.clock.sleep(starts[number])
            await inject_fault(target.process, chosen[number], random=Random(f"mixture {seed} {number}"))

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(inject_later(number))

    return Fault(f"mixture {seed}: {', '.join(map(str, chosen))}", run)


def _is_write(request: Request) -> bool:
    return request.method != "GET"


def _is_list(request: Request) -> bool:
    """Tell whether it asks for many objects: a single one is read from etcd itself, and so is never old."""
    return request_attributes(_ANYBODY, request.method, request.path, dict(request.query)).verb == "list"


def _drop_initial_events_end(line: bytes) -> list[bytes]:
    """Lose the bookmark by which a list that is sent as part of a watch ends."""
    return [] if b"k8s.io/initial-events-end" in line else [line]


def _transport_fault(name: str, *rule_factories: Callable[[Faults], FaultRule[Any]]) -> Fault:
    """Return a fault made of rules that are in force for a while."""

    async def run(target: FaultTarget) -> None:
        faults = target.process.transport.faults
        rules = [rule(faults) for rule in rule_factories]
        await target.clock.sleep(_DURATION)
        faults.remove(*rules)

    return Fault(name, run)


def _followed_by_relist(fault: Fault) -> Fault:
    """Return a fault after which everything is listed anew: what it lost of a watch comes back no other way."""

    async def run(target: FaultTarget) -> None:
        await fault.run(target)
        await _expire_history(target)

    return Fault(fault.name, run)


async def _cut(target: FaultTarget) -> None:
    target.process.transport.cut()
    await target.clock.sleep(_DURATION)
    target.process.transport.mend()


async def _silence(target: FaultTarget) -> None:
    target.process.transport.silence()
    await target.clock.sleep(_DURATION)
    target.process.transport.mend()


async def _disconnect(target: FaultTarget) -> None:
    target.process.transport.disconnect()


async def _restart_server(target: FaultTarget) -> None:
    await target.cluster.api.restart(downtime=timedelta(seconds=8))


async def _expire_history(target: FaultTarget) -> None:
    target.cluster.api.compact()
    target.process.transport.disconnect()


async def _drop_list_ends(target: FaultTarget) -> None:
    """Have everything listed anew, by lists that do not end."""
    faults = target.process.transport.faults
    rule = faults.transform_event(_drop_initial_events_end, times=None)
    await _expire_history(target)
    await target.clock.sleep(_DURATION)
    faults.remove(rule)


def _paused(name: str, chosen: Callable[[str], bool]) -> Fault:
    """Return a fault that stops components of the cluster for longer than a node's lease lasts."""

    async def run(target: FaultTarget) -> None:
        components = [component for component in target.cluster.components if chosen(component)]
        target.cluster.pause(*components)
        await target.clock.sleep(_COMPONENT_PAUSE)
        target.cluster.resume(*components)

    return Fault(name, run)


def _clock_jump(name: str, by: timedelta) -> Fault:
    """Return a fault that sets a process's clock, and sets it right again."""

    async def run(target: FaultTarget) -> None:
        clock = target.process.clock
        if clock is target.clock or not isinstance(clock, VirtualClock):
            raise TypeError(f"the clock of {target.process.name} cannot be set: give it a VirtualClock of its own")
        clock.move_wall_clock(by)
        await target.clock.sleep(_DURATION)
        clock.move_wall_clock(-by)

    return Fault(name, run)


async def _recreate_node(target: FaultTarget) -> None:
    nodes = [node["metadata"]["name"] for node in target.cluster.api.objects("nodes")]
    if nodes:
        target.cluster.api.recreate("nodes", target.random.choice(nodes))


async def _second_process(target: FaultTarget) -> None:
    process = target.process
    second = Process(target.cluster, f"{process.name}-2", process.program, clock=process.clock)
    second.start()
    await target.clock.sleep(_DURATION)
    second.kill()


async def _kill(target: FaultTarget) -> None:
    target.process.kill()
    await target.clock.sleep(timedelta(seconds=target.random.uniform(0, 20)))
    if not target.process.is_running:  # of two that killed it, the first brings it back
        target.process.start()


FAULTS: tuple[Fault, ...] = (
    _transport_fault("409 on writes", lambda it: it.fail_before_effect(response=409, where=_is_write, times=2)),
    _transport_fault("429 with Retry-After", lambda it: it.fail_before_effect(response=429, retry_after=5, times=3)),
    _transport_fault("500 on everything", lambda it: it.fail_before_effect(response=500, times=None)),
    _transport_fault("503 on everything", lambda it: it.fail_before_effect(response=503, times=None)),
    _transport_fault("504 after the effect", lambda it: it.fail_after_effect(response=504, where=_is_write, times=2)),
    _transport_fault("permissions vanish", lambda it: it.fail_before_effect(response=403, times=None)),
    _transport_fault("connections refused", lambda it: it.fail_before_effect(times=5)),
    _transport_fault("answers lost after the effect", lambda it: it.fail_after_effect(where=_is_write, times=2)),
    _transport_fault("time-out before the effect", lambda it: it.hang(where=_is_write)),
    _transport_fault("time-out after the effect", lambda it: it.hang(takes_effect=True, where=_is_write)),
    _transport_fault("a write that arrives late", lambda it: it.delay_effect(timedelta(seconds=20), where=_is_write)),
    _transport_fault("latency", lambda it: it.delay(timedelta(seconds=5), times=None)),
    _transport_fault("stale lists", lambda it: it.stale(_STALE, where=_is_list, times=None)),
    _followed_by_relist(_transport_fault("watch events lost", lambda it: it.drop(times=3))),
    _transport_fault("watch events repeated", lambda it: it.duplicate(times=5)),
    _transport_fault("watch events late", lambda it: it.delay_event(timedelta(seconds=10), times=3)),
    _transport_fault("node events late", lambda it: it.delay_event(timedelta(seconds=20), path="/nodes", times=3)),
    _transport_fault("pod events late", lambda it: it.delay_event(timedelta(seconds=20), path="/pods", times=3)),
    _followed_by_relist(_transport_fault("watch events reordered", lambda it: it.reorder(times=3))),
    _transport_fault("watches break off", lambda it: it.break_stream(times=3)),
    _transport_fault("watches break off in a line", lambda it: it.truncate(times=3)),
    _transport_fault("watches expire", lambda it: it.expire_watch(times=3)),
    Fault("history forgotten", _expire_history),
    Fault("ends of lists lost", _drop_list_ends),
    Fault("disconnected", _disconnect),
    Fault("cut off", _cut),
    Fault("silence", _silence),
    Fault("server restarts", _restart_server),
    _paused("kubelets pause", lambda component: component == "kubelets"),
    _paused("the scheduler pauses", lambda component: component == "scheduler"),
    _paused("controllers pause", lambda component: component not in ("kubelets", "scheduler")),
    _clock_jump("clock jumps ahead", _CLOCK_JUMP),
    _clock_jump("clock jumps back", -_CLOCK_JUMP),
    Fault("a node deleted and created again", _recreate_node),
    Fault("two processes at once", _second_process),
    Fault("killed and started again", _kill),
)
