"""Patches and writes with preconditions: their effects, and conflicts."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from haulout import errors
from haulout.api.objects import RawObject
from haulout.api.resources import LEASES, NODES, PODS, Resource
from haulout.kube.client import Client
from haulout.kube.patches import (
    Patch,
    add,
    apply_patch,
    json_patch,
    merge_patch,
    pointer,
    remove,
    replace,
    require,
    strategic_patch,
)
from support.builders.objects import a_config_map, a_node, a_pod
from support.clusters.backends import ClusterBackend
from support.expectations.eventually import eventually

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=RawObject)
RAW_NODES = NODES.with_model(RawObject)


async def create_config_map(cluster: ClusterBackend, client: Client, name: str = "a", **data: str) -> RawObject:
    made = a_config_map(name)
    return await client.create(CONFIG_MAPS, {**made, "data": data}, namespace=cluster.namespace)


def resource_version(obj: RawObject) -> str:
    return str(obj["metadata"]["resourceVersion"])


async def outcomes(*attempts: Any) -> list[Any]:
    return list(await asyncio.gather(*attempts, return_exceptions=True))


async def test_json_patch_changes_only_the_keys_it_names(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    await create_config_map(cluster, client, theirs="1", ours="2", old="3")
    patch = json_patch(
        require("/data/ours", "2"),
        replace("/data/ours", "4"),
        add(pointer("metadata", "annotations"), {"haulout.dev/why": "test"}),
        remove("/data/old"),
    )
    changed = await client.patch(CONFIG_MAPS, "a", patch, namespace=cluster.namespace)
    assert changed["data"] == {"theirs": "1", "ours": "4"}
    assert changed["metadata"]["annotations"] == {"haulout.dev/why": "test"}


async def test_json_patch_with_a_failed_test_changes_nothing(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    before = await create_config_map(cluster, client, x="1")
    patch = json_patch(replace("/data/x", "2"), require("/data/x", "1"))
    with pytest.raises(errors.Invalid, match="the server rejected our request"):
        await client.patch(CONFIG_MAPS, "a", patch, namespace=cluster.namespace)
    assert await client.get(CONFIG_MAPS, "a", namespace=cluster.namespace) == before


@pytest.mark.parametrize(
    "patch_at",
    [
        lambda at: merge_patch({"metadata": {"resourceVersion": at}, "data": {"winner": "me"}}),
        lambda at: json_patch(require("/metadata/resourceVersion", at), add("/data", {"winner": "me"})),
    ],
    ids=["merge", "json"],
)
async def test_only_one_of_many_concurrent_patches_of_one_version_succeeds(
    cluster: ClusterBackend, patch_at: Any
) -> None:
    client = await cluster.client()
    before = await create_config_map(cluster, client)
    patch: Patch = patch_at(resource_version(before))
    change = partial(client.patch, CONFIG_MAPS, "a", patch, namespace=cluster.namespace)
    results = await outcomes(*[change() for _ in range(10)])
    losers = [result for result in results if isinstance(result, errors.Conflict | errors.Invalid)]
    assert len(losers) == 9


async def test_merge_patch_deletes_keys_that_are_none(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    await create_config_map(cluster, client, x="1", y="2")
    changed = await client.patch(CONFIG_MAPS, "a", merge_patch({"data": {"x": None}}), namespace=cluster.namespace)
    assert changed["data"] == {"y": "2"}


async def test_patch_without_a_change_keeps_the_resource_version(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    before = await create_config_map(cluster, client, x="1")
    after = await client.patch(CONFIG_MAPS, "a", merge_patch({"data": {"x": "1"}}), namespace=cluster.namespace)
    assert resource_version(after) == resource_version(before)


async def test_update_of_an_outdated_version_is_refused(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    first = await create_config_map(cluster, client, x="1")
    second = await client.update(CONFIG_MAPS, {**first, "data": {"x": "2"}})
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await client.update(CONFIG_MAPS, {**first, "data": {"x": "3"}})
    assert await client.get(CONFIG_MAPS, "a", namespace=cluster.namespace) == second


async def test_status_and_spec_are_written_separately(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    name = f"{cluster.prefix}-n1"
    await client.create(NODES, a_node(name))
    condition = {"type": "Drained", "status": "True"}
    both = {"spec": {"unschedulable": True}, "status": {"conditions": [condition]}}
    node = await client.patch(NODES, name, merge_patch(both), subresource="status")
    assert (node.spec.unschedulable, [one.type for one in node.status.conditions]) == (False, ["Drained"])
    node = await client.patch(NODES, name, merge_patch({**both, "status": {"conditions": []}}))
    assert (node.spec.unschedulable, [one.type for one in node.status.conditions]) == (True, ["Drained"])


async def test_dry_run_writes_nothing(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    before = await create_config_map(cluster, client, x="1")
    answer = await client.patch(
        CONFIG_MAPS, "a", merge_patch({"data": {"x": "2"}}), namespace=cluster.namespace, dry_run=True
    )
    assert answer["data"] == {"x": "2"}
    await client.create(CONFIG_MAPS, a_config_map("b"), namespace=cluster.namespace, dry_run=True)
    await client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace, dry_run=True)
    assert await client.get(CONFIG_MAPS, "a", namespace=cluster.namespace) == before
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "b", namespace=cluster.namespace)


async def test_only_one_of_many_concurrent_creates_succeeds(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    create = partial(client.create, CONFIG_MAPS, a_config_map("a"), namespace=cluster.namespace)
    results = await outcomes(*[create() for _ in range(10)])
    assert sum(isinstance(result, errors.AlreadyExists) for result in results) == 9


async def test_delete_with_a_uid_does_not_delete_another_object_of_the_same_name(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    first = await create_config_map(cluster, client)
    await client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace, uid=first["metadata"]["uid"])
    second = await create_config_map(cluster, client)
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace, uid=first["metadata"]["uid"])
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace, resource_version=resource_version(first))
    await client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace, resource_version=resource_version(second))
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "a", namespace=cluster.namespace)


async def test_object_with_a_finalizer_stays_until_the_finalizer_is_removed(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    held = a_config_map("a")
    held["metadata"]["finalizers"] = ["haulout.dev/test"]
    await client.create(CONFIG_MAPS, held, namespace=cluster.namespace)
    await client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace, propagation="Background")
    waiting = await client.get(CONFIG_MAPS, "a", namespace=cluster.namespace)
    assert waiting["metadata"]["deletionTimestamp"]
    await client.patch(CONFIG_MAPS, "a", merge_patch({"metadata": {"finalizers": None}}), namespace=cluster.namespace)
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "a", namespace=cluster.namespace)


async def test_delete_collection_deletes_only_selected_objects(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    for name, pool in (("a", "x"), ("b", "x"), ("c", "y")):
        await client.create(CONFIG_MAPS, a_config_map(name, labels={"pool": pool}), namespace=cluster.namespace)
    await client.delete_collection(CONFIG_MAPS, namespace=cluster.namespace, labels="pool=x")
    left = await client.list(CONFIG_MAPS, namespace=cluster.namespace, labels="pool")
    assert [one["metadata"]["name"] for one in left.items] == ["c"]


async def test_paged_list_is_a_consistent_snapshot(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    for name in "abcde":
        await create_config_map(cluster, client, name)
    names: list[str] = []
    versions: set[str] = set()
    async for page in client.pages(CONFIG_MAPS, namespace=cluster.namespace, page_size=2):
        names += [str(one["metadata"]["name"]) for one in page.items if isinstance(one, dict)]
        versions.add(page.resource_version)
        if len(names) == 2:
            await client.delete(CONFIG_MAPS, "e", namespace=cluster.namespace)
            await create_config_map(cluster, client, "f")
    assert [name for name in names if name in "abcdef"] == ["a", "b", "c", "d", "e"]
    assert len(versions) == 1


async def test_write_interrupted_by_a_crash_is_not_applied_twice(cluster: ClusterBackend) -> None:
    """A counter that is raised by compare-and-swap, while the server is killed, counts exactly what was confirmed."""
    client = await cluster.client()
    await create_config_map(cluster, client, count="0")
    done = asyncio.Event()

    async def count() -> int:
        confirmed = 0
        while not done.is_set():
            try:
                now = await client.get(CONFIG_MAPS, "a", namespace=cluster.namespace)
                change = {
                    "metadata": {"resourceVersion": resource_version(now)},
                    "data": {"count": str(int(now["data"]["count"]) + 1)},
                }
                await client.patch(CONFIG_MAPS, "a", merge_patch(change), namespace=cluster.namespace)
                confirmed += 1
            except errors.Conflict:
                continue
            except errors.Unreachable:
                uncertain.append(1)
                await cluster.clock.sleep(timedelta(milliseconds=100))
            except errors.ServerFailure:
                uncertain.append(1)
        return confirmed

    uncertain: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        counters = [tasks.create_task(count()) for _ in range(3)]
        for _ in range(2):
            await cluster.clock.sleep(timedelta(seconds=1))
            await cluster.crash()
        await cluster.clock.sleep(timedelta(seconds=1))
        done.set()
    confirmed = sum(counter.result() for counter in counters)
    final = await client.get(CONFIG_MAPS, "a", namespace=cluster.namespace)
    assert confirmed > 0
    assert confirmed <= int(final["data"]["count"]) <= confirmed + len(uncertain)


async def test_strategic_patch_merges_lists_by_key(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    name = f"{cluster.prefix}-n1"
    await client.create(NODES, a_node(name))
    for kind in ("Drained", "MaintenancePlanned"):
        change = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        node = await client.patch(NODES, name, strategic_patch(change), subresource="status")
    assert {condition.type for condition in node.status.conditions} == {"Drained", "MaintenancePlanned"}


async def test_apply_conflicts_with_another_field_manager_unless_forced(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    other = Client(client.transport, clock=client.clock, random=client.random, field_manager="other")
    wanted = a_config_map("a", x="1")
    await client.patch(CONFIG_MAPS, "a", apply_patch(wanted), namespace=cluster.namespace)
    other_patch = apply_patch(a_config_map("a", x="2"))
    with pytest.raises(errors.Conflict, match=r'conflict with "haulout": \.data\.x'):
        await other.patch(CONFIG_MAPS, "a", other_patch, namespace=cluster.namespace)
    forced_result = await other.patch(CONFIG_MAPS, "a", other_patch, namespace=cluster.namespace, force=True)
    assert forced_result["data"] == {"x": "2"}


async def test_subresource_can_be_created(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    pod = await client.create(PODS, a_pod("p1"), namespace=cluster.namespace)
    binding = {"metadata": {"name": "p1"}, "target": {"kind": "Node", "name": "n1"}}
    await client.create(
        PODS.with_model(RawObject), binding, namespace=cluster.namespace, name="p1", subresource="binding"
    )

    async def is_bound() -> bool:
        return (await client.get(PODS, "p1", namespace=cluster.namespace)).spec.node_name == "n1"

    await eventually(cluster.clock, is_bound)
    assert pod.spec.node_name == ""


async def test_timestamps_keep_microseconds(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    now = cluster.clock.now()
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    await client.create(LEASES, {"metadata": {"name": "a"}, "spec": {"renewTime": stamp}}, namespace=cluster.namespace)
    assert (await client.get(LEASES, "a", namespace=cluster.namespace)).spec.renew_time == now
