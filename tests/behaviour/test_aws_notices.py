"""Notices from AWS on any cluster: what it says is what the API server takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, Stage, definition
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.notices.inbox import Inbox
from haulout.notices.sources.aws.settings import Settings
from haulout.notices.sources.aws.source import AwsSource
from haulout.sandbox.clouds.aws import AwsCloud
from support import aws_messages as aws
from support.backends import Cluster
from support.builders import a_node
from support.defining import define
from support.eventually import eventually

DAY, HOUR, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)


@asynccontextmanager
async def listening(cluster: Cluster, cloud: AwsCloud) -> AsyncIterator[tuple[Client, AwsSource]]:
    """Listen to a cloud, with a client that sees the outcome."""
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
    source = AwsSource(ec2=cloud, groups=cloud, sqs=cloud, client=client, nodes=nodes, settings=Settings())
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(nodes.run()), group.create_task(source.run(Inbox(client)))]
        yield client, source
        for task in tasks:
            task.cancel()


async def notices(client: Client, instance: str) -> list[MaintenanceNotice]:
    return [it for it in (await client.list(MAINTENANCE_NOTICES)).items if it.spec.provider_id == instance]


async def stages(client: Client, instance: str) -> list[str]:
    return [it.spec.stage for it in await notices(client, instance)]


async def test_a_maintenance_from_its_announcement_to_its_end(cluster: Cluster) -> None:
    cloud = AwsCloud(cluster.clock, realm=f"{cluster.prefix}-end")
    async with listening(cluster, cloud) as (client, source):
        start = (cluster.clock.now() + DAY).replace(microsecond=0)
        instance = cloud.launch()
        event = cloud.schedule(instance, start=start, deadline=start + 9 * DAY)
        await eventually(cluster.clock, lambda: stages(client, instance), becomes=[Stage.SCHEDULED])
        (found,) = await notices(client, instance)
        assert (found.name, found.spec.start, found.spec.end) == (f"aws-{event}", start, start + 2 * HOUR)
        await source.move(found, start + 3 * DAY)
        cloud.reschedule(instance, event, start=start + 3 * DAY)
        cloud.cancel(instance, event)
        await eventually(cluster.clock, lambda: stages(client, instance), becomes=[Stage.CANCELLED])
        assert (await notices(client, instance))[0].spec.start == start + 3 * DAY
        assert not source.troubles()


async def test_an_instance_that_auto_scaling_takes_is_kept_for_its_node(cluster: Cluster) -> None:
    cloud = AwsCloud(cluster.clock, realm=f"{cluster.prefix}-scale")
    instance, name = cloud.launch(), f"{cluster.prefix}-leaving"
    async with listening(cluster, cloud) as (client, _):
        await client.create(NODES, a_node(name).with_spec(providerID=f"aws:///eu-west-1a/{instance}"))
        cloud.scale(instance)
        await eventually(cluster.clock, lambda: stages(client, instance), becomes=[Stage.SCHEDULED])
        await cluster.clock.sleep(SECOND)
        assert cloud.groups.completed == []
        await client.delete(NODES, name)
        await eventually(cluster.clock, lambda: stages(client, instance), becomes=[Stage.STARTED])
        assert len(cloud.groups.completed) == 1


async def test_whatever_aws_says_the_api_server_takes_it(cluster: Cluster) -> None:
    cloud = AwsCloud(cluster.clock, realm=f"{cluster.prefix}-any")
    start = (cluster.clock.now() + DAY).replace(microsecond=0)
    instances = [cloud.launch() for _ in range(6)]
    async with listening(cluster, cloud) as (client, source):
        said = [{"latestDescription": "\u00e9\u0000\U0001f4a5" * 9_000}]
        odd: dict[str, Any] = {"eventArn": f"arn:{cluster.prefix}/?#\u00e9 %", "eventTypeCode": "REBOOT" + "x" * 9_000}
        cloud.queue.send(aws.health(instances[0], start=start, eventDescription=said, **odd))
        cloud.schedule(instances[1], "system-reboot", start=start, last=-DAY, deadline=start - DAY)
        cloud.schedule(instances[2], "instance-stop", start=start, last=None, description="")
        cloud.interrupt(instances[3])
        cloud.recommend(instances[4])
        cloud.scale(instances[5], group="group with spaces", hook="h" * 255)

        async def missing() -> list[str]:
            return [it for it in instances if len(await notices(client, it)) != 1]

        await eventually(cluster.clock, missing, becomes=[])
        assert not source.troubles()
