"""Those who look on: what they are told, also if they read slowly, leave and come back."""

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


async def test_all_are_told_the_same_bytes() -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe() as first_subscriber, broadcaster.subscribe() as two:
        publish(broadcaster, "n1")
        first, second = await first_subscriber.next(), await two.next()
        assert first == second == an_event(1, "n1").encode()
    assert len(broadcaster) == 0


async def test_what_waits_for_somebody_is_sent_together() -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe(b"event: hello\n\n") as subscriber:
        publish(broadcaster, "n1", "n2")
        assert await received(subscriber) == "event: hello\n\n" + an_event(1, "n1") + an_event(2, "n2")


async def test_while_nothing_happens_there_is_a_heartbeat(clock: VirtualClock) -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe() as subscriber:
        began = clock.monotonic()
        assert await received(subscriber) == ": still here\n\n"
        assert clock.monotonic() - began == 15


async def test_who_reads_too_slowly_is_told_to_ask_anew_and_let_go() -> None:
    broadcaster = a_broadcaster(backlog=200)
    with broadcaster.subscribe() as slow, broadcaster.subscribe() as quick:
        for number in range(1, 10):
            publish(broadcaster, f"n{number}")
            assert await received(quick) == an_event(number, f"n{number}")
        assert await received(slow) == "event: reset\ndata: {}\n\n"
        assert await received(slow) == "nothing more"
        publish(broadcaster, "n10")
        assert await received(slow) == "nothing more"
        assert "n10" in await received(quick)


async def test_an_event_that_is_larger_than_the_backlog_reaches_those_who_are_not_behind() -> None:
    broadcaster = a_broadcaster(backlog=10)
    with broadcaster.subscribe() as subscriber:
        publish(broadcaster, "n1")
        assert await received(subscriber) == an_event(1, "n1")


async def test_who_comes_back_is_told_what_they_missed() -> None:
    broadcaster = a_broadcaster()
    publish(broadcaster, "n1", "n2", "n3")
    with broadcaster.subscribe(since="s-1") as subscriber:
        assert await received(subscriber) == an_event(2, "n2") + an_event(3, "n3")
    with broadcaster.subscribe(since="s-3") as subscriber:
        publish(broadcaster, "n4")
        assert await received(subscriber) == an_event(4, "n4")


async def test_who_comes_back_too_late_or_from_elsewhere_asks_anew() -> None:
    broadcaster = a_broadcaster(max_history=200)
    publish(broadcaster, *(f"n{number}" for number in range(10)))
    for since in ("s-1", "t-9", "s-99", "s-x", "nonsense", "-", "s-" + "9" * 400):
        with broadcaster.subscribe(since=since) as subscriber:
            assert (await received(subscriber)).startswith("event: reset"), since
    with broadcaster.subscribe(since="s-9") as subscriber:
        assert await received(subscriber) == an_event(10, "n9")


async def test_details_of_a_node_are_told_to_those_who_want_to_know() -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe(node="n1") as first_subscriber, broadcaster.subscribe(node="n2") as two:
        assert broadcaster.subscribed_nodes() == {"n1", "n2"}
        broadcaster.publish_detail("n1", b"event: node\n\n")
        publish(broadcaster, "n9")
        assert (await received(first_subscriber)).startswith("event: node\n\n")
        assert await received(two) == an_event(1, "n9")


async def test_when_another_story_begins_everybody_asks_anew() -> None:
    broadcaster = a_broadcaster()
    with broadcaster.subscribe() as subscriber:
        broadcaster.start("t")
        assert await received(subscriber) == "event: reset\ndata: {}\n\n"
        assert await received(subscriber) == "nothing more"
