"""Endless responses of Prometheus, Slack, clouds and vCenters raise an error and take little memory."""

import asyncio
import importlib
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from haulout.compat.openstack_config import OpenStackSettings as Project
from haulout.controllers.esx.settings import VCenterAccess, VCenterCredentials
from haulout.controllers.esx.vsphere_sdk import vcenter_login
from haulout.controllers.kubernikus.openstack_sdk import SdkNova
from haulout.controllers.profiles.external.network_client import NetworkClient
from haulout.controllers.profiles.plugins.checks.prometheus_instant import InstantQuery
from haulout.controllers.profiles.plugins.notifications import slack
from haulout.controllers.profiles.plugins.notifications.slack import Slack
from haulout.core import cloud_sdk
from haulout.core.clock import RealClock
from haulout.core.cloud_sdk import LIMIT, run_in_thread
from haulout.errors import CloudError, ExternalError
from haulout.providers.aws import boto
from haulout.providers.aws.credentials import AwsCredentials, ClusterCredentials
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.gcp.http_client import aiohttp_fetch
from haulout.providers.http_fetch import http_fetch
from haulout.providers.oci.sdk import new_clients
from haulout.providers.oci.settings import Auth, OciSettings
from support.clouds.oci_config_file import a_config_file
from support.servers.hostile_server import Bomb, bomb_server, gzip_bomb

pytestmark = pytest.mark.real_time

BODIES = [Bomb.GZIP, Bomb.ENDLESS_BODY, Bomb.ENDLESS_ERROR]
PLAIN_BODIES = [Bomb.ENDLESS_BODY, Bomb.ENDLESS_ERROR]  # for clients that do not decompress
AGENT_LIMIT = 80 << 20
SHORTLY = timedelta(seconds=1)


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    gzip_bomb()
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.fixture
async def network() -> AsyncIterator[NetworkClient]:
    network = NetworkClient(environ={})
    yield network
    await network.close()


@pytest.mark.parametrize("bomb", BODIES)
async def test_prometheus_response_is_limited_to_one_megabyte(
    bomb: Bomb, network: NetworkClient, peak: Callable[[], int]
) -> None:
    async with bomb_server(bomb) as server:
        with pytest.raises(ExternalError, match="the answer is longer than 1048576 bytes"):
            await InstantQuery(url=server.url, query="up").fetch(network)
    assert peak() < 16 << 20


@pytest.mark.parametrize("bomb", BODIES)
async def test_slack_response_is_limited_to_one_megabyte(
    bomb: Bomb, network: NetworkClient, peak: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack, "render", lambda *_: "text")
    message: Any = None
    async with bomb_server(bomb) as server:
        hook = Slack(hook=server.url, channel="#ops", message="text")
        with pytest.raises(ExternalError, match="longer than 1048576 bytes"):
            await hook.send(message, network)
    assert peak() < 16 << 20


async def test_slow_response_is_subject_to_the_request_timeout(network: NetworkClient) -> None:
    async with bomb_server(Bomb.SLOW_BODY) as server:
        with pytest.raises(ExternalError, match="no answer within 1 s"):
            await network.request("GET", server.url, timeout=SHORTLY)
        for fetch in (http_fetch(server.url), aiohttp_fetch(server.url)):
            with pytest.raises(CloudError, match="no answer within 1 s"):
                await fetch("GET", "/", headers={}, within=SHORTLY)


@pytest.mark.parametrize("bomb", BODIES)
async def test_aiohttp_fetch_response_is_limited_to_sixteen_megabytes(bomb: Bomb, peak: Callable[[], int]) -> None:
    async with bomb_server(bomb) as server:
        with pytest.raises(CloudError, match="the answer is longer than 16777216 bytes"):
            await aiohttp_fetch(server.url)("GET", "/", headers={})
    assert peak() < 64 << 20


@pytest.mark.parametrize("bomb", [*PLAIN_BODIES, Bomb.ENDLESS_HEADERS, Bomb.DEEP])
async def test_memory_of_an_agent_is_bounded_for_any_metadata_response(bomb: Bomb) -> None:
    async with bomb_server(bomb) as server:
        process = await _run(_AGENT, server.url)
    error_name, peak = process.split("|")
    assert error_name == "CloudError"
    assert int(peak) << 10 < AGENT_LIMIT


_AGENT = """
import asyncio, sys
from pathlib import Path
from haulout.errors import CloudError
from haulout.providers.azure.imds import AzureInstanceMetadata as Metadata
from haulout.providers.http_fetch import http_fetch as over_http

async def main():
    try:
        await Metadata(over_http(sys.argv[1])).machine()
    except CloudError as error:
        said = type(error).__name__
    peak = next(it.split()[1] for it in Path("/proc/self/status").read_text().splitlines() if it.startswith("VmHWM"))
    print(f"{said}|{peak}")

asyncio.run(main())
"""


async def _run(program: str, *args: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *args, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, problems = await process.communicate()
    assert process.returncode == 0, problems.decode()
    return out.decode().strip()


# By SDKs


class Keys(ClusterCredentials):
    """Credentials that need no cluster."""

    def __init__(self) -> None:
        pass

    async def current(self) -> AwsCredentials:
        """Return the same each time."""
        return AwsCredentials(region="eu-west-1", key="key", secret="secret", token="token")


@pytest.mark.parametrize("bomb", PLAIN_BODIES)
async def test_boto3_response_is_limited(bomb: Bomb) -> None:
    pytest.importorskip("boto3")
    async with bomb_server(bomb) as server:
        ec2, _, _ = boto.new_clients(AwsSettings(endpoint=server.url), Keys())
        with pytest.raises(CloudError, match=f"longer than {LIMIT} bytes|without compression"):
            await ec2.instances(["i-1"])


@pytest.mark.parametrize("bomb", BODIES)
async def test_oci_sdk_response_is_limited(bomb: Bomb, tmp_path: Path) -> None:
    pytest.importorskip("oci")
    async with bomb_server(bomb) as server:
        settings = OciSettings(
            stream="s",
            endpoint=server.url,
            compute_endpoint=server.url,
            auth=Auth.CONFIG_FILE,
            config_file=str(a_config_file(tmp_path)),
        )
        streaming, _ = new_clients(settings)
        assert streaming is not None
        with pytest.raises(CloudError, match=f"longer than {LIMIT} bytes"):
            await streaming.messages("cursor", limit=10)


async def test_oci_instance_principal_signer_response_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of an instance, from the metadata service of its machine."""
    pytest.importorskip("oci")
    async with bomb_server(Bomb.ENDLESS_BODY) as server:
        monkeypatch.setenv("OCI_METADATA_BASE_URL", server.url)
        settings = OciSettings(stream="s", endpoint=server.url, auth=Auth.INSTANCE_PRINCIPAL)
        streaming, _ = new_clients(settings)
        assert streaming is not None
        with pytest.raises(CloudError, match=f"cannot get credentials: .*longer than {LIMIT} bytes"):
            await streaming.messages("cursor", limit=10)


async def test_oci_workload_identity_signer_response_is_limited() -> None:
    pytest.importorskip("oci")
    new_clients(OciSettings(stream="s", endpoint="http://127.0.0.1:1", auth=Auth.WORKLOAD_IDENTITY))
    signers = importlib.import_module("oci.auth.signers.oke_workload_identity_resource_principal_signer")
    async with bomb_server(Bomb.ENDLESS_BODY) as server:

        def sign() -> None:
            session = signers.requests.Session()
            session.post(f"{server.url}/resourcePrincipalSessionTokens", json={}, timeout=(10, 60))

        with pytest.raises(OSError, match=f"longer than {LIMIT} bytes"):
            await run_in_thread(sign, name="oci")


@pytest.mark.parametrize("sdk", ["oci", "boto3", "openstack"])
async def test_slow_sdk_response_times_out(sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(sdk)
    monkeypatch.setattr(cloud_sdk.LimitedResponse, "timeout_seconds", 0.5)
    async with bomb_server(Bomb.SLOW_BODY) as server:
        with pytest.raises(CloudError, match=r"not ended within 0\.5 s"):
            async with asyncio.timeout(30):
                await _send_request(sdk, server.url, tmp_path)


async def _send_request(sdk: str, url: str, folder: Path) -> None:
    if sdk == "boto3":
        ec2, _, _ = boto.new_clients(AwsSettings(endpoint=url), Keys())
        await ec2.instances(["i-1"])
    elif sdk == "openstack":
        project = Project(auth_url=url, username="u", password="secret", region="r", domain_name="d", tenant_id="t")

        async def credentials() -> Project:
            return project

        await SdkNova(credentials).servers("n1")
    else:
        file = str(a_config_file(folder))
        settings = OciSettings(stream="s", endpoint=url, auth=Auth.CONFIG_FILE, config_file=file)
        streaming, _ = new_clients(settings)
        assert streaming is not None
        await streaming.messages("cursor", limit=10)


@pytest.mark.parametrize("bomb", BODIES)
async def test_openstack_sdk_response_is_limited(bomb: Bomb) -> None:
    pytest.importorskip("openstack")
    async with bomb_server(bomb) as server:
        project = Project(
            auth_url=server.url, username="u", password="secret", region="r", domain_name="d", tenant_id="t"
        )

        async def credentials() -> Project:
            return project

        with pytest.raises(CloudError, match=f"longer than {LIMIT} bytes"):
            await SdkNova(credentials).servers("n1")


@pytest.mark.parametrize("bomb", BODIES)
async def test_vcenter_response_is_limited(bomb: Bomb) -> None:
    pytest.importorskip("pyVmomi")
    async with bomb_server(bomb) as server:
        access = VCenterAccess(url=f"{server.url}/sdk", credentials=VCenterCredentials("u", "secret"), insecure=True)
        with pytest.raises(CloudError, match=f"longer than {LIMIT} bytes|expected an answer without compression"):
            await vcenter_login(RealClock())(access)
