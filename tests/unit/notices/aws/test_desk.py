"""What the desk knows is never older than what it wrote itself."""

import asyncio

from haulout.core.clock import Clock
from haulout.errors import Invalid
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, definition
from haulout.kinds.reports import Report
from haulout.kube.client import Client
from haulout.notices.inbox import Inbox
from haulout.notices.sources.aws.desk import Desk
from haulout.notices.sources.aws.messages import read_message
from haulout.notices.sources.quarantine import Quarantine
from support import aws_messages as aws
from support.backends import Sandbox
from support.defining import define


class SlowInbox(Inbox):
    """Lists, and takes its time to say what it found."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.listed, self.go_on = asyncio.Event(), asyncio.Event()

    async def of(self, source: str, *, node: str = "") -> list[MaintenanceNotice]:
        """Return what there was before somebody said to go on."""
        found = await super().of(source, node=node)
        self.listed.set()
        await self.go_on.wait()
        return found


async def test_what_is_written_while_a_list_is_under_way_is_not_forgotten(clock: Clock) -> None:
    cluster = Sandbox(clock)
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    inbox = SlowInbox(client)
    desk = Desk(inbox, hears=lambda: None, quarantine=Quarantine("aws", clock))
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.refresh())
        await inbox.listed.wait()
        await desk.take(read_message(aws.spot(), now=aws.SAID).readings)
        inbox.go_on.set()
    assert [instance for instance, _ in desk.open()] == [aws.ONE]


async def test_two_who_speak_of_the_same_at_once_open_one_notice(clock: Clock) -> None:
    cluster = Sandbox(clock)
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    desk = Desk(Inbox(client), hears=lambda: None, quarantine=Quarantine("aws", clock))
    messages = [aws.state(state="stopping", called="s-1"), aws.state(state="stopped", called="s-2")]
    async with asyncio.TaskGroup() as group:
        for body in messages:
            group.create_task(desk.take(read_message(body, now=aws.SAID).readings))
    assert len(list(desk.open())) == 1


class PickyInbox(Inbox):
    """Refuses what is about one instance."""

    async def take(self, report: Report) -> MaintenanceNotice:
        """Take all but that."""
        if report.provider_id == aws.ONE:
            raise Invalid("spec: Invalid value", code=422)
        return await super().take(report)


async def test_what_the_server_refuses_for_good_keeps_nothing_else_from_being_written(clock: Clock) -> None:
    cluster = Sandbox(clock)
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    quarantine = Quarantine("aws", clock)
    desk = Desk(PickyInbox(client), hears=lambda: None, quarantine=quarantine)
    await desk.take(read_message(aws.health(aws.ONE, aws.TWO), now=aws.SAID).readings)
    assert [instance for instance, _ in desk.open()] == [aws.TWO]
    assert "Invalid value" in quarantine.last[0].why
