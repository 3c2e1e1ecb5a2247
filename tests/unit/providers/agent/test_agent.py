"""The agent detects its cloud, serves health checks, and rejects invalid settings."""

import asyncio
import contextlib
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from haulout.app.agent import AgentOptions, load_connection, run_agent
from haulout.core.clock import Clock, RealClock
from haulout.errors import CloudError, ConfigError, HauloutError
from haulout.httpserver.metrics import Exposition
from haulout.kube.transports.h11_client import FetchedResponse
from haulout.providers.agent import health
from haulout.providers.agent.agent import CLOUDS, detect_cloud, metadata_services
from haulout.providers.agent.metrics import AgentMetrics
from haulout.providers.azure.event_source import AzureEventSource
from haulout.providers.http_fetch import Fetch, http_fetch
from haulout.providers.notice_writer import NoticeWriter
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.azure import AzureCloud
from support.clouds.azure import an_azure_world, vm_name

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: x, user: {}}]
"""


class Unreachable:
    """A metadata service that does not exist."""

    async def __call__(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = timedelta(),
    ) -> FetchedResponse:
        """Do not answer."""
        del headers, body, within
        raise CloudError("connection refused", doing=f"{method} {target}")


class GoogleOnly(Unreachable):
    """A metadata service that answers any request as Google's does."""

    async def __call__(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = timedelta(),
    ) -> FetchedResponse:
        """Answer."""
        del method, target, headers, body, within
        return FetchedResponse(200, {"metadata-flavor": "Google"}, b"computeMetadata/")


async def test_detect_cloud_returns_the_cloud_whose_metadata_service_answers(clock: Clock) -> None:
    cloud = AzureCloud(clock)
    cloud.launch("vm")
    azure = cloud.metadata("vm")
    assert await detect_cloud({"azure": azure, "gcp": Unreachable()}, clock=clock, random=Random(1)) == "azure"
    ec2 = AwsCloud(clock)
    aws = ec2.metadata(ec2.launch())
    assert (
        await detect_cloud({"aws": aws, "azure": Unreachable(), "gcp": Unreachable()}, clock=clock, random=Random(1))
        == "aws"
    )
    assert await detect_cloud({"aws": azure, "azure": azure, "gcp": azure}, clock=clock, random=Random(1)) == "azure"
    assert (
        await detect_cloud(
            {"aws": GoogleOnly(), "azure": GoogleOnly(), "gcp": GoogleOnly()}, clock=clock, random=Random(1)
        )
        == "gcp"
    )
    assert await detect_cloud({"azure": Unreachable(), "gcp": GoogleOnly()}, clock=clock, random=Random(1)) == "gcp"
    assert await detect_cloud({"azure": GoogleOnly(), "gcp": GoogleOnly()}, clock=clock, random=Random(1)) == "gcp"


async def test_detect_cloud_waits_for_a_metadata_service_that_fails_at_first(clock: Clock) -> None:
    cloud = AzureCloud(clock)
    cloud.launch("vm")
    cloud.faults.fail("GetInstance", status=500, times=4)
    started = clock.monotonic()
    assert await detect_cloud({"azure": cloud.metadata("vm")}, clock=clock, random=Random(1)) == "azure"
    assert 10 < clock.monotonic() - started < 120


def test_invalid_agent_settings_are_rejected_before_any_request(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HAULOUT_AZURE_START"):
        load_connection(AgentOptions(node="n1", cloud=""), {"HAULOUT_AZURE_START": "soon"})
    with pytest.raises(ConfigError, match="GCE_METADATA_HOST"):
        load_connection(AgentOptions(node="n1", cloud=""), {"GCE_METADATA_HOST": "a b"})
    with pytest.raises(HauloutError, match="no cluster to connect to"):
        load_connection(AgentOptions(node="n1", cloud=""), {"HOME": str(tmp_path)})


def test_every_cloud_that_can_be_chosen_can_be_detected() -> None:
    assert set(metadata_services({})) == set(CLOUDS)


class FakeHealth:
    """A component with a settable health."""

    is_up = False
    messages: Sequence[str] = ()

    def problems(self) -> Sequence[str]:
        """Return the problems."""
        return self.messages


@pytest.mark.real_time
async def test_health_endpoints_report_liveness_and_readiness() -> None:
    agent = FakeHealth()
    async with health.serve_health(agent, port=0) as port:
        fetch = http_fetch(f"http://127.0.0.1:{port}")

        async def status_and_body(path: str) -> tuple[int, bytes]:
            answer = await fetch("GET", path, headers={})
            sent = {name.lower(): value for name, value in answer.headers.items()}
            assert (sent["x-content-type-options"], sent.get("server")) == ("nosniff", None)
            return answer.status, answer.body

        assert await status_and_body("/healthz") == (200, b"ok\n")
        assert await status_and_body("/readyz") == (503, b"no answer from the cloud yet\n")
        agent.messages = ("azure: Azure does not answer",)
        assert await status_and_body("/readyz?verbose") == (503, b"azure: Azure does not answer\n")
        agent.is_up = True
        assert await status_and_body("/readyz") == (200, b"ok\nazure: Azure does not answer\n")
        assert (await status_and_body("/metrics"))[0] == 404
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\xff" * 100)
        writer.close()
        assert (await status_and_body("/healthz"))[0] == 200
        with pytest.raises(HauloutError, match=f"health checks on 127.0.0.1:{port}: "):
            async with health.serve_health(agent, port=port):
                pass


@pytest.mark.real_time
async def test_idle_connections_do_not_block_probes() -> None:
    async with health.serve_health(FakeHealth(), port=0) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        try:
            probe = await http_fetch(f"http://127.0.0.1:{port}")("GET", "/healthz", headers={})
            assert probe.status == 200
            async with asyncio.timeout(3):  # before the timeout of each connection
                for reader, _ in silent[:150]:
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
        finally:
            for _, writer in silent:
                writer.close()


async def test_agent_metrics_count_requests_and_written_notices(clock: Clock) -> None:
    async with an_azure_world(clock, "n1") as world:
        metrics, cloud = AgentMetrics(), world.cloud
        fetch = metrics.count_requests("azure", cloud.metadata(vm_name("n1")))
        source = AzureEventSource(fetch, node="n1", clock=clock, random=Random(7))

        def numbers() -> dict[str, float]:
            lines = Exposition(lambda: metrics.collect(source)).text().decode().splitlines()
            return {
                name: float(number) for name, _, number in (line.rpartition(" ") for line in lines if line[0] != "#")
            }

        assert numbers()['haulout_agent_up{cloud="azure"}'] == 0
        cloud.faults.fail("GetInstance", status=503)
        cloud.faults.fail("GetInstance", status=0)
        cloud.schedule([vm_name("n1")], "Reboot", start=clock.now() + timedelta(hours=1))
        task = world.tasks.create_task(source.run(NoticeWriter(world.client)))
        await clock.sleep(timedelta(seconds=30))
        task.cancel()
        found = numbers()
        assert found['haulout_agent_up{cloud="azure"}'] == 1
        assert found['haulout_agent_silent_seconds{cloud="azure"}'] <= 1
        assert found['haulout_agent_requests_total{cloud="azure",code="503"}'] == 1
        assert found['haulout_agent_requests_total{cloud="azure",code="none"}'] == 1
        assert found['haulout_agent_requests_total{cloud="azure",code="200"}'] > 20
        assert found['haulout_agent_notices_written_total{cloud="azure"}'] == 1


async def get(fetch: Fetch, path: str) -> FetchedResponse | None:
    """Return the response; None if nothing is listening yet."""
    try:
        return await fetch("GET", path, headers={})
    except CloudError:
        return None


@pytest.mark.real_time
async def test_metrics_are_served_before_the_cloud_is_detected(tmp_path: Path) -> None:
    """Also while the cloud is not detected yet."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {
        "HAULOUT_AWS_METADATA": "http://127.0.0.1:1",
        "HAULOUT_AZURE_METADATA": "http://127.0.0.1:1",
        "GCE_METADATA_HOST": "127.0.0.1:1",
    }
    options = AgentOptions(node="n1", cloud="", kubeconfig=str(kubeconfig), metrics_port=port)
    async with asyncio.TaskGroup() as group, asyncio.timeout(10):
        task = group.create_task(run_agent(options, load_connection(options, environ), environ))
        fetch = http_fetch(f"http://127.0.0.1:{port}")
        while (page := await get(fetch, "/metrics")) is None:
            await RealClock().sleep(timedelta(milliseconds=20))
        other = await get(fetch, "/healthz")
        task.cancel()
    assert (page.status, page.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"process_resident_memory_bytes" in page.body
    assert other is not None
    assert other.status == 404
