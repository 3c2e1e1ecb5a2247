"""Handing a letter to a mail server: SMTP, as much of it as a notification needs.

By hand over asyncio's streams and not by a library in a thread, since a thread can neither be cancelled nor given one
limit in time for the whole dialogue. The rules are those of Go's `net/smtp`, which existing configurations rely on:

- TLS by STARTTLS as soon as the server offers it, with its certificate checked; from the start on port 465;
- a password is sent only over TLS, or to this very machine; and only by AUTH PLAIN;
- a letter is for all of its recipients or for none.

A letter counts as delivered when the server has taken it. What it says after that (or does not) changes nothing.
"""

import asyncio
import base64
import contextlib
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from haulout.errors import OutsideError, Unsendable
from haulout.profiles.said import no_answer, quoted, why

_TLS_FROM_THE_START = 465
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_GOODBYE = timedelta(seconds=2)
_LONGEST_LINE = 1 << 13
_MOST_LINES = 100
_REPLY = re.compile(rb"(?P<code>[2-5]\d\d)(?P<more>[- ]?)(?P<text>.*)")
_BARE_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who we are to a mail server."""

    user: str
    password: str = field(repr=False)
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A letter, who it is from and for, and who takes it."""

    server: str  # host:port
    sender: str
    recipients: tuple[str, ...]
    letter: bytes = field(repr=False)  # headers and text, 7-bit; any line ends
    login: Login | None = None


def split_server(server: str) -> tuple[str, int] | None:
    """Return host and port of `host:port`, also of `[::1]:25`; None if it is something else."""
    host, colon, port = server.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = colon and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16
    return (host, int(port)) if is_port and host and not host.startswith("[") else None


async def deliver(envelope: Envelope, *, tls: ssl.SSLContext, within: timedelta) -> None:
    """Hand over a letter; raises `OutsideError` if the server did not take it."""
    address = split_server(envelope.server)
    if address is None:
        raise Unsendable(f"mail server {quoted(envelope.server)}: expected host:port")
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(within.total_seconds()):
                dialogue = await stack.enter_async_context(_connected(*address, tls=tls))
                await _hand_over(dialogue, envelope)
        except TimeoutError:
            raise OutsideError(no_answer(f"mail server {envelope.server}", within)) from None
        except OSError as error:
            raise OutsideError(f"mail server {envelope.server}: {why(error)}") from None
        await _say_goodbye(dialogue)


async def _hand_over(dialogue: "_Dialogue", envelope: Envelope) -> None:
    await dialogue.begin()
    if envelope.login is not None:
        await dialogue.log_in(envelope.login)
    await dialogue.ask(f"MAIL FROM:<{envelope.sender}>{dialogue.letters_for(envelope)}", 250, doing="sender")
    for recipient in envelope.recipients:
        await dialogue.ask(f"RCPT TO:<{recipient}>", 250, 251, doing=f"recipient {recipient}")
    await dialogue.ask("DATA", 354, doing="a letter")
    await dialogue.ask(_stuffed(envelope.letter), 250, doing="the letter")


async def _say_goodbye(dialogue: "_Dialogue") -> None:
    with contextlib.suppress(OSError, OutsideError):  # a TimeoutError is an OSError
        async with asyncio.timeout(_GOODBYE.total_seconds()):
            await dialogue.ask("QUIT", 221, doing="goodbye")


def _stuffed(letter: bytes) -> bytes:
    """Return a letter as it goes over the line: a line with a dot alone is its end, so other dots get a second one."""
    lines = _BARE_LINE_END.split(letter)
    if not lines[-1]:
        lines.pop()
    return b"".join(b".%s\r\n" % line if line.startswith(b".") else b"%s\r\n" % line for line in lines) + b"."


@asynccontextmanager
async def _connected(host: str, port: int, *, tls: ssl.SSLContext) -> AsyncGenerator["_Dialogue"]:
    secure = port == _TLS_FROM_THE_START
    reader, writer = await asyncio.open_connection(host, port, ssl=tls if secure else None, limit=_LONGEST_LINE)
    try:
        yield _Dialogue(reader, writer, host=host, port=port, tls=tls, is_secure=secure)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_GOODBYE.total_seconds()):
                await writer.wait_closed()


class _Reply(NamedTuple):
    code: int
    lines: tuple[str, ...]


class _Dialogue:
    """What is said between a mail server and us."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext,
        is_secure: bool,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self._who = f"mail server {host}:{port}"
        self._tls = tls
        self._is_secure = is_secure
        self._offers: Mapping[str, str] = {}
        self._secrets: list[str] = []

    async def begin(self) -> None:
        """Greet each other, and go on behind TLS if the server can."""
        self._expect(await self._reply(), 220, doing="us")
        await self._greet()
        if "STARTTLS" in self._offers and not self._is_secure:
            await self.ask("STARTTLS", 220, doing="STARTTLS")
            await self._refuse_what_came_early()
            await self._writer.start_tls(self._tls, server_hostname=self._host)
            self._is_secure = True
            await self._greet()

    async def log_in(self, login: Login) -> None:
        """Tell who we are; never in the open."""
        if not self._is_secure and self._host not in _LOCAL:
            raise OutsideError(f"{self._who} does not offer TLS, and a password is not sent without")
        if "AUTH" not in self._offers:
            raise OutsideError(f"{self._who} does not let anybody log in; leave out auth")
        plain = f"{login.identity}\0{login.user}\0{login.password}"
        token = base64.b64encode(plain.encode()).decode()
        self._secrets += [login.password, token]
        await self.ask(f"AUTH PLAIN {token}", 235, doing=f"user {login.user}")

    def letters_for(self, envelope: Envelope) -> str:
        """Return what must be said beside the sender: whether addresses have letters beyond ASCII."""
        if all(it.isascii() for it in (envelope.sender, *envelope.recipients)):
            return ""
        if "SMTPUTF8" not in self._offers:
            raise OutsideError(f"{self._who} takes no addresses with letters beyond ASCII")
        return " SMTPUTF8"

    async def ask(self, line: str | bytes, *codes: int, doing: str) -> _Reply:
        """Say something and return the reply, which must have one of the codes."""
        if isinstance(line, str) and any(it in line for it in "\r\n"):
            raise OutsideError(f"{self._who} cannot be told of {quoted(doing)}: there is a line break in it")
        self._writer.write((line if isinstance(line, bytes) else line.encode()) + b"\r\n")
        await self._writer.drain()
        return self._expect(await self._reply(), *codes, doing=doing)

    async def _greet(self) -> None:
        try:
            reply = await self.ask("EHLO localhost", 250, doing="us")
        except OutsideError:
            await self.ask("HELO localhost", 250, doing="us")
            self._offers = {}
            return
        words = (line.partition(" ") for line in reply.lines[1:])
        self._offers = {name.upper(): rest for name, _, rest in words}

    async def _refuse_what_came_early(self) -> None:
        """See that nothing is in the buffer which came in the open and would be believed as if it had come by TLS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await self._reader.read(1)
            raise OutsideError(f"{self._who} said more than it may before TLS began")

    async def _reply(self) -> _Reply:
        lines: list[str] = []
        for _ in range(_MOST_LINES):
            try:
                line = await self._reader.readline()
            except ValueError:
                raise OutsideError(f"{self._who} does not speak SMTP: its reply has no end") from None
            if not line.endswith(b"\n"):
                raise OutsideError(f"{self._who} hung up")
            found = _REPLY.fullmatch(line.rstrip())
            if found is None:
                raise OutsideError(f"{self._who} does not speak SMTP: it said {self._shown(line)}")
            lines.append(found["text"].decode(errors="replace"))
            if found["more"] != b"-":
                return _Reply(int(found["code"]), tuple(lines))
        raise OutsideError(f"{self._who} does not speak SMTP: its reply has no end")

    def _expect(self, reply: _Reply, *codes: int, doing: str) -> _Reply:
        if reply.code in codes:
            return reply
        said = self._shown(f"{reply.code} {' '.join(reply.lines)}".encode())
        raise OutsideError(f"{self._who} does not take {doing}: it said {said}")

    def _shown(self, said: bytes) -> str:
        return quoted(said, secrets=self._secrets)
