"""Subscribers: delivery, slow readers, and resumption."""

from haulout.dashboard.api.types import NodesChanged
from haulout.dashboard.stream.broadcaster import Broadcaster, Subscriber
from haulout_sandbox.event_loops.virtual_time import VirtualClock


def a_broadcaster(**limits: int) -> Broadcaster:
    broadcaster = Broadcaster(**limits)
    broadcaster.start("s")
    return broadcaster


def publish(broadcaster: Broadcaster, *nodes: str) -> None:
    for name in nodes:
        broadcaster.publish("nodes", NodesChanged(revision=broadcaster.next_revision(), deleted=(name,)))


async def received(subscriber: Subscriber) -> str:
    return (await subscriber.next() or b"nothing more").decode()


def an_event(number: int, node: str) -> str:
    return f'id: s-{number}\nevent: nodes\ndata: {{"revision":"s-{number}","deleted":["{node}"]}}\n\n'


async def test_subscribers_receive_the_same_bytes() -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe() as first_subscriber, broadcaster.subscribe() as two:
        publish(broadcaster, "n1")
        first, second = await first_subscriber.next(), await two.next()
        assert first == second == an_event(1, "n1").encode()
    assert len(broadcaster) == 0


async def test_pending_events_are_sent_together() -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe(b"event: hello\n\n") as subscriber:
        publish(broadcaster, "n1", "n2")
        assert await received(subscriber) == "event: hello\n\n" + an_event(1, "n1") + an_event(2, "n2")


async def test_idle_subscriber_receives_heartbeats(clock: VirtualClock) -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe() as subscriber:
        began = clock.monotonic()
        assert await received(subscriber) == ": still here\n\n"
        assert clock.monotonic() - began == 15


async def test_slow_subscriber_is_reset_and_closed() -> None:
    broadcaster = a_broadcaster(backlog=200)
    with broadcaster.subscribe() as slow, broadcaster.subscribe() as fast:
        for number in range(1, 10):
            publish(broadcaster, f"n{number}")
            assert await received(fast) == an_event(number, f"n{number}")
        assert await received(slow) == "event: reset\ndata: {}\n\n"
        assert await received(slow) == "nothing more"
        publish(broadcaster, "n10")
        assert await received(slow) == "nothing more"
        assert "n10" in await received(fast)


async def test_event_larger_than_the_backlog_is_delivered_to_a_current_subscriber() -> None:
    broadcaster = a_broadcaster(backlog=10)
    with broadcaster.subscribe() as subscriber:
        publish(broadcaster, "n1")
        assert await received(subscriber) == an_event(1, "n1")


async def test_resumed_subscriber_receives_missed_events() -> None:
    broadcaster = a_broadcaster()
    publish(broadcaster, "n1", "n2", "n3")
    with broadcaster.subscribe(since="s-1") as subscriber:
        assert await received(subscriber) == an_event(2, "n2") + an_event(3, "n3")
    with broadcaster.subscribe(since="s-3") as subscriber:
        publish(broadcaster, "n4")
        assert await received(subscriber) == an_event(4, "n4")


async def test_subscriber_with_an_unknown_or_expired_id_is_reset() -> None:
    broadcaster = a_broadcaster(max_history=200)
    publish(broadcaster, *(f"n{number}" for number in range(10)))
    for since in ("s-1", "t-9", "s-99", "s-x", "nonsense", "-", "s-" + "9" * 400):
        with broadcaster.subscribe(since=since) as subscriber:
            assert (await received(subscriber)).startswith("event: reset"), since
    with broadcaster.subscribe(since="s-9") as subscriber:
        assert await received(subscriber) == an_event(10, "n9")


async def test_node_details_are_sent_only_to_their_subscribers() -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe(node="n1") as first_subscriber, broadcaster.subscribe(node="n2") as two:
        assert broadcaster.subscribed_nodes() == {"n1", "n2"}
        broadcaster.publish_detail("n1", b"event: node\n\n")
        publish(broadcaster, "n9")
        assert (await received(first_subscriber)).startswith("event: node\n\n")
        assert await received(two) == an_event(1, "n9")


async def test_restarted_broadcaster_resets_subscribers() -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe() as subscriber:
        broadcaster.start("t")
        assert await received(subscriber) == "event: reset\ndata: {}\n\n"
        assert await received(subscriber) == "nothing more"
