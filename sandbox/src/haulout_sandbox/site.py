"""A sandbox that people can use: a cluster with a scenario in it, served over HTTPS, and the kubeconfig to it.

A cluster takes minutes to come up: machines boot, images are pulled, pods become ready one after the other. Nobody
wants to wait for that, and a cluster that is faked into being ready would not be one. So it begins some minutes ago, in
its `youth`, and lives through them as fast as its loop can, until it has caught up with the present. From then on it
keeps the pace that was asked for. What people see first has ages, events and a history, the same for the same seed.
"""

import asyncio
import errno
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType

from haulout.core.clock import Clock, RealClock
from haulout.errors import UsageError
from haulout.kinds.clusterapi import ClusterKey
from haulout.kube.network.certificates import Authority
from haulout_sandbox import kubeconfig, text
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.webhook_callers import HttpsCaller
from haulout_sandbox.clouds import front as clouds_front
from haulout_sandbox.cluster import ADMIN, Cluster
from haulout_sandbox.event_loops.paced import PacedLoop
from haulout_sandbox.event_loops.virtual import VirtualClock
from haulout_sandbox.front import Front, listening
from haulout_sandbox.overview import overview
from haulout_sandbox.scenarios.loading import Loaded
from haulout_sandbox.scenarios.stage import Stage
from haulout_sandbox.scenarios.timeline import Tell, Timeline
from haulout_sandbox.start_progress import StartProgress

HOST = "127.0.0.1"
_ROUNDS = 10  # to catch up in; a machine that is slower than life never does


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be opened: `kubeconfig` is None where nobody said where, and `port` 0 is any that is free."""

    loaded: Loaded
    seed: int = 0
    speed: float = 1.0
    port: int = 0
    clouds_port: int | None = None  # None: the clouds of the scenario do not listen
    kubeconfig: Path | None = None

    @property
    def size(self) -> str:
        """How large it will be, in words."""
        return text.size(self)

    @property
    def has_workload_clusters(self) -> bool:
        """Whether it manages others."""
        return bool(self.loaded.scenario.clusters)

    def opened(
        self, *, default_kubeconfig: Path, progress: Callable[[str], object] = lambda _: None
    ) -> AbstractAsyncContextManager["Site"]:
        """Have it while the context lasts; raises `UsageError` where a port or the kubeconfig is taken.

        `progress` is called while it starts, with what there is by then.
        """
        return opened(self, default_kubeconfig=default_kubeconfig, progress=progress)


@dataclass(frozen=True, slots=True)
class Site:
    """A sandbox that is there."""

    stage: Stage
    plan: Plan
    server: str
    kubeconfig: Path
    clouds: str = ""  # where the clouds of the scenario answer, if they do
    contexts: Mapping[ClusterKey, str] = field(default_factory=dict)  # of the workload clusters, if there are any

    @property
    def cluster(self) -> Cluster:
        """The cluster behind it."""
        return self.stage.cluster

    async def play(self, say: Tell) -> None:
        """Have happen what the scenario says, until that ends; `say` hears of it."""
        await Timeline(self.stage, tell=say).run()

    def describe(
        self,
        *,
        seconds: float,
        with_operator: bool,
        with_profiles: bool = False,
        url: str = "",
        token: str = "",
        operators: Mapping[ClusterKey, str] = MappingProxyType({}),
    ) -> str:
        """Return what there is and what to try; `url` and `operators` are where dashboards answer."""
        return text.as_text(
            overview(self.cluster.api),
            self,
            self.plan,
            seconds=seconds,
            has_kubectl=bool(shutil.which("kubectl")),
            with_operator=with_operator,
            with_profiles=with_profiles,
            api=url,
            token=token,
            workloads=text.workloads(self, operators),
        )


@asynccontextmanager
async def opened(
    plan: Plan, *, default_kubeconfig: Path, progress: Callable[[str], object] = lambda _: None
) -> AsyncIterator[Site]:
    """Have a sandbox for people while the context lasts; on a `PacedLoop` that still hurries."""
    path = (plan.kubeconfig or default_kubeconfig).absolute()
    with ExitStack() as held:
        held.enter_context(kubeconfig.claimed(path, make_folder=plan.kubeconfig is None))
        listener = held.enter_context(_listener(plan.port, "--port"))
        clouds = plan.clouds_port
        calls = None if clouds is None else held.enter_context(_listener(clouds, "--clouds-port"))
        authority = Authority("haulout sandbox")
        places = {
            ClusterKey(it.namespace, it.name): held.enter_context(_listener(0, "--port"))
            for it in plan.loaded.scenario.clusters
        }
        growing = _grown_up(plan, places, ca_pem=authority.certificate, progress=progress)
        async with growing as stage, AsyncExitStack() as fronts:
            tls = authority.server(HOST, "localhost").server_context()
            served = [(stage.cluster, listener, kubeconfig.NAME)]
            served += [
                (stage.clusters.clusters[key], place, kubeconfig.further(key.namespace, key.name))
                for key, place in places.items()
            ]
            ways = []
            for cluster, at, name in served:
                token = secrets.token_urlsafe(32)
                front = Front(cluster.api, tokens={token: ADMIN}, transports=cluster.transports, pace=plan.speed)
                await fronts.enter_async_context(front.serving_on(at, tls=tls))
                ways.append(kubeconfig.Way(server=_address(at), token=token, name=name))
            address = await fronts.enter_async_context(_clouds(stage, calls, pace=plan.speed))
            kubeconfig.write(path, *ways, ca_pem=authority.certificate)
            contexts = {key: way.name for key, way in zip(places, ways[1:], strict=True)}
            yield Site(stage, plan, ways[0].server, path, address, contexts)


def _address(listener: socket.socket) -> str:
    return f"https://{HOST}:{listener.getsockname()[1]}"


@asynccontextmanager
async def _clouds(stage: Stage, listener: socket.socket | None, *, pace: float) -> AsyncIterator[str]:
    """Have the clouds answer, if they are to; yields where."""
    if listener is None:
        yield ""
        return
    fleet = stage.fleet
    oci, aws, azure, gcp = fleet.oci.cloud, fleet.aws.cloud, fleet.azure.cloud, fleet.gcp.cloud
    async with clouds_front.serving(oci, aws, azure, gcp, listener, pace=pace) as port:
        yield f"http://{HOST}:{port}"


@asynccontextmanager
async def _grown_up(
    plan: Plan, places: Mapping[ClusterKey, socket.socket], *, ca_pem: bytes, progress: Callable[[str], object]
) -> AsyncIterator[Stage]:
    """Have a cluster that has lived through its youth; workload clusters are at these places."""
    loop, machine, scenario = asyncio.get_running_loop(), RealClock(), plan.loaded.scenario
    if not isinstance(loop, PacedLoop):
        raise TypeError(f"expected a PacedLoop, found a {type(loop).__name__}")
    # On the second, in which Kubernetes counts: a run that began between two would not be the same.
    begins = (machine.now() - scenario.youth).replace(microsecond=0)
    clock = VirtualClock(begins)

    def made(number: int) -> Cluster:
        seed = plan.seed + number
        api = ApiServer(clock, random=Random(f"{seed} server"), network=HttpsCaller(), keep_history=False)
        return Cluster(clock, seed=seed, api=api, heartbeat=scenario.heartbeat, begins=begins)

    stage = Stage(made(0), plan.loaded, another=made)
    for key, place in places.items():
        new_token = partial(secrets.token_urlsafe, 32)
        stage.clusters.place(key, server=_address(place), ca_pem=ca_pem, new_token=new_token)
    async with stage.running():
        loop.on_iteration = StartProgress(stage.cluster, machine, progress).update
        await stage.put_up()
        await _catch_up(clock, machine)
        loop.on_iteration = None
        loop.keep_pace(plan.speed)
        yield stage


async def _catch_up(clock: Clock, present: Clock) -> None:
    for _ in range(_ROUNDS):
        await clock.sleep(present.now() - clock.now())


def _listener(port: int, option: str) -> socket.socket:
    try:
        return listening(HOST, port)
    except OSError as error:
        another = f"name another with {option}, or 0 to get one that is free"
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} is in use by another program; {another}") from None
        raise UsageError(f"cannot listen on port {port}: {(error.strerror or str(error)).lower()}; {another}") from None
