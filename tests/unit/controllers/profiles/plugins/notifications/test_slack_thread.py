"""Slack threads: messages of a period form one thread, recorded in a Lease."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.api.objects import Lease, LeaseSpec
from haulout.api.resources import LEASES
from haulout.controllers.profiles.plugins.notifications.slack_thread import SlackThread
from haulout.core.clock import Clock
from haulout.errors import ExternalError, Unreachable
from haulout.kube import leases
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer
from support.fakes.external_client import FakeExternalClient, FakeReply, FakeSlack, SentRequest, a_message

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


class SlackWorkspace:
    """A cluster, a fake Slack, and processes that send notifications."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.cluster = ApiServer(clock, namespaces=["kube-system"])
        self.client = self.a_client("first")
        self.slack = FakeSlack()
        self.outside = FakeExternalClient(reply_to=self.slack, latency=SECOND)

    def a_client(self, name: str) -> Client:
        """Return the client of another process."""
        return Client(self.cluster.transport(name), clock=self.clock, random=Random(name))

    async def send(self, node: str = "n1", *, client: Client | None = None, **changes: Any) -> None:
        """Send a notification about a node."""
        plugin = replace(PLUGIN, **changes)
        await plugin.send(a_message(node, client=client or self.client), self.outside)

    async def lease(self) -> Lease:
        """Return the lease."""
        found = await self.client.find(LEASES, "thread", namespace="kube-system")
        assert found is not None
        return found


@pytest.fixture
def workspace(clock: Clock) -> SlackWorkspace:
    return SlackWorkspace(clock)


def posted_messages(*nodes: str) -> Sequence[tuple[str, str]]:
    return [("Today", f"{node} &lt;in-maintenance&gt; &amp; more") for node in nodes]


async def test_first_message_starts_a_thread_and_replies_to_it(workspace: SlackWorkspace) -> None:
    """C16."""
    began = workspace.clock.now()
    await workspace.send()
    assert workspace.slack.titles == ["Today"]
    assert workspace.slack.replies == posted_messages("n1")
    lease = await workspace.lease()
    assert lease.spec.holder_identity == workspace.slack.posts[0]["ts"]
    assert lease.spec.lease_duration_seconds == 3600
    assert lease.spec.acquire_time
    assert lease.spec.renew_time
    assert began <= lease.spec.acquire_time <= lease.spec.renew_time <= workspace.clock.now()


async def test_messages_within_the_period_are_replies(workspace: SlackWorkspace) -> None:
    """C17: and they do not make the period longer."""
    await workspace.send()
    before = await workspace.lease()
    await workspace.clock.sleep(PERIOD - 10 * SECOND)
    await workspace.send("n2")
    assert workspace.slack.titles == ["Today"]
    assert workspace.slack.replies == posted_messages("n1", "n2")
    assert await workspace.lease() == before


async def test_new_thread_starts_after_the_period(workspace: SlackWorkspace) -> None:
    """C18: acquireTime stays."""
    await workspace.send()
    before = await workspace.lease()
    await workspace.clock.sleep(PERIOD)
    await workspace.send("n2", title="Tomorrow")
    assert workspace.slack.titles == ["Today", "Tomorrow"]
    assert [title for title, _ in workspace.slack.replies] == ["Today", "Tomorrow"]
    after = await workspace.lease()
    assert after.spec.acquire_time == before.spec.acquire_time
    assert after.spec.holder_identity != before.spec.holder_identity


async def test_two_processes_start_one_thread(workspace: SlackWorkspace) -> None:
    waits: list[str] = []

    async def insist(node: str) -> None:
        client = workspace.a_client(node)
        while True:
            try:
                return await workspace.send(node, client=client)
            except ExternalError as error:
                waits.append(str(error))
                await workspace.clock.sleep(SECOND)

    for day in (1, 2):
        async with asyncio.TaskGroup() as tasks:
            for node in range(8):
                tasks.create_task(insist(f"n{node}"))
        assert len(workspace.slack.titles) == day
        assert len(workspace.slack.replies) == 8 * day
        await workspace.clock.sleep(2 * PERIOD)
    assert len(set(waits)) == 1
    assert waits[0].startswith("another process is starting the thread")


async def test_thread_that_failed_to_start_does_not_block_the_next(workspace: SlackWorkspace) -> None:
    workspace.slack.problem = "channel_not_found"
    for _ in range(2):
        with pytest.raises(
            ExternalError, match="Slack does not accept the message for #maintenance: 'channel_not_found'"
        ):
            await workspace.send()
    workspace.slack.problem = ""
    await workspace.send()
    assert workspace.slack.replies == posted_messages("n1")


async def test_failed_reply_is_retried_without_another_title(workspace: SlackWorkspace) -> None:
    def only_titles(request: SentRequest) -> FakeReply:
        return ExternalError("slack.com: connection reset") if "thread_ts" in request.json else workspace.slack(request)

    workspace.outside.reply_to = only_titles
    with pytest.raises(ExternalError, match="connection reset"):
        await workspace.send()
    workspace.outside.reply_to = workspace.slack
    await workspace.send()
    assert workspace.slack.titles == ["Today"]
    assert workspace.slack.replies == posted_messages("n1")


async def test_started_thread_is_recorded_after_a_short_api_server_outage(
    workspace: SlackWorkspace,
) -> None:
    transport = workspace.cluster.transport("cut off")
    back_at = workspace.clock.now() + timedelta(seconds=2.5)
    transport.faults.fail_before_effect(
        method="PATCH",
        response=Unreachable("connection reset by peer", sent=True),
        where=lambda _: workspace.clock.now() < back_at,
        times=None,
    )
    await workspace.send(client=Client(transport, clock=workspace.clock, random=Random("cut off")))
    await workspace.send("n2")
    assert workspace.slack.titles == ["Today"]
    assert workspace.slack.replies == posted_messages("n1", "n2")


async def test_process_that_dies_while_starting_a_thread_blocks_only_briefly(
    workspace: SlackWorkspace,
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await workspace.send()
    with pytest.raises(ExternalError, match="another process is starting the thread of Lease kube-system/thread"):
        await workspace.send("n2", client=workspace.a_client("second"))
    await workspace.clock.sleep(timedelta(minutes=1))
    await workspace.send("n2", client=workspace.a_client("second"))
    assert workspace.slack.replies == posted_messages("n2")


@pytest.mark.parametrize(
    "spec",
    [
        LeaseSpec(holder_identity="1.2", lease_duration_seconds=3600),
        LeaseSpec(holder_identity="1.2"),
        LeaseSpec(lease_duration_seconds=3600),
        LeaseSpec(),
    ],
)
async def test_incomplete_lease_is_completed(workspace: SlackWorkspace, spec: LeaseSpec) -> None:
    """The SAP maintenance-controller crashes on some of them."""
    await leases.write(workspace.client, "thread", spec, namespace="kube-system", version="")
    await workspace.send()
    assert workspace.slack.replies == posted_messages("n1")


async def test_thread_of_the_sap_maintenance_controller_is_continued(workspace: SlackWorkspace) -> None:
    workspace.slack.posts.append({"channel": "#maintenance", "text": "Theirs", "ts": "1600000000.000100"})
    now = workspace.clock.now()
    spec = LeaseSpec(holder_identity="1600000000.000100", lease_duration_seconds=60, acquire_time=now, renew_time=now)
    await leases.write(workspace.client, "thread", spec, namespace="kube-system", version="")
    await workspace.clock.sleep(30 * SECOND)
    await workspace.send()
    assert [title for title, _ in workspace.slack.replies] == ["Theirs"]


async def test_refused_token_is_reported_without_the_token(workspace: SlackWorkspace) -> None:
    with pytest.raises(ExternalError, match="'invalid_auth'") as caught:
        await workspace.send(token="xoxb-wrong")
    assert "xoxb" not in str(caught.value)


async def test_invalid_slack_response_is_reported(workspace: SlackWorkspace) -> None:
    for body in (b"", b"<html>", b"[]", b'{"ok": "yes"}', b'{"ok": true}'):
        external = FakeExternalClient(replies=[(502, body)])
        with pytest.raises(ExternalError, match=r"Slack API|Slack does not accept"):
            await PLUGIN.send(a_message(client=workspace.client), external)


async def test_unreadable_lease_is_reported(workspace: SlackWorkspace) -> None:
    with pytest.raises(ExternalError, match="the thread in Lease kube-system/the thread is unknown"):
        await workspace.send(lease_name="the thread")
    assert workspace.slack.posts == []


async def test_token_may_end_with_a_line_break(workspace: SlackWorkspace) -> None:
    await workspace.send(token="xoxb-1\n", url="https://slack-gov.test/api")
    assert workspace.outside.requests[0].url == "https://slack-gov.test/api/chat.postMessage"


def test_period_below_one_second_is_a_warning() -> None:
    assert [key for key, _ in replace(PLUGIN, period=timedelta(seconds=0.5)).warnings()] == ["period"]
