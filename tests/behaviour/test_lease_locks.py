"""A lease lock has one holder, under concurrency and faults."""

import asyncio
from datetime import timedelta

import pytest

from haulout.api.objects import OwnerReference
from haulout.api.resources import LEASES, NODES
from haulout.errors import KubeError, LockHeld, NotFound
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from support.builders.objects import a_node
from support.clusters.backends import ClusterBackend

HOUR = timedelta(hours=1)


async def test_only_one_of_many_concurrent_acquires_gets_the_lock(cluster: ClusterBackend) -> None:
    clients = [await cluster.client() for _ in range(10)]
    attempts = [
        leases.acquire(client, "node-n1", namespace=cluster.namespace, holder=f"racer-{number}", duration=HOUR)
        for number, client in enumerate(clients)
    ]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    losers = [result for result in results if isinstance(result, LockHeld)]
    assert len(losers) == 9
    winner = await clients[0].get(LEASES, "node-n1", namespace=cluster.namespace)
    assert {loser.holder for loser in losers} == {winner.spec.holder_identity}


async def test_expired_lock_is_taken_over_by_one_holder(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    await leases.acquire(client, "node-n1", namespace=cluster.namespace, holder="dead", duration=HOUR)
    long_ago = (cluster.clock.now() - 2 * HOUR).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    await client.patch(LEASES, "node-n1", merge_patch({"spec": {"renewTime": long_ago}}), namespace=cluster.namespace)
    attempts = [
        leases.acquire(client, "node-n1", namespace=cluster.namespace, holder=f"heir-{number}", duration=HOUR)
        for number in range(5)
    ]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(result, LockHeld) for result in results) == 4
    taken = await client.get(LEASES, "node-n1", namespace=cluster.namespace)
    assert taken.spec.lease_transitions == 1


async def test_lock_is_renewed_and_released_only_by_its_holder(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    await leases.acquire(client, "node-n1", namespace=cluster.namespace, holder="ours", duration=HOUR)
    with pytest.raises(LockHeld, match="is held by ours until"):
        await leases.release(client, "node-n1", namespace=cluster.namespace, holder="theirs")
    with pytest.raises(LockHeld):
        await leases.renew(client, "node-n1", namespace=cluster.namespace, holder="theirs", duration=HOUR)
    await leases.renew(client, "node-n1", namespace=cluster.namespace, holder="ours", duration=2 * HOUR)
    renewed = await client.get(LEASES, "node-n1", namespace=cluster.namespace)
    assert renewed.spec.lease_duration_seconds == 7200
    await leases.release(client, "node-n1", namespace=cluster.namespace, holder="ours")
    await leases.release(client, "node-n1", namespace=cluster.namespace, holder="ours")
    with pytest.raises(NotFound):
        await leases.renew(client, "node-n1", namespace=cluster.namespace, holder="ours", duration=HOUR)


async def test_lock_has_the_node_as_owner_reference(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    node = await client.create(NODES, a_node(f"{cluster.prefix}-n1"))
    owner = OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.uid)
    lease = await leases.acquire(
        client, "node-n1", namespace=cluster.namespace, holder="ours", duration=HOUR, owner=owner
    )
    assert lease.metadata.owner_references == (owner,)


async def test_lock_has_one_holder_through_server_crashes(cluster: ClusterBackend) -> None:
    """Clients take the lock in turn, and no two hold it at the same time."""
    inside: list[str] = []
    holders: list[str] = []

    async def acquire_repeatedly(name: str) -> None:
        client = await cluster.client()
        while len(holders) < 20:
            if not await _try_acquire(cluster, client, name):
                continue
            inside.append(name)
            assert inside == [name]
            await cluster.clock.sleep(timedelta(milliseconds=20))
            inside.remove(name)
            holders.append(name)
            while not await _try_release(cluster, client, name):
                pass

    async with asyncio.TaskGroup() as tasks:
        for name in ("ada", "bob", "cyd"):
            tasks.create_task(acquire_repeatedly(name))
        await cluster.clock.sleep(timedelta(milliseconds=200))
        await cluster.crash()
    assert len(holders) >= 20


async def _try_acquire(cluster: ClusterBackend, client: Client, name: str) -> bool:
    try:
        await leases.acquire(client, "node-n1", namespace=cluster.namespace, holder=name, duration=HOUR)
    except LockHeld:
        await cluster.clock.sleep(timedelta(milliseconds=30))
        return False
    except KubeError:
        await cluster.clock.sleep(timedelta(milliseconds=300))
        return False
    return True


async def _try_release(cluster: ClusterBackend, client: Client, name: str) -> bool:
    try:
        await leases.release(client, "node-n1", namespace=cluster.namespace, holder=name)
    except LockHeld:
        return True  # an earlier try had taken effect, and another has it by now
    except KubeError:
        await cluster.clock.sleep(timedelta(milliseconds=300))
        return False
    return True
