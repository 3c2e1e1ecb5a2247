"""A small mail server for tests, with and without TLS and logins, which can also misbehave."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


@dataclass
class Taken:
    """A letter that was taken, and how it came."""

    sender: str
    recipients: list[str]
    letter: bytes
    over_tls: bool
    login: str = ""


@dataclass
class SmtpServer:
    """Takes letters. `replies` are said instead of the usual, by the first word of what was said to it."""

    tls: ssl.SSLContext | None = None
    offers_login: bool = False
    logins: str = "PLAIN LOGIN"
    replies: dict[str, bytes] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve, and return where."""
        async with serving(self.serve) as address:
            yield address

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        session = _Session(self, reader, writer)
        writer.write(self.replies.get("greeting", b"220 post.test\r\n"))
        while await session.hear():
            pass


class _Session:
    def __init__(self, server: SmtpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._taken = Taken("", [], b"", over_tls=False)
        self._challenged = False

    async def hear(self) -> bool:
        """Hear one command and answer it; return whether to go on."""
        line = (await self._reader.readline()).decode().rstrip("\r\n")
        if not line:
            return False
        self._server.heard.append(line)
        if self._challenged:
            self._challenged = False
            self._taken.login += " " + base64.b64decode(line).decode()
            self._writer.write(b"235 welcome\r\n")
            return True
        word = line.split(" ")[0].upper()
        reply = self._server.replies.get(word)
        self._writer.write(self._usual(word, line) if reply is None else reply)
        await self._writer.drain()
        if word == "STARTTLS" and self._server.tls:
            await self._writer.start_tls(self._server.tls)
            self._taken.over_tls = True
        if word == "DATA" and reply is None:
            await self._take()
        return word != "QUIT"

    def _usual(self, word: str, line: str) -> bytes:
        match word:
            case "EHLO":
                return self._offers()
            case "STARTTLS":
                return b"220 go ahead\r\n"
            case "AUTH":
                return self._log_in(line.split(" "))
            case "MAIL":
                self._taken.sender = line.split(":", 1)[1]
            case "RCPT":
                self._taken.recipients.append(line.split(":", 1)[1])
            case "DATA":
                return b"354 go on\r\n"
            case "QUIT":
                return b"221 bye\r\n"
        return b"250 fine\r\n"

    def _log_in(self, words: list[str]) -> bytes:
        self._taken.login = words[1]
        if words[1] == "PLAIN":
            self._taken.login = base64.b64decode(words[2]).decode()
            return b"235 welcome\r\n"
        self._challenged = True
        return b"334 %s\r\n" % base64.b64encode(b"challenge")

    def _offers(self) -> bytes:
        offers = ["post.test", "8BITMIME"]
        offers += ["STARTTLS"] if self._server.tls and not self._taken.over_tls else []
        offers += [f"AUTH {self._server.logins}"] if self._server.offers_login else []
        *first, last = offers
        return b"".join(f"250-{it}\r\n".encode() for it in first) + f"250 {last}\r\n".encode()

    async def _take(self) -> None:
        self._taken.letter = (await self._reader.readuntil(b"\r\n.\r\n"))[:-3]
        self._writer.write(self._server.replies.get("letter", b"250 taken\r\n"))
        if "letter" not in self._server.replies:
            self._server.taken.append(self._taken)


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve connections by `handler`, and return where: `127.0.0.1:port`."""
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
