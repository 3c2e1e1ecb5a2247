"""A follower: it accepts the same users, forwards requests to the leader, and executes actions itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from haulout.app.http_endpoints import serve_http
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth.settings import AccessSettings, ProxySettings
from haulout.httpserver.listener import ListenAddress
from support.builders.objects import a_pod
from support.dashboard.running_dashboard import LOCAL, NAMESPACE, DashboardUnderTest, running_dashboard
from support.fakes.external_client import FakeExternalClient

pytestmark = pytest.mark.real_time

ALSO_LOCAL = "127.0.0.2"


@asynccontextmanager
async def a_follower(
    world: DashboardUnderTest, mode: AuthMode, proxy: ProxySettings | None = None
) -> AsyncIterator[str]:
    """Yield where another replica answers, which knows the leader by its pod."""
    for name in ("haulout-1", "haulout-2"):
        world.api.put({**a_pod(f"{NAMESPACE}/{name}", serviceAccountName="haulout"), "status": {"podIP": LOCAL}})
    at = ListenAddress(int(world.base.rpartition(":")[2]), ALSO_LOCAL)
    access = AccessSettings(mode=mode, proxy=proxy or ProxySettings())
    assert world.operator_status.profiles is not None
    operator_status = OperatorStatus(
        profiles=ProfilesComponent(world.operator_status.profiles.file, FakeExternalClient())
    )
    async with serve_http(
        world.client, operator_status, address=at, namespace=NAMESPACE, identity="haulout-2_y", access=access
    ) as port:
        yield f"http://{ALSO_LOCAL}:{port}"


async def test_session_is_valid_on_every_replica(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world, a_follower(world, AuthMode.TOKEN) as other:
        browser, csrf = await world.log_in("olga")
        response = await world.request("/nodes", base=other, headers=browser)
        assert (response.status, response.body["total"]) == (200, 2)
        assert (await world.request("/nodes", base=other, token="vera")).status == 200
        assert (await world.request("/nodes", base=other, token="sam")).status == 403
        assert (await world.request("/nodes", base=other)).status == 401
        async with world.session.get(f"{other}/api/v1/info", headers={"Authorization": "Bearer vera"}) as info:
            assert (info.status, [item["node"] for item in await info.json()]) == (200, ["n1", "n2"])
        session = (await world.request("/session", base=other, headers=browser)).body
        assert (session["user"], session["csrf"]) == ("olga", csrf)
        act = {"action": "start", "node": "n2"}
        headers = {**browser, "X-Haulout-Csrf": csrf}
        assert (await world.request("/actions", "POST", base=other, headers=headers, json=act)).status == 200
        assert [item["metadata"]["name"] for item in world.api.objects("nodemaintenances")] == ["n2"]


async def test_proxy_secret_authenticates_replicas_to_each_other(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery", encoding="utf-8")
    vera = {"X-Forwarded-User": "vera"}
    proxy = ProxySettings(secret_file=secret)
    async with (
        running_dashboard(tmp_path, AuthMode.PROXY, proxy=proxy) as world,
        a_follower(world, AuthMode.PROXY, proxy) as other,
    ):
        proxy_headers = {**vera, "X-Haulout-Proxy-Secret": "correct horse battery"}
        assert (await world.request("/nodes", base=other, headers=proxy_headers)).status == 200
        assert (
            await world.request("/nodes", base=other, headers={**proxy_headers, "X-Forwarded-User": "sam"})
        ).status == 403
    async with running_dashboard(tmp_path, AuthMode.PROXY) as world, a_follower(world, AuthMode.PROXY) as other:
        assert (await world.request("/nodes", headers=vera)).status == 200
        response = await world.request("/nodes", base=other, headers=vera)
        assert (response.status, "set --dashboard-proxy-secret-file" in response.error) == (503, True)


@pytest.mark.usefixtures("no_refill")
async def test_clients_of_a_follower_have_separate_limits_at_the_leader(tmp_path: Path) -> None:
    """The leader believes the follower, whose pod has the address that it asks from."""
    async with running_dashboard(tmp_path, AuthMode.OFF) as world, a_follower(world, AuthMode.OFF) as other:
        headers = {"X-Haulout-Forwarded": "10.0.0.1"}
        statuses = await asyncio.gather(*(world.request("/notices", headers=headers) for _ in range(900)))
        assert {response.status for response in statuses} == {200, 429}
        assert (await world.request("/notices", base=other)).status == 200
        assert (await world.request("/notices", headers={"X-Haulout-Forwarded": "10.0.0.2"})).status == 200
        async with world.session.get(f"{other}/api/v1/info") as info:
            assert info.status == 200
