"""A sandbox for people: a cluster with a scenario, served over HTTPS, with a kubeconfig.

A real cluster takes minutes to come up: machines boot, images are pulled, pods become ready one after the other. Users
should not wait for that, and a cluster whose objects are merely created as ready would not be realistic. So the
simulation starts some minutes in the past (the scenario's `age`) and runs as fast as its event loop can until it
reaches the present. From then on it runs at the requested speed. The objects that users see first have ages, events and
a history, and the same seed gives the same ones.
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

from haulout.api.clusterapi import ClusterKey
from haulout.core.certificate_authority import CertificateAuthority
from haulout.core.clock import Clock, RealClock
from haulout.errors import UsageError
from haulout_sandbox import kubeconfig, startup_text
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.admission.webhook_client import HttpsWebhookClient
from haulout_sandbox.clouds import server as clouds_front
from haulout_sandbox.cluster import ADMIN, Cluster
from haulout_sandbox.event_loops.accelerated_loop import AcceleratedLoop
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from haulout_sandbox.https_server import HttpsServer, listen
from haulout_sandbox.scenarios.loader import LoadedScenario
from haulout_sandbox.scenarios.scenario_cluster import ScenarioCluster
from haulout_sandbox.scenarios.timeline import OnScenarioEvent, Timeline

_INTERVAL_SECONDS = 0.5


class StartProgress:
    """Calls `report` with a line of text at most twice a second, measured on the machine's clock."""

    def __init__(self, cluster: Cluster, real_clock: Clock, report: Callable[[str], object]) -> None:
        self._cluster = cluster
        self._real_clock = real_clock
        self._report = report
        self._next_report_at = real_clock.monotonic() + _INTERVAL_SECONDS

    def update(self) -> None:
        """Report if a report is due; the event loop calls this at each iteration."""
        now = self._real_clock.monotonic()
        if now < self._next_report_at:
            return
        self._next_report_at = now + _INTERVAL_SECONDS
        api = self._cluster.api
        nodes, pods = api.objects_by_key("nodes"), api.objects_by_key("pods").values()
        running = sum(pod["status"].get("phase") == "Running" for pod in pods)
        time_behind = self._real_clock.now() - self._cluster.clock.now()
        minutes = max(time_behind.total_seconds() / 60, 0)
        self._report(
            f"{len(nodes):,} nodes, {running:,} of {len(pods):,} pods running, {minutes:.1f} min still to simulate"
        )


HOST = "127.0.0.1"
_MAX_ROUNDS = 10  # rounds of catching up with the present; a machine slower than real time never catches up


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """What to open. `kubeconfig` None means the default path, and `port` 0 means any free port."""

    loaded: LoadedScenario
    seed: int = 0
    speed: float = 1.0
    port: int = 0
    clouds_port: int | None = None  # None: the clouds of the scenario do not listen
    kubeconfig: Path | None = None

    @property
    def size(self) -> str:
        """Return the size of the sandbox as text."""
        return startup_text.plan_size(self)

    @property
    def has_workload_clusters(self) -> bool:
        """Return whether the scenario has workload clusters."""
        return bool(self.loaded.scenario.clusters)

    def open(
        self, *, default_kubeconfig: Path, progress: Callable[[str], object] = lambda _: None
    ) -> AbstractAsyncContextManager["RunningSandbox"]:
        """Run the sandbox while the context lasts. Raise `UsageError` if a port or the kubeconfig is taken.

        `progress` is called with a line of text during startup.
        """
        return open_sandbox(self, default_kubeconfig=default_kubeconfig, progress=progress)


@dataclass(frozen=True, slots=True)
class RunningSandbox:
    scenario_cluster: ScenarioCluster
    plan: SandboxPlan
    server: str
    kubeconfig: Path
    clouds_url: str = ""  # the URL of the scenario's clouds, if they listen
    contexts: Mapping[ClusterKey, str] = field(default_factory=dict)  # names of the contexts of the workload clusters

    @property
    def cluster(self) -> Cluster:
        return self.scenario_cluster.cluster

    async def run_scenario(self, on_event: OnScenarioEvent) -> None:
        """Run the scenario's timeline to its end, and call `on_event` for each event."""
        await Timeline(self.scenario_cluster, on_event=on_event).run()

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
        """Return the startup text; `url` and `operators` are the URLs of dashboards."""
        return startup_text.startup_text(
            startup_text.overview(self.cluster.api),
            self,
            self.plan,
            seconds=seconds,
            has_kubectl=bool(shutil.which("kubectl")),
            with_operator=with_operator,
            with_profiles=with_profiles,
            api=url,
            token=token,
            workloads=startup_text.workload_clusters(self, operators),
        )


@asynccontextmanager
async def open_sandbox(
    plan: SandboxPlan, *, default_kubeconfig: Path, progress: Callable[[str], object] = lambda _: None
) -> AsyncIterator[RunningSandbox]:
    """Run a sandbox for people while the context lasts. Requires a `AcceleratedLoop` that still runs at full speed."""
    path = (plan.kubeconfig or default_kubeconfig).absolute()
    with ExitStack() as stack:
        stack.enter_context(kubeconfig.reserved(path, may_make_folder=plan.kubeconfig is None))
        listener = stack.enter_context(_listen(plan.port, "--port"))
        clouds = plan.clouds_port
        clouds_listener = None if clouds is None else stack.enter_context(_listen(clouds, "--clouds-port"))
        authority = CertificateAuthority("haulout sandbox")
        listeners = {
            ClusterKey(workload_cluster.namespace, workload_cluster.name): stack.enter_context(_listen(0, "--port"))
            for workload_cluster in plan.loaded.scenario.clusters
        }
        starting = _warmed_up_cluster(plan, listeners, ca_pem=authority.certificate, progress=progress)
        async with starting as scenario_cluster, AsyncExitStack() as servers:
            tls = authority.issue_server(HOST, "localhost").server_context()
            clusters = [(scenario_cluster.cluster, listener, kubeconfig.CONTEXT_NAME)]
            clusters += [
                (
                    scenario_cluster.workload_cluster_manager.clusters[key],
                    workload_listener,
                    kubeconfig.context_name(key.namespace, key.name),
                )
                for key, workload_listener in listeners.items()
            ]
            kube_contexts = []
            for cluster, server_listener, name in clusters:
                token = secrets.token_urlsafe(32)
                server = HttpsServer(
                    cluster.api, tokens={token: ADMIN}, transports=cluster.transports, speed=plan.speed
                )
                await servers.enter_async_context(server.serve_on(server_listener, tls=tls))
                kube_contexts.append(
                    kubeconfig.KubeContext(server=_server_url(server_listener), token=token, name=name)
                )
            clouds_url = await servers.enter_async_context(
                _serve_clouds(scenario_cluster, clouds_listener, speed=plan.speed)
            )
            kubeconfig.write(path, *kube_contexts, ca_pem=authority.certificate)
            contexts = {key: context.name for key, context in zip(listeners, kube_contexts[1:], strict=True)}
            yield RunningSandbox(scenario_cluster, plan, kube_contexts[0].server, path, clouds_url, contexts)


def _server_url(listener: socket.socket) -> str:
    return f"https://{HOST}:{listener.getsockname()[1]}"


@asynccontextmanager
async def _serve_clouds(
    scenario_cluster: ScenarioCluster, listener: socket.socket | None, *, speed: float
) -> AsyncIterator[str]:
    """Serve the clouds if they should listen; yields their URL."""
    if listener is None:
        yield ""
        return
    fleet = scenario_cluster.fleet
    oci, aws, azure, gcp = fleet.oci.cloud, fleet.aws.cloud, fleet.azure.cloud, fleet.gcp.cloud
    async with clouds_front.serve(oci, aws, azure, gcp, listener, speed=speed) as port:
        yield f"http://{HOST}:{port}"


@asynccontextmanager
async def _warmed_up_cluster(
    plan: SandboxPlan,
    listeners: Mapping[ClusterKey, socket.socket],
    *,
    ca_pem: bytes,
    progress: Callable[[str], object],
) -> AsyncIterator[ScenarioCluster]:
    """Yield a cluster that has simulated its age; the workload clusters listen on the given sockets."""
    loop, real_clock, scenario = asyncio.get_running_loop(), RealClock(), plan.loaded.scenario
    if not isinstance(loop, AcceleratedLoop):
        raise TypeError(f"expected a AcceleratedLoop, found a {type(loop).__name__}")
    # Kubernetes timestamps have whole seconds: a start between two seconds would make runs differ.
    starts_at = (real_clock.now() - scenario.age).replace(microsecond=0)
    clock = VirtualClock(starts_at)

    def new_cluster(number: int) -> Cluster:
        seed = plan.seed + number
        api = ApiServer(clock, random=Random(f"{seed} server"), network=HttpsWebhookClient(), keep_history=False)
        return Cluster(clock, seed=seed, api=api, heartbeat=scenario.heartbeat, starts_at=starts_at)

    scenario_cluster = ScenarioCluster(new_cluster(0), plan.loaded, cluster_factory=new_cluster)
    for key, listener in listeners.items():
        new_token = partial(secrets.token_urlsafe, 32)
        scenario_cluster.workload_cluster_manager.register(
            key, server=_server_url(listener), ca_pem=ca_pem, token_factory=new_token
        )
    async with scenario_cluster.running():
        loop.on_iteration = StartProgress(scenario_cluster.cluster, real_clock, progress).update
        await scenario_cluster.deploy()
        await _catch_up(clock, real_clock)
        loop.on_iteration = None
        loop.set_speed(plan.speed)
        yield scenario_cluster


async def _catch_up(clock: Clock, real_clock: Clock) -> None:
    for _ in range(_MAX_ROUNDS):
        await clock.sleep(real_clock.now() - clock.now())


def _listen(port: int, option: str) -> socket.socket:
    try:
        return listen(HOST, port)
    except OSError as error:
        hint = f"name another with {option}, or 0 to get one that is free"
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} is in use by another program; {hint}") from None
        raise UsageError(f"cannot listen on port {port}: {(error.strerror or str(error)).lower()}; {hint}") from None
