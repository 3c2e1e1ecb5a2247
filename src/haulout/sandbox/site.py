"""A sandbox that people can use: a cluster with a scenario in it, served over HTTPS, and the kubeconfig to it.

A cluster takes minutes to come up: machines boot, images are pulled, pods become ready one after the other. Nobody
wants to wait for that, and a cluster that is faked into being ready would not be one. So it begins some minutes ago, in
its `youth`, and lives through them as fast as its loop can, until it has caught up with the present. From then on it
keeps the pace that was asked for. What people see first has ages, events and a history, the same for the same seed.
"""

import asyncio
import errno
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from haulout.core.clock import Clock, RealClock
from haulout.core.paced import PacedLoop
from haulout.core.virtual import VirtualClock
from haulout.errors import UsageError
from haulout.kube.network.certificates import Authority
from haulout.sandbox import kubeconfig
from haulout.sandbox.apiserver import ApiServer
from haulout.sandbox.apiserver.webhook_callers import HttpsCaller
from haulout.sandbox.cluster import ADMIN, Cluster
from haulout.sandbox.front import Front, listening
from haulout.sandbox.scenarios.loading import Loaded
from haulout.sandbox.scenarios.stage import Stage

HOST = "127.0.0.1"
_ROUNDS = 10  # to catch up in; a machine that is slower than life never does


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be opened: `kubeconfig` is None where nobody said where, and `port` 0 is any that is free."""

    loaded: Loaded
    seed: int = 0
    speed: float = 1.0
    port: int = 0
    kubeconfig: Path | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """A sandbox that is there."""

    stage: Stage
    server: str
    kubeconfig: Path

    @property
    def cluster(self) -> Cluster:
        """The cluster behind it."""
        return self.stage.cluster


@asynccontextmanager
async def opened(plan: Plan, *, default_kubeconfig: Path) -> AsyncIterator[Site]:
    """Have a sandbox for people while the context lasts; on a `PacedLoop` that still hurries."""
    path = (plan.kubeconfig or default_kubeconfig).absolute()
    with kubeconfig.claimed(path, make_folder=plan.kubeconfig is None), _listener(plan.port) as listener:
        async with _grown_up(plan) as stage:
            token, authority = secrets.token_urlsafe(32), Authority("haulout sandbox")
            front = Front(
                stage.cluster.api, tokens={token: ADMIN}, transports=stage.cluster.transports, pace=plan.speed
            )
            tls = authority.server(HOST, "localhost").server_context()
            async with front.serving_on(listener, tls=tls) as port:
                server = f"https://{HOST}:{port}"
                kubeconfig.write(path, server=server, ca_pem=authority.certificate, token=token)
                yield Site(stage, server, path)


@asynccontextmanager
async def _grown_up(plan: Plan) -> AsyncIterator[Stage]:
    """Have a cluster that has lived through its youth."""
    loop, machine, scenario = asyncio.get_running_loop(), RealClock(), plan.loaded.scenario
    if not isinstance(loop, PacedLoop):
        raise TypeError(f"expected a PacedLoop, found a {type(loop).__name__}")
    # On the second, in which Kubernetes counts: a run that began between two would not be the same.
    begins = (machine.now() - scenario.youth).replace(microsecond=0)
    clock = VirtualClock(begins)
    api = ApiServer(clock, random=Random(f"{plan.seed} server"), network=HttpsCaller(), keep_history=False)
    cluster = Cluster(clock, seed=plan.seed, api=api, heartbeat=scenario.heartbeat, begins=begins)
    stage = Stage(cluster, plan.loaded)
    async with cluster.running():
        await stage.put_up()
        await _catch_up(clock, machine)
        loop.keep_pace(plan.speed)
        yield stage


async def _catch_up(clock: Clock, present: Clock) -> None:
    for _ in range(_ROUNDS):
        await clock.sleep(present.now() - clock.now())


def _listener(port: int) -> socket.socket:
    try:
        return listening(HOST, port)
    except OSError as error:
        another = "name another with --port, or none to get one that is free"
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} is in use by another program; {another}") from None
        raise UsageError(f"cannot listen on port {port}: {(error.strerror or str(error)).lower()}; {another}") from None
