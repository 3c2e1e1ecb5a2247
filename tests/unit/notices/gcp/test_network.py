"""The operator's way to Google over HTTP, against the stand-in; and what the agent must not load."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.kinds.notice import MAINTENANCE_NOTICES, Stage, definition
from haulout.kube.cache import Cache, as_is
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.notices.inbox import Inbox
from haulout.notices.sources import Starter
from haulout.notices.sources.gcp.metadata import MetadataServer, boot_id
from haulout.notices.sources.gcp.network import listening, reaching
from haulout.notices.sources.gcp.settings import Begin, Settings
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.gcp.front import serving
from support.backends import Sandbox
from support.builders import a_node
from support.defining import define
from support.eventually import eventually

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@pytest.fixture
async def line(clock: Clock) -> AsyncIterator[tuple[GcpCloud, str]]:
    """Yield a cloud, and where it answers."""
    cloud = GcpCloud(clock)
    async with serving(cloud, host="127.0.0.1") as port:
        yield cloud, f"http://127.0.0.1:{port}"


@pytest.mark.real_time
async def test_a_maintenance_is_heard_of_and_begun_over_http(line: tuple[GcpCloud, str], clock: Clock) -> None:
    cloud, url = line
    cluster = Sandbox(clock)
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    cloud.launch("n1")
    cloud.schedule("n1", start=clock.now() + DAY)
    await client.create(NODES, a_node("n1").with_spec(providerID=cloud.provider_id("n1")))
    nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
    settings = Settings(endpoint=url, metadata=url, begin=Begin.AFTER_DRAIN, look_every=SECOND)
    source = listening(settings, client=client, nodes=nodes)

    async def stages() -> list[str]:
        return [it.spec.stage for it in (await client.list(MAINTENANCE_NOTICES)).items]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(nodes.run()), group.create_task(source.run(Inbox(client)))]
        await eventually(clock, stages, becomes=[Stage.SCHEDULED])
        assert isinstance(source, Starter)
        await source.begin((await client.list(MAINTENANCE_NOTICES)).items[0])
        await eventually(clock, stages, becomes=[Stage.STARTED])
        cloud.end("n1")
        await eventually(clock, stages, becomes=[Stage.ENDED])
        assert not source.troubles()
        for task in tasks:
            task.cancel()


@pytest.mark.real_time
async def test_a_metadata_server_answers_when_something_changes(line: tuple[GcpCloud, str], clock: Clock) -> None:
    cloud, url = line
    cloud.launch("n1")
    server = MetadataServer(reaching(f"{url}/machines/n1", is_local=True))
    said, etag = await server.changed("instance/maintenance-event")
    clock.call_at(clock.now() + timedelta(milliseconds=50), lambda: cloud.migrate("n1"))
    again, other = await server.changed("instance/maintenance-event", etag=etag)
    assert (said, again) == ("NONE", "MIGRATE_ON_HOST_MAINTENANCE")
    assert etag != other


@pytest.mark.real_time
async def test_who_is_not_there_is_told_with_the_address() -> None:
    fetch = reaching("http://127.0.0.1:1", is_local=True)
    with pytest.raises(CloudError, match=r"GET http://127\.0\.0\.1:1/x: ") as error:
        await fetch("GET", "/x?token=1", headers={})
    assert error.value.status == 0


async def test_who_does_not_begin_anything_is_no_starter(clock: Clock) -> None:
    client = await Sandbox(clock).client()
    nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
    assert not isinstance(listening(Settings(), client=client, nodes=nodes), Starter)


def test_the_agents_source_loads_nothing_big() -> None:
    code = "import sys, haulout.notices.sources.gcp.metadata; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "cryptography", "boto3", "oci"} & set(loaded)


def test_a_machine_says_which_start_of_it_this_is(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("8d0c-1\n")
    assert boot_id(tmp_path / "id") == "8d0c-1"
    assert boot_id(tmp_path / "none") == ""
