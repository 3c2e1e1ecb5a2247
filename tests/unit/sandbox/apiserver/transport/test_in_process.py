"""What the in-process transport promises: every fault of the way to an API server, exactly when a test wants it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest

from haulout.core.clock import Clock
from haulout.errors import Unreachable
from haulout.kube.transport import Request, Response, Transport
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from support.apiserver.requests import (
    CONFIG_MAPS,
    LEASES,
    NODES,
    a_config_map,
    a_lease,
    a_node,
    merge,
    request_json,
    send,
)

LOCK = f"{LEASES}/lock"
SECOND = timedelta(seconds=1)


def a_watch(**query: str) -> Request:
    return Request(
        method="GET", path=CONFIG_MAPS, query=tuple({"watch": "1", "resourceVersion": "100", **query}.items())
    )


@asynccontextmanager
async def opened_watch(api: Transport) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the lines of a watch."""
    async with api.stream(a_watch()) as stream:
        yield stream.lines()


def name_in(line: bytes) -> str:
    name: str = msgspec.json.decode(line)["object"]["metadata"]["name"]
    return name


async def next_names(lines: AsyncIterator[bytes], count: int) -> list[str]:
    return [name_in(await anext(lines)) for _ in range(count)]


async def acquire(api: Transport) -> int:
    """Create the lease; return the status."""
    return (await request_json(api, "POST", LEASES, a_lease()))[0]


# Requests


async def test_it_is_a_transport(api: InProcessTransport) -> None:
    transport: Transport = api
    assert transport.server == "memory of api"


async def test_a_request_takes_time_and_others_run_meanwhile(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    """Half of the time passes before the effect: two that read before they write both win the same race."""

    async def read_then_write() -> int:
        await request_json(api, "GET", LEASES)
        return await acquire(api)

    async with asyncio.TaskGroup() as group:
        racers = [group.create_task(read_then_write()) for _ in range(2)]
    assert sorted(racer.result() for racer in racers) == [201, 409]
    assert clock.monotonic() == pytest.approx(0.002)
    slow = cluster.transport(latency=SECOND)
    await request_json(slow, "GET", LEASES)
    assert clock.monotonic() == pytest.approx(1.002)


async def test_even_without_latency_a_request_lets_others_run(cluster: ApiServer) -> None:
    api = cluster.transport(latency=timedelta())
    order: list[str] = []

    async def record(what: str) -> None:
        order.append(f"{what} asks")
        await request_json(api, "GET", NODES)
        order.append(f"{what} knows")

    async with asyncio.TaskGroup() as group:
        group.create_task(record("a"))
        group.create_task(record("b"))
    assert order == ["a asks", "b asks", "a knows", "b knows"]


async def test_without_latency_no_time_passes(cluster: ApiServer, clock: Clock) -> None:
    api = cluster.transport(latency=timedelta())
    async with opened_watch(api) as lines, asyncio.TaskGroup() as group:
        reading = group.create_task(next_names(lines, 1))
        assert (await request_json(api, "POST", CONFIG_MAPS, a_config_map("a")))[0] == 201
    assert reading.result() == ["a"]
    assert clock.monotonic() == 0


async def test_without_latency_too_a_cut_breaks_requests_under_way(cluster: ApiServer) -> None:
    api = cluster.transport(latency=timedelta())

    async def send_request() -> None:
        with pytest.raises(Unreachable) as broken:
            await acquire(api)
        assert broken.value.sent

    async def cut() -> None:
        api.cut()

    async with asyncio.TaskGroup() as group:
        group.create_task(send_request())
        group.create_task(cut())
    assert cluster.history == []


async def test_requests_are_counted(api: InProcessTransport, clock: Clock) -> None:
    await acquire(api)
    await clock.sleep(SECOND)
    await request_json(api, "GET", LOCK)
    async with opened_watch(api):
        pass
    assert [sent.request.method for sent in api.requests] == ["POST", "GET", "GET"]
    assert api.requests[1].sent_at - api.requests[0].sent_at > SECOND
    assert len(api.sent_requests(method="GET", path="leases")) == 1


@pytest.mark.parametrize(("code", "reason"), [(503, "ServiceUnavailable"), (500, "InternalError"), (403, "Forbidden")])
async def test_an_answer_instead_of_the_effect(
    cluster: ApiServer, api: InProcessTransport, code: int, reason: str
) -> None:
    rule = api.faults.fail_before_effect(method="POST", path="leases", response=code, times=2)
    assert [await acquire(api), await acquire(api)] == [code, code]
    assert cluster.history == []
    assert (rule.hits, await acquire(api)) == (2, 201)
    api.faults.fail_before_effect(response=code)
    _, status = await request_json(api, "GET", LOCK)
    assert (status["kind"], status["reason"], status["code"]) == ("Status", reason, code)


async def test_throttling_has_a_retry_after(api: InProcessTransport) -> None:
    api.faults.fail_before_effect(response=429, retry_after=7)
    answer = await send(api, "GET", LOCK)
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    assert msgspec.json.decode(answer.body)["details"] == {"retryAfterSeconds": 7}


async def test_any_garbage_can_be_the_answer(api: InProcessTransport) -> None:
    garbage = Response(502, {"content-type": "text/html"}, b"<html>Bad Gateway")
    api.faults.fail_before_effect(response=garbage, times=None)
    assert [await send(api, "GET", LOCK) for _ in range(3)] == [garbage] * 3
    api.faults.clear()
    assert (await send(api, "GET", LOCK)).status == 404


async def test_a_refused_connection_sent_nothing(cluster: ApiServer, api: InProcessTransport) -> None:
    api.faults.fail_before_effect()
    with pytest.raises(Unreachable) as refused:
        await acquire(api)
    assert not refused.value.sent
    assert cluster.history == []


async def test_a_broken_connection_may_have_had_its_effect(cluster: ApiServer, api: InProcessTransport) -> None:
    api.faults.fail_after_effect(method="POST")
    with pytest.raises(Unreachable) as broken:
        await acquire(api)
    assert broken.value.sent
    assert cluster.has("leases", "lock", "shop")
    assert await acquire(api) == 409


async def test_an_error_of_choice_can_be_raised_before_or_after(cluster: ApiServer, api: InProcessTransport) -> None:
    api.faults.fail_before_effect(response=Unreachable("went up in smoke", sent=True))
    with pytest.raises(Unreachable, match="went up in smoke"):
        await acquire(api)
    assert cluster.history == []
    api.faults.fail_after_effect(response=500)
    assert await acquire(api) == 500
    assert len(cluster.history) == 1


async def test_rules_wait_for_their_turn(api: InProcessTransport) -> None:
    api.faults.fail_before_effect(method="GET", response=500, skip=1)
    api.faults.fail_before_effect(where=lambda request: ("limit", "1") in request.query, response=503)
    assert [(await request_json(api, "GET", NODES))[0] for _ in range(3)] == [200, 500, 200]
    assert (await request_json(api, "GET", NODES, limit="1"))[0] == 503


async def test_the_first_of_two_answers_wins_and_both_are_spent(api: InProcessTransport) -> None:
    for fault in (api.faults.fail_before_effect, api.faults.fail_after_effect):
        fault(response=500)
        fault(response=503)
        assert [(await request_json(api, "GET", NODES))[0] for _ in range(2)] == [500, 200]


async def test_a_slow_request_arrives_late(cluster: ApiServer, api: InProcessTransport, clock: Clock) -> None:
    api.faults.delay(10 * SECOND, method="POST")
    assert await acquire(api) == 201
    assert clock.monotonic() == pytest.approx(10.001)
    assert cluster.get("leases", "lock", "shop")["metadata"]["creationTimestamp"] == "2026-01-05T09:00:10Z"


@pytest.mark.parametrize("takes_effect", [False, True])
async def test_what_hangs_ends_with_the_timeout_of_the_request(
    cluster: ApiServer, api: InProcessTransport, clock: Clock, *, takes_effect: bool
) -> None:
    api.faults.hang(takes_effect=takes_effect)
    with pytest.raises(Unreachable, match=r"^POST .*/leases: no answer within 30 s$") as hung:
        await acquire(api)
    assert hung.value.sent
    assert clock.monotonic() == pytest.approx(30)
    assert cluster.has("leases", "lock", "shop") is takes_effect


async def test_the_timeout_of_the_caller_comes_first(api: InProcessTransport, clock: Clock) -> None:
    api.faults.hang()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await acquire(api)
    assert clock.monotonic() == pytest.approx(5)


async def test_a_delayed_request_takes_effect_after_its_sender_timed_out(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    api.faults.delay_effect(60 * SECOND)
    with pytest.raises(Unreachable):
        await acquire(api)
    assert not cluster.has("leases", "lock", "shop")
    await clock.sleep(31 * SECOND)
    assert cluster.has("leases", "lock", "shop")


async def test_a_cancelled_request_may_have_had_its_effect(cluster: ApiServer, clock: Clock) -> None:
    api = cluster.transport(latency=2 * SECOND)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await acquire(api)
    assert cluster.has("leases", "lock", "shop")
    assert clock.monotonic() == pytest.approx(1.5)


# The line


async def test_a_cut_line_refuses_until_it_is_mended(api: InProcessTransport) -> None:
    api.cut()
    with pytest.raises(Unreachable) as cut:
        await acquire(api)
    assert not cut.value.sent
    api.mend()
    assert await acquire(api) == 201


async def test_a_cut_breaks_requests_under_way(api: InProcessTransport, clock: Clock) -> None:
    api.faults.hang()
    clock.call_at(clock.now() + SECOND, api.cut)
    with pytest.raises(Unreachable) as broken:
        await acquire(api)
    assert broken.value.sent
    assert clock.monotonic() == pytest.approx(1)


async def test_a_stream_that_broke_stays_broken(cluster: ApiServer, api: InProcessTransport) -> None:
    async with opened_watch(api) as lines:
        api.cut()
        api.mend()
        cluster.put(a_config_map("a"))
        with pytest.raises(Unreachable):
            await anext(lines)
    async with opened_watch(api) as lines:
        assert await next_names(lines, 1) == ["a"]


async def test_a_cut_connection_ends_open_streams(api: InProcessTransport, clock: Clock) -> None:
    clock.call_at(clock.now() + SECOND, api.cut)
    async with opened_watch(api) as lines:
        with pytest.raises(Unreachable) as broken:
            await anext(lines)
    assert broken.value.sent
    assert clock.monotonic() == pytest.approx(1)


async def test_a_cut_affects_only_its_transport(cluster: ApiServer, api: InProcessTransport) -> None:
    other = cluster.transport()
    api.cut()
    assert await acquire(other) == 201
    assert cluster.history[0].username == "client-2"


async def test_silence_lets_nothing_through_until_it_is_mended(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    async with opened_watch(api) as lines:
        api.silence()
        cluster.put(a_config_map("a"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await anext(lines)
        with pytest.raises(Unreachable, match="no answer within"):
            await acquire(api)
        assert not cluster.has("leases", "lock", "shop")
        clock.call_at(clock.now() + SECOND, api.mend)
        assert await acquire(api) == 201
        assert await next_names(lines, 1) == ["a"]


async def test_a_closed_transport_is_of_no_use(api: InProcessTransport) -> None:
    async with opened_watch(api) as lines:
        await api.close()
        with pytest.raises(Unreachable):
            await anext(lines)
    api.mend()
    with pytest.raises(Unreachable):
        await acquire(api)


# Streams


async def test_a_refused_stream_has_the_status_as_its_only_line(api: InProcessTransport) -> None:
    async with api.stream(a_watch(labelSelector="a=b=c")) as stream:
        lines = [line async for line in stream.lines()]
    assert stream.status == 400
    assert [msgspec.json.decode(line)["kind"] for line in lines] == ["Status"]


async def test_faults_of_requests_strike_streams_too(api: InProcessTransport, clock: Clock) -> None:
    api.faults.fail_before_effect(path="configmaps", response=503)
    async with api.stream(a_watch()) as stream:
        assert stream.status == 503
    api.faults.hang(path="configmaps")
    with pytest.raises(Unreachable):
        async with api.stream(a_watch()):
            pass
    assert clock.monotonic() == pytest.approx(30.001, abs=0.001)


async def test_the_timeout_of_a_request_does_not_end_its_stream(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    clock.call_at(clock.now() + timedelta(minutes=10), lambda: cluster.put(a_config_map("a")))
    async with opened_watch(api) as lines:
        assert await next_names(lines, 1) == ["a"]


async def test_events_can_be_lost(cluster: ApiServer, api: InProcessTransport) -> None:
    async with opened_watch(api) as lines:
        api.faults.drop(path="nodes")
        api.faults.drop(path="configmaps", skip=1, times=2)
        for name in "abcd":
            cluster.put(a_config_map(name))
        assert await next_names(lines, 2) == ["a", "d"]


async def test_events_can_be_repeated(cluster: ApiServer, api: InProcessTransport) -> None:
    api.faults.duplicate()
    async with opened_watch(api) as lines:
        cluster.put(a_config_map("a"))
        cluster.put(a_config_map("b"))
        assert await next_names(lines, 3) == ["a", "a", "b"]


async def test_events_can_come_out_of_order(cluster: ApiServer, api: InProcessTransport) -> None:
    api.faults.reorder()
    async with opened_watch(api) as lines:
        for name in "abc":
            cluster.put(a_config_map(name))
        assert await next_names(lines, 3) == ["b", "a", "c"]


async def test_events_can_come_late_and_hold_up_those_behind(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    api.faults.delay_event(20 * SECOND, skip=1)
    async with opened_watch(api) as lines:
        for name in "abc":
            cluster.put(a_config_map(name))
        assert await next_names(lines, 1) == ["a"]
        assert clock.monotonic() < 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await anext(lines)
        assert await next_names(lines, 2) == ["b", "c"]
        assert clock.monotonic() >= 20


async def test_events_can_be_changed_into_anything(cluster: ApiServer, api: InProcessTransport) -> None:
    api.faults.transform_event(lambda line: [line[: len(line) // 2], b"<html>"])
    async with opened_watch(api) as lines:
        cluster.put(a_config_map("a"))
        assert (await anext(lines)).startswith(b'{"type"')
        assert await anext(lines) == b"<html>"


async def test_a_stream_can_break_after_some_lines(cluster: ApiServer, api: InProcessTransport) -> None:
    api.faults.break_stream(after_lines=2)
    for name in "abc":
        cluster.put(a_config_map(name))
    async with opened_watch(api) as lines:
        assert await next_names(lines, 2) == ["a", "b"]
        with pytest.raises(Unreachable):
            await anext(lines)
        with pytest.raises(Unreachable):
            await anext(lines)
    api.faults.break_stream()
    async with opened_watch(api) as lines:
        with pytest.raises(Unreachable):
            await anext(lines)


async def test_a_stream_can_end_in_the_middle_of_a_line(cluster: ApiServer, api: InProcessTransport) -> None:
    api.faults.truncate(skip=1)
    cluster.put(a_config_map("a"))
    cluster.put(a_config_map("b"))
    async with opened_watch(api) as lines:
        assert await next_names(lines, 1) == ["a"]
        with pytest.raises(Unreachable, match="in the middle of a line"):
            await anext(lines)


async def test_reads_can_be_stale(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    old = cluster.revision
    cluster.put(a_node(unschedulable=True))
    cluster.put(a_node("n2"))
    api.faults.stale(old, path="nodes", times=3)
    _, listed = await request_json(api, "GET", NODES)
    assert listed["metadata"]["resourceVersion"] == str(old)
    assert [(item["metadata"]["name"], item["spec"]) for item in listed["items"]] == [("n1", {})]
    _, node = await request_json(api, "GET", f"{NODES}/n1")
    assert node["spec"] == {}
    assert (await request_json(api, "GET", f"{NODES}/n2"))[0] == 404
    _, listed = await request_json(api, "GET", NODES)
    assert len(listed["items"]) == 2


async def test_a_watch_that_starts_stale_catches_up(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a"))
    old = cluster.revision
    cluster.put(a_config_map("b"))
    api.faults.stale(old)
    async with api.stream(a_watch(resourceVersion="0", allowWatchBookmarks="1")) as stream:
        lines = stream.lines()
        events = [msgspec.json.decode(await anext(lines)) for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "ADDED"]
    assert [event["object"]["metadata"]["resourceVersion"] for event in events] == ["101", "101", "102"]


async def test_a_write_on_stale_knowledge_is_judged_by_the_present(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    cluster.put(a_node(unschedulable=True))
    api.faults.stale(101, method="GET")
    _, node = await request_json(api, "GET", f"{NODES}/n1")
    version = node["metadata"]["resourceVersion"]
    assert (await merge(api, f"{NODES}/n1", metadata={"resourceVersion": version}, spec={"podCIDR": "x"}))[0] == 409
