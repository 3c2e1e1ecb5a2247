"""Malformed HTTP requests: they are neither logged nor echoed, and each response has our headers."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web_protocol
from aiohttp.http_parser import HttpRequestParserPy

from controlplane.ports import free_ports
from support.operators.operator_process import LOCAL, Port, running_operator

SECRET = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl"
_TOKEN = f"Authorization: Bearer {SECRET}".encode()
_HEAD = b"%s %s HTTP/1.1\r\nHost: localhost\r\n"
_GET = _HEAD % (b"GET", b"/metrics") + _TOKEN
_JSON = _HEAD % (b"POST", b"/api/v2/session") + _TOKEN + b"\r\nContent-Type: application/json\r\n"
_REVIEW = _HEAD % (b"POST", b"/validate-nodemaintenance-medik8s-io-v1beta1-nodemaintenance") + _TOKEN
_REVIEW += b"\r\nContent-Type: application/json\r\n"
_CHECK = _JSON.replace(b"/session", b"/configuration/check")
_S = SECRET.encode()

MALFORMED = {
    "stray CR in a header": _GET + b"\r\r\n\r\n",
    "CR within a header": _GET[:-9] + b"\r" + _GET[-9:] + b"\r\n\r\n",
    "CR and other text": _GET + b"\rX: y\r\n\r\n",
    "bare LF": _GET + b"\nX: y\n\n",
    "LF within a header": _GET + b"\n\r\n\r\n",
    "NUL in a header": _GET + b"\x00\r\n\r\n",
    "control character": _GET + b"\x07\x1b[2J\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: h\r\n" + _S + b"\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost: h\r\nAuthorization : Bearer " + _S + b"\r\n\r\n",
    "folded header": _GET + b"\r\n folded " + _S + b"\r\n\r\n",
    "empty header name": b"GET / HTTP/1.1\r\nHost: h\r\n: " + _S + b"\r\n\r\n",
    "bad header name": b"GET / HTTP/1.1\r\nHost: h\r\nA(" + _S + b"): x\r\n\r\n",
    "bad method": _S + b" / HTTP/1.1\r\nHost: h\r\n\r\n",
    "bad method with a token": b"G\x00T / HTTP/1.1\r\n" + _TOKEN + b"\r\n\r\n",
    "bad version": b"GET / HTTP/9.x\r\n" + _TOKEN + b"\r\n\r\n",
    "no version": b"GET /" + _S + b"\r\n" + _TOKEN + b"\r\n\r\n",
    "bad target": b"GET http://[" + _S + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "target of another host": b"GET http://u:" + _S + b"@h:99999999/ HTTP/1.1\r\nHost: h\r\n\r\n",
    "percent": b"GET /%zz%" + _S + b" HTTP/1.1\r\nHost: h\r\n" + _TOKEN + b"\r\n\r\n",
    "long request line": b"GET /" + _S * 500 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "long header line": _GET + b"x" * 20_000 + b"\r\n\r\n",
    "many headers": _GET + b"".join(b"\r\nX-%d: %s" % (it, _S) for it in range(500)) + b"\r\n\r\n",
    "not HTTP at all": _S + b"\r\n\r\n",
    "TLS to a plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + _S + b"\r\n\r\n",
    "bad Content-Length": _JSON + b"Content-Length: " + _S + b"\r\n\r\n{}",
    "negative Content-Length": _JSON + b"Content-Length: -5\r\n\r\n{}",
    "two Content-Lengths": _JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": _JSON + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "unknown coding": _JSON + b"Transfer-Encoding: " + _S + b"\r\n\r\n{}",
    "bad chunk size": _JSON + b"Transfer-Encoding: chunked\r\n\r\n" + _S + b"\r\n{}\r\n0\r\n\r\n",
    "bad chunk end": _JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}" + _S + b"\r\n0\r\n\r\n",
    "bad second chunk of a review": _REVIEW + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n" + _S + b"\r\n\r\n",
    "bad trailer": _JSON + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + _S + b"\x00\r\n\r\n",
    "smuggled request": _JSON + b"Content-Length: 0\r\n\r\nG\rT /" + _S + b" HTTP/1.1\r\n" + _TOKEN + b"\r\n\r\n",
    "bad compression": _JSON + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(_S) + _S,
    "upgrade and garbage": _GET + b"\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n\x00" + _S + b"\r\n\r\n",
    "bad Expect": _GET + b"\r\nExpect: " + _S + b"\r\n\r\n",
    "no UTF-8": _GET + b"\xff\xfe\r\n\r\n",
    "bad cookie": _HEAD % (b"GET", b"/api/v2/session") + b"Cookie: haulout-token=" + _S + b'\x01; "\r\n\r\n',
}
WELL_FORMED = {
    "a page": _HEAD % (b"GET", b"/static/") + b"\r\n",
    "no page": _HEAD % (b"GET", b"/static/nothing") + b"\r\n",
    "a redirect": _HEAD % (b"GET", b"/") + b"\r\n",
    "a wrong method": _HEAD % (b"DELETE", b"/metrics") + b"\r\n",
    "a stream": _HEAD % (b"GET", b"/api/v2/events") + b"Connection: close\r\n\r\n",
    "metrics": _HEAD % (b"GET", b"/metrics") + b"\r\n",
    "a probe": _HEAD % (b"GET", b"/readyz") + b"\r\n",
    "no review": _REVIEW + b"Content-Length: 2\r\n\r\n{}",
    "HEAD": _HEAD % (b"HEAD", b"/healthz") + b"\r\n",
    "OPTIONS": _HEAD % (b"OPTIONS", b"*") + b"\r\n",
}

pytestmark = pytest.mark.real_time


@pytest.fixture
async def ports() -> AsyncIterator[dict[Port, int]]:
    numbers = free_ports(len(Port))
    async with running_operator(*numbers):
        yield dict(zip(Port, numbers, strict=True))


@asynccontextmanager
async def connected(port: Port, number: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    tls = None
    if "https" in port.value:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(LOCAL, number, ssl=tls)
    try:
        yield reader, writer
    finally:
        writer.close()


async def send_request(port: Port, number: int, request: bytes) -> bytes:
    """Return the response, with the first part of its body."""
    async with connected(port, number) as (reader, writer):
        try:
            writer.write(request)
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
            is_bare = request.startswith(b"HEAD") or b"Content-Length: 0" in head
            return head + (b"" if is_bare else await reader.read(1 << 16))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""


def assert_hardened(response: bytes) -> None:
    head = response.partition(b"\r\n\r\n")[0].decode("latin-1").lower().split("\r\n")
    assert "x-content-type-options: nosniff" in head
    assert "server: haulout" in head
    assert sum(line.startswith("server:") for line in head) == 1


async def test_malformed_requests_are_neither_logged_nor_echoed(
    ports: dict[Port, int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for name, request in MALFORMED.items():
            for port, number in ports.items():
                response = await send_request(port, number, request)
                case = f"{name}, {port.name}: {response[:200]!r}"
                assert SECRET.encode() not in response, case
                assert SECRET[:12] not in caplog.text, f"{case}\n{caplog.text}"
                assert "Traceback" not in caplog.text, f"{case}\n{caplog.text}"
                assert not [record for record in caplog.records if record.levelno >= logging.ERROR], case
                if response:
                    assert_hardened(response)


@pytest.mark.parametrize(
    ("port", "head"), [(Port.WEBHOOK, _REVIEW), (Port.DASHBOARD, _CHECK)], ids=["webhook", "dashboard"]
)
async def test_malformed_chunk_in_a_body_is_a_bad_request(
    ports: dict[Port, int], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, port: Port, head: bytes
) -> None:
    """The parser in Python raises it where the body is read; the one in C lets the reader wait for its deadline."""
    monkeypatch.setattr(web_protocol, "HttpRequestParser", HttpRequestParserPy)
    with caplog.at_level(logging.DEBUG):
        async with connected(port, ports[port]) as (reader, writer), asyncio.timeout(10):
            writer.write(head + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
            assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n")  # its handler reads the body now
            writer.write(b"2\r\n{}\r\n" + _S + b"\r\n\r\n")
            response = await reader.read()
    assert b" 400 Bad Request\r\n" in response
    assert_hardened(response)
    assert _S not in response
    assert SECRET[:12] not in caplog.text
    assert "Traceback" not in caplog.text


async def test_malformed_request_is_logged_in_one_line_with_its_address(
    ports: dict[Port, int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="haulout.httpserver.connections"):
        response = await send_request(Port.DASHBOARD, ports[Port.DASHBOARD], MALFORMED["stray CR in a header"])
    assert response.startswith(b"HTTP/1.0 400 Bad Request\r\n")
    assert response.endswith(b"\r\n\r\nbad request\n")
    (line,) = [record.getMessage() for record in caplog.records if "bad request" in record.getMessage()]
    assert line.startswith("a bad request of 127.0.0.1 to dashboard: ")


async def test_responses_of_all_ports_have_security_headers(ports: dict[Port, int]) -> None:
    for name, request in WELL_FORMED.items():
        for port, number in ports.items():
            response = await send_request(port, number, request)
            assert response, (name, port)
            assert_hardened(response)
