"""Notices from Google Cloud on any cluster: what it says is what the API server takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

from haulout.app.sandbox.cloud_sources import asking
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, Stage, definition
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.notices.inbox import Inbox
from haulout.notices.sources import Source
from haulout.notices.sources.gcp.compute import RestCompute
from haulout.notices.sources.gcp.metadata import GcpMetadataSource
from haulout.notices.sources.gcp.settings import Settings
from haulout.notices.sources.gcp.source import GcpComputeSource
from haulout.notices.sources.gcp.tokens import FromMetadata, Tokens
from haulout_sandbox.clouds.gcp import GcpCloud
from support.backends import Cluster
from support.builders import a_node
from support.defining import define
from support.eventually import eventually

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@asynccontextmanager
async def listening(cluster: Cluster, cloud: GcpCloud, node: str) -> AsyncIterator[tuple[Client, list[Source]]]:
    """Listen to a cloud in both ways, with a client that sees the outcome."""
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    await client.create(NODES, a_node(node).with_spec(providerID=cloud.provider_id(node)))
    nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
    fetch = asking(cloud)
    compute = RestCompute(fetch, Tokens(FromMetadata(fetch), clock=cluster.clock))
    settings = Settings(projects=(cloud.machines.project,), look_every=SECOND)
    sources: list[Source] = [
        GcpComputeSource(compute, client=client, nodes=nodes, settings=settings),
        GcpMetadataSource(asking(cloud, machine=node), clock=cluster.clock, random=Random(1), node=node, boot="b"),
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(it) for it in (nodes.run(), *(it.run(Inbox(client)) for it in sources))]
        yield client, sources
        for task in tasks:
            task.cancel()


async def notices(client: Client, node: str) -> list[MaintenanceNotice]:
    return [it for it in (await client.list(MAINTENANCE_NOTICES)).items if it.spec.node_name == node]


async def test_a_maintenance_that_both_tell_of_is_one_notice_to_its_end(cluster: Cluster) -> None:
    node = f"{cluster.prefix}-google"
    cloud = GcpCloud(cluster.clock)
    cloud.launch(node)
    async with listening(cluster, cloud, node) as (client, sources):

        async def stages() -> list[str]:
            return [it.spec.stage for it in await notices(client, node)]

        start = (cluster.clock.now() + DAY).replace(microsecond=0)
        cloud.schedule(node, start=start, reasons=("FAILURE_GPU", "é\U0001f4a5" * 900))
        await eventually(cluster.clock, stages, becomes=[Stage.SCHEDULED])
        cloud.reschedule(node, start=start + DAY)

        async def starts() -> list[object]:
            return [it.spec.start for it in await notices(client, node)]

        await eventually(cluster.clock, starts, becomes=[start + DAY])
        cloud.begin(node)
        await eventually(cluster.clock, stages, becomes=[Stage.STARTED])
        cloud.end(node)
        await eventually(cluster.clock, stages, becomes=[Stage.ENDED])
        cloud.preempt(node)
        await eventually(cluster.clock, stages, becomes=[Stage.ENDED, Stage.SCHEDULED])
        assert [it.troubles() for it in sources] == [(), ()]
