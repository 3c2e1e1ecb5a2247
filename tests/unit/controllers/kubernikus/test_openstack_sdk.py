"""The calls by the real openstacksdk, against the model of OpenStack over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from aiohttp import web

from haulout.compat.openstack_config import OpenStackSettings
from haulout.controllers.kubernikus import openstack_sdk
from haulout.controllers.kubernikus.nova import Server
from haulout.controllers.kubernikus.openstack_sdk import SdkNova
from haulout.core.clock import RealClock
from haulout.errors import CloudError, ConfigError, ExternalError
from support.clouds.openstack import OpenStackCloud
from support.clouds.openstack.cloud import REGION, Account
from support.clouds.openstack.http_server import serving
from support.expectations.eventually import eventually

PASSWORD = 's3cret"#;'
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),  # the SDK warns of itself
]


@pytest.fixture(autouse=True)
def _with_openstack() -> None:
    pytest.importorskip("openstack")


@asynccontextmanager
async def a_cloud() -> AsyncIterator[tuple[OpenStackCloud, OpenStackSettings]]:
    cloud = OpenStackCloud(RealClock(), account=Account(password=PASSWORD, domain="kubernikus"))
    async with serving(cloud, host="127.0.0.1") as port:
        yield (
            cloud,
            OpenStackSettings(
                auth_url=f"http://127.0.0.1:{port}/v3",
                username=cloud.account.username,
                password=PASSWORD,
                region=REGION,
                domain_name="kubernikus",
                tenant_id=cloud.account.project,
            ),
        )


def clients_for(*settings: OpenStackSettings, seconds: float = 10) -> SdkNova:
    """Return a Nova client that uses these credentials one after the other."""
    left = list(settings)

    async def credentials() -> OpenStackSettings:
        return left.pop(0) if len(left) > 1 else left[0]

    return SdkNova(credentials, timeout_seconds=seconds)


def named(servers: Sequence[object]) -> list[str]:
    return sorted(Server.from_document(document).name for document in servers)  # type: ignore[arg-type]  # documents


async def test_sdk_and_model_return_the_same_servers() -> None:
    async with a_cloud() as (cloud, settings):
        nova = clients_for(settings)
        first = cloud.boot("node-1")
        cloud.boot("node-10")
        cloud.boot("other")
        cloud.boot("node-1", project="somebody else's")
        found = list(map(Server.from_document, await nova.servers("node-1")))
        assert found == list(map(Server.from_document, await cloud.servers("node-1")))
        assert [server.name for server in found] == ["node-1", "node-10"]
        assert not found[0].is_being_deleted
        await nova.delete(first)
        assert Server.from_document((await nova.servers("node-1"))[0]).is_being_deleted
        assert cloud.faults.calls.count("Authenticate") == 1


async def test_deleting_a_missing_server_succeeds() -> None:
    async with a_cloud() as (cloud, settings):
        server = cloud.boot("node-1")
        cloud.remove_server(server)
        await clients_for(settings).delete(server)


async def test_servers_are_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    from support.clouds.openstack import http_server

    monkeypatch.setattr(http_server, "_PAGE", 3)
    async with a_cloud() as (cloud, settings):
        for number in range(8):
            cloud.boot(f"node-{number}")
        assert named(await clients_for(settings).servers("node")) == [f"node-{number}" for number in range(8)]


async def test_auth_url_without_a_version_is_accepted() -> None:
    async with a_cloud() as (cloud, settings):
        cloud.boot("node-1")
        bare = replace(settings, auth_url=settings.auth_url.removesuffix("/v3"))
        assert named(await clients_for(bare).servers("node-1")) == ["node-1"]


async def test_expired_token_is_renewed() -> None:
    async with a_cloud() as (cloud, settings):
        nova, server = clients_for(settings), cloud.boot("node-1")
        await nova.servers("node-1")
        cloud.expire_tokens()
        await nova.delete(server)
        assert cloud.all_servers[server].ends_at is not None
        assert cloud.faults.calls.count("Authenticate") == 2


async def test_changed_credentials_apply_without_a_restart() -> None:
    async with a_cloud() as (cloud, settings):
        cloud.boot("node-1")
        nova = clients_for(replace(settings, password="old"), settings)
        with pytest.raises(CloudError) as caught:
            await nova.servers("node-1")
        assert caught.value.status == 401
        assert "user kubernikus of domain kubernikus" in str(caught.value)
        assert named(await nova.servers("node-1")) == ["node-1"]


@pytest.mark.parametrize("status", [400, 403, 409, 500, 503])
async def test_nova_error_keeps_status_and_message(status: int) -> None:
    async with a_cloud() as (cloud, settings):
        server = cloud.boot("node-1")
        cloud.faults.fail("DeleteServer", status=status, message="not\nnow")
        with pytest.raises(CloudError) as caught:
            await clients_for(settings).delete(server)
        assert caught.value.status == status
        assert f"deleting server {server}" in str(caught.value)
        assert "not now" in str(caught.value)
        assert cloud.faults.calls.count("DeleteServer") == 1, "the caller decides about retries"


async def test_retry_after_is_part_of_the_error() -> None:
    async with a_cloud() as (cloud, settings):
        cloud.faults.fail("ListServers", status=429, retry_after=timedelta(seconds=7), times=None)
        with pytest.raises(CloudError) as caught:
            await clients_for(settings).servers("node-1")
        assert (caught.value.status, caught.value.retry_after) == (429, timedelta(seconds=7))


async def test_missing_response_is_an_error_without_a_status() -> None:
    async with a_cloud() as (cloud, settings):
        cloud.faults.hang("ListServers")
        with pytest.raises(CloudError, match="timed out") as caught:
            await clients_for(settings, seconds=0.2).servers("node-1")
        assert caught.value.status == 0
    with pytest.raises(CloudError, match="Unable to establish connection"):
        await clients_for(settings).servers("node-1")  # nobody listens there any more


@pytest.mark.parametrize("body", ["<html>", "[]", "null", '{"servers": null}', '{"servers": ["x"]}', '"x"'])
async def test_invalid_response_is_a_cloud_error(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from support.clouds.openstack import http_server

    async def garbled(_: object, __: web.Request) -> web.Response:
        return web.Response(text=body, content_type="application/json")

    monkeypatch.setattr(http_server._Api, "servers", garbled)
    async with a_cloud() as (_, settings):
        with pytest.raises(CloudError, match="asking Nova for server node-1"):
            await clients_for(settings).servers("node-1")


async def test_unknown_region_is_named_in_the_error() -> None:
    async with a_cloud() as (_, settings):
        with pytest.raises(CloudError, match="in mars region not found"):
            await clients_for(replace(settings, region="mars")).servers("node-1")


async def test_messages_and_logs_contain_no_password_and_no_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    async with a_cloud() as (cloud, settings):
        cloud.faults.fail("Authenticate", status=500, message=f"somebody wrote {PASSWORD} here")
        nova = clients_for(settings)
        with pytest.raises(CloudError) as caught:
            await nova.servers("node-1")
        await nova.servers("node-1")
    output = f"{caught.value!r} {caught.value} {caught.value.__cause__} {caplog.text}"
    assert "somebody wrote … here" in output
    assert PASSWORD not in output
    assert "token-" not in output


async def test_unreadable_credentials_send_no_request() -> None:
    async def credentials() -> OpenStackSettings:
        raise ExternalError("./provider/cloudprovider.conf has no password in [Global]")

    with pytest.raises(ExternalError, match="has no password"):
        await SdkNova(credentials).servers("node-1")


async def test_event_loop_is_not_blocked_by_a_slow_cloud() -> None:
    async with a_cloud() as (cloud, settings):
        cloud.boot("node-1")
        cloud.faults.delay("ListServers", duration=timedelta(seconds=0.5), times=1)
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(clients_for(settings).servers("node-1"))
            await eventually(cloud.clock, lambda: "ListServers" in cloud.faults.calls)
            assert named(await clients_for(settings).servers("node-1")) == ["node-1"]
            assert not slow.done()
            await slow


def test_missing_sdk_is_reported_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    openstack_sdk.check()
    monkeypatch.setattr(openstack_sdk, "_PACKAGE", "no_such_sdk")
    with pytest.raises(ConfigError, match=r"pip install 'haulout\[openstack\]'"):
        openstack_sdk.check()
