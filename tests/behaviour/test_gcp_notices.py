"""Notices from Google Cloud on any cluster: the API server accepts all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeStage, definition
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.app.sandbox.clouds import gcp_fetch
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.providers.event_source import EventSource
from haulout.providers.gcp.compute_api import RestCompute
from haulout.providers.gcp.compute_event_source import GcpComputeEventSource
from haulout.providers.gcp.metadata_event_source import GcpMetadataEventSource
from haulout.providers.gcp.settings import GcpSettings
from haulout.providers.gcp.tokens import MetadataTokenIssuer, TokenCache
from haulout.providers.notice_writer import NoticeWriter
from haulout_sandbox.clouds.gcp import GcpCloud
from support.builders.objects import a_node
from support.clusters.backends import ClusterBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@asynccontextmanager
async def running_sources(
    cluster: ClusterBackend, cloud: GcpCloud, node: str
) -> AsyncIterator[tuple[Client, list[EventSource]]]:
    """Run both event sources of a cloud; yield a client and the sources."""
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    await client.create(NODES, a_node(node).with_spec(providerID=cloud.provider_id(node)))
    nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
    fetch = gcp_fetch(cloud)
    compute = RestCompute(fetch, TokenCache(MetadataTokenIssuer(fetch), clock=cluster.clock))
    settings = GcpSettings(projects=(cloud.instances.project,), poll_interval=SECOND)
    sources: list[EventSource] = [
        GcpComputeEventSource(compute, client=client, nodes=nodes, settings=settings),
        GcpMetadataEventSource(
            gcp_fetch(cloud, machine=node), clock=cluster.clock, random=Random(1), node=node, current_boot_id="b"
        ),
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(source)
            for source in (nodes.run(), *(source.run(NoticeWriter(client)) for source in sources))
        ]
        yield client, sources
        for task in tasks:
            task.cancel()


async def notices(client: Client, node: str) -> list[MaintenanceNotice]:
    return [notice for notice in (await client.list(MAINTENANCE_NOTICES)).items if notice.spec.node_name == node]


async def test_maintenance_reported_by_both_sources_is_one_notice(cluster: ClusterBackend) -> None:
    node = f"{cluster.prefix}-google"
    cloud = GcpCloud(cluster.clock)
    cloud.launch(node)
    async with running_sources(cluster, cloud, node) as (client, sources):

        async def stages() -> list[str]:
            return [notice.spec.stage for notice in await notices(client, node)]

        start = (cluster.clock.now() + DAY).replace(microsecond=0)
        cloud.schedule(node, start=start, reasons=("FAILURE_GPU", "é\U0001f4a5" * 900))
        await eventually(cluster.clock, stages, becomes=[NoticeStage.SCHEDULED])
        cloud.reschedule(node, start=start + DAY)

        async def starts() -> list[object]:
            return [notice.spec.start for notice in await notices(client, node)]

        await eventually(cluster.clock, starts, becomes=[start + DAY])
        cloud.start_maintenance(node)
        await eventually(cluster.clock, stages, becomes=[NoticeStage.STARTED])
        cloud.end_maintenance(node)
        await eventually(cluster.clock, stages, becomes=[NoticeStage.ENDED])
        cloud.preempt(node)
        await eventually(cluster.clock, stages, becomes=[NoticeStage.ENDED, NoticeStage.SCHEDULED])
        assert [source.problems() for source in sources] == [(), ()]
