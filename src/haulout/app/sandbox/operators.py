"""The sandbox and the operator in it, in one process, and what happens in its scenario.

The operator gets its clock and its client from the sandbox's cluster: it runs at the cluster's speed. Where the
scenario has workload clusters, the hub runs in the cluster that manages them, and an operator in each of them.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from haulout.app import manifests
from haulout.app.exposing import Shown, exposed
from haulout.app.hub import HubOperation, run_hub
from haulout.app.hub_vitals import HubVitals
from haulout.app.names import LEADER_LEASE
from haulout.app.notices import Notices
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.app.sandbox.cloud_sources import listening_to
from haulout.app.sandbox.interface import Say, SimulatedCluster, Site, Stage
from haulout.app.sandbox.vcenters import on_esx
from haulout.app.vitals import Vitals
from haulout.errors import AlreadyExists, UsageError
from haulout.hub.settings import HubSettings
from haulout.kinds import machinemaintenance
from haulout.kinds.clusterapi import EXTENSION_LEASE, ClusterKey
from haulout.kube.client import Client
from haulout.kube.namespaces import namespace
from haulout.kube.objects import Object, RawObject
from haulout.kube.resources import DEFINITIONS, NAMESPACES, Resource
from haulout.web.api.shapes import AuthMode
from haulout.web.auth.settings import ACCOUNT, AccessSettings
from haulout.web.listening import Address

LOCAL = "127.0.0.1"
PERSON = "alice"  # who tries the dashboard
_NAMESPACE, _IDENTITY, _CLUSTER = "haulout", "sandbox", "sandbox"
_SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, model=Object)
_PROFILES = "clusterapi.yaml"  # of operators in workload clusters

WithProfiles = Callable[[Client], AbstractAsyncContextManager[Profiles | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """Where people find what runs in a sandbox."""

    url: str = ""  # of the operator, or of the hub
    token: str = ""  # with which somebody can log in there, if that takes one
    operators: Mapping[ClusterKey, str] = field(default_factory=dict)  # of workload clusters


async def run_sandbox(
    opened: AbstractAsyncContextManager[Site],
    *,
    ready: Callable[[Site, Answering], object],
    say: Say,
    with_operator: bool = True,
    with_profiles: WithProfiles,
    metrics: tuple[Address, ...] = (),
    access: AccessSettings | None = None,
) -> None:
    """Run a sandbox until cancelled; `say` hears what happens in it, and when.

    `ready` hears when it can be used, and where the operator answers, which is at the first of `metrics` that is free.
    """
    async with opened as site, AsyncExitStack() as stack:
        stage, found = site.stage, Answering()
        client, hub, vitals = stage.cluster.client(_NAMESPACE), HubVitals(), Vitals()
        operators: dict[ClusterKey, Vitals] = {}
        if with_operator:
            await install(stage)
            if stage.workload_clusters:
                operators = {key: await _vitals_of(it, with_profiles, stack) for key, it in _clients(stage).items()}
                url = await _answering(client, hub, metrics, stack, access, lease=EXTENSION_LEASE)
            else:
                vitals = await _vitals_of(client, with_profiles, stack)
                url = await _answering(client, vitals, metrics, stack, access)
            urls = {
                key: await _answering(it, operators[key], (Address(0, LOCAL),), stack, access)
                for key, it in _clients(stage).items()
                if metrics
            }
            found = Answering(url=url, token=_token(stage, access), operators=urls)
        ready(site, found)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(site.play(say))
            if with_operator and operators:
                parts.create_task(couple(client, stage, hub, operators))
            elif with_operator:
                parts.create_task(operate(client, stage, vitals))
            parts.create_task(_until_cancelled())


def _clients(stage: Stage) -> dict[ClusterKey, Client]:
    return {key: cluster.client(_NAMESPACE) for key, cluster in stage.workload_clusters.items()}


async def _vitals_of(client: Client, with_profiles: WithProfiles, stack: AsyncExitStack) -> Vitals:
    return Vitals(profiles=await stack.enter_async_context(with_profiles(client)))


def _token(stage: Stage, access: AccessSettings | None) -> str:
    """Return a token with which a person can log in everywhere, if that takes one."""
    if access is None or access.mode is AuthMode.OFF:
        return ""
    token = secrets.token_urlsafe(16)
    clusters: list[SimulatedCluster] = [stage.cluster, *stage.workload_clusters.values()]
    for cluster in clusters:
        cluster.give_token(token, PERSON)
    return token


async def _answering(
    client: Client,
    vitals: Shown,
    addresses: tuple[Address, ...],
    stack: AsyncExitStack,
    access: AccessSettings | None,
    *,
    lease: str = LEADER_LEASE,
) -> str:
    """Have the operator answer at the first address that is free; return where."""
    for number, at in enumerate(addresses, 1):
        access = access or AccessSettings(mode=AuthMode.OFF)
        serving = exposed(client, vitals, at=at, namespace=_NAMESPACE, identity=_IDENTITY, lease=lease, access=access)
        try:
            return f"http://{LOCAL}:{await stack.enter_async_context(serving)}"
        except UsageError:
            if number == len(addresses):
                raise
    return ""


async def operate(client: Client, stage: Stage, vitals: Vitals) -> None:
    """Be the operator of a cluster on a stage, and hear what its clouds say; until cancelled."""
    notices = Notices(sources=listening_to(stage.fleet))
    settings = OperatorSettings(namespace=_NAMESPACE, identity=_IDENTITY, cluster=_CLUSTER)
    esx = on_esx(stage.fleet)
    await run_operator(client, settings, profiles=vitals.profiles, notices=notices, esx=esx, vitals=vitals)


async def couple(client: Client, stage: Stage, hub: HubVitals, operators: Mapping[ClusterKey, Vitals]) -> None:
    """Be the hub of a stage, and the operators in its workload clusters; until cancelled."""
    settings = HubOperation(namespace=_NAMESPACE, identity=_IDENTITY, cluster=_CLUSTER, hub=HubSettings(metal3=True))
    async with asyncio.TaskGroup() as parts:
        parts.create_task(run_hub(client, settings, connect=stage.connect, vitals=hub))
        for key, inside in _clients(stage).items():
            vitals = operators[key]
            of_it = OperatorSettings(namespace=_NAMESPACE, identity=_IDENTITY, cluster=str(key))
            parts.create_task(run_operator(inside, of_it, profiles=vitals.profiles, vitals=vitals))


@contextmanager
def workload_profiles() -> Iterator[Path]:
    """Yield the file that operators in workload clusters go by, if nobody names another."""
    with resources.as_file(resources.files(__package__).joinpath(_PROFILES)) as path:
        yield path


async def install(stage: Stage) -> None:
    """Put up what the operator needs, as a person would before the first start."""
    client, with_machines = stage.cluster.client(_NAMESPACE), stage.has_machines
    if stage.workload_clusters:
        await _put_up(client, [_NAMESPACE], ())  # a hub defines nothing
        for inside in _clients(stage).values():
            await _put_up(inside, [_NAMESPACE], manifests.definitions())
        return
    namespaces = [_NAMESPACE, *((machinemaintenance.NAMESPACE,) if with_machines else ())]
    await _put_up(client, namespaces, manifests.definitions(with_machines=with_machines))


async def _put_up(client: Client, namespaces: Sequence[str], definitions: Sequence[RawObject]) -> None:
    for name in namespaces:
        with suppress(AlreadyExists):  # the scenario may have brought its own
            await client.create(NAMESPACES, namespace(name))
    with suppress(AlreadyExists):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
        await client.create(_SERVICE_ACCOUNTS, account, namespace=_NAMESPACE)
    for definition in definitions:
        with suppress(AlreadyExists):
            await client.create(DEFINITIONS, definition)


async def _until_cancelled() -> None:
    await asyncio.Event().wait()
