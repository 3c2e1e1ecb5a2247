"""The sandbox and the operator in it, in one process, and the scenario.

The operator gets its clock and client from the sandbox's cluster, and so runs at the cluster's speed. If the scenario
has workload clusters, the hub runs in the management cluster, and an operator in each workload cluster.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from haulout.api import machinemaintenance
from haulout.api.clusterapi import EXTENSION_LEASE, ClusterKey
from haulout.api.leases import LEADER_LEASE
from haulout.api.objects import Object, RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Resource
from haulout.app.http_endpoints import serve_http
from haulout.app.hub import HubReplicaSettings, run_hub
from haulout.app.manifests import operator_manifests
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.app.replica import ReplicaStatus
from haulout.app.sandbox import vcenters
from haulout.app.sandbox.clouds import sources_of
from haulout.app.sandbox.interface import OnScenarioEvent, RunningSandbox, ScenarioCluster, SimulatedCluster
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth.settings import SERVICE_ACCOUNT, AccessSettings
from haulout.errors import AlreadyExists, UsageError
from haulout.httpserver.listener import ListenAddress
from haulout.kube.client import Client
from haulout.kube.namespaces import namespace

LOOPBACK = "127.0.0.1"
DEMO_USER = "alice"  # the user of the dashboard
_NAMESPACE, _IDENTITY, _CLUSTER = "haulout", "sandbox", "sandbox"
_SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, model=Object)
_PROFILES = "clusterapi.yaml"  # configuration of operators in workload clusters

WithProfiles = Callable[[Client], AbstractAsyncContextManager[ProfilesComponent | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxAddresses:
    """Where the dashboards of a sandbox are."""

    url: str = ""  # of the operator or the hub
    token: str = ""  # to log in to the dashboard, if it needs one
    operators: Mapping[ClusterKey, str] = field(default_factory=dict)  # of workload clusters


async def run_sandbox(
    opened: AbstractAsyncContextManager[RunningSandbox],
    *,
    on_ready: Callable[[RunningSandbox, SandboxAddresses], object],
    on_event: OnScenarioEvent,
    with_operator: bool = True,
    with_profiles: WithProfiles,
    metrics: tuple[ListenAddress, ...] = (),
    access: AccessSettings | None = None,
) -> None:
    """Run a sandbox until cancelled; call `on_event` for each event of the scenario.

    `on_ready` is called once the sandbox is usable, with the dashboard's address: the first free one of `metrics`.
    """
    async with opened as site, AsyncExitStack() as stack:
        scenario, addresses = site.scenario_cluster, SandboxAddresses()
        client, hub_status, status = scenario.cluster.client(_NAMESPACE), ReplicaStatus(), OperatorStatus()
        operators: dict[ClusterKey, OperatorStatus] = {}
        if with_operator:
            await install(scenario)
            if scenario.workload_clusters:
                operators = {
                    key: await _operator_status(item, with_profiles, stack) for key, item in _clients(scenario).items()
                }
                url = await _serve(client, hub_status, metrics, stack, access, lease=EXTENSION_LEASE)
            else:
                status = await _operator_status(client, with_profiles, stack)
                url = await _serve(client, status, metrics, stack, access)
            urls = {
                key: await _serve(item, operators[key], (ListenAddress(0, LOOPBACK),), stack, access)
                for key, item in _clients(scenario).items()
                if metrics
            }
            addresses = SandboxAddresses(url=url, token=_token(scenario, access), operators=urls)
        on_ready(site, addresses)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(site.run_scenario(on_event))
            if with_operator and operators:
                tasks.create_task(run_hub_and_operators(client, scenario, hub_status, operators))
            elif with_operator:
                tasks.create_task(run_scenario_operator(client, scenario, status))
            tasks.create_task(_until_cancelled())


def _clients(scenario: ScenarioCluster) -> dict[ClusterKey, Client]:
    return {key: cluster.client(_NAMESPACE) for key, cluster in scenario.workload_clusters.items()}


async def _operator_status(client: Client, with_profiles: WithProfiles, stack: AsyncExitStack) -> OperatorStatus:
    return OperatorStatus(profiles=await stack.enter_async_context(with_profiles(client)))


def _token(scenario: ScenarioCluster, access: AccessSettings | None) -> str:
    """Return a token that all dashboards accept, or "" if they need none."""
    if access is None or access.mode is AuthMode.OFF:
        return ""
    token = secrets.token_urlsafe(16)
    clusters: list[SimulatedCluster] = [scenario.cluster, *scenario.workload_clusters.values()]
    for cluster in clusters:
        cluster.add_token(token, DEMO_USER)
    return token


async def _serve(
    client: Client,
    status: ReplicaStatus,
    addresses: tuple[ListenAddress, ...],
    stack: AsyncExitStack,
    access: AccessSettings | None,
    *,
    lease: str = LEADER_LEASE,
) -> str:
    """Serve at the first free address; return its URL."""
    for attempt, address in enumerate(addresses, 1):
        access = access or AccessSettings(mode=AuthMode.OFF)
        serving = serve_http(
            client, status, address=address, namespace=_NAMESPACE, identity=_IDENTITY, lease=lease, access=access
        )
        try:
            return f"http://{LOOPBACK}:{await stack.enter_async_context(serving)}"
        except UsageError:
            if attempt == len(addresses):
                raise
    return ""


async def run_scenario_operator(client: Client, scenario: ScenarioCluster, status: OperatorStatus) -> None:
    """Run the operator of a scenario's cluster, with the event sources of its clouds; until cancelled."""
    notices = NoticesComponent(sources_of(scenario.fleet))
    settings = OperatorSettings(namespace=_NAMESPACE, identity=_IDENTITY, cluster=_CLUSTER)
    components = vcenters.components(scenario.fleet)
    await run_operator(
        client, settings, profiles=status.profiles, notices=notices, components=components, status=status
    )


async def run_hub_and_operators(
    client: Client, scenario: ScenarioCluster, hub_status: ReplicaStatus, operators: Mapping[ClusterKey, OperatorStatus]
) -> None:
    """Run the hub of a scenario and the operators of its workload clusters; until cancelled."""
    settings = HubReplicaSettings(
        namespace=_NAMESPACE, identity=_IDENTITY, cluster=_CLUSTER, hub=ClusterApiSettings(metal3=True)
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run_hub(client, settings, connect=scenario.connect, status=hub_status))
        for key, workload_client in _clients(scenario).items():
            status = operators[key]
            operator_settings = OperatorSettings(namespace=_NAMESPACE, identity=_IDENTITY, cluster=str(key))
            tasks.create_task(run_operator(workload_client, operator_settings, profiles=status.profiles, status=status))


@contextmanager
def workload_profiles() -> Iterator[Path]:
    """Yield the default configuration file of operators in workload clusters."""
    with resources.as_file(resources.files(__package__).joinpath(_PROFILES)) as path:
        yield path


async def install(scenario: ScenarioCluster) -> None:
    """Create what the operator needs before its first start: namespaces and CustomResourceDefinitions."""
    client, with_machines = scenario.cluster.client(_NAMESPACE), scenario.has_machines
    if scenario.workload_clusters:
        await _create_objects(client, [_NAMESPACE], ())  # a hub has no CRDs
        for workload_client in _clients(scenario).values():
            await _create_objects(workload_client, [_NAMESPACE], operator_manifests.definitions())
        return
    namespaces = [_NAMESPACE, *((machinemaintenance.NAMESPACE,) if with_machines else ())]
    await _create_objects(client, namespaces, operator_manifests.definitions(with_machines=with_machines))


async def _create_objects(client: Client, namespaces: Sequence[str], definitions: Sequence[RawObject]) -> None:
    for name in namespaces:
        with suppress(AlreadyExists):  # the scenario may have created it
            await client.create(NAMESPACES, namespace(name))
    with suppress(AlreadyExists):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SERVICE_ACCOUNT}}
        await client.create(_SERVICE_ACCOUNTS, account, namespace=_NAMESPACE)
    for definition in definitions:
        with suppress(AlreadyExists):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)


async def _until_cancelled() -> None:
    await asyncio.Event().wait()
