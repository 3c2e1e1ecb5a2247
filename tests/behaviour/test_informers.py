"""Guarantees of informers during faults of the connection and of the server."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest

from haulout.api.objects import Object, Pod
from haulout.api.resources import PODS, Resource
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.reflector import ListWatch
from support.builders.objects import a_config_map, a_pod
from support.clusters.backends import ClusterBackend
from support.expectations.eventually import eventually

TWO_MINUTES = timedelta(minutes=2)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=Object)


class ChangeLog:
    """Follows an informer by its handlers; its content must always equal the cache."""

    def __init__(self, cache: Informer[Object]) -> None:
        self.lines: list[tuple[str, str]] = []
        self.rows: dict[str, Object] = {}
        cache.subscribe(self.on_change)

    def on_change(self, old: Object | None, new: Object | None) -> None:
        """Record one change."""
        if new is None:
            assert old is not None
            assert self.rows.pop(old.key) == old
            self.lines.append(("gone", old.name))
            return
        assert self.rows.get(new.key) == old
        self.rows[new.key] = new
        self.lines.append(("came" if old is None else "changed", new.name))


@asynccontextmanager
async def running_informer(cache: Informer[Object]) -> AsyncIterator[Informer[Object]]:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cache.run())
        async with asyncio.timeout(60):
            await cache.wait_synced()
        yield cache
        running.cancel()


def config_map_informer(
    cluster: ClusterBackend, client: Client, *, labels: str = "", silence: float = 150, page_size: int = 500
) -> Informer[Object]:
    selection = ListWatch(
        CONFIG_MAPS,
        namespace=cluster.namespace,
        labels=labels,
        silence_timeout=timedelta(seconds=silence),
        page_size=page_size,
        # Every namespace of a real cluster with controllers has one; ours are those the test made.
        fields="metadata.name!=kube-root-ca.crt",
    )
    return Informer(client, selection, transform=as_is)


async def matches_server(cache: Informer[Object], client: Client, cluster: ClusterBackend) -> bool:
    listed = await client.list(CONFIG_MAPS, namespace=cluster.namespace, fields="metadata.name!=kube-root-ca.crt")
    return {(one.key, one.uid, one.resource_version) for one in listed.items} == {
        (row.key, row.uid, row.resource_version) for row in cache.all()
    }


async def test_informer_has_existing_objects_and_follows_changes(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    await client.create(CONFIG_MAPS, a_config_map("a", x="1"), namespace=cluster.namespace)
    async with running_informer(config_map_informer(cluster, client)) as cache:
        change_log = ChangeLog(cache)
        await client.create(CONFIG_MAPS, a_config_map("b"), namespace=cluster.namespace)
        await client.patch(CONFIG_MAPS, "a", merge_patch({"data": {"x": "2"}}), namespace=cluster.namespace)
        await client.delete(CONFIG_MAPS, "b", namespace=cluster.namespace)
        await eventually(cluster.clock, lambda: len(change_log.lines) == 4)
    assert change_log.lines == [("came", "a"), ("came", "b"), ("changed", "a"), ("gone", "b")]


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "paged"])
async def test_initial_list_is_complete_streamed_or_paged(cluster: ClusterBackend, streaming: bool) -> None:  # noqa: FBT001
    client = await cluster.client()
    for number in range(7):
        await client.create(CONFIG_MAPS, a_config_map(f"m{number}"), namespace=cluster.namespace)
    cache = config_map_informer(cluster, client, page_size=2)
    cache._reflector._can_stream_list = streaming
    async with running_informer(cache):
        assert sorted(row.name for row in cache.all()) == [f"m{number}" for number in range(7)]


async def test_object_that_leaves_the_selection_is_deleted_from_the_cache(
    cluster: ClusterBackend,
) -> None:
    client = await cluster.client()
    await client.create(CONFIG_MAPS, a_config_map("a", labels={"pool": "x"}), namespace=cluster.namespace)
    async with running_informer(config_map_informer(cluster, client, labels="pool=x")) as cache:
        change_log = ChangeLog(cache)
        for pool in ("y", "x"):
            change = merge_patch({"metadata": {"labels": {"pool": pool}}})
            await client.patch(CONFIG_MAPS, "a", change, namespace=cluster.namespace)
        await eventually(cluster.clock, lambda: len(change_log.lines) == 3)
    assert change_log.lines == [("came", "a"), ("gone", "a"), ("came", "a")]


async def test_pods_are_indexed_by_node(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    for name, node in (("p1", "n1"), ("p2", "n2"), ("p3", "n1")):
        await client.create(PODS, a_pod(name, on=node, labels={"app": "cart"}), namespace=cluster.namespace)
    cache: Informer[Pod] = Informer(
        client,
        ListWatch(PODS, namespace=cluster.namespace),
        transform=as_is,
        indexes={"node": lambda pod: (pod.spec.node_name,)},
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cache.run())
        await cache.wait_synced()
        assert [pod.name for pod in cache.by_index("node", "n1")] == ["p1", "p3"]
        assert [pod.metadata.labels for pod in cache.by_index("node", "n2")] == [{"app": "cart"}]
        await client.delete(PODS, "p1", namespace=cluster.namespace, grace=timedelta(0))
        await eventually(cluster.clock, lambda: [pod.name for pod in cache.by_index("node", "n1")] == ["p3"])
        running.cancel()


async def test_changes_during_a_disconnection_are_delivered_after_the_reconnection(cluster: ClusterBackend) -> None:
    writer = await cluster.client()
    client, connection = await cluster.client_with_connection()
    for name in ("stays", "changes", "goes", "replaced"):
        await writer.create(CONFIG_MAPS, a_config_map(name), namespace=cluster.namespace)
    async with running_informer(config_map_informer(cluster, client)) as cache:
        change_log = ChangeLog(cache)
        change_log.lines.clear()
        connection.cut()
        await writer.patch(CONFIG_MAPS, "changes", merge_patch({"data": {"x": "1"}}), namespace=cluster.namespace)
        await writer.delete(CONFIG_MAPS, "goes", namespace=cluster.namespace)
        await writer.delete(CONFIG_MAPS, "replaced", namespace=cluster.namespace)
        await writer.create(CONFIG_MAPS, a_config_map("replaced"), namespace=cluster.namespace)
        await writer.create(CONFIG_MAPS, a_config_map("comes"), namespace=cluster.namespace)
        await cluster.clock.sleep(timedelta(seconds=1))
        assert change_log.lines == []
        connection.mend()
        await eventually(cluster.clock, partial(matches_server, cache, writer, cluster))
    assert sorted(change_log.lines) == [
        ("came", "comes"),
        ("came", "replaced"),
        ("changed", "changes"),
        ("gone", "goes"),
        ("gone", "replaced"),
    ]


async def test_relist_after_expired_history_delivers_only_the_difference(
    cluster: ClusterBackend,
) -> None:
    writer = await cluster.client()
    client, connection = await cluster.client_with_connection()
    for name in ("stays", "goes"):
        await writer.create(CONFIG_MAPS, a_config_map(name), namespace=cluster.namespace)
    async with running_informer(config_map_informer(cluster, client)) as cache:
        change_log = ChangeLog(cache)
        change_log.lines.clear()
        connection.cut()
        await writer.delete(CONFIG_MAPS, "goes", namespace=cluster.namespace)
        await writer.create(CONFIG_MAPS, a_config_map("comes"), namespace=cluster.namespace)
        await cluster.expire_history()
        connection.mend()
        await eventually(cluster.clock, partial(matches_server, cache, writer, cluster))
    assert sorted(change_log.lines) == [("came", "comes"), ("gone", "goes")]


async def test_informer_follows_a_server_that_is_killed_repeatedly(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    async with running_informer(config_map_informer(cluster, client)) as cache:
        change_log = ChangeLog(cache)
        for round_ in range(3):
            await client.create(CONFIG_MAPS, a_config_map(f"before-{round_}"), namespace=cluster.namespace)
            await cluster.crash()
            await client.create(CONFIG_MAPS, a_config_map(f"after-{round_}"), namespace=cluster.namespace)
        await eventually(cluster.clock, partial(matches_server, cache, client, cluster), within=TWO_MINUTES)
        assert len(cache) == 6
        assert {key: row.uid for key, row in change_log.rows.items()} == {row.key: row.uid for row in cache.all()}


async def test_silent_watch_is_closed_and_restarted(cluster: ClusterBackend) -> None:
    writer = await cluster.client()
    client, connection = await cluster.client_with_connection()
    async with running_informer(config_map_informer(cluster, client, silence=2)) as cache:
        connection.silence()
        written = await writer.create(CONFIG_MAPS, a_config_map("unheard"), namespace=cluster.namespace)
        await cluster.clock.sleep(timedelta(seconds=3))
        assert cache.get(written.key) is None
        connection.mend()
        await eventually(cluster.clock, lambda: cache.get(written.key) is not None)


async def test_informer_relists_after_the_server_is_restored_from_a_backup(cluster: ClusterBackend) -> None:
    """After etcd is restored from a backup, a watch from before is a watch from the future: accepted, and silent."""
    writer = await cluster.client()
    client, connection = await cluster.client_with_connection()
    async with running_informer(config_map_informer(cluster, client, silence=3)) as cache:
        cache.advance(str(int(cache.last_resource_version) + 1_000_000))
        connection.cut()
        connection.mend()
        written = await writer.create(CONFIG_MAPS, a_config_map("new"), namespace=cluster.namespace)
        await eventually(cluster.clock, lambda: cache.get(written.key) is not None, within=TWO_MINUTES)


async def test_wait_for_resource_version_returns_once_the_cache_has_the_write(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    async with running_informer(config_map_informer(cluster, client)) as cache:
        for number in range(30):
            written = await client.create(CONFIG_MAPS, a_config_map(f"m{number}"), namespace=cluster.namespace)
            async with asyncio.timeout(10):
                await cache.wait_for_resource_version(written.resource_version)
            assert cache.get(written.key) is not None


@pytest.mark.parametrize("seed", range(5))
async def test_handlers_cache_and_server_converge_after_random_faults(cluster: ClusterBackend, seed: int) -> None:
    chance = random.Random(seed)
    writer = await cluster.client()
    client, connection = await cluster.client_with_connection()
    cache = config_map_informer(cluster, client, silence=3)
    change_log = ChangeLog(cache)
    async with running_informer(cache):
        for step in range(60):
            await _random_write(writer, cluster, chance, step)
            match chance.randrange(20):
                case 0:
                    connection.cut()
                case 1:
                    connection.silence()
                case 2 | 3 | 4:
                    connection.mend()
                case 5:
                    await cluster.clock.sleep(timedelta(seconds=chance.random()))
        connection.mend()
        await eventually(cluster.clock, partial(matches_server, cache, writer, cluster), within=TWO_MINUTES)
        assert {row.key: row for row in cache.all()} == change_log.rows


async def _random_write(writer: Client, cluster: ClusterBackend, chance: random.Random, step: int) -> None:
    name = f"m{chance.randrange(8)}"
    try:
        match chance.randrange(3):
            case 0:
                await writer.create(CONFIG_MAPS, a_config_map(name), namespace=cluster.namespace)
            case 1:
                change = merge_patch({"data": {"step": str(step)}})
                await writer.patch(CONFIG_MAPS, name, change, namespace=cluster.namespace)
            case 2:
                await writer.delete(CONFIG_MAPS, name, namespace=cluster.namespace)
    except KubeError:
        pass  # it is there already, or not there: any sequence will do
