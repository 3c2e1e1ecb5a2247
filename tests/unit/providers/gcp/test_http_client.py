"""Requests of the operator to Google over HTTP, against the fake cloud; and the imports of the agent."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticeStage, definition
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.providers.event_source import EarlyStartSource
from haulout.providers.gcp.http_client import aiohttp_fetch, new_event_source
from haulout.providers.gcp.metadata_event_source import MetadataServer, boot_id
from haulout.providers.gcp.settings import GcpSettings, GoogleEarlyStart
from haulout.providers.notice_writer import NoticeWriter
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.gcp.server import serve
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@pytest.fixture
async def cloud_server(clock: Clock) -> AsyncIterator[tuple[GcpCloud, str]]:
    """Yield a cloud and its address."""
    cloud = GcpCloud(clock)
    async with serve(cloud, host="127.0.0.1") as port:
        yield cloud, f"http://127.0.0.1:{port}"


@pytest.mark.real_time
async def test_event_source_reports_and_starts_a_maintenance_over_http(
    cloud_server: tuple[GcpCloud, str], clock: Clock
) -> None:
    cloud, url = cloud_server
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    cloud.launch("n1")
    cloud.schedule("n1", start=clock.now() + DAY)
    await client.create(NODES, a_node("n1").with_spec(providerID=cloud.provider_id("n1")))
    nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
    settings = GcpSettings(endpoint=url, metadata=url, early_start=GoogleEarlyStart.AFTER_DRAIN, poll_interval=SECOND)
    source = new_event_source(settings, client=client, nodes=nodes)

    async def stages() -> list[str]:
        return [notice.spec.stage for notice in (await client.list(MAINTENANCE_NOTICES)).items]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(nodes.run()), group.create_task(source.run(NoticeWriter(client)))]
        await eventually(clock, stages, becomes=[NoticeStage.SCHEDULED])
        assert isinstance(source, EarlyStartSource)
        await source.start_early((await client.list(MAINTENANCE_NOTICES)).items[0])
        await eventually(clock, stages, becomes=[NoticeStage.STARTED])
        cloud.end_maintenance("n1")
        await eventually(clock, stages, becomes=[NoticeStage.ENDED])
        assert not source.problems()
        for task in tasks:
            task.cancel()


@pytest.mark.real_time
async def test_wait_for_change_returns_when_a_value_changes(cloud_server: tuple[GcpCloud, str], clock: Clock) -> None:
    cloud, url = cloud_server
    cloud.launch("n1")
    server = MetadataServer(aiohttp_fetch(f"{url}/machines/n1", is_local=True))
    first, etag = await server.wait_for_change("instance/maintenance-event")
    clock.call_at(clock.now() + timedelta(milliseconds=50), lambda: cloud.announce_live_migration("n1"))
    second, other = await server.wait_for_change("instance/maintenance-event", etag=etag)
    assert (first, second) == ("NONE", "MIGRATE_ON_HOST_MAINTENANCE")
    assert etag != other


@pytest.mark.real_time
async def test_unreachable_server_is_reported_with_its_address() -> None:
    fetch = aiohttp_fetch("http://127.0.0.1:1", is_local=True)
    with pytest.raises(CloudError, match=r"GET http://127\.0\.0\.1:1/x: ") as error:
        await fetch("GET", "/x?token=1", headers={})
    assert error.value.status == 0


async def test_event_source_without_early_start_is_no_early_start_source(clock: Clock) -> None:
    client = await SandboxBackend(clock).client()
    nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
    assert not isinstance(new_event_source(GcpSettings(), client=client, nodes=nodes), EarlyStartSource)


def test_agent_event_source_imports_no_large_libraries() -> None:
    code = "import sys, haulout.providers.gcp.metadata_event_source; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "cryptography", "boto3", "oci"} & set(loaded)


def test_boot_id_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("8d0c-1\n")
    assert boot_id(tmp_path / "id") == "8d0c-1"
    assert boot_id(tmp_path / "none") == ""
