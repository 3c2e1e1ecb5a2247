"""Drains that opt in to EvictionRequests, on a real control plane: as it is, and with the API installed as definitions.

Kubernetes 1.36 does not serve the API, so the first drains the classic way. The second has definitions and
controllers of `support.evictionrequest`, which shows that our requests, patches and deletions are what a real server
takes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.api.evictionrequest import EVICTED, EVICTION_REQUESTS, EVICTIONS, true_condition
from haulout.api.objects import RawObject
from haulout.api.resources import PODS
from haulout.core.clock import Clock
from haulout.drain.drainer import Drainer
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import DrainProgress, OutcomeResult
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.controllers.base import ControllerManager
from haulout_sandbox.controllers.garbagecollector.deletable_resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout_sandbox.nodes import Delays, Kubelets, Machine, NodeInformers
from support.evictionrequest import EVICTION_REQUEST_CONTROLLERS, EvictionRequestController
from support.evictionrequest.definitions import definitions
from support.expectations.eventually import eventually

pytestmark = pytest.mark.real_time

REQUEST_POLICY = replace(DrainPolicy.like_nmo(), eviction_requests=True)
Run = Callable[[], Coroutine[Any, Any, object]]


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """Run a control plane of our own: these tests change what it serves."""
    with ControlPlane() as alone:
        yield alone


@asynccontextmanager
async def a_client(control_plane: ControlPlane, clock: Clock) -> AsyncIterator[Client]:
    connection = config.load(kubeconfig=str(control_plane.kubeconfig()), clock=clock)
    client = Client(HttpTransport(connection, clock=clock), clock=clock, random=Random(1))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def pods_on_a_node(client: Client, namespace: str, count: int, *others: Run) -> AsyncIterator[str]:
    """Yield the name of a node that runs pods; `others` run beside it."""
    view, node = NodeInformers(client), f"by-request-{namespace[-6:]}"
    kubelets = Kubelets(client, view, delays=Delays.zero(), heartbeat=timedelta(seconds=1))
    kubelets.add(Machine(name=node, zone="a"))

    async def phases() -> list[str]:
        return [pod.status.phase for pod in (await client.list(PODS, namespace=namespace)).items]

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(run()) for run in (view.run, kubelets.run, *others)]
        for number in range(count):
            await client.create(PODS, a_pod(f"web-{number}", node), namespace=namespace)
        await eventually(client.clock, phases, becomes=["Running"] * count)
        yield node
        await kubelets.remove(node)
        for task in running:
            task.cancel()


def a_pod(name: str, node: str) -> RawObject:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "example/main"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}


async def test_drain_evicts_when_the_eviction_request_api_is_not_served(
    control_plane: ControlPlane, clock: Clock, namespace: str
) -> None:
    async with a_client(control_plane, clock) as client, pods_on_a_node(client, namespace, 5) as node:
        assert not await serves(client, EVICTION_REQUESTS, EVICTIONS)
        began = clock.monotonic()
        progress_reports: list[DrainProgress] = []
        outcome = await Drainer(client, node, REQUEST_POLICY, on_progress=progress_reports.append).run()
        assert outcome.is_drained
        assert clock.monotonic() - began < 10
        messages = [pod.message for progress in progress_reports for pod in progress.pods]
        assert "is evicted directly: the cluster does not serve EvictionRequests" in messages


async def test_drain_uses_eviction_requests_when_served_and_removes_them(
    control_plane: ControlPlane, clock: Clock, namespace: str
) -> None:
    async with a_client(control_plane, clock) as client:
        for crd in definitions():
            await client.create(CUSTOM_RESOURCE_DEFINITIONS.with_model(dict[str, Any]), {**crd, "status": None})
        await eventually(clock, lambda: serves(client, EVICTION_REQUESTS, EVICTIONS))
        controllers = ControllerManager(client, random=Random(2), factories=EVICTION_REQUEST_CONTROLLERS)
        async with pods_on_a_node(client, namespace, 5, controllers.run) as node:
            progress_reports: list[DrainProgress] = []
            drain = Drainer(client, node, REQUEST_POLICY, on_progress=progress_reports.append)
            outcome = await drain.run()
            assert outcome.is_drained
            assert not any(
                pod.message.startswith("is evicted") for progress in progress_reports for pod in progress.pods
            )
            assert (await client.list(EVICTION_REQUESTS)).items == ()
            evictions = (await client.list(EVICTIONS, namespace=namespace)).items
            assert {eviction.name for eviction in evictions} == {f"pod-1-web-{number}" for number in range(5)}
            assert all(true_condition(eviction.status.conditions, EVICTED) for eviction in evictions)


async def test_cancelled_drain_withdraws_its_eviction_requests(
    control_plane: ControlPlane, clock: Clock, namespace: str
) -> None:
    async with a_client(control_plane, clock) as client:
        assert await serves(client, EVICTION_REQUESTS, EVICTIONS), "the test before has installed them"
        controllers = ControllerManager(client, random=Random(2), factories=(EvictionRequestController,))
        async with pods_on_a_node(client, namespace, 2, controllers.run) as node, asyncio.TaskGroup() as group:
            drain = Drainer(client, node, REQUEST_POLICY)
            running = group.create_task(drain.run())
            await eventually(clock, lambda: len(drain.progress.blockers) == 2)
            drain.stop()
            assert (await running).result is OutcomeResult.CANCELLED
            assert (await client.list(EVICTION_REQUESTS)).items == ()
            for eviction in (await client.list(EVICTIONS, namespace=namespace)).items:
                assert [responder.state for responder in eviction.status.target_responders] == ["Canceled"]
            assert len((await client.list(PODS, namespace=namespace)).items) == 2
