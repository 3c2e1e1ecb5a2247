"""The pods on a node, merged from a watch and lists."""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from haulout.api.objects import ListMeta, Page, Pod
from haulout.core.clock import Clock
from haulout.drain.pod_informers import NodePodInformer, PresentPods
from support.clusters.drain_cluster import a_drain_cluster


def a_pod(name: str, version: int = 1, *, uid: str = "") -> Pod:
    metadata = {"name": name, "namespace": "shop", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1"}}, Pod)


class Source:
    """A fake pod informer."""

    stale_reason = ""

    def __init__(self, *pods: Pod) -> None:
        self.known = list(pods)
        self.handler: Callable[[Pod | None, Pod | None], None] = lambda *_: None

    async def run(self) -> None:
        """Do nothing."""

    async def wait_synced(self) -> None:
        """Return at once."""

    def pods(self) -> Iterable[Pod]:
        """Return the known pods."""
        return self.known

    def subscribe(self, handler: Callable[[Pod | None, Pod | None], None]) -> Callable[[], None]:
        """Register a handler."""
        self.handler = handler
        return lambda: None

    def lose(self, pod: Pod) -> None:
        """Report a pod as deleted."""
        self.known.remove(pod)
        self.handler(pod, None)


def a_page(*pods: Pod, version: int) -> Page[Pod]:
    return Page(metadata=ListMeta(resource_version=str(version)), items=pods)


def names(present: PresentPods) -> list[str]:
    return [f"{pod.name}@{pod.resource_version}" for pod in present.pods()]


def ignore_change(uid: str, *, is_gone: bool) -> None:
    """Ignore a change."""
    del uid, is_gone


def test_newer_of_two_pod_versions_counts() -> None:
    present = PresentPods(Source(a_pod("a", 5), a_pod("b", 3)), on_change=ignore_change)
    present.confirm(a_page(a_pod("a", 4), a_pod("b", 6), version=9))
    assert names(present) == ["a@5", "b@6"]


def test_pod_missing_in_a_list_is_gone_unless_it_is_newer_than_the_list() -> None:
    present = PresentPods(Source(a_pod("old", 3), a_pod("new", 12)), on_change=ignore_change)
    present.confirm(a_page(version=9))
    assert names(present) == ["new@12"]


def test_pod_that_only_a_list_contains_is_present_until_the_next_list() -> None:
    present = PresentPods(Source(), on_change=ignore_change)
    present.confirm(a_page(a_pod("missed", 3), version=9))
    assert names(present) == ["missed@3"]
    present.confirm(a_page(version=10))
    assert names(present) == []


def test_deleted_pod_does_not_return_with_an_old_list() -> None:
    changes: list[bool] = []
    source = Source(a_pod("a", 5))
    present = PresentPods(source, on_change=lambda uid, *, is_gone: changes.append(is_gone and bool(uid)))
    with present.subscribed():
        source.lose(source.known[0])
    present.confirm(a_page(a_pod("a", 5), version=5))
    assert names(present) == []
    assert changes == [True]


def test_pod_of_the_same_name_with_another_uid_is_another_pod() -> None:
    source = Source(a_pod("a", 5))
    present = PresentPods(source, on_change=ignore_change)
    with present.subscribed():
        source.lose(source.known[0])
        source.known.append(a_pod("a", 8, uid="uid-second"))
    assert names(present) == ["a@8"]


async def test_connection_failure_sets_the_stale_reason(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.transport.cut()
        source = NodePodInformer(cluster.client, "n1")
        async with asyncio.TaskGroup() as group:
            following = group.create_task(source.run())
            await cluster.wait_until(lambda: bool(source.stale_reason))
            following.cancel()
        assert "no connection" in source.stale_reason
