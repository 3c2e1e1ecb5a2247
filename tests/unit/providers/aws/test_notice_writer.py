"""What the desk knows is never older than what it wrote itself."""

import asyncio

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, definition
from haulout.api.notice_reports import NoticeReport
from haulout.core.clock import Clock
from haulout.errors import Invalid
from haulout.kube.client import Client
from haulout.providers.aws.notice_writer import AwsNoticeWriter
from haulout.providers.aws.sqs_messages import parse_message
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine
from support.clouds import aws_messages as aws
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd


class SlowNoticeWriter(NoticeWriter):
    """Lists, and takes its time to say what it found."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.listed, self.go_on = asyncio.Event(), asyncio.Event()

    async def list_by_source(self, source: str, *, node: str = "") -> list[MaintenanceNotice]:
        """Return what there was before somebody said to go on."""
        found = await super().list_by_source(source, node=node)
        self.listed.set()
        await self.go_on.wait()
        return found


async def test_what_is_written_while_a_list_is_under_way_is_not_forgotten(clock: Clock) -> None:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    inbox = SlowNoticeWriter(client)
    desk = AwsNoticeWriter(inbox, on_change=lambda: None, quarantine=Quarantine("aws", clock))
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.refresh())
        await inbox.listed.wait()
        await desk.write(parse_message(aws.spot(), now=aws.SENT_AT).events)
        inbox.go_on.set()
    assert [instance for instance, _ in desk.open_notices()] == [aws.FIRST_INSTANCE]


async def test_two_who_speak_of_the_same_at_once_open_one_notice(clock: Clock) -> None:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    desk = AwsNoticeWriter(NoticeWriter(client), on_change=lambda: None, quarantine=Quarantine("aws", clock))
    messages = [aws.state(state="stopping", event_id="s-1"), aws.state(state="stopped", event_id="s-2")]
    async with asyncio.TaskGroup() as group:
        for body in messages:
            group.create_task(desk.write(parse_message(body, now=aws.SENT_AT).events))
    assert len(list(desk.open_notices())) == 1


class RejectingNoticeWriter(NoticeWriter):
    """Refuses what is about one instance."""

    async def write(self, report: NoticeReport) -> MaintenanceNotice:
        """Take all but that."""
        if report.provider_id == aws.FIRST_INSTANCE:
            raise Invalid("spec: Invalid value", code=422)
        return await super().write(report)


async def test_what_the_server_refuses_for_good_keeps_nothing_else_from_being_written(clock: Clock) -> None:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    quarantine = Quarantine("aws", clock)
    desk = AwsNoticeWriter(RejectingNoticeWriter(client), on_change=lambda: None, quarantine=quarantine)
    await desk.write(parse_message(aws.health(aws.FIRST_INSTANCE, aws.SECOND_INSTANCE), now=aws.SENT_AT).events)
    assert [instance for instance, _ in desk.open_notices()] == [aws.SECOND_INSTANCE]
    assert "Invalid value" in quarantine.last[0].why
