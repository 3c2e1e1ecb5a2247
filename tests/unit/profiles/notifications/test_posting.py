"""Sending at the edge: nothing waits for it, and nothing is sent twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.errors import OutsideError
from haulout.profiles.plugin import Message, Notification, Outside
from haulout.profiles.plugins.notifications.slack import Slack
from haulout.profiles.posting import Fate, Posted, Poster
from support.outside import Asked, FakeOutside, Given, a_message

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
SLACK = Slack(hook="https://hooks.slack.test/s3cr3t", channel="#c", message="{{ .Node.Name }} {{ .State }}")
DOWN = OutsideError("hooks.slack.test: connection refused")


class Desk:
    """A poster, what it sends to, and what it tells."""

    def __init__(self, clock: Clock, **settings: Any) -> None:
        self.clock = clock
        self.told: list[Posted] = []
        self.sent_at: list[tuple[str, datetime]] = []
        self.outside = FakeOutside(behave=self.take)
        self.is_up = True
        self.poster = Poster(self.outside, clock=clock, random=Random(1), tell=self.told.append, **settings)

    def take(self, asked: Asked) -> Given:
        """Take a message, if the receiver is up."""
        if not self.is_up:
            return DOWN
        self.sent_at.append((asked.json["text"], self.clock.now()))
        return 200, b"ok"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Run the poster."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.poster.run())
            yield
            running.cancel()

    def fates(self) -> list[Fate]:
        """Return what became of messages, in order."""
        return [it.fate for it in self.told]

    def texts(self) -> list[str]:
        """Return what was accepted."""
        return [text for text, _ in self.sent_at]


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd(Notification):
    """A plugin of somebody else."""

    type = "odd"
    does: str

    async def send(self, message: Message, outside: Outside) -> None:
        """Do it."""
        del message, outside
        if self.does == "hang":
            await asyncio.Event().wait()
        raise KeyError("s3cr3t")


@pytest.fixture
def desk(clock: Clock) -> Desk:
    return Desk(clock)


async def test_what_is_posted_is_sent_and_told(desk: Desk) -> None:
    async with desk.open():
        desk.poster.post("team", SLACK, a_message())
        assert desk.texts() == []  # it has not even been tried when post returns
        await desk.poster.settle(MINUTE)
    (posted,) = desk.told
    assert desk.texts() == ["n1 in-maintenance"]
    assert (posted.instance, posted.type, posted.node, posted.fate) == ("team", "slack", "n1", Fate.SENT)
    assert (posted.attempts, posted.problem, desk.poster.waiting) == (1, "", 0)


async def test_what_is_posted_before_it_runs_is_sent_when_it_does(desk: Desk) -> None:
    desk.poster.post("team", SLACK, a_message())
    async with desk.open():
        await desk.poster.settle(MINUTE)
    assert desk.texts() == ["n1 in-maintenance"]


async def test_it_is_tried_again_more_and_more_rarely_and_sent_once(desk: Desk) -> None:
    desk.is_up = False
    async with desk.open():
        desk.poster.post("team", SLACK, a_message())
        await desk.clock.sleep(5 * MINUTE)
        desk.is_up = True
        await desk.clock.sleep(60 * MINUTE)
    assert desk.texts() == ["n1 in-maintenance"]
    *delayed, sent = desk.told
    assert {it.fate for it in delayed} == {Fate.DELAYED}
    assert (sent.fate, sent.attempts) == (Fate.SENT, len(desk.told))
    assert 6 <= len(delayed) <= 12
    assert delayed[0].problem == str(DOWN)
    assert delayed[0].next_at
    assert delayed[0].next_at <= desk.sent_at[0][1]


async def test_it_is_given_up_after_a_while(desk: Desk) -> None:
    desk.is_up = False
    began = desk.clock.now()
    async with desk.open():
        desk.poster.post("team", SLACK, a_message())
        await desk.poster.settle(timedelta(days=1))
        assert timedelta(minutes=27) < desk.clock.now() - began <= timedelta(minutes=30)
        desk.is_up = True
        await desk.clock.sleep(timedelta(days=1))
    assert desk.fates()[-1] is Fate.LOST
    assert desk.told[-1].problem == str(DOWN)
    assert desk.texts() == []


async def test_what_makes_no_sense_is_not_tried_again(desk: Desk) -> None:
    async with desk.open():
        desk.poster.post("team", replace(SLACK, message="{{ .Nope }}"), a_message())
        await desk.poster.settle(MINUTE)
    assert desk.fates() == [Fate.LOST]
    assert desk.told[0].problem.startswith("the template message cannot be filled in")


async def test_messages_about_a_node_keep_their_order(desk: Desk) -> None:
    desk.is_up = False
    async with desk.open():
        for state in ("a", "b", "c"):
            desk.poster.post("team", replace(SLACK, message=state), a_message())
        await desk.clock.sleep(10 * SECOND)
        desk.is_up = True
        await desk.poster.settle(10 * MINUTE)
    assert desk.texts() == ["a", "b", "c"]


async def test_a_message_that_cannot_be_sent_holds_up_no_other_node(desk: Desk) -> None:
    def picky(asked: Asked) -> Given:
        return DOWN if asked.json["text"].startswith("n1") else desk.take(asked)

    desk.outside.behave = picky
    async with desk.open():
        desk.poster.post("team", SLACK, a_message("n1"))
        desk.poster.post("team", SLACK, a_message("n2"))
        await desk.clock.sleep(SECOND / 2)
        assert desk.texts() == ["n2 in-maintenance"]


async def test_a_receiver_is_told_one_thing_at_a_time_and_holds_up_no_other(desk: Desk) -> None:
    desk.outside.takes = SECOND
    began = desk.clock.now()
    async with desk.open():
        for node in range(5):
            desk.poster.post("slow", SLACK, a_message(f"n{node}"))
        desk.poster.post("other", replace(SLACK, message="other"), a_message())
        await desk.poster.settle(MINUTE)
    moments = {text: at - began for text, at in desk.sent_at}
    assert moments.pop("other") == SECOND
    assert sorted(moments.values()) == [number * SECOND for number in range(1, 6)]


async def test_no_more_may_wait_than_there_is_room_for(clock: Clock) -> None:
    desk = Desk(clock, most_waiting=3)
    desk.is_up = False
    async with desk.open():
        for node in range(5):
            desk.poster.post("team", SLACK, a_message(f"n{node}"))
        assert desk.fates() == [Fate.LOST, Fate.LOST]
        assert "no more may" in desk.told[0].problem
        assert desk.poster.waiting == 3
        desk.is_up = True
        await desk.poster.settle(MINUTE)
    assert len(desk.texts()) == 3


async def test_who_waits_too_long_for_its_turn_is_given_up(clock: Clock) -> None:
    desk = Desk(clock, patience=2 * MINUTE)
    async with desk.open():
        for node in range(5):
            desk.poster.post("stuck", Odd(does="hang"), a_message(f"n{node}"))
        await desk.poster.settle(timedelta(days=1))
    lost = [it for it in desk.told if it.fate is Fate.LOST]
    assert len(lost) == 5
    assert any("it waited for its turn for more than 2m0s" in it.problem for it in lost)
    assert desk.clock.now() - a_message().now < 10 * MINUTE


async def test_a_plugin_that_hangs_or_breaks_is_told_of_without_its_words(desk: Desk) -> None:
    async with desk.open():
        desk.poster.post("hangs", Odd(does="hang"), a_message())
        desk.poster.post("breaks", Odd(does="break"), a_message())
        await desk.clock.sleep(61 * SECOND)
    problems = {it.instance: it.problem for it in reversed(desk.told) if it.fate is Fate.DELAYED}
    assert problems["hangs"] == "the receiver of hangs: no answer within 60 s"
    assert problems["breaks"].startswith("the plugin odd failed: KeyError in test_posting.py, line ")
    assert not any("s3cr3t" in it.problem for it in desk.told)


async def test_it_ends_at_once_and_tells_what_was_not_sent(desk: Desk) -> None:
    desk.is_up = False
    async with desk.open():
        desk.poster.post("team", SLACK, a_message("n1"))
        desk.poster.post("team", SLACK, a_message("n1"))
        desk.poster.post("stuck", Odd(does="hang"), a_message("n2"))
        await desk.clock.sleep(10 * SECOND)
        began = desk.clock.now()
    assert desk.clock.now() - began < SECOND
    lost = [it for it in desk.told if it.fate is Fate.LOST]
    assert [(it.instance, it.node) for it in lost] == [("team", "n1"), ("team", "n1"), ("stuck", "n2")]
    assert {it.problem for it in lost} == {"this process ends before it could be sent"}
    assert desk.poster.waiting == 0


async def test_a_last_moment_is_no_longer_than_asked_for(desk: Desk) -> None:
    desk.is_up = False
    async with desk.open():
        desk.poster.post("team", SLACK, a_message())
        began = desk.clock.now()
        await desk.poster.settle(5 * SECOND)
        assert desk.clock.now() - began == 5 * SECOND
