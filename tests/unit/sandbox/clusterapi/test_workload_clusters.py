"""The way to workload clusters: by the kubeconfig in a Secret, as long as its token is good and the line is well."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.api.clusterapi import ClusterKey
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.errors import KubeconfigError, Unauthorized, Unreachable
from haulout.kube.client import Client
from haulout_sandbox.clusterapi.workload_clusters import Outage, RegisteredCluster
from support.platforms.clusterapi import ManagementCluster, cluster_key, management_cluster

A, B = cluster_key("a/prod"), cluster_key("b/prod")


def kubeconfig(hub: ManagementCluster, key: ClusterKey) -> bytes:
    return base64.b64decode(hub.get("secrets", f"{key.namespace}/{key.kubeconfig_secret}")["data"]["value"])


def registered_cluster(hub: ManagementCluster, key: ClusterKey) -> RegisteredCluster:
    registered = hub.workloads.get(key)
    assert registered is not None
    return registered


@asynccontextmanager
async def connected(clock: Clock) -> AsyncIterator[tuple[ManagementCluster, Client]]:
    """Have a client of a workload cluster, made from its Secret."""
    async with management_cluster(clock, "a/prod") as hub, hub.workloads.connect(kubeconfig(hub, A), A) as client:
        yield hub, client


async def nodes(client: Client) -> list[str]:
    return [item.name for item in (await client.list(NODES)).items]


async def test_the_secret_of_a_cluster_leads_to_that_cluster_and_no_other(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod", "b/prod") as hub:
        (machine,) = await hub.create_machines("a/prod")
        found = hub.get("secrets", "a/prod-kubeconfig")
        assert (found["type"], list(found["data"])) == ("cluster.x-k8s.io/secret", ["value"])
        async with (
            hub.workloads.connect(kubeconfig(hub, A), A) as one,
            hub.workloads.connect(kubeconfig(hub, B), B) as other,
        ):
            assert await nodes(one) == [hub.node(machine)["metadata"]["name"]]
            assert await nodes(other) == []


async def test_after_a_rotation_only_the_new_token_is_good(clock: Clock) -> None:
    async with connected(clock) as (hub, old):
        await hub.kubeconfigs.rotate(A)
        with pytest.raises(Unauthorized):
            await nodes(old)
        async with hub.workloads.connect(kubeconfig(hub, A), A) as new:
            assert await nodes(new) == []


async def test_a_watch_that_is_open_outlives_the_token_that_opened_it(clock: Clock) -> None:
    async with connected(clock) as (hub, client), client.watch(NODES, resource_version="0") as events:
        await hub.kubeconfigs.rotate(A)
        await hub.create_machines("a/prod")
        assert (await anext(aiter(events))) is not None
        with pytest.raises(Unauthorized):
            async with client.watch(NODES, resource_version="0") as refused:
                await anext(aiter(refused))


async def test_a_secret_can_be_missing_for_a_while(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        await hub.kubeconfigs.remove(A)
        await hub.patch("clusters", "a/prod", metadata={"labels": {"a": "change"}})
        await clock.sleep(timedelta(minutes=5))
        assert not hub.has("secrets", "a/prod-kubeconfig")
        await hub.kubeconfigs.restore(A)
        async with hub.workloads.connect(kubeconfig(hub, A), A) as client:
            assert await nodes(client) == []


async def test_a_hanging_cluster_does_not_answer_until_its_connection_is_healed(clock: Clock) -> None:
    async with connected(clock) as (hub, client):
        registered_cluster(hub, A).break_connection(Outage.HANG)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await nodes(client)
        registered_cluster(hub, A).heal_connection()
        assert await nodes(client) == []


async def test_a_cluster_that_refuses_is_unreachable_at_once_and_its_watches_break(clock: Clock) -> None:
    async with connected(clock) as (hub, client):
        started_at = clock.now()
        async with client.watch(NODES, resource_version="0") as events:
            registered_cluster(hub, A).break_connection(Outage.REFUSE)
            with pytest.raises(Unreachable):
                await anext(aiter(events))
        with pytest.raises(Unreachable):
            await nodes(client)
        assert clock.now() - started_at < timedelta(seconds=20)
        registered_cluster(hub, A).heal_connection()
        assert await nodes(client) == []


async def test_a_cluster_that_is_slow_answers_late(clock: Clock) -> None:
    async with connected(clock) as (hub, client):
        registered_cluster(hub, A).break_connection(Outage.SLOW)
        started_at = clock.now()
        assert await nodes(client) == []
        assert clock.now() - started_at >= timedelta(seconds=20)
        registered_cluster(hub, A).heal_connection()
        started_at = clock.now()
        await nodes(client)
        assert clock.now() - started_at < timedelta(seconds=1)


async def test_an_unreachable_cluster_does_not_refuse_tokens(clock: Clock) -> None:
    async with connected(clock) as (hub, client):
        await hub.kubeconfigs.rotate(A)
        registered_cluster(hub, A).break_connection(Outage.REFUSE)
        with pytest.raises(Unreachable):
            await nodes(client)


async def test_what_befalls_the_line_is_not_felt_inside_the_cluster(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (machine,) = await hub.create_machines("a/prod")
        registered_cluster(hub, A).break_connection(Outage.HANG)
        await clock.sleep(timedelta(minutes=10))
        ready = {condition["type"]: condition["status"] for condition in hub.node(machine)["status"]["conditions"]}
        assert ready["Ready"] == "True"


async def test_a_machine_of_an_unreachable_cluster_is_drained_when_it_is_reachable(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (machine,) = await hub.create_machines("a/prod")
        node = hub.node(machine)["metadata"]["name"]
        registered_cluster(hub, A).break_connection(Outage.REFUSE)
        await hub.delete("machines", machine)
        await clock.sleep(timedelta(minutes=5))
        assert node in hub.cluster("a/prod").kubelets.names
        registered_cluster(hub, A).heal_connection()
        await hub.eventually(lambda: not hub.has("machines", machine))
        assert not hub.cluster("a/prod").api.has("nodes", node)


async def test_an_unknown_address_is_unreachable(clock: Clock) -> None:
    async with connected(clock) as (hub, client):
        hub.workloads.remove(A)
        with pytest.raises(Unreachable):
            await nodes(client)


@pytest.mark.parametrize("text", [b"", b"[", b"{}", b"contexts: [{name: x}]\ncurrent-context: x\n"])
async def test_an_invalid_kubeconfig_is_reported_with_its_secret(clock: Clock, text: bytes) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        with pytest.raises(KubeconfigError, match="secret a/prod-kubeconfig"):
            async with hub.workloads.connect(text, A):
                pass
