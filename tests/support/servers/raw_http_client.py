"""Sends raw bytes to an API server over TLS, as no proper client would, with one connection per request."""

import json
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 20


class RawResponse(NamedTuple):
    """What a server answered."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> tuple[int, str, str]:
        """Return the code, reason and message of a Status; of another answer the code and its first words."""
        try:
            decoded: Any = json.loads(self.body)
        except ValueError:
            return self.code, "", self.body.decode(errors="replace").strip()
        if isinstance(decoded, dict) and decoded.get("kind") == "Status" and decoded.get("status") == "Failure":
            return self.code, decoded.get("reason", ""), decoded["message"]
        return self.code, "", ""


@dataclass(frozen=True)
class RawClient:
    """A client with `token` for the server at this address, whose certificate `ca` has signed."""

    server: str
    ca: bytes
    token: str = ""

    def request(
        self,
        method: str | bytes,
        path: str | bytes,
        body: bytes | None = None,
        *,
        content_type: str | None = "application/json",
        headers: Sequence[tuple[str, str]] = (),
        chunked: bool = False,
        token: str | None = None,
    ) -> RawResponse:
        """Send one request and read the answer, which may come before all is sent."""
        token = self.token if token is None else token
        lines = [("Host", "sandbox"), *([("Authorization", f"Bearer {token}")] if token else [])]
        if body is not None:
            lines += [("Content-Type", content_type)] if content_type is not None else []
            lines += [("Transfer-Encoding", "chunked")] if chunked else [("Content-Length", str(len(body)))]
        head = b"".join(f"{name}: {value}\r\n".encode() for name, value in (*lines, *headers))
        first = b" ".join(piece.encode() if isinstance(piece, str) else piece for piece in (method, path, "HTTP/1.1"))
        sent = _chunks(body or b"") if chunked else body or b""
        return self.exchange(b"\r\n".join((first, head)) + b"\r\n", sent, has_body=method != "HEAD")

    def exchange(self, *pieces: bytes, has_body: bool = True) -> RawResponse:
        """Send these bytes and read the answer."""
        address = urlsplit(self.server)
        tls = _tls_context(self.ca)
        with (
            socket.create_connection((address.hostname, address.port), timeout=_TIMEOUT_SECONDS) as plain,
            tls.wrap_socket(plain, server_hostname=address.hostname) as connection,
        ):
            with suppress(OSError):  # the server may close the connection before it has read everything
                for piece in pieces:
                    connection.sendall(piece)
            return _read_response(connection, has_body=has_body)


@lru_cache
def _tls_context(ca: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca.decode())


def _chunks(body: bytes) -> bytes:
    size = 1 << 16
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def _read_response(connection: ssl.SSLSocket, *, has_body: bool) -> RawResponse:
    with connection.makefile("rb") as read:
        code = int(read.readline().split()[1])
        headers: dict[str, str] = {}
        while field := read.readline().strip():
            name, _, value = field.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if not has_body:
            return RawResponse(code, headers, b"")
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while length := int(read.readline(), 16):
                body += read.read(length)
                read.readline()
        else:
            closes = headers.get("connection") == "close"
            body = read.read(int(headers.get("content-length", -1 if closes else 0)))
    return RawResponse(code, headers, body)
