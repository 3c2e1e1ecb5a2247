"""Oracle's SDK against the fake OCI over HTTP, and the error if the SDK is missing."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeStage, definition
from haulout.core.clock import Clock
from haulout.errors import CloudError, ConfigError
from haulout.kube.client import Client
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci.maintenance_events import MaintenanceMessage, parse_entry, parse_message
from haulout.providers.oci.sdk import SdkCompute, SdkStreaming, new_clients, new_event_source
from haulout.providers.oci.settings import Auth, OciSettings
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import COMPARTMENT, STREAM
from haulout_sandbox.clouds.oci.server import serve
from support.clouds.oci_config_file import a_config_file
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually

DAY = timedelta(days=1)


def test_missing_oci_sdk_is_an_error_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oci", None)
    with pytest.raises(ConfigError, match=r"pip install 'haulout\[oci\]'"):
        new_clients(OciSettings(compartments=(COMPARTMENT,)))


class FakeOci:
    """The fake OCI, and SDK clients for it."""

    def __init__(self, cloud: OciCloud, settings: OciSettings) -> None:
        self.cloud = cloud
        self.settings = settings
        streaming, self.compute = new_clients(settings)
        assert streaming is not None
        self.streaming: SdkStreaming = streaming


@pytest.fixture
async def cloud_server(clock: Clock, tmp_path: Path) -> AsyncIterator[FakeOci]:
    pytest.importorskip("oci")
    cloud = OciCloud(clock)
    async with serve(cloud, host="127.0.0.1") as port:
        url = f"http://127.0.0.1:{port}"
        yield FakeOci(
            cloud,
            OciSettings(
                stream=STREAM,
                endpoint=url,
                compute_endpoint=url,
                auth=Auth.CONFIG_FILE,
                config_file=str(a_config_file(tmp_path)),
            ),
        )


@pytest.mark.real_time
async def test_streaming_client_reads_and_commits_messages(cloud_server: FakeOci, clock: Clock) -> None:
    machine = cloud_server.cloud.launch("w")
    event = cloud_server.cloud.schedule(machine, start=clock.now() + DAY)
    cursor = await cloud_server.streaming.group_cursor(group="wd-group", instance="pod-1")
    messages, cursor = await cloud_server.streaming.messages(cursor, limit=10)
    parsed = [parse_message(item) for item in messages]
    assert [item.report.notice_id for item in parsed if isinstance(item, MaintenanceMessage)] == [event]
    cursor = await cloud_server.streaming.heartbeat(cursor)
    cursor = await cloud_server.streaming.commit(cursor)
    assert await cloud_server.streaming.messages(cursor, limit=10) != ([], "")
    fresh = await cloud_server.streaming.group_cursor(group="wd-group", instance="pod-2")
    assert (await cloud_server.streaming.messages(fresh, limit=10))[0] == []


@pytest.mark.real_time
async def test_compute_client_lists_gets_and_reschedules_events(cloud_server: FakeOci, clock: Clock) -> None:
    machine = cloud_server.cloud.launch("oke-w-0")
    cloud_server.cloud.compute_service.page_size = 2
    start = (clock.now() + DAY).replace(microsecond=0)
    events = [cloud_server.cloud.schedule(machine, start=start) for _ in range(3)]
    first, page = await cloud_server.compute.maintenance_events(COMPARTMENT, state="SCHEDULED")
    second, end = await cloud_server.compute.maintenance_events(COMPARTMENT, state="SCHEDULED", page=page)
    assert [item["id"] for item in (*first, *second)] == events
    assert end == ""
    entry, etag = await cloud_server.compute.maintenance_event(events[0])
    report = parse_entry(entry, at=clock.now())
    assert report.stage is NoticeStage.SCHEDULED
    assert report.plan is not None
    assert report.plan.start == start
    await cloud_server.compute.move_event(events[0], start=start + DAY, etag=etag, token="once")
    await cloud_server.compute.move_event(events[0], start=start + DAY, etag=etag, token="once")
    entry, _ = await cloud_server.compute.maintenance_event(events[0])
    moved = parse_entry(entry, at=clock.now()).plan
    assert moved is not None
    assert moved.start == start + DAY
    with pytest.raises(CloudError) as refused:
        await cloud_server.compute.move_event(events[0], start=start, etag=etag, token="again")
    assert (refused.value.status, refused.value.code) == (412, "NoEtagMatch")
    assert (await cloud_server.compute.instance(machine))["displayName"] == "oke-w-0"


@pytest.mark.real_time
async def test_sdk_errors_become_cloud_errors_with_operation_and_message(cloud_server: FakeOci) -> None:
    with pytest.raises(CloudError, match=r"asking for instance ocid1\.none: 404 NotAuthorizedOrNotFound") as missing:
        await cloud_server.compute.instance("ocid1.none")
    assert missing.value.status == 404
    cloud_server.cloud.faults.fail("GetMessages", status=429, code="TooManyRequests", retry_after=timedelta(seconds=9))
    cursor = await cloud_server.streaming.group_cursor(group="g", instance="i")
    with pytest.raises(CloudError) as busy:
        await cloud_server.streaming.messages(cursor, limit=10)
    assert (busy.value.status, busy.value.retry_after) == (429, timedelta(seconds=9))
    cloud_server.cloud.faults.fail("GetMessages", status=0)
    with pytest.raises(CloudError, match="reading the stream: RequestException") as silent:
        await cloud_server.streaming.messages(cursor, limit=10)
    assert silent.value.status == 0
    with pytest.raises(CloudError, match="400 InvalidParameter: the cursor makes no sense"):
        await cloud_server.streaming.messages("nonsense", limit=10)


@pytest.mark.real_time
async def test_rejected_credentials_are_reloaded(cloud_server: FakeOci, tmp_path: Path) -> None:
    cloud_server.cloud.faults.fail("CreateGroupCursor", status=401, code="NotAuthenticated")
    with pytest.raises(CloudError, match="401 NotAuthenticated"):
        await cloud_server.streaming.group_cursor(group="g", instance="i")
    (tmp_path / "token").unlink()
    with pytest.raises(CloudError, match="cannot get credentials: FileNotFoundError"):
        await cloud_server.streaming.group_cursor(group="g", instance="i")
    (tmp_path / "token").write_text("another")
    await cloud_server.streaming.group_cursor(group="g", instance="i")


@pytest.mark.real_time
async def test_the_calls_of_streaming_serve_the_sdk(cloud_server: FakeOci) -> None:
    """The calls that we do not use are for manual experiments with the SDK or the CLI."""
    oci: Any = pytest.importorskip("oci")
    client = cloud_server.streaming._calls._get_client("trying")
    models = oci.streaming.models
    message = models.PutMessagesDetailsEntry(key="bWFpbnRlbmFuY2U=", value="aGVsbG8=")

    def talk() -> tuple[Any, Any, Any]:
        put = client.put_messages(STREAM, models.PutMessagesDetails(messages=[message, message]))
        early = models.CreateGroupCursorDetails(type="TRIM_HORIZON", group_name="early", commit_on_get=True)
        found = client.get_messages(STREAM, client.create_group_cursor(STREAM, early).data["value"])
        group = models.CreateGroupCursorDetails(type="LATEST", group_name="late", commit_on_get=True)
        late = client.create_group_cursor(STREAM, group).data["value"]
        assert client.get_messages(STREAM, late).data == []
        return put.data, found.data, client.get_group(STREAM, "late").data

    put, found, group = await asyncio.to_thread(talk)
    assert (put["failures"], len(put["entries"])) == (0, 2)
    assert [item["offset"] for item in found] == [0, 1]
    assert group["reservations"][0]["committedOffset"] == 1


@pytest.mark.real_time
async def test_event_on_the_stream_becomes_a_notice_within_seconds(cloud_server: FakeOci, clock: Clock) -> None:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    source = new_event_source(cloud_server.settings, instance="pod-1", clock=clock, random=Random(1))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(source.run(NoticeWriter(client)))
        event = cloud_server.cloud.schedule(cloud_server.cloud.launch("w"), start=clock.now() + DAY)
        found = await eventually(clock, lambda: _only(client), within=timedelta(seconds=10))
        assert found.spec.notice_id == event
        await source.reschedule(found, clock.now() + 2 * DAY)
        cloud_server.cloud.start_maintenance(event)
        await eventually(clock, lambda: _stage(client), becomes=NoticeStage.STARTED, within=timedelta(seconds=20))
        assert not source.problems()
        running.cancel()


async def _only(client: Client) -> MaintenanceNotice:
    (found,) = (await client.list(MAINTENANCE_NOTICES)).items or [None]
    assert found is not None
    return found


async def _stage(client: Client) -> str:
    return (await _only(client)).spec.stage


@pytest.mark.real_time
async def test_unsigned_request_is_unauthorized(cloud_server: FakeOci) -> None:
    url = f"{cloud_server.settings.endpoint}/20160918/instances/x"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert (response.status, (await response.json())["code"]) == (401, "NotAuthenticated")


def test_streaming_client_is_not_created_without_a_stream() -> None:
    pytest.importorskip("oci")
    streaming, compute = new_clients(OciSettings(compartments=(COMPARTMENT,)))
    assert streaming is None
    assert isinstance(compute, SdkCompute)


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("auth", "why"),
    [
        (Auth.INSTANCE_PRINCIPAL, "ConnectionError"),
        (Auth.WORKLOAD_IDENTITY, "Kubernetes service host was not provided"),
        (Auth.CONFIG_FILE, "Could not find config file at /no/such/file"),
    ],
)
async def test_unavailable_credentials_are_a_cloud_error(monkeypatch: pytest.MonkeyPatch, auth: Auth, why: str) -> None:
    pytest.importorskip("oci")
    monkeypatch.setenv("OCI_METADATA_BASE_URL", "http://127.0.0.1:1/opc/v2")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    _, compute = new_clients(OciSettings(compartments=(COMPARTMENT,), auth=auth, config_file="/no/such/file"))
    with pytest.raises(CloudError, match=f"^asking for instance i: cannot get credentials: .*{why}"):
        await compute.instance("i")
