"""Oracle's own SDK against the model of OCI, over HTTP; and what is said if there is no SDK."""

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


def test_without_the_sdk_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oci", None)
    with pytest.raises(ConfigError, match=r"pip install 'haulout\[oci\]'"):
        new_clients(OciSettings(compartments=(COMPARTMENT,)))


class FakeOci:
    """A model of OCI, and the SDK's way to it."""

    def __init__(self, cloud: OciCloud, settings: OciSettings) -> None:
        self.cloud = cloud
        self.settings = settings
        streaming, self.compute = new_clients(settings)
        assert streaming is not None
        self.streaming: SdkStreaming = streaming


@pytest.fixture
async def line(clock: Clock, tmp_path: Path) -> AsyncIterator[FakeOci]:
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
async def test_a_consumer_reads_commits_and_goes_on(line: FakeOci, clock: Clock) -> None:
    machine = line.cloud.launch("w")
    event = line.cloud.schedule(machine, start=clock.now() + DAY)
    cursor = await line.streaming.group_cursor(group="wd-group", instance="pod-1")
    messages, cursor = await line.streaming.messages(cursor, limit=10)
    told = [parse_message(item) for item in messages]
    assert [item.report.notice_id for item in told if isinstance(item, MaintenanceMessage)] == [event]
    cursor = await line.streaming.heartbeat(cursor)
    cursor = await line.streaming.commit(cursor)
    assert await line.streaming.messages(cursor, limit=10) != ([], "")
    fresh = await line.streaming.group_cursor(group="wd-group", instance="pod-2")
    assert (await line.streaming.messages(fresh, limit=10))[0] == []


@pytest.mark.real_time
async def test_compute_lists_shows_and_moves(line: FakeOci, clock: Clock) -> None:
    machine = line.cloud.launch("oke-w-0")
    line.cloud.compute_service.page_size = 2
    start = (clock.now() + DAY).replace(microsecond=0)
    events = [line.cloud.schedule(machine, start=start) for _ in range(3)]
    first, page = await line.compute.maintenance_events(COMPARTMENT, state="SCHEDULED")
    second, end = await line.compute.maintenance_events(COMPARTMENT, state="SCHEDULED", page=page)
    assert [item["id"] for item in (*first, *second)] == events
    assert end == ""
    entry, etag = await line.compute.maintenance_event(events[0])
    report = parse_entry(entry, at=clock.now())
    assert report.stage is NoticeStage.SCHEDULED
    assert report.plan is not None
    assert report.plan.start == start
    await line.compute.move_event(events[0], start=start + DAY, etag=etag, token="once")
    await line.compute.move_event(events[0], start=start + DAY, etag=etag, token="once")
    entry, _ = await line.compute.maintenance_event(events[0])
    moved = parse_entry(entry, at=clock.now()).plan
    assert moved is not None
    assert moved.start == start + DAY
    with pytest.raises(CloudError) as refused:
        await line.compute.move_event(events[0], start=start, etag=etag, token="again")
    assert (refused.value.status, refused.value.code) == (412, "NoEtagMatch")
    assert (await line.compute.instance(machine))["displayName"] == "oke-w-0"


@pytest.mark.real_time
async def test_errors_are_told_with_what_was_done_and_what_was_said(line: FakeOci) -> None:
    with pytest.raises(CloudError, match=r"asking for instance ocid1\.none: 404 NotAuthorizedOrNotFound") as missing:
        await line.compute.instance("ocid1.none")
    assert missing.value.status == 404
    line.cloud.faults.fail("GetMessages", status=429, code="TooManyRequests", retry_after=timedelta(seconds=9))
    cursor = await line.streaming.group_cursor(group="g", instance="i")
    with pytest.raises(CloudError) as busy:
        await line.streaming.messages(cursor, limit=10)
    assert (busy.value.status, busy.value.retry_after) == (429, timedelta(seconds=9))
    line.cloud.faults.fail("GetMessages", status=0)
    with pytest.raises(CloudError, match="reading the stream: RequestException") as silent:
        await line.streaming.messages(cursor, limit=10)
    assert silent.value.status == 0
    with pytest.raises(CloudError, match="400 InvalidParameter: the cursor makes no sense"):
        await line.streaming.messages("nonsense", limit=10)


@pytest.mark.real_time
async def test_credentials_that_are_refused_are_had_anew(line: FakeOci, tmp_path: Path) -> None:
    line.cloud.faults.fail("CreateGroupCursor", status=401, code="NotAuthenticated")
    with pytest.raises(CloudError, match="401 NotAuthenticated"):
        await line.streaming.group_cursor(group="g", instance="i")
    (tmp_path / "token").unlink()
    with pytest.raises(CloudError, match="cannot get credentials: FileNotFoundError"):
        await line.streaming.group_cursor(group="g", instance="i")
    (tmp_path / "token").write_text("another")
    await line.streaming.group_cursor(group="g", instance="i")


@pytest.mark.real_time
async def test_the_calls_of_streaming_serve_the_sdk(line: FakeOci) -> None:
    """Those that we do not make ourselves are for whoever tries things out, by the SDK or the CLI."""
    oci: Any = pytest.importorskip("oci")
    client = line.streaming._calls._get_client("trying")
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
async def test_an_event_on_the_stream_is_a_notice_within_seconds(line: FakeOci, clock: Clock) -> None:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    source = new_event_source(line.settings, instance="pod-1", clock=clock, random=Random(1))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(source.run(NoticeWriter(client)))
        event = line.cloud.schedule(line.cloud.launch("w"), start=clock.now() + DAY)
        found = await eventually(clock, lambda: _only(client), within=timedelta(seconds=10))
        assert found.spec.notice_id == event
        await source.reschedule(found, clock.now() + 2 * DAY)
        line.cloud.start_maintenance(event)
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
async def test_who_does_not_sign_is_not_let_in(line: FakeOci) -> None:
    url = f"{line.settings.endpoint}/20160918/instances/x"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert (response.status, (await response.json())["code"]) == (401, "NotAuthenticated")


def test_a_compute_client_is_made_only_when_it_is_needed() -> None:
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
async def test_credentials_that_cannot_be_had_are_an_error_like_any_other(
    monkeypatch: pytest.MonkeyPatch, auth: Auth, why: str
) -> None:
    pytest.importorskip("oci")
    monkeypatch.setenv("OCI_METADATA_BASE_URL", "http://127.0.0.1:1/opc/v2")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    _, compute = new_clients(OciSettings(compartments=(COMPARTMENT,), auth=auth, config_file="/no/such/file"))
    with pytest.raises(CloudError, match=f"^asking for instance i: cannot get credentials: .*{why}"):
        await compute.instance("i")
