"""Those who look on: what they are told, also if they read slowly, leave and come back."""

from haulout.web.api.hub import Hub, Looker
from haulout.web.api.shapes import NodesChanged
from haulout_sandbox.event_loops.virtual import VirtualClock


def a_hub(**limits: int) -> Hub:
    hub = Hub(**limits)
    hub.begin("s")
    return hub


def tell(hub: Hub, *nodes: str) -> None:
    for name in nodes:
        hub.tell("nodes", NodesChanged(revision=hub.next_revision(), gone=(name,)))


async def heard(looker: Looker) -> str:
    return (await looker.next() or b"nothing more").decode()


def an_event(number: int, node: str) -> str:
    return f'id: s-{number}\nevent: nodes\ndata: {{"revision":"s-{number}","gone":["{node}"]}}\n\n'


async def test_all_are_told_the_same_bytes() -> None:
    hub = a_hub()
    with hub.looking() as one, hub.looking() as two:
        tell(hub, "n1")
        first, second = await one.next(), await two.next()
        assert first == second == an_event(1, "n1").encode()
    assert len(hub) == 0


async def test_what_waits_for_somebody_is_sent_together() -> None:
    hub = a_hub()
    with hub.looking(b"event: hello\n\n") as looker:
        tell(hub, "n1", "n2")
        assert await heard(looker) == "event: hello\n\n" + an_event(1, "n1") + an_event(2, "n2")


async def test_while_nothing_happens_there_is_a_heartbeat(clock: VirtualClock) -> None:
    hub = a_hub()
    with hub.looking() as looker:
        began = clock.monotonic()
        assert await heard(looker) == ": still here\n\n"
        assert clock.monotonic() - began == 15


async def test_who_reads_too_slowly_is_told_to_ask_anew_and_let_go() -> None:
    hub = a_hub(backlog=200)
    with hub.looking() as slow, hub.looking() as quick:
        for number in range(1, 10):
            tell(hub, f"n{number}")
            assert await heard(quick) == an_event(number, f"n{number}")
        assert await heard(slow) == "event: reset\ndata: {}\n\n"
        assert await heard(slow) == "nothing more"
        tell(hub, "n10")
        assert await heard(slow) == "nothing more"
        assert "n10" in await heard(quick)


async def test_an_event_that_is_larger_than_the_backlog_reaches_those_who_are_not_behind() -> None:
    hub = a_hub(backlog=10)
    with hub.looking() as looker:
        tell(hub, "n1")
        assert await heard(looker) == an_event(1, "n1")


async def test_who_comes_back_is_told_what_they_missed() -> None:
    hub = a_hub()
    tell(hub, "n1", "n2", "n3")
    with hub.looking(since="s-1") as looker:
        assert await heard(looker) == an_event(2, "n2") + an_event(3, "n3")
    with hub.looking(since="s-3") as looker:
        tell(hub, "n4")
        assert await heard(looker) == an_event(4, "n4")


async def test_who_comes_back_too_late_or_from_elsewhere_asks_anew() -> None:
    hub = a_hub(remembered=200)
    tell(hub, *(f"n{number}" for number in range(10)))
    for since in ("s-1", "t-9", "s-99", "s-x", "nonsense", "-", "s-" + "9" * 400):
        with hub.looking(since=since) as looker:
            assert (await heard(looker)).startswith("event: reset"), since
    with hub.looking(since="s-9") as looker:
        assert await heard(looker) == an_event(10, "n9")


async def test_details_of_a_node_are_told_to_those_who_want_to_know() -> None:
    hub = a_hub()
    with hub.looking(node="n1") as one, hub.looking(node="n2") as two:
        assert hub.nodes() == {"n1", "n2"}
        hub.tell_of("n1", b"event: node\n\n")
        tell(hub, "n9")
        assert (await heard(one)).startswith("event: node\n\n")
        assert await heard(two) == an_event(1, "n9")


async def test_when_another_story_begins_everybody_asks_anew() -> None:
    hub = a_hub()
    with hub.looking() as looker:
        hub.begin("t")
        assert await heard(looker) == "event: reset\ndata: {}\n\n"
        assert await heard(looker) == "nothing more"
