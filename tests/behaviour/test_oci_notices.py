"""Notices from OCI on any cluster: what its events say is what the API server takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, Stage, definition
from haulout.kube.client import Client
from haulout.notices.inbox import Inbox
from haulout.notices.sources.oci.consumer import Place
from haulout.notices.sources.oci.source import OciSource
from haulout_sandbox.clouds.oci import OciCloud
from support.backends import Cluster
from support.defining import define
from support.eventually import eventually

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@asynccontextmanager
async def listening(cluster: Cluster, cloud: OciCloud) -> AsyncIterator[tuple[Client, OciSource]]:
    """Listen to a cloud, with a client that sees the outcome."""
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    source = OciSource(
        cloud.compute(),
        streaming=cloud.streaming(),
        place=Place(instance="pod-1", idle_pause=timedelta(seconds=0.3), pause=timedelta(seconds=0.3)),
        clock=cluster.clock,
        random=Random(1),
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(source.run(Inbox(client)))
        yield client, source
        running.cancel()


def a_cloud(cluster: Cluster) -> OciCloud:
    """Return a cloud whose maintenance no other test of this cluster knows."""
    return OciCloud(cluster.clock, realm=cluster.prefix)


async def notice(client: Client, event: str) -> MaintenanceNotice:
    found = {it.spec.notice_id: it for it in (await client.list(MAINTENANCE_NOTICES)).items}
    return found[event]


async def stage(client: Client, event: str) -> str:
    return (await notice(client, event)).spec.stage


async def test_a_maintenance_from_its_announcement_to_its_end(cluster: Cluster) -> None:
    cloud = a_cloud(cluster)
    async with listening(cluster, cloud) as (client, source):
        start = (cluster.clock.now() + DAY).replace(microsecond=0)
        event = cloud.schedule(cloud.launch("w"), start=start, due=start + 9 * DAY)
        await eventually(cluster.clock, lambda: stage(client, event), becomes=Stage.SCHEDULED)
        spec = (await notice(client, event)).spec
        assert (spec.start, spec.deadline, spec.end) == (start, start + DAY, start + DAY + 2 * HOUR)
        await source.move(await notice(client, event), start + 3 * DAY)
        cloud.begin(event)
        await eventually(cluster.clock, lambda: stage(client, event), becomes=Stage.STARTED)
        assert (await notice(client, event)).spec.start == start + 3 * DAY
        cloud.end(event)
        await eventually(cluster.clock, lambda: stage(client, event), becomes=Stage.ENDED)
        assert not source.troubles()


async def test_whatever_an_event_says_the_api_server_takes_it(cluster: Cluster) -> None:
    cloud = a_cloud(cluster)
    start = (cluster.clock.now() + DAY).replace(microsecond=0)
    async with listening(cluster, cloud) as (client, source):
        events = [
            cloud.schedule(cloud.launch("w"), start=start, action=action, window=window, estimate=estimate, due=due)
            for action in ("REBOOT_MIGRATION", "TERMINATE", "STOP", "None", "SOMETHING_NEW")
            for window, estimate, due in (
                (None, None, None),
                (DAY, HOUR, start - DAY),
                (timedelta(), timedelta(), start),
            )
        ]
        strange = cloud.told(events[0])
        strange["data"]["resourceId"] = f"ocid1.Event.oc1..{cluster.prefix}/?#\u0025"
        strange["data"]["additionalDetails"] |= {
            "description": "\u00e9\u0000" * 9_000,
            "maintenanceReason": "x" * 9_000,
        }
        cloud.publish(strange)
        cloud.begin(events[-1])  # long before its time
        expected = {*events, strange["data"]["resourceId"]}

        async def missing() -> set[str]:
            return expected - {it.spec.notice_id for it in (await client.list(MAINTENANCE_NOTICES)).items}

        await eventually(cluster.clock, missing, becomes=set())
        await eventually(cluster.clock, lambda: stage(client, events[-1]), becomes=Stage.STARTED)
        assert not source.troubles()
