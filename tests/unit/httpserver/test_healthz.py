"""Liveness and readiness probes."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import pytest

from haulout.errors import UsageError
from haulout.httpserver import healthz
from haulout.httpserver.listener import ListenAddress

pytestmark = pytest.mark.real_time

LOCAL = "127.0.0.1"


@asynccontextmanager
async def serve(
    *unready: str, warnings: Sequence[str] = (), details: Sequence[str] = ("[+] leader: this replica leads",)
) -> AsyncIterator[str]:
    lines = healthz.serve(lambda: unready, warnings=lambda: warnings, details=lambda: details, host=LOCAL, port=0)
    async with lines as port:
        yield f"http://{LOCAL}:{port}"


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/healthz/healthz", "/readyz/readyz"])
async def test_healthy_probe_returns_ok(path: str) -> None:
    async with serve() as url:
        assert await get(url + path) == (200, "ok\n")


async def test_unready_probe_reports_the_reason_and_liveness_is_ok() -> None:
    async with serve("nodes are not known yet") as url:
        assert await get(url + "/readyz") == (503, "nodes are not known yet\n")
        assert await get(url + "/healthz") == (200, "ok\n")


async def test_warnings_are_listed_without_failing_readiness() -> None:
    async with serve(warnings=["the file is broken"]) as url:
        assert await get(url + "/readyz") == (200, "ok\nthe file is broken\n")


async def test_verbose_probe_lists_the_status() -> None:
    async with serve() as url:
        assert await get(url + "/readyz?verbose") == (200, "[+] leader: this replica leads\nok\n")
        assert await get(url + "/healthz?verbose=1") == (200, "[+] leader: this replica leads\nok\n")


async def test_port_in_use_is_reported_in_one_sentence() -> None:
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        text = f"^cannot listen on port {port} for health checks: address already in use; choose another port$"
        with pytest.raises(UsageError, match=text):
            async with healthz.serve(tuple, host=LOCAL, port=port):
                raise AssertionError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", ListenAddress(8080)),
        ("127.0.0.1:80", ListenAddress(80, LOCAL)),
        ("[::1]:80", ListenAddress(80, "::1")),
        ("localhost:65535", ListenAddress(65535, "localhost")),
    ],
)
def test_listen_addresses_are_parsed_as_in_go(text: str, address: ListenAddress) -> None:
    assert ListenAddress.parse(text) == address


@pytest.mark.parametrize("text", ["", "8080", ":", ":0", ":65536", ":-1", ":http", ":8\u0660"])
def test_invalid_listen_address_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="expected an address with a port such as :8080, found"):
        ListenAddress.parse(text)
