"""A whole cluster: the API server, its controllers, and machines that come and go.

    cluster = Cluster(clock, seed=7)
    async with cluster.running():
        cluster.kubelets.add(Machine(name="n1", zone="a"))
        await cluster.client("me").create(NODES, …)

Each component reaches the API server over a transport of its own (`transports`), so that a fault can befall one and
spare the others. A component that is paused does nothing, and one that is resumed goes on from what is in the API
server by then, as after a crash. It runs on whatever time its clock and loop have.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, User
from haulout_sandbox.apiserver.kinds.evictionrequest import EVICTION_REQUEST_API
from haulout_sandbox.apiserver.transport.in_process import DEFAULT_LATENCY
from haulout_sandbox.controllers import ALL_CONTROLLERS, EVICTION_REQUEST_CONTROLLERS, ControllerManager
from haulout_sandbox.nodes import Delays, Kubelets, NodeInformers, NodeLifecycleController, Scheduler
from haulout_sandbox.nodes.kubelet.kubelet import HEARTBEAT_EPOCH

T = TypeVar("T")
_Run = Callable[[], Coroutine[Any, Any, Any]]

_EVENT_SOURCES = {"kubelets": "kubelet", "scheduler": "default-scheduler", "node-lifecycle": "node-controller"}

ADMIN = "admin"  # the person who uses it
COMPONENTS = (*_EVENT_SOURCES, *(kind.name for kind in ALL_CONTROLLERS))
_TRUSTED = (*_EVENT_SOURCES, "controllers", "view")
CLIENTS = (ADMIN, *_TRUSTED)  # whose requests reach the API server


class Cluster:
    """A cluster in memory; everything in it happens while `running` lasts.

    `seed` decides all that is left to chance. `heartbeat` is how often a kubelet renews its lease: rarer is cheaper,
    and so are requests without `latency`. Without `starts_at` heartbeats keep a beat of the calendar; with it, one that
    begins then, so that runs that begin at different times are the same but for the time. Controllers for
    features that are off by default run if the `api` that is given has them.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        api: ApiServer | None = None,
        delays: Delays | None = None,
        heartbeat: timedelta = timedelta(seconds=10),
        starts_at: datetime | None = None,
        events: bool = True,
        latency: timedelta = DEFAULT_LATENCY,
    ) -> None:
        self.clock = clock
        self._latency = latency
        self.seed = seed
        self.api = ApiServer(clock, random=Random(f"{seed} server")) if api is None else api
        self.transports: dict[str, InProcessTransport] = {}
        self._view = NodeInformers(self.client("view"))
        self._recorders = {
            name: EventRecorder(self.client(name), instance="sandbox", controller=controller, is_throttled=False)
            for name, controller in _EVENT_SOURCES.items()
            if events
        }
        self.kubelets = Kubelets(
            self.client("kubelets"),
            self._view,
            delays=Delays(seed=seed) if delays is None else delays,
            heartbeat=heartbeat,
            heartbeat_epoch=starts_at or HEARTBEAT_EPOCH,
            recorder=self._recorders.get("kubelets"),
        )
        kinds = (*ALL_CONTROLLERS, *(EVICTION_REQUEST_CONTROLLERS if EVICTION_REQUEST_API in self.api.features else ()))
        controllers = ControllerManager(
            self.client("controllers"), random=Random(f"{seed} controllers"), factories=kinds, events=events
        )
        self._controllers = controllers
        self._component_runs: dict[str, _Run] = {
            "kubelets": self.kubelets.run,
            "scheduler": self._run_scheduler,
            "node-lifecycle": self._run_node_lifecycle,
            **{controller.name: controller.run for controller in controllers.controllers},
        }
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._paused: set[str] = set()
        self._programs: dict[asyncio.Task[Any], None] = {}  # a set with an order, so that runs repeat themselves

    @property
    def components(self) -> tuple[str, ...]:
        """The names of what can be paused."""
        return tuple(self._component_runs)

    def transport(self, name: str, *, user: User | None = None) -> InProcessTransport:
        """Return the way into the cluster of the process called `name`: the same at every call, and after a restart.

        `user`, which counts at the first call, is whose rights it has where the API server asks for some.
        """
        if name not in self.transports:
            is_trusted = name in _TRUSTED and user is None
            self.transports[name] = self.api.transport(name, user=user, latency=self._latency, is_trusted=is_trusted)
        return self.transports[name]

    def renew_transport(self, name: str) -> InProcessTransport:
        """Return a new way in for a process that starts; the faults told of the one before are its faults, too."""
        previous = self.transports.get(name)
        renewed = self.api.transport(name, user=previous.user if previous else None, latency=self._latency)
        if previous is not None:
            renewed.faults = previous.faults
        self.transports[name] = renewed
        return renewed

    def client(self, name: str) -> Client:
        """Return a client for the process called `name`."""
        return Client(self.transport(name), clock=self.clock, random=Random(f"{self.seed} {name}"))

    def add_token(self, token: str, user: str) -> None:
        """Let a person in with a token, over the network."""
        self.api.add_token(token, User(user))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Cluster"]:
        """Run everything while the context lasts; it begins when all have seen what there is."""
        caches = self._controllers.informers
        failure: Exception | None = None
        async with asyncio.TaskGroup() as group:
            self._group = group
            background = [self._view.run, *(cache.run for cache in caches.all())]
            background += [recorder.run for recorder in (*self._recorders.values(), *self._controllers.recorders)]
            running = [group.create_task(run()) for run in background]
            await self._view.wait_synced()
            await self._controllers.wait_synced()
            self.resume(*self._component_runs)
            try:
                yield self
            except Exception as error:  # noqa: BLE001 - it is raised below, as it is: not as part of the group's errors
                failure = error
            finally:
                self._group = None
                for task in (*self._programs, *self._tasks.values(), *running):
                    task.cancel()
        if failure is not None:
            raise failure

    def start_program(self, program: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run something else beside the components, until it ends or the cluster does."""
        if self._group is None:
            program.close()
            raise RuntimeError("the cluster is not running")
        task = self._group.create_task(program, name=name)
        self._programs[task] = None
        task.add_done_callback(self._programs.pop)
        return task

    def pause(self, *names: str) -> None:
        """Stop components: they do nothing until they are resumed."""
        for name in names:
            self._run_of(name)
            if name not in self._paused and name in self._tasks:
                self._paused.add(name)
                self._tasks[name].cancel()

    def resume(self, *names: str) -> None:
        """Start components that are not running."""
        if self._group is None:
            raise RuntimeError("the cluster is not running")
        for name in names:
            run, previous = self._run_of(name), self._tasks.get(name)
            if previous is None or name in self._paused:
                self._paused.discard(name)
                self._tasks[name] = self._group.create_task(_run_after(previous, run), name=name)

    def _run_of(self, name: str) -> _Run:
        if name not in self._component_runs:
            raise KeyError(f"there is no component {name}; there are {', '.join(self._component_runs)}")
        return self._component_runs[name]

    async def _run_scheduler(self) -> None:
        name = "scheduler"
        await Scheduler(self.client(name), self._view, recorder=self._recorders.get(name)).run()

    async def _run_node_lifecycle(self) -> None:
        name = "node-lifecycle"
        await NodeLifecycleController(self.client(name), self._view, recorder=self._recorders.get(name)).run()


async def _run_after(previous: asyncio.Task[Any] | None, run: _Run) -> None:
    """Run what is resumed only when the one before it has come to its end."""
    if previous is not None:
        await asyncio.wait([previous])
    await run()
