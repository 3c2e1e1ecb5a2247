"""What an eviction does, and what it must not."""

import asyncio
from datetime import timedelta

import pytest

from haulout import errors
from haulout.api.objects import Pod, RawObject
from haulout.api.resources import PODS, Resource
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from support.builders.objects import a_pdb, a_pod
from support.clusters.backends import ClusterBackend

PDBS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True, model=RawObject)
CART = {"app": "cart"}


async def a_running_pod(cluster: ClusterBackend, client: Client, name: str) -> Pod:
    await client.create(PODS, a_pod(name, on="n1", labels=CART), namespace=cluster.namespace)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return await client.patch(
        PODS, name, merge_patch({"status": status}), namespace=cluster.namespace, subresource="status"
    )


async def a_pdb_allowing(
    cluster: ClusterBackend, client: Client, name: str, *, allowed: int, observed: bool = True
) -> None:
    """Make a budget and say, as its controller would, how many disruptions it allows."""
    made = await client.create(PDBS, a_pdb(name, app="cart", minAvailable=2), namespace=cluster.namespace)
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 2 + allowed,
        "desiredHealthy": 2,
        "expectedPods": 2 + allowed,
        "observedGeneration": made["metadata"]["generation"] if observed else 0,
    }
    await client.patch(PDBS, name, merge_patch({"status": status}), namespace=cluster.namespace, subresource="status")


async def terminating_pods(cluster: ClusterBackend, client: Client) -> list[str]:
    pods = await client.list(PODS, namespace=cluster.namespace)
    return [pod.name for pod in pods.items if pod.metadata.deletion_timestamp]


async def test_evicted_pod_terminates_with_the_given_grace_period(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    pod = await a_running_pod(cluster, client, "p1")
    await client.evict("p1", namespace=cluster.namespace, uid=pod.uid, grace=timedelta(seconds=7))
    terminating = await client.get(PODS, "p1", namespace=cluster.namespace)
    assert terminating.metadata.deletion_timestamp is not None
    assert terminating.metadata.deletion_grace_period_seconds == 7


async def test_eviction_with_a_uid_does_not_evict_another_pod_of_the_same_name(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    await a_running_pod(cluster, client, "p1")
    with pytest.raises(errors.Conflict):
        await client.evict("p1", namespace=cluster.namespace, uid="00000000-0000-0000-0000-000000000000")
    assert await terminating_pods(cluster, client) == []


async def test_eviction_of_a_missing_pod_is_not_found(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    with pytest.raises(errors.NotFound, match=r"evicting pods .*/nobody"):
        await client.evict("nobody", namespace=cluster.namespace)


async def test_refusal_by_a_disruption_budget_gives_its_reason(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    await a_running_pod(cluster, client, "p1")
    await a_pdb_allowing(cluster, client, "cart", allowed=0)
    with pytest.raises(errors.TooManyRequests, match="would violate the pod's disruption budget") as caught:
        await client.evict("p1", namespace=cluster.namespace)
    assert [cause.reason for cause in caught.value.causes] == ["DisruptionBudget"]
    assert caught.value.causes[0].message == "The disruption budget cart needs 2 healthy pods and has 2 currently"
    assert await terminating_pods(cluster, client) == []


async def test_unobserved_disruption_budget_answers_with_retry_after(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    await a_running_pod(cluster, client, "p1")
    await a_pdb_allowing(cluster, client, "cart", allowed=1, observed=False)
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.evict("p1", namespace=cluster.namespace)
    assert caught.value.retry_after == timedelta(seconds=10)


async def test_two_disruption_budgets_on_one_pod_are_a_server_error(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    await a_running_pod(cluster, client, "p1")
    await a_pdb_allowing(cluster, client, "one", allowed=1)
    await a_pdb_allowing(cluster, client, "two", allowed=1)
    with pytest.raises(errors.ServerFailure, match="more than one PodDisruptionBudget"):
        await client.evict("p1", namespace=cluster.namespace)


async def test_eviction_dry_run_does_not_use_the_disruption_budget(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    pod = await a_running_pod(cluster, client, "p1")
    await a_pdb_allowing(cluster, client, "cart", allowed=1)
    for _ in range(3):
        await client.evict("p1", namespace=cluster.namespace, uid=pod.uid, dry_run=True)
    assert await terminating_pods(cluster, client) == []
    await client.evict("p1", namespace=cluster.namespace, uid=pod.uid)
    assert await terminating_pods(cluster, client) == ["p1"]


async def test_disruption_budget_holds_under_concurrent_evictions_and_a_server_crash(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    pods = [await a_running_pod(cluster, client, f"p{number}") for number in range(12)]
    await a_pdb_allowing(cluster, client, "cart", allowed=3)

    async def evict_for_sure(pod: Pod) -> bool:
        while True:
            try:
                await client.evict(pod.name, namespace=cluster.namespace, uid=pod.uid)
            except errors.TooManyRequests:
                return False
            except (errors.Unreachable, errors.ServerFailure):
                await cluster.clock.sleep(timedelta(milliseconds=200))
            else:
                return True

    async with asyncio.TaskGroup() as tasks:
        attempts = [tasks.create_task(evict_for_sure(pod)) for pod in pods]
        tasks.create_task(cluster.crash())
    gone = await terminating_pods(cluster, client)
    assert len(gone) <= 3
    assert {pod.name for pod, attempt in zip(pods, attempts, strict=True) if attempt.result()} <= set(gone)
