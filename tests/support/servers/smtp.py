"""A small mail server for tests, with and without TLS and logins, which can also misbehave."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


@dataclass
class ReceivedMail:
    """A received mail, and its connection."""

    sender: str
    recipients: list[str]
    content: bytes
    over_tls: bool
    login: str = ""


@dataclass
class SmtpServer:
    """Receives mail. `replies` replace the usual replies, by SMTP command."""

    tls: ssl.SSLContext | None = None
    offers_auth: bool = False
    auth_mechanisms: str = "PLAIN LOGIN"
    replies: dict[str, bytes] = field(default_factory=dict)
    received: list[ReceivedMail] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve, and return the address."""
        async with serve_connections(self.serve) as address:
            yield address

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        session = _Session(self, reader, writer)
        writer.write(self.replies.get("greeting", b"220 post.test\r\n"))
        while await session.handle_command():
            pass


class _Session:
    def __init__(self, server: SmtpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._mail = ReceivedMail("", [], b"", over_tls=False)
        self._challenged = False

    async def handle_command(self) -> bool:
        """Answer one command; return whether to continue."""
        line = (await self._reader.readline()).decode().rstrip("\r\n")
        if not line:
            return False
        self._server.commands.append(line)
        if self._challenged:
            self._challenged = False
            self._mail.login += " " + base64.b64decode(line).decode()
            self._writer.write(b"235 welcome\r\n")
            return True
        verb = line.split(" ")[0].upper()
        reply = self._server.replies.get(verb)
        self._writer.write(self._default_reply(verb, line) if reply is None else reply)
        await self._writer.drain()
        if verb == "STARTTLS" and self._server.tls:
            await self._writer.start_tls(self._server.tls)
            self._mail.over_tls = True
        if verb == "DATA" and reply is None:
            await self._receive()
        return verb != "QUIT"

    def _default_reply(self, verb: str, line: str) -> bytes:
        match verb:
            case "EHLO":
                return self._ehlo_reply()
            case "STARTTLS":
                return b"220 go ahead\r\n"
            case "AUTH":
                return self._log_in(line.split(" "))
            case "MAIL":
                self._mail.sender = line.split(":", 1)[1]
            case "RCPT":
                self._mail.recipients.append(line.split(":", 1)[1])
            case "DATA":
                return b"354 go on\r\n"
            case "QUIT":
                return b"221 bye\r\n"
        return b"250 fine\r\n"

    def _log_in(self, arguments: list[str]) -> bytes:
        self._mail.login = arguments[1]
        if arguments[1] == "PLAIN":
            self._mail.login = base64.b64decode(arguments[2]).decode()
            return b"235 welcome\r\n"
        self._challenged = True
        return b"334 %s\r\n" % base64.b64encode(b"challenge")

    def _ehlo_reply(self) -> bytes:
        offers = ["post.test", "8BITMIME"]
        offers += ["STARTTLS"] if self._server.tls and not self._mail.over_tls else []
        offers += [f"AUTH {self._server.auth_mechanisms}"] if self._server.offers_auth else []
        *first, last = offers
        return b"".join(f"250-{offer}\r\n".encode() for offer in first) + f"250 {last}\r\n".encode()

    async def _receive(self) -> None:
        self._mail.content = (await self._reader.readuntil(b"\r\n.\r\n"))[:-3]
        self._writer.write(self._server.replies.get("letter", b"250 taken\r\n"))
        if "letter" not in self._server.replies:
            self._server.received.append(self._mail)


@asynccontextmanager
async def serve_connections(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve connections with `handler`, and return the address: `127.0.0.1:port`."""
    writers: set[asyncio.StreamWriter] = set()
    tasks: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        tasks.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            done = handler(reader, writer)
            if asyncio.iscoroutine(done):
                await done
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"{host}:{port}"
    finally:
        server.close()
        if tasks:
            await asyncio.wait({*filter(None, tasks)}, timeout=1)  # the client closes its side first
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*filter(None, tasks))
