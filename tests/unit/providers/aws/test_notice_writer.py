"""The cached notices are never older than the writer's own writes."""

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
    """A writer whose lists return only after the test lets them."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.listed, self.go_on = asyncio.Event(), asyncio.Event()

    async def list_by_source(self, source: str, *, node: str = "") -> list[MaintenanceNotice]:
        """Return the list as it was before `go_on` was set."""
        found = await super().list_by_source(source, node=node)
        self.listed.set()
        await self.go_on.wait()
        return found


async def test_notice_written_during_a_refresh_is_kept(clock: Clock) -> None:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    writer = SlowNoticeWriter(client)
    notices = AwsNoticeWriter(writer, on_change=lambda: None, quarantine=Quarantine("aws", clock))
    async with asyncio.TaskGroup() as group:
        group.create_task(notices.refresh())
        await writer.listed.wait()
        await notices.write(parse_message(aws.spot(), now=aws.SENT_AT).events)
        writer.go_on.set()
    assert [instance for instance, _ in notices.open_notices()] == [aws.FIRST_INSTANCE]


async def test_concurrent_events_about_one_stop_open_one_notice(clock: Clock) -> None:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    notices = AwsNoticeWriter(NoticeWriter(client), on_change=lambda: None, quarantine=Quarantine("aws", clock))
    messages = [aws.state(state="stopping", event_id="s-1"), aws.state(state="stopped", event_id="s-2")]
    async with asyncio.TaskGroup() as group:
        for body in messages:
            group.create_task(notices.write(parse_message(body, now=aws.SENT_AT).events))
    assert len(list(notices.open_notices())) == 1


class RejectingNoticeWriter(NoticeWriter):
    """A writer that rejects notices about one instance."""

    async def write(self, report: NoticeReport) -> MaintenanceNotice:
        """Write a report, or raise Invalid."""
        if report.provider_id == aws.FIRST_INSTANCE:
            raise Invalid("spec: Invalid value", code=422)
        return await super().write(report)


async def test_rejected_notice_is_quarantined_and_others_are_written(clock: Clock) -> None:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    quarantine = Quarantine("aws", clock)
    notices = AwsNoticeWriter(RejectingNoticeWriter(client), on_change=lambda: None, quarantine=quarantine)
    await notices.write(parse_message(aws.health(aws.FIRST_INSTANCE, aws.SECOND_INSTANCE), now=aws.SENT_AT).events)
    assert [instance for instance, _ in notices.open_notices()] == [aws.SECOND_INSTANCE]
    assert "Invalid value" in quarantine.last[0].why
