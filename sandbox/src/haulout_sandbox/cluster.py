"""A whole simulated cluster: API server, controllers, kubelets and nodes.

    cluster = Cluster(clock, seed=7)
    async with cluster.running():
        cluster.kubelets.add(Machine(name="n1", zone="a"))
        await cluster.client("me").create(NODES, …)

Each component reaches the API server through its own transport (`transports`), so that a test can inject faults into
one component and leave the others alone. A paused component does nothing. A resumed one starts from the current state
of the API server, as after a crash. The cluster runs on the time of its clock and event loop, simulated or real.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, User
from haulout_sandbox.apiserver.transport.in_process import DEFAULT_LATENCY
from haulout_sandbox.controllers import ALL_CONTROLLERS
from haulout_sandbox.controllers.base import Controller, ControllerManager
from haulout_sandbox.nodes import Delays, Kubelets, NodeInformers, NodeLifecycleController, Scheduler
from haulout_sandbox.nodes.kubelet.kubelet import HEARTBEAT_EPOCH

T = TypeVar("T")
_Run = Callable[[], Coroutine[Any, Any, Any]]

_EVENT_SOURCES = {"kubelets": "kubelet", "scheduler": "default-scheduler", "node-lifecycle": "node-controller"}

ADMIN = "admin"  # the user of the sandbox
COMPONENTS = (*_EVENT_SOURCES, *(kind.name for kind in ALL_CONTROLLERS))
_TRUSTED = (*_EVENT_SOURCES, "controllers", "view")
CLIENTS = (ADMIN, *_TRUSTED)  # clients with an in-process transport to the API server


class Cluster:
    """A cluster in memory, which makes progress only while `running` is active.

    `seed` determines everything random. `heartbeat` is how often a kubelet renews its lease: a longer interval is
    cheaper, and so are requests without `latency`. Without `starts_at`, heartbeats align to the calendar. With it, they
    align to that instant, so that runs that start at different times differ only in their timestamps.
    `extra_controllers` run beside those of every cluster.
    """

    def __init__(  # noqa: PLR0913 - one option each, and all have their usual value
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
        extra_controllers: Sequence[type[Controller[Any]]] = (),
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
        controllers = ControllerManager(
            self.client("controllers"),
            random=Random(f"{seed} controllers"),
            factories=(*ALL_CONTROLLERS, *extra_controllers),
            events=events,
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
        self._programs: dict[asyncio.Task[Any], None] = {}  # an ordered set, so that runs are reproducible

    @property
    def components(self) -> tuple[str, ...]:
        """Return the names of the components that can be paused."""
        return tuple(self._component_runs)

    def transport(self, name: str, *, user: User | None = None) -> InProcessTransport:
        """Return the transport of the process called `name`: the same one at every call, and after a restart.

        `user` is whose permissions the process has, where the API server checks them. It counts only at the first call.
        """
        if name not in self.transports:
            is_trusted = name in _TRUSTED and user is None
            self.transports[name] = self.api.transport(name, user=user, latency=self._latency, is_trusted=is_trusted)
        return self.transports[name]

    def renew_transport(self, name: str) -> InProcessTransport:
        """Return a new transport for a process that starts.

        It inherits the faults of the previous transport of that name.
        """
        previous = self.transports.get(name)
        renewed = self.api.transport(name, user=previous.user if previous else None, latency=self._latency)
        if previous is not None:
            renewed.faults = previous.faults
        self.transports[name] = renewed
        return renewed

    def client(self, name: str) -> Client:
        return Client(self.transport(name), clock=self.clock, random=Random(f"{self.seed} {name}"))

    def add_token(self, token: str, user: str) -> None:
        """Accept a bearer token for `user` over the network."""
        self.api.add_token(token, User(user))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Cluster"]:
        """Run all components while the context lasts. Entering it waits until all of them have synced."""
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
        """Run a coroutine beside the components until it ends or the cluster stops."""
        if self._group is None:
            program.close()
            raise RuntimeError("the cluster is not running")
        task = self._group.create_task(program, name=name)
        self._programs[task] = None
        task.add_done_callback(self._programs.pop)
        return task

    def pause(self, *names: str) -> None:
        """Stop components until they are resumed."""
        for name in names:
            self._run_of(name)
            if name not in self._paused and name in self._tasks:
                self._paused.add(name)
                self._tasks[name].cancel()

    def resume(self, *names: str) -> None:
        """Start those of the components that are not running."""
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
    """Run a resumed component only after its previous run has ended."""
    if previous is not None:
        await asyncio.wait([previous])
    await run()
