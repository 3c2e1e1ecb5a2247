"""The HTTP server of profiles: the API, metrics, and followers that ask their leader."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from haulout.api.objects import RawObject
from haulout.controllers.profiles.metrics import ProfileMetrics
from haulout.core.clock import RealClock
from haulout.dashboard.leader_client import LeaderClient
from haulout.dashboard.server import FORWARDED_HEADER, INFO_PATH, DashboardServer
from haulout.errors import ExternalError, HauloutError
from haulout.httpserver.metrics import CONTENT_TYPE, Exposition
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer

pytestmark = pytest.mark.real_time

LOCAL = "127.0.0.1"
NAMESPACE = "kube-system"
LEASE = "maintenance-controller-leader-election.cloud.sap"
NODE = {"node": "n1", "profiles": [], "labels": {}, "updated": "2024-05-01T10:00:00.000000Z"}


class NoLeader:
    """Cannot be queried."""

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Fail."""
        del headers
        raise HauloutError('nobody "leads"')


@asynccontextmanager
async def serve(
    infos: list[RawObject] | None, *, leader: Any = None, metrics: Any = lambda: b""
) -> AsyncIterator[tuple[DashboardServer, str]]:
    server = DashboardServer(infos=lambda: infos, metrics=metrics, leader=leader or NoLeader())
    async with server.serve(host=LOCAL, port=0) as port:
        yield server, f"http://{LOCAL}:{port}"


async def get(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, allow_redirects=False, headers=headers) as response,
    ):
        return response.status, {key.lower(): value for key, value in response.headers.items()}, await response.read()


# The API


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_leader_serves_node_info_as_json(method: str) -> None:
    async with serve([NODE]) as (_, url):
        status, headers, body = await get(url + INFO_PATH, method)
        assert (status, headers["content-type"]) == (200, "application/json")
        assert body.startswith(b'[{"node":"n1"')


async def test_info_without_nodes_is_an_empty_list() -> None:
    async with serve([]) as (_, url):
        assert (await get(url + INFO_PATH))[2] == b"[]"


async def test_follower_without_a_leader_answers_502_with_json() -> None:
    async with serve(None) as (_, url):
        status, headers, body = await get(url + INFO_PATH)
        assert (status, headers["content-type"]) == (502, "application/json")
        assert body == b'{"error":"nobody \\"leads\\""}'


async def test_forwarded_request_is_not_forwarded_again() -> None:
    async with serve(None) as (_, url):
        status, _, body = await get(url + INFO_PATH, **{FORWARDED_HEADER: "1"})
        assert status == 502
        assert b"it is not the leader" in body


# The page


@pytest.mark.parametrize(
    ("path", "location"), [("/", "/static"), ("/some/thing", "/static"), ("/api", "/static"), ("/static", "/static/")]
)
async def test_other_paths_redirect_to_the_dashboard(path: str, location: str) -> None:
    async with serve([]) as (_, url):
        status, headers, _ = await get(url + path)
        assert (status, headers["location"]) == (301, location)


async def test_dashboard_is_served_as_html() -> None:
    async with serve([]) as (_, url):
        status, headers, body = await get(url + "/static/")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b"<title>Haulout" in body
        assert (await get(url + "/static/index.html"))[2] == body
        assert (await get(url + "/static/../secret"))[0] in (301, 404)
        assert (await get(url + "/static/nothing.js"))[0] == 404


# Metrics


async def test_metrics_have_the_names_of_the_maintenance_controller() -> None:
    metrics = ProfileMetrics()
    metrics.rescheduled.add("deployment_web", "os", amount=3)
    metrics.rescheduled_per_replica.add("daemon_set_log", "os", amount=float("inf"))
    metrics.rescheduled_per_replica.add("deployment_web", "os", amount=0.5)
    metrics.failures.add('a "quoted"\nname\\')
    metrics.configuration_is_valid.set(to=1)
    async with serve([], metrics=Exposition(metrics.all).text) as (_, url):
        status, headers, body = await get(url + "/metrics")
    assert (status, headers["content-type"]) == (200, CONTENT_TYPE)
    own, _, process = body.decode().partition("# HELP python_info")
    assert process
    assert [line for line in own.splitlines() if not line.startswith("#")] == [
        'maintenance_controller_pod_shuffle_count{owner="deployment_web",profile="os"} 3',
        'maintenance_controller_pod_shuffles_per_replica{owner="daemon_set_log",profile="os"} +Inf',
        'maintenance_controller_pod_shuffles_per_replica{owner="deployment_web",profile="os"} 0.5',
        r'maintenance_controller_transition_failure_count{profile="a \"quoted\"\nname\\"} 1',
        "haulout_profiles_configuration_valid 1",
    ]
    assert "# TYPE maintenance_controller_pod_shuffle_count counter\n" in own
    assert list(text_string_to_metric_families(body.decode()))


async def test_shutdown_waits_for_one_more_scrape() -> None:
    async with serve([]) as (server, url), asyncio.TaskGroup() as group:
        await get(url + "/metrics")
        lingering = group.create_task(server.wait_for_scrape(timedelta(minutes=5)))
        await get(url + INFO_PATH)
        assert not lingering.done()
        await get(url + "/metrics")
        await lingering


async def test_shutdown_wait_for_a_scrape_has_a_timeout() -> None:
    async with serve([]) as (server, _):
        await server.wait_for_scrape(timedelta(milliseconds=10))


# Leadership


def a_cluster(*, holder: str | None, ip: str | None = LOCAL) -> Client:
    """Return a client of a cluster with a pod, and a lease with this holder, if any."""
    api = ApiServer(RealClock())
    if holder is not None:
        api.put(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": LEASE, "namespace": NAMESPACE},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
            }
        )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "haulout-1", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "main", "image": "example/main"}]},
    }
    api.put({**pod, "status": {"phase": "Running", **({"podIP": ip} if ip else {})}})
    return Client(api.transport(), clock=RealClock(), random=Random(1))


def leader(client: Client, **more: Any) -> LeaderClient:
    return LeaderClient(client=client, lease=LEASE, namespace=NAMESPACE, identity="haulout-2_x", **more)


async def test_follower_forwards_the_answer_of_the_leader() -> None:
    async with serve([NODE]) as (_, url):
        known = leader(a_cluster(holder="haulout-1_uuid_1"), port=int(url.rpartition(":")[2]))
        async with serve(None, leader=known) as (_, follower):
            assert (await get(follower + INFO_PATH))[2] == (await get(url + INFO_PATH))[2]


async def test_ipv6_address_of_the_leader_is_bracketed_in_the_url() -> None:
    assert await leader(a_cluster(holder="haulout-1_x", ip="fd00::1")).base_url() == "http://[fd00::1]:8080"


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"holder": None}, "no replica is the leader at the moment"),
        ({"holder": "haulout-2_x"}, "this replica is becoming the leader"),
        ({"holder": "haulout-9_x"}, 'pods "haulout-9" not found'),
        ({"holder": "haulout-1_x", "ip": None}, "pod kube-system/haulout-1, which leads, has no address"),
    ],
)
async def test_missing_leader_is_reported_with_the_reason(cluster: dict[str, Any], expected: str) -> None:
    with pytest.raises(HauloutError, match=expected):
        await leader(a_cluster(**cluster)).info()


async def test_unreachable_leader_is_reported() -> None:
    with pytest.raises(ExternalError, match=f"the leader at http://{LOCAL}:1{INFO_PATH} does not answer"):
        await leader(a_cluster(holder="haulout-1_x"), port=1).info()


@asynccontextmanager
async def serve_handler(handler: Any) -> AsyncIterator[int]:
    """Serve a handler at the address of the leader."""
    app = web.Application()
    app.router.add_get(INFO_PATH, handler)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, LOCAL, 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_slow_oversized_and_failing_answers_of_the_leader_are_errors() -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async def talkative(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 1000)

    async def unwell(_: web.Request) -> web.Response:
        return web.Response(status=500)

    client = a_cluster(holder="haulout-1_x")
    async with serve_handler(silent) as port:
        with pytest.raises(ExternalError, match="did not answer within 50ms"):
            await leader(client, port=port, within=timedelta(milliseconds=50)).info()
    async with serve_handler(talkative) as port:
        with pytest.raises(ExternalError, match="the answer is longer than 100 bytes"):
            await leader(client, port=port, largest=100).info()
    async with serve_handler(unwell) as port:
        with pytest.raises(ExternalError, match="answered with status 500"):
            await leader(client, port=port).info()
