"""The sandbox and the operator in it, in one process, and what happens in its scenario.

The operator gets its clock and its client from the sandbox's cluster: it runs at the cluster's speed.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path

from haulout.app import manifests
from haulout.app.exposing import exposed
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.app.vitals import Vitals
from haulout.errors import AlreadyExists
from haulout.kube.client import Client
from haulout.kube.resources import DEFINITIONS, NAMESPACES
from haulout.sandbox.cluster import Cluster
from haulout.sandbox.scenarios.timeline import Timeline
from haulout.sandbox.site import Plan, Site, opened
from haulout.web.listening import Address

LOCAL = "127.0.0.1"
_NAMESPACE, _IDENTITY = "haulout", "sandbox"


async def run_sandbox(
    plan: Plan,
    *,
    default_kubeconfig: Path,
    ready: Callable[[Site, str], object],
    tell: Callable[[timedelta, str], object],
    with_operator: bool = True,
    with_profiles: Callable[[Client], AbstractAsyncContextManager[Profiles | None]],
    metrics: Address | None = None,
) -> None:
    """Run a sandbox until cancelled; `tell` hears what happens in it, and when.

    `ready` hears when it can be used, and where the operator answers: at `metrics`, if at all.
    """
    async with opened(plan, default_kubeconfig=default_kubeconfig) as site, AsyncExitStack() as stack:
        client, vitals, url = site.cluster.client(_NAMESPACE), Vitals(), ""
        if with_operator:
            await _install(site.cluster)
            vitals.profiles = await stack.enter_async_context(with_profiles(client))
            if metrics is not None:
                answering = exposed(client, vitals, at=metrics, namespace=_NAMESPACE, identity=_IDENTITY)
                url = f"http://{LOCAL}:{await stack.enter_async_context(answering)}"
        ready(site, url)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(Timeline(site.stage, tell=tell).run())
            if with_operator:
                parts.create_task(_operate(client, vitals))
            parts.create_task(_until_cancelled())


async def _operate(client: Client, vitals: Vitals) -> None:
    settings = OperatorSettings(namespace=_NAMESPACE, identity=_IDENTITY)
    await run_operator(client, settings, profiles=vitals.profiles, vitals=vitals)


async def _install(cluster: Cluster) -> None:
    """Put up what the operator needs, as a person would before the first start."""
    client = cluster.client(_NAMESPACE)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    with suppress(AlreadyExists):  # the scenario may have brought its own
        await client.create(NAMESPACES, namespace)
    for definition in manifests.definitions():
        with suppress(AlreadyExists):
            await client.create(DEFINITIONS, definition)


async def _until_cancelled() -> None:
    await asyncio.Event().wait()
