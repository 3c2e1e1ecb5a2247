"""Where a drain learns which pods are on its node."""

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
    """Shows what it is told to."""

    stale_reason = ""

    def __init__(self, *pods: Pod) -> None:
        self.known = list(pods)
        self.handler: Callable[[Pod | None, Pod | None], None] = lambda *_: None

    async def run(self) -> None:
        """Do nothing."""

    async def wait_synced(self) -> None:
        """Be there already."""

    def pods(self) -> Iterable[Pod]:
        """Return what is shown."""
        return self.known

    def subscribe(self, handler: Callable[[Pod | None, Pod | None], None]) -> Callable[[], None]:
        """Tell one of changes."""
        self.handler = handler
        return lambda: None

    def lose(self, pod: Pod) -> None:
        """Show that a pod went."""
        self.known.remove(pod)
        self.handler(pod, None)


def a_page(*pods: Pod, version: int) -> Page[Pod]:
    return Page(metadata=ListMeta(resource_version=str(version)), items=pods)


def names(presence: PresentPods) -> list[str]:
    return [f"{pod.name}@{pod.resource_version}" for pod in presence.pods()]


def ignore_change(uid: str, *, is_gone: bool) -> None:
    """Hear of nothing."""
    del uid, is_gone


def test_of_two_states_of_a_pod_the_newer_counts() -> None:
    presence = PresentPods(Source(a_pod("a", 5), a_pod("b", 3)), on_change=ignore_change)
    presence.confirm(a_page(a_pod("a", 4), a_pod("b", 6), version=9))
    assert names(presence) == ["a@5", "b@6"]


def test_what_a_list_lacks_is_gone_unless_it_is_newer_than_the_list() -> None:
    presence = PresentPods(Source(a_pod("old", 3), a_pod("new", 12)), on_change=ignore_change)
    presence.confirm(a_page(version=9))
    assert names(presence) == ["new@12"]


def test_a_pod_that_only_a_list_showed_is_there_until_the_next_list() -> None:
    presence = PresentPods(Source(), on_change=ignore_change)
    presence.confirm(a_page(a_pod("missed", 3), version=9))
    assert names(presence) == ["missed@3"]
    presence.confirm(a_page(version=10))
    assert names(presence) == []


def test_a_pod_that_was_seen_to_go_does_not_come_back_with_an_old_list() -> None:
    rung: list[bool] = []
    source = Source(a_pod("a", 5))
    presence = PresentPods(source, on_change=lambda uid, *, is_gone: rung.append(is_gone and bool(uid)))
    with presence.subscribed():
        source.lose(source.known[0])
    presence.confirm(a_page(a_pod("a", 5), version=5))
    assert names(presence) == []
    assert rung == [True]


def test_another_pod_of_the_same_name_is_another_pod() -> None:
    source = Source(a_pod("a", 5))
    presence = PresentPods(source, on_change=ignore_change)
    with presence.subscribed():
        source.lose(source.known[0])
        source.known.append(a_pod("a", 8, uid="uid-second"))
    assert names(presence) == ["a@8"]


async def test_trouble_is_told(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.transport.cut()
        source = NodePodInformer(town.client, "n1")
        async with asyncio.TaskGroup() as group:
            following = group.create_task(source.run())
            await town.wait_until(lambda: bool(source.stale_reason))
            following.cancel()
        assert "no connection" in source.stale_reason
