"""Asks an API server what no proper client would: bytes as they are, over TLS, one connection for each request."""

import json
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_PATIENCE_SECONDS = 20


class Said(NamedTuple):
    """What a server answered."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> tuple[int, str, str]:
        """Return the code, reason and message of a Status; of another answer the code and its first words."""
        try:
            told: Any = json.loads(self.body)
        except ValueError:
            return self.code, "", self.body.decode(errors="replace").strip()
        if isinstance(told, dict) and told.get("kind") == "Status" and told.get("status") == "Failure":
            return self.code, told.get("reason", ""), told["message"]
        return self.code, "", ""


@dataclass(frozen=True)
class RawClient:
    """Whoever holds `token`, at the server with this address; `ca` vouches for it."""

    server: str
    ca: bytes
    token: str = ""

    def ask(
        self,
        method: str | bytes,
        path: str | bytes,
        body: bytes | None = None,
        *,
        content_type: str | None = "application/json",
        headers: Sequence[tuple[str, str]] = (),
        chunked: bool = False,
        token: str | None = None,
    ) -> Said:
        """Send one request and read the answer, which may come before all is sent."""
        token = self.token if token is None else token
        lines = [("Host", "sandbox"), *([("Authorization", f"Bearer {token}")] if token else [])]
        if body is not None:
            lines += [("Content-Type", content_type)] if content_type is not None else []
            lines += [("Transfer-Encoding", "chunked")] if chunked else [("Content-Length", str(len(body)))]
        head = b"".join(f"{name}: {value}\r\n".encode() for name, value in (*lines, *headers))
        first = b" ".join(it.encode() if isinstance(it, str) else it for it in (method, path, "HTTP/1.1"))
        sent = _chunks(body or b"") if chunked else body or b""
        return self.exchange(b"\r\n".join((first, head)) + b"\r\n", sent, has_body=method != "HEAD")

    def exchange(self, *pieces: bytes, has_body: bool = True) -> Said:
        """Send these bytes and read the answer."""
        address = urlsplit(self.server)
        tls = _trusting(self.ca)
        with (
            socket.create_connection((address.hostname, address.port), timeout=_PATIENCE_SECONDS) as plain,
            tls.wrap_socket(plain, server_hostname=address.hostname) as line,
        ):
            with suppress(OSError):  # it may hang up before it has heard all
                for piece in pieces:
                    line.sendall(piece)
            return _answer(line, has_body=has_body)


@lru_cache
def _trusting(ca: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca.decode())


def _chunks(body: bytes) -> bytes:
    size = 1 << 16
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def _answer(line: ssl.SSLSocket, *, has_body: bool) -> Said:
    with line.makefile("rb") as read:
        code = int(read.readline().split()[1])
        headers: dict[str, str] = {}
        while field := read.readline().strip():
            name, _, value = field.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if not has_body:
            return Said(code, headers, b"")
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while length := int(read.readline(), 16):
                body += read.read(length)
                read.readline()
        else:
            closes = headers.get("connection") == "close"
            body = read.read(int(headers.get("content-length", -1 if closes else 0)))
    return Said(code, headers, body)
