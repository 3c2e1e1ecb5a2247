"""Everything that can befall a process and the cluster around it, as one list of named faults.

    for fault in FAULTS:
        await befall(operator, fault, random=Random(1))     # returns when the fault is over

Each fault begins, lasts and ends: afterwards nothing of it is left, so that a test can demand that all be well again
once faults stop. `mixture(seed)` is a fault too, made of several at once. What is left to chance inside a fault (which
node, how long) comes from the generator that it is given.

Rules about single requests and lines of watches are `haulout_sandbox.apiserver.faults`; crashes at a chosen write are
`support.crashes`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import Faults, Rule, User
from haulout_sandbox.apiserver.rbac import request_attributes
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.event_loops.virtual import VirtualClock
from support.processes import Process

_LASTING = timedelta(seconds=40)  # longer than a client waits for an answer
_PAUSE = timedelta(seconds=60)
_STALE = timedelta(minutes=2)
_CLOCK_JUMP = timedelta(hours=3)
_MIXED_WITHIN_SECONDS = 60
_ANYBODY = User("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where a fault happens, and to whom."""

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
    """Something that befalls a process, from its beginning to its end."""

    name: str
    run: Callable[[Scene], Awaitable[None]]

    def __str__(self) -> str:
        """Return its name, as test reports show it."""
        return self.name


async def befall(process: Process, fault: Fault, *, random: Random) -> None:
    """Let `fault` befall `process`; return when it is over."""
    await fault.run(Scene(process=process, random=random))


def mixture(seed: int, *, count: int = 4, of: Sequence[Fault] | None = None) -> Fault:
    """Return a fault that is several at once, of different beginnings: the same for the same seed."""
    random = Random(f"mixture {seed}")
    chosen = random.choices(FAULTS if of is None else of, k=count)
    starts = [timedelta(seconds=random.uniform(0, _MIXED_WITHIN_SECONDS)) for _ in chosen]

    async def run(scene: Scene) -> None:
        async def later(number: int) -> None:
            await scene.clock.sleep(starts[number])
            await befall(scene.process, chosen[number], random=Random(f"mixture {seed} {number}"))

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(later(number))

    return Fault(f"mixture {seed}: {', '.join(map(str, chosen))}", run)


def _is_write(request: Request) -> bool:
    return request.method != "GET"


def _is_list(request: Request) -> bool:
    """Tell whether it asks for many objects: a single one is read from etcd itself, and so is never old."""
    return request_attributes(_ANYBODY, request.method, request.path, dict(request.query)).verb == "list"


def _without_end(line: bytes) -> list[bytes]:
    """Lose the bookmark by which a list that is sent as part of a watch ends."""
    return [] if b"k8s.io/initial-events-end" in line else [line]


def _ruled(name: str, *tell: Callable[[Faults], Rule[Any]]) -> Fault:
    """Return a fault made of rules that are in force for a while."""

    async def run(scene: Scene) -> None:
        faults = scene.process.transport.faults
        rules = [rule(faults) for rule in tell]
        await scene.clock.sleep(_LASTING)
        faults.lift(*rules)

    return Fault(name, run)


def _told_anew(fault: Fault) -> Fault:
    """Return a fault after which everything is listed anew: what it lost of a watch comes back no other way."""

    async def run(scene: Scene) -> None:
        await fault.run(scene)
        await _forget_history(scene)

    return Fault(fault.name, run)


async def _cut(scene: Scene) -> None:
    scene.process.transport.cut()
    await scene.clock.sleep(_LASTING)
    scene.process.transport.mend()


async def _silence(scene: Scene) -> None:
    scene.process.transport.silence()
    await scene.clock.sleep(_LASTING)
    scene.process.transport.mend()


async def _disconnect(scene: Scene) -> None:
    scene.process.transport.disconnect()


async def _restart_server(scene: Scene) -> None:
    await scene.cluster.api.restart(lasting=timedelta(seconds=8))


async def _forget_history(scene: Scene) -> None:
    scene.cluster.api.compact()
    scene.process.transport.disconnect()


async def _lose_ends_of_lists(scene: Scene) -> None:
    """Have everything listed anew, by lists that do not end."""
    faults = scene.process.transport.faults
    rule = faults.tamper(_without_end, times=None)
    await _forget_history(scene)
    await scene.clock.sleep(_LASTING)
    faults.lift(rule)


def _paused(name: str, chosen: Callable[[str], bool]) -> Fault:
    """Return a fault that stops components of the cluster for longer than a node's lease lasts."""

    async def run(scene: Scene) -> None:
        components = [component for component in scene.cluster.components if chosen(component)]
        scene.cluster.pause(*components)
        await scene.clock.sleep(_PAUSE)
        scene.cluster.resume(*components)

    return Fault(name, run)


def _jump(name: str, by: timedelta) -> Fault:
    """Return a fault that sets a process's clock, and sets it right again."""

    async def run(scene: Scene) -> None:
        clock = scene.process.clock
        if clock is scene.clock or not isinstance(clock, VirtualClock):
            raise TypeError(f"the clock of {scene.process.name} cannot be set: give it a VirtualClock of its own")
        clock.set_wall(by)
        await scene.clock.sleep(_LASTING)
        clock.set_wall(-by)

    return Fault(name, run)


async def _recreate_node(scene: Scene) -> None:
    nodes = [node["metadata"]["name"] for node in scene.cluster.api.objects("nodes")]
    if nodes:
        scene.cluster.api.recreate("nodes", scene.random.choice(nodes))


async def _second_process(scene: Scene) -> None:
    process = scene.process
    second = Process(scene.cluster, f"{process.name}-2", process.program, clock=process.clock)
    second.start()
    await scene.clock.sleep(_LASTING)
    second.kill()


async def _kill(scene: Scene) -> None:
    scene.process.kill()
    await scene.clock.sleep(timedelta(seconds=scene.random.uniform(0, 20)))
    if not scene.process.is_running:  # of two that killed it, the first brings it back
        scene.process.start()


FAULTS: tuple[Fault, ...] = (
    _ruled("409 on writes", lambda it: it.before(answer=409, where=_is_write, times=2)),
    _ruled("429 with Retry-After", lambda it: it.before(answer=429, retry_after=5, times=3)),
    _ruled("500 on everything", lambda it: it.before(answer=500, times=None)),
    _ruled("503 on everything", lambda it: it.before(answer=503, times=None)),
    _ruled("504 after the effect", lambda it: it.after(answer=504, where=_is_write, times=2)),
    _ruled("permissions vanish", lambda it: it.before(answer=403, times=None)),
    _ruled("connections refused", lambda it: it.before(times=5)),
    _ruled("answers lost after the effect", lambda it: it.after(where=_is_write, times=2)),
    _ruled("time-out before the effect", lambda it: it.hang(where=_is_write)),
    _ruled("time-out after the effect", lambda it: it.hang(takes_effect=True, where=_is_write)),
    _ruled("a write that arrives late", lambda it: it.straggle(timedelta(seconds=20), where=_is_write)),
    _ruled("latency", lambda it: it.slow(timedelta(seconds=5), times=None)),
    _ruled("stale lists", lambda it: it.stale(_STALE, where=_is_list, times=None)),
    _told_anew(_ruled("watch events lost", lambda it: it.drop(times=3))),
    _ruled("watch events repeated", lambda it: it.repeat(times=5)),
    _ruled("watch events late", lambda it: it.late(timedelta(seconds=10), times=3)),
    _ruled("node events late", lambda it: it.late(timedelta(seconds=20), path="/nodes", times=3)),
    _ruled("pod events late", lambda it: it.late(timedelta(seconds=20), path="/pods", times=3)),
    _told_anew(_ruled("watch events reordered", lambda it: it.swap(times=3))),
    _ruled("watches break off", lambda it: it.break_stream(times=3)),
    _ruled("watches break off in a line", lambda it: it.garble(times=3)),
    _ruled("watches expire", lambda it: it.expire(times=3)),
    Fault("history forgotten", _forget_history),
    Fault("ends of lists lost", _lose_ends_of_lists),
    Fault("disconnected", _disconnect),
    Fault("cut off", _cut),
    Fault("silence", _silence),
    Fault("server restarts", _restart_server),
    _paused("kubelets pause", lambda component: component == "kubelets"),
    _paused("the scheduler pauses", lambda component: component == "scheduler"),
    _paused("controllers pause", lambda component: component not in ("kubelets", "scheduler")),
    _jump("clock jumps ahead", _CLOCK_JUMP),
    _jump("clock jumps back", -_CLOCK_JUMP),
    Fault("a node deleted and created again", _recreate_node),
    Fault("two processes at once", _second_process),
    Fault("killed and started again", _kill),
)
