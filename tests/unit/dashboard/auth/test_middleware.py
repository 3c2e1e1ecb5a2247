"""Without authentication, pages of other sites cannot read the dashboard by DNS rebinding."""

import asyncio
from pathlib import Path

import pytest

from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth.middleware import are_allowed
from support.dashboard.running_dashboard import LOCAL, running_dashboard

ALLOWED = [
    "localhost",
    "localhost:8080",
    "dashboard.localhost:1",
    "127.0.0.1:8080",
    "10.1.2.3",
    "[::1]:8080",
    "[fd00::1]",
    "haulout",
    "haulout:8080",
    "haulout.haulout.svc",
    "haulout.haulout.svc.cluster.local:8080",
    "HAULOUT.haulout.SVC",
    "haulout.haulout.svc.cluster.local.",
]
REFUSED = [
    "evil.example.com",
    "evil.example.com:8080",
    "127.0.0.1.evil.example.com",
    "localhost.evil.example.com",
    "haulout.svc.evil.example.com",
    "svc.cluster.local.evil.com",
    "evil.mylocalhost",
    "evil.notsvc",
    "evil.xsvc.cluster.local",
    "evil.com:80@localhost",
    "[::1",
    "[evil]",
    "",
    ":8080",
    "user@evil.com",
]


@pytest.mark.parametrize("host", ALLOWED)
def test_local_and_cluster_host_names_are_allowed(host: str) -> None:
    assert are_allowed([host])


@pytest.mark.parametrize("host", REFUSED)
def test_other_host_names_are_refused(host: str) -> None:
    assert not are_allowed([host])


def test_one_refused_host_refuses_the_request() -> None:
    assert not are_allowed(["localhost", "evil.example.com"])


def test_configured_host_names_are_allowed_in_any_case() -> None:
    assert are_allowed(["Maintenance.example.com:443"], names=("maintenance.Example.com",))
    assert not are_allowed(["x.maintenance.example.com"], names=("maintenance.example.com",))
    assert are_allowed(["anything.example.com"], names=("*",))


def test_request_without_a_host_is_allowed() -> None:
    assert are_allowed([])


@pytest.mark.real_time
async def test_dns_rebinding_is_refused_without_authentication(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path, AuthMode.OFF, hosts=("maintenance.example.com",)) as world:
        for path in ("/api/v2/nodes", "/api/v2/events", "/api/v1/info", "/metrics", "/static/", "/", "/api/v2/x"):
            headers = {"Host": "evil.example.com"}
            async with world.session.get(f"{world.base}{path}", headers=headers, allow_redirects=False) as response:
                assert (response.status, "n1" in await response.text()) == (421, False), path
        reader, writer = await asyncio.open_connection(LOCAL, int(world.base.rpartition(":")[2]))
        writer.write(b"GET /api/v2/nodes HTTP/1.1\r\nHost: localhost\r\nHost: evil.example.com\r\n\r\n")
        assert b" 200 " not in await reader.readline(), "two Host headers"
        writer.close()
        assert "--dashboard-host" in (await world.request("/nodes", headers={"Host": "evil.example.com"})).error
        assert (await world.request("/nodes", headers={"Host": "maintenance.example.com"})).status == 200
        assert (await world.request("/nodes")).status == 200


@pytest.mark.real_time
async def test_host_is_not_checked_with_authentication(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path, AuthMode.TOKEN) as world:
        assert (await world.request("/nodes", token="vera", headers={"Host": "maintenance.example.com"})).status == 200
