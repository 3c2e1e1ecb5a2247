"""The delivery queue: notifications block nothing and are sent once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from haulout.controllers.profiles.notify.delivery import Delivery, DeliveryQueue, DeliveryState
from haulout.controllers.profiles.plugin import ExternalClient, Message, Notification
from haulout.controllers.profiles.plugins.notifications.slack import Slack
from haulout.core.clock import Clock
from haulout.errors import ExternalError
from support.fakes.external_client import FakeExternalClient, FakeReply, SentRequest, a_message

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
SLACK = Slack(hook="https://hooks.slack.test/s3cr3t", channel="#c", message="{{ .Node.Name }} {{ .State }}")
DOWN = ExternalError("hooks.slack.test: connection refused")


class Receiver:
    """A delivery queue, its receiver and its reported deliveries."""

    def __init__(self, clock: Clock, **settings: Any) -> None:
        self.clock = clock
        self.deliveries: list[Delivery] = []
        self.sent_at: list[tuple[str, datetime]] = []
        self.outside = FakeExternalClient(reply_to=self.receive)
        self.is_up = True
        self.queue = DeliveryQueue(
            self.outside, clock=clock, random=Random(1), on_update=self.deliveries.append, **settings
        )

    def receive(self, request: SentRequest) -> FakeReply:
        """Take a message, if the receiver is up."""
        if not self.is_up:
            return DOWN
        self.sent_at.append((request.json["text"], self.clock.now()))
        return 200, b"ok"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Run the queue."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.queue.run())
            yield
            running.cancel()

    def states(self) -> list[DeliveryState]:
        """Return the delivery states in order."""
        return [event.state for event in self.deliveries]

    def texts(self) -> list[str]:
        """Return what was accepted."""
        return [text for text, _ in self.sent_at]


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd(Notification):
    """A third-party plugin."""

    type = "odd"
    does: str

    async def send(self, message: Message, external: ExternalClient) -> None:
        """Do it."""
        del message, external
        if self.does == "hang":
            await asyncio.Event().wait()
        raise KeyError("s3cr3t")


@pytest.fixture
def receiver(clock: Clock) -> Receiver:
    return Receiver(clock)


async def test_enqueued_notification_is_sent_and_reported(receiver: Receiver) -> None:
    async with receiver.open():
        receiver.queue.enqueue("team", SLACK, a_message())
        assert receiver.texts() == []  # enqueue returns before the first attempt
        await receiver.queue.flush(MINUTE)
    (delivery,) = receiver.deliveries
    assert receiver.texts() == ["n1 in-maintenance"]
    assert (delivery.instance, delivery.type, delivery.node, delivery.state) == (
        "team",
        "slack",
        "n1",
        DeliveryState.SENT,
    )
    assert (delivery.attempts, delivery.problem, receiver.queue.queued) == (1, "", 0)


async def test_notification_enqueued_before_the_queue_runs_is_sent_later(receiver: Receiver) -> None:
    receiver.queue.enqueue("team", SLACK, a_message())
    async with receiver.open():
        await receiver.queue.flush(MINUTE)
    assert receiver.texts() == ["n1 in-maintenance"]


async def test_failed_notification_is_retried_with_backoff_and_sent_once(receiver: Receiver) -> None:
    receiver.is_up = False
    async with receiver.open():
        receiver.queue.enqueue("team", SLACK, a_message())
        await receiver.clock.sleep(5 * MINUTE)
        receiver.is_up = True
        await receiver.clock.sleep(60 * MINUTE)
    assert receiver.texts() == ["n1 in-maintenance"]
    *delayed, sent = receiver.deliveries
    assert {delayed_delivery.state for delayed_delivery in delayed} == {DeliveryState.DELAYED}
    assert (sent.state, sent.attempts) == (DeliveryState.SENT, len(receiver.deliveries))
    assert 6 <= len(delayed) <= 12
    assert delayed[0].problem == str(DOWN)
    assert delayed[0].retry_at
    assert delayed[0].retry_at <= receiver.sent_at[0][1]


async def test_notification_is_dropped_after_its_max_age(receiver: Receiver) -> None:
    receiver.is_up = False
    began = receiver.clock.now()
    async with receiver.open():
        receiver.queue.enqueue("team", SLACK, a_message())
        await receiver.queue.flush(timedelta(days=1))
        assert timedelta(minutes=27) < receiver.clock.now() - began <= timedelta(minutes=30)
        receiver.is_up = True
        await receiver.clock.sleep(timedelta(days=1))
    assert receiver.states()[-1] is DeliveryState.LOST
    assert receiver.deliveries[-1].problem == str(DOWN)
    assert receiver.texts() == []


async def test_undeliverable_notification_is_not_retried(receiver: Receiver) -> None:
    async with receiver.open():
        receiver.queue.enqueue("team", replace(SLACK, message="{{ .Nope }}"), a_message())
        await receiver.queue.flush(MINUTE)
    assert receiver.states() == [DeliveryState.LOST]
    assert receiver.deliveries[0].problem.startswith("the template message cannot be rendered")


async def test_notifications_of_a_node_keep_their_order(receiver: Receiver) -> None:
    receiver.is_up = False
    async with receiver.open():
        for state in ("a", "b", "c"):
            receiver.queue.enqueue("team", replace(SLACK, message=state), a_message())
        await receiver.clock.sleep(10 * SECOND)
        receiver.is_up = True
        await receiver.queue.flush(10 * MINUTE)
    assert receiver.texts() == ["a", "b", "c"]


async def test_failing_notification_delays_no_other_node(receiver: Receiver) -> None:
    def picky(request: SentRequest) -> FakeReply:
        return DOWN if request.json["text"].startswith("n1") else receiver.receive(request)

    receiver.outside.reply_to = picky
    async with receiver.open():
        receiver.queue.enqueue("team", SLACK, a_message("n1"))
        receiver.queue.enqueue("team", SLACK, a_message("n2"))
        await receiver.clock.sleep(SECOND / 2)
        assert receiver.texts() == ["n2 in-maintenance"]


async def test_receiver_gets_one_notification_at_a_time_and_delays_no_other(receiver: Receiver) -> None:
    receiver.outside.latency = SECOND
    began = receiver.clock.now()
    async with receiver.open():
        for node in range(5):
            receiver.queue.enqueue("slow", SLACK, a_message(f"n{node}"))
        receiver.queue.enqueue("other", replace(SLACK, message="other"), a_message())
        await receiver.queue.flush(MINUTE)
    moments = {text: at - began for text, at in receiver.sent_at}
    assert moments.pop("other") == SECOND
    assert sorted(moments.values()) == [number * SECOND for number in range(1, 6)]


async def test_queue_is_bounded(clock: Clock) -> None:
    receiver = Receiver(clock, max_queued=3)
    receiver.is_up = False
    async with receiver.open():
        for node in range(5):
            receiver.queue.enqueue("team", SLACK, a_message(f"n{node}"))
        assert receiver.states() == [DeliveryState.LOST, DeliveryState.LOST]
        assert "the queue is full" in receiver.deliveries[0].problem
        assert receiver.queue.queued == 3
        receiver.is_up = True
        await receiver.queue.flush(MINUTE)
    assert len(receiver.texts()) == 3


async def test_notification_queued_too_long_is_dropped(clock: Clock) -> None:
    receiver = Receiver(clock, max_age=2 * MINUTE)
    async with receiver.open():
        for node in range(5):
            receiver.queue.enqueue("stuck", Odd(does="hang"), a_message(f"n{node}"))
        await receiver.queue.flush(timedelta(days=1))
    lost = [item for item in receiver.deliveries if item.state is DeliveryState.LOST]
    assert len(lost) == 5
    assert any("it was queued for more than 2m0s" in item.problem for item in lost)
    assert receiver.clock.now() - a_message().now < 10 * MINUTE


async def test_hanging_or_failing_plugin_is_reported_without_its_message(receiver: Receiver) -> None:
    async with receiver.open():
        receiver.queue.enqueue("hangs", Odd(does="hang"), a_message())
        receiver.queue.enqueue("breaks", Odd(does="break"), a_message())
        await receiver.clock.sleep(61 * SECOND)
    problems = {
        event.instance: event.problem for event in reversed(receiver.deliveries) if event.state is DeliveryState.DELAYED
    }
    assert problems["hangs"] == "the receiver of hangs: no answer within 60 s"
    assert problems["breaks"].startswith("the plugin odd failed: KeyError in test_delivery.py, line ")
    assert not any("s3cr3t" in event.problem for event in receiver.deliveries)


async def test_shutdown_reports_unsent_notifications_at_once(receiver: Receiver) -> None:
    receiver.is_up = False
    async with receiver.open():
        receiver.queue.enqueue("team", SLACK, a_message("n1"))
        receiver.queue.enqueue("team", SLACK, a_message("n1"))
        receiver.queue.enqueue("stuck", Odd(does="hang"), a_message("n2"))
        await receiver.clock.sleep(10 * SECOND)
        began = receiver.clock.now()
    assert receiver.clock.now() - began < SECOND
    lost = [item for item in receiver.deliveries if item.state is DeliveryState.LOST]
    assert [(item.instance, item.node) for item in lost] == [("team", "n1"), ("team", "n1"), ("stuck", "n2")]
    assert {item.problem for item in lost} == {"the operator shut down before it was sent"}
    assert receiver.queue.queued == 0


async def test_flush_takes_no_longer_than_its_timeout(receiver: Receiver) -> None:
    receiver.is_up = False
    async with receiver.open():
        receiver.queue.enqueue("team", SLACK, a_message())
        began = receiver.clock.now()
        await receiver.queue.flush(5 * SECOND)
        assert receiver.clock.now() - began == 5 * SECOND
