"""Notices from OCI on any cluster: the API server accepts all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeStage, definition
from haulout.kube.client import Client
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci.event_source import OciEventSource
from haulout.providers.oci.stream_consumer import ConsumerOptions
from haulout_sandbox.clouds.oci import OciCloud
from support.clusters.backends import ClusterBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@asynccontextmanager
async def running_source(cluster: ClusterBackend, cloud: OciCloud) -> AsyncIterator[tuple[Client, OciEventSource]]:
    """Run the event source of a cloud; yield a client and the source."""
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    source = OciEventSource(
        cloud.compute(),
        streaming=cloud.streaming(),
        consumer_options=ConsumerOptions(
            instance="pod-1", idle_pause=timedelta(seconds=0.3), pause=timedelta(seconds=0.3)
        ),
        clock=cluster.clock,
        random=Random(1),
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(source.run(NoticeWriter(client)))
        yield client, source
        running.cancel()


def a_cloud(cluster: ClusterBackend) -> OciCloud:
    """Return a cloud whose maintenance no other test of this cluster knows."""
    return OciCloud(cluster.clock, id_seed=cluster.prefix)


async def notice(client: Client, event: str) -> MaintenanceNotice:
    found = {candidate.spec.notice_id: candidate for candidate in (await client.list(MAINTENANCE_NOTICES)).items}
    return found[event]


async def notice_stage(client: Client, event: str) -> str:
    return (await notice(client, event)).spec.stage


async def test_scheduled_event_becomes_a_notice_that_follows_its_changes(cluster: ClusterBackend) -> None:
    cloud = a_cloud(cluster)
    async with running_source(cluster, cloud) as (client, source):
        start = (cluster.clock.now() + DAY).replace(microsecond=0)
        event = cloud.schedule(cloud.launch("w"), start=start, hard_due_date=start + 9 * DAY)
        await eventually(cluster.clock, lambda: notice_stage(client, event), becomes=NoticeStage.SCHEDULED)
        spec = (await notice(client, event)).spec
        assert (spec.start, spec.deadline, spec.end) == (start, start + DAY, start + DAY + 2 * HOUR)
        await source.reschedule(await notice(client, event), start + 3 * DAY)
        cloud.start_maintenance(event)
        await eventually(cluster.clock, lambda: notice_stage(client, event), becomes=NoticeStage.STARTED)
        assert (await notice(client, event)).spec.start == start + 3 * DAY
        cloud.end_maintenance(event)
        await eventually(cluster.clock, lambda: notice_stage(client, event), becomes=NoticeStage.ENDED)
        assert not source.problems()


async def test_unusual_oci_events_are_accepted_by_the_api_server(cluster: ClusterBackend) -> None:
    cloud = a_cloud(cluster)
    start = (cluster.clock.now() + DAY).replace(microsecond=0)
    async with running_source(cluster, cloud) as (client, source):
        events = [
            cloud.schedule(
                cloud.launch("w"), start=start, action=action, window=window, estimate=estimate, hard_due_date=due
            )
            for action in ("REBOOT_MIGRATION", "TERMINATE", "STOP", "None", "SOMETHING_NEW")
            for window, estimate, due in (
                (None, None, None),
                (DAY, HOUR, start - DAY),
                (timedelta(), timedelta(), start),
            )
        ]
        unusual_event = cloud.event_document(events[0])
        unusual_event["data"]["resourceId"] = f"ocid1.Event.oc1..{cluster.prefix}/?#\u0025"
        unusual_event["data"]["additionalDetails"] |= {
            "description": "\u00e9\u0000" * 9_000,
            "maintenanceReason": "x" * 9_000,
        }
        cloud.publish(unusual_event)
        cloud.start_maintenance(events[-1])  # long before its time
        expected = {*events, unusual_event["data"]["resourceId"]}

        async def missing() -> set[str]:
            return expected - {notice.spec.notice_id for notice in (await client.list(MAINTENANCE_NOTICES)).items}

        await eventually(cluster.clock, missing, becomes=set())
        await eventually(cluster.clock, lambda: notice_stage(client, events[-1]), becomes=NoticeStage.STARTED)
        assert not source.problems()
