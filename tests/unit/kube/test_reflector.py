"""How the reflector keeps its watch, and when it relists."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Request, Stream
from haulout_sandbox.apiserver import ApiServer, SentRequest
from support.builders.objects import a_node
from support.clusters.informer_cluster import InformerCluster
from support.fakes.scripted_transport import ScriptedStream, ScriptedTransport, json_response


async def test_watch_that_ends_immediately_is_reopened_about_once_a_second(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = InformerCluster(clock)

    @asynccontextmanager
    async def ends_at_once(_request: Request) -> AsyncIterator[Stream]:
        world.transport.requests.append(SentRequest(clock.now(), _request))
        yield ScriptedStream(json_response(b""))

    async with world.running():
        world.transport.cut()
        world.transport.mend()
        monkeypatch.setattr(world.transport, "stream", ends_at_once)
        await world.settle(2)
        before = len(world.transport.requests)
        await world.settle(10)
        assert 5 < len(world.transport.requests) - before < 25


async def test_backoff_is_reset_after_a_successful_watch(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        for number in range(8):
            world.transport.faults.break_stream(after_lines=1)
            world.put_node(f"n{number}")
            await world.settle(3)  # a first pause is at most 1 s, a fourth one would be up to 8 s
            assert f"n{number}" in world.node_names()
            world.put_node(f"m{number}")
            await world.settle(3)
            assert f"m{number}" in world.node_names()


async def test_expired_watch_relists_at_once(clock: Clock) -> None:
    world = InformerCluster(clock)
    expired = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'
    async with world.running():
        world.transport.faults.transform_event(lambda _: [expired])
        world.put_node("n1")
        await world.settle(0.05)
        assert world.node_names() == ["n1"]


async def test_expired_watch_relists_at_once_after_other_failures(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.fail_before_effect(
            response=404, times=5
        )  # the last pause is up to 16 s, the next would be up to 30 s
        world.transport.cut()
        world.put_node("n1")
        world.cluster.compact()
        world.transport.mend()
        before = len(world.transport.requests)
        while world.node_names() != ["n1"]:
            await world.settle(0.05)
        *_, expired_at, list_sent_at = (recorded.sent_at for recorded in world.transport.requests[before:])
        assert list_sent_at - expired_at < timedelta(seconds=0.5)


async def test_unpaged_list_is_used_once_after_an_expired_continue_token(clock: Clock) -> None:
    world = InformerCluster(clock, watch_lists=False, page_size=2)
    for number in range(5):
        world.put_node(f"n{number}")
    world.transport.faults.fail_before_effect(
        response=410, where=lambda request: "continue" in dict(request.query), times=1
    )
    async with world.running():
        world.transport.cut()
        world.put_node("n5")
        world.cluster.compact()
        world.transport.mend()
        await world.settle(10)
        assert "n5" in world.node_names()
    lists = [
        dict(recorded.query).get("limit")
        for recorded in world.transport.sent_requests(path="/nodes")
        if "watch" not in dict(recorded.query)
    ]
    assert lists == ["2", "2", None, "2", "2", "2"]


async def test_list_pages_contain_only_selected_objects(clock: Clock) -> None:
    cluster = ApiServer(clock, watch_lists=False)
    for name, pool in (("n1", "a"), ("n2", "b"), ("n3", "a")):
        cluster.put(a_node(name, labels={"pool": pool}))
    client = Client(cluster.transport(), clock=clock, random=random.Random(1))
    cache = Informer(client, ListWatch(NODES, labels="pool=a", fields="metadata.name!=n3"), transform=as_is)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(cache.run())
        await cache.wait_synced()
        assert cache.health().last_received_at is not None
        following.cancel()
    assert [node.name for node in cache.all()] == ["n1"]


@pytest.mark.parametrize("is_busy", [False, True], ids=["in silence", "while things change"])
@pytest.mark.parametrize("kind", ["old", "new"])
async def test_watch_list_without_an_end_bookmark_falls_back_to_paged_lists(
    clock: Clock, *, is_busy: bool, kind: str
) -> None:
    """The incomplete list is not used, and the cache does not stay empty until the watch ends minutes later."""
    world = InformerCluster(clock)
    world.put_node("n1")
    world.put_node("n2")
    world.transport.faults.transform_event(lambda line: [] if b"initial-events-end" in line else [line], times=None)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(world.informer.run())
        for number in range(18):
            if is_busy:
                world.put_node("n1" if kind == "old" else f"m{number}", beat=str(number))
            await world.settle(1)
        assert (world.informer.health().has_synced, world.node_names()) == (False, [])
        for number in range(190):
            if is_busy:
                world.put_node("n1" if kind == "old" else f"k{number}", beat=str(number))
            await world.settle(1)
            if kind == "old" and number == 10:
                assert world.node_names() == ["n1", "n2"]
        assert world.informer.health().has_synced
        assert {"n1", "n2"} <= set(world.node_names())
        assert world.informer.health().problem is None
        following.cancel()


async def test_closed_watch_leaves_no_timer(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    world = InformerCluster(clock)
    async with world.running():
        for _ in range(5):
            world.transport.cut()
            world.transport.mend()
            await world.settle(5)
        await world.settle(400)
    assert "Exception in callback" not in caplog.text


async def test_watch_timeouts_are_bounded_and_jittered(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        await world.settle(3600)
    lengths = {int(dict(sent.request.query)["timeoutSeconds"]) for sent in world.transport.requests}
    assert len(lengths) > 5
    assert 300 <= min(lengths) <= max(lengths) <= 600


async def test_watch_list_that_ends_half_way_is_not_a_complete_list(clock: Clock) -> None:
    first, second = (
        b'{"type":"ADDED","object":{"metadata":{"name":"%s","uid":"%s","resourceVersion":"3"}}}\n' % (name, name)
        for name in (b"n1", b"n2")
    )
    end = b'{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}'
    complete = b'{"type":"BOOKMARK","object":' + end + b"}\n"
    transport = ScriptedTransport([json_response(first), json_response(first + second + complete)])
    client = Client(transport, clock=clock, random=random.Random(1))
    cache = Informer(client, ListWatch(NODES), transform=as_is)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(cache.run())
        await cache.wait_synced()
        following.cancel()
    assert [node.name for node in cache.all()] == ["n1", "n2"]


async def test_relists_back_off_when_every_watch_expires(clock: Clock) -> None:
    world = InformerCluster(clock, watch_lists=False)
    world.put_node("n1")
    world.transport.faults.fail_before_effect(
        response=410,
        times=None,
        where=lambda request: dict(request.query).get("watch") == "true" and "resourceVersion" in dict(request.query),
    )
    async with world.running():
        before = len(world.transport.requests)
        await world.settle(600)
        assert len(world.transport.requests) - before < 90


async def test_server_restored_to_an_older_version_is_detected_on_a_silent_watch(clock: Clock) -> None:
    """A real server accepts a watch from a future resource version and sends nothing."""
    world = InformerCluster(clock)
    world.put_node("n1")
    async with world.running():
        world.informer.advance(str(world.cluster.revision + 1_000_000))  # as if seen before etcd was restored
        world.transport.cut()
        world.transport.mend()
        world.put_node("n2")
        await world.settle(400)
        assert world.node_names() == ["n1", "n2"]
        world.put_node("n3")
        await world.settle(1)
        assert "n3" in world.node_names()


async def test_silent_watch_is_verified_by_one_list(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.cut()
        world.transport.mend()
        before = len(world.transport.requests)
        await world.settle(3600)
        queries = [dict(recorded.request.query) for recorded in world.transport.requests[before:]]
    assert len([query for query in queries if "watch" not in query]) == 1


async def test_bad_request_on_a_watch_does_not_disable_watch_lists(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.fail_before_effect(response=400, times=1)
        world.transport.cut()
        world.transport.mend()
        await world.settle(3)
        assert world.informer._reflector._can_stream_list


async def test_long_retry_after_is_capped_for_watches(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.fail_before_effect(response=503, retry_after=86_400)
        world.transport.cut()
        world.transport.mend()
        world.put_node("n1")
        await world.settle(310)
        assert world.node_names() == ["n1"]


async def test_slow_unpaged_list_is_awaited(clock: Clock) -> None:
    world = InformerCluster(clock, watch_lists=False, page_size=2)
    for number in range(5):
        world.put_node(f"n{number}")
    world.transport.faults.fail_before_effect(
        response=410, where=lambda request: "continue" in dict(request.query), times=1
    )
    world.transport.faults.delay(
        timedelta(seconds=40), where=lambda request: not {"limit", "watch"} & set(dict(request.query))
    )
    async with asyncio.timeout(120), world.running():
        assert len(world.node_names()) == 5


async def test_persistent_watch_failure_is_logged_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.break_stream(times=None)
        world.put_node("n1")
        for _ in range(60):
            world.cluster.put(a_node("n1", labels={"at": str(clock.monotonic()).replace(".", "-")}))
            await world.settle(60)
    assert len(caplog.records) <= 3
