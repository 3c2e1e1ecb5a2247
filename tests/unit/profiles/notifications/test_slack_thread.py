"""Messages of a period go into one thread, which a lease remembers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.errors import OutsideError, Unreachable
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.objects import Lease, LeaseSpec
from haulout.profiles.plugins.notifications.slack_thread import SlackThread
from haulout_sandbox.apiserver import ApiServer
from support.outside import Asked, FakeOutside, FakeSlack, Given, a_message

PERIOD = timedelta(hours=1)
SECOND = timedelta(seconds=1)
PLUGIN = SlackThread(
    token="xoxb-1",
    channel="#maintenance",
    title="Today",
    message="{{ .Node.Name }} <{{ .State }}> & more",
    lease_name="thread",
    lease_namespace="kube-system",
    period=PERIOD,
)


class Office:
    """A cluster, a Slack, and processes that tell the one about the other."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.cluster = ApiServer(clock, namespaces=["kube-system"])
        self.client = self.a_client("first")
        self.slack = FakeSlack()
        self.outside = FakeOutside(behave=self.slack, takes=SECOND)

    def a_client(self, name: str) -> Client:
        """Return the client of another process."""
        return Client(self.cluster.transport(name), clock=self.clock, random=Random(name))

    async def tell(self, node: str = "n1", *, client: Client | None = None, **changes: Any) -> None:
        """Tell about a node."""
        plugin = replace(PLUGIN, **changes)
        await plugin.send(a_message(node, client=client or self.client), self.outside)

    async def lease(self) -> Lease:
        """Return what is remembered."""
        found = await leases.find(self.client, "thread", namespace="kube-system")
        assert found is not None
        return found


@pytest.fixture
def office(clock: Clock) -> Office:
    return Office(clock)


def told(*nodes: str) -> Sequence[tuple[str, str]]:
    return [("Today", f"{node} &lt;in-maintenance&gt; &amp; more") for node in nodes]


async def test_the_first_message_begins_a_thread_and_replies_to_it(office: Office) -> None:
    """C16."""
    began = office.clock.now()
    await office.tell()
    assert office.slack.titles == ["Today"]
    assert office.slack.replies == told("n1")
    lease = await office.lease()
    assert lease.spec.holder_identity == office.slack.posts[0]["ts"]
    assert lease.spec.lease_duration_seconds == 3600
    assert lease.spec.acquire_time
    assert lease.spec.renew_time
    assert began <= lease.spec.acquire_time <= lease.spec.renew_time <= office.clock.now()


async def test_within_the_period_there_are_only_replies(office: Office) -> None:
    """C17: and they do not make the period longer."""
    await office.tell()
    before = await office.lease()
    await office.clock.sleep(PERIOD - 10 * SECOND)
    await office.tell("n2")
    assert office.slack.titles == ["Today"]
    assert office.slack.replies == told("n1", "n2")
    assert await office.lease() == before


async def test_after_the_period_a_new_thread_begins(office: Office) -> None:
    """C18: acquireTime stays."""
    await office.tell()
    before = await office.lease()
    await office.clock.sleep(PERIOD)
    await office.tell("n2", title="Tomorrow")
    assert office.slack.titles == ["Today", "Tomorrow"]
    assert [title for title, _ in office.slack.replies] == ["Today", "Tomorrow"]
    after = await office.lease()
    assert after.spec.acquire_time == before.spec.acquire_time
    assert after.spec.holder_identity != before.spec.holder_identity


async def test_two_processes_begin_one_thread_between_them(office: Office) -> None:
    waits: list[str] = []

    async def insist(node: str) -> None:
        client = office.a_client(node)
        while True:
            try:
                return await office.tell(node, client=client)
            except OutsideError as error:
                waits.append(str(error))
                await office.clock.sleep(SECOND)

    for day in (1, 2):
        async with asyncio.TaskGroup() as tasks:
            for node in range(8):
                tasks.create_task(insist(f"n{node}"))
        assert len(office.slack.titles) == day
        assert len(office.slack.replies) == 8 * day
        await office.clock.sleep(2 * PERIOD)
    assert len(set(waits)) == 1
    assert waits[0].startswith("another process is just beginning the thread")


async def test_a_thread_that_could_not_begin_is_not_in_the_way(office: Office) -> None:
    office.slack.problem = "channel_not_found"
    for _ in range(2):
        with pytest.raises(OutsideError, match="Slack does not take the message for #maintenance: 'channel_not_found'"):
            await office.tell()
    office.slack.problem = ""
    await office.tell()
    assert office.slack.replies == told("n1")


async def test_a_reply_that_fails_is_repeated_without_another_title(office: Office) -> None:
    def only_titles(asked: Asked) -> Given:
        return OutsideError("slack.com: connection reset") if "thread_ts" in asked.json else office.slack(asked)

    office.outside.behave = only_titles
    with pytest.raises(OutsideError, match="connection reset"):
        await office.tell()
    office.outside.behave = office.slack
    await office.tell()
    assert office.slack.titles == ["Today"]
    assert office.slack.replies == told("n1")


async def test_a_thread_that_has_begun_is_remembered_after_a_short_outage_of_the_api_server(office: Office) -> None:
    line = office.cluster.transport("cut off")
    back_at = office.clock.now() + timedelta(seconds=2.5)
    line.faults.before(
        method="PATCH",
        answer=Unreachable("connection reset by peer", sent=True),
        where=lambda _: office.clock.now() < back_at,
        times=None,
    )
    await office.tell(client=Client(line, clock=office.clock, random=Random("cut off")))
    await office.tell("n2")
    assert office.slack.titles == ["Today"]
    assert office.slack.replies == told("n1", "n2")


async def test_a_process_that_dies_while_it_begins_a_thread_is_not_waited_for_for_long(office: Office) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await office.tell()
    with pytest.raises(OutsideError, match="another process is just beginning the thread of lease kube-system/thread"):
        await office.tell("n2", client=office.a_client("second"))
    await office.clock.sleep(timedelta(minutes=1))
    await office.tell("n2", client=office.a_client("second"))
    assert office.slack.replies == told("n2")


@pytest.mark.parametrize(
    "spec",
    [
        LeaseSpec(holder_identity="1.2", lease_duration_seconds=3600),
        LeaseSpec(holder_identity="1.2"),
        LeaseSpec(lease_duration_seconds=3600),
        LeaseSpec(),
    ],
)
async def test_a_lease_that_says_too_little_is_filled_in(office: Office, spec: LeaseSpec) -> None:
    """The SAP maintenance-controller crashes on some of them."""
    await leases.write(office.client, "thread", spec, namespace="kube-system", version="")
    await office.tell()
    assert office.slack.replies == told("n1")


async def test_a_thread_that_the_other_controller_began_is_continued(office: Office) -> None:
    office.slack.posts.append({"channel": "#maintenance", "text": "Theirs", "ts": "1600000000.000100"})
    now = office.clock.now()
    spec = LeaseSpec(holder_identity="1600000000.000100", lease_duration_seconds=60, acquire_time=now, renew_time=now)
    await leases.write(office.client, "thread", spec, namespace="kube-system", version="")
    await office.clock.sleep(30 * SECOND)
    await office.tell()
    assert [title for title, _ in office.slack.replies] == ["Theirs"]


async def test_a_token_that_slack_refuses_is_told_of_and_not_told(office: Office) -> None:
    with pytest.raises(OutsideError, match="'invalid_auth'") as caught:
        await office.tell(token="xoxb-wrong")
    assert "xoxb" not in str(caught.value)


async def test_what_does_not_answer_as_slack_does_is_told_of(office: Office) -> None:
    for body in (b"", b"<html>", b"[]", b'{"ok": "yes"}', b'{"ok": true}'):
        outside = FakeOutside(answers=[(502, body)])
        with pytest.raises(OutsideError, match="Slack does"):
            await PLUGIN.send(a_message(client=office.client), outside)


async def test_a_lease_that_may_not_be_read_is_told_of(office: Office) -> None:
    with pytest.raises(OutsideError, match="the thread of lease kube-system/the thread is not known"):
        await office.tell(lease_name="the thread")
    assert office.slack.posts == []


async def test_a_token_may_end_with_a_line_break(office: Office) -> None:
    await office.tell(token="xoxb-1\n", url="https://slack-gov.test/api")
    assert office.outside.requests[0].url == "https://slack-gov.test/api/chat.postMessage"


def test_a_period_of_less_than_a_second_is_told() -> None:
    assert [key for key, _ in replace(PLUGIN, period=timedelta(seconds=0.5)).warnings()] == ["period"]
