"""Stand-ins for the outside world, and messages to send there."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from haulout.errors import OutsideError
from haulout.profiles.plugin import Message, Reply, State
from haulout.profiles.smtp import Envelope
from haulout_sandbox.event_loops.virtual import EPOCH

_SOON = timedelta(seconds=10)


def a_message(node: str = "n1", *, now: datetime = EPOCH, client: Any = None, **changes: Any) -> Message:
    """Return what is to be told about a node that has just come into maintenance."""
    told: dict[str, Any] = {
        "raw": {"metadata": {"name": node, "uid": f"uid-of-{node}", "labels": {"zone": "a"}}},
        "state": State.IN_MAINTENANCE,
        "profile": "kernel",
        "is_in_maintenance": True,
        "last_transition": now,
        "logs_details": False,
        "current": "kernel",
        "last": "kernel",
        "now": now,
        "client": client,
    }
    return Message(**(told | changes))


@dataclass(frozen=True)
class Asked:
    """A request that was sent."""

    method: str
    url: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """Return its body, read as JSON."""
        return json.loads(self.body)


Given = tuple[int, bytes] | Exception
Behaviour = Callable[[Asked], Given]


@dataclass
class FakeOutside:
    """Answers as it is told: by `behave`, or with its next answer; else with `ok`. Remembers what it was sent."""

    answers: list[Given] = field(default_factory=list)
    behave: Behaviour | None = None
    takes: timedelta = timedelta()  # how long an answer or a letter takes
    requests: list[Asked] = field(default_factory=list)
    letters: list[Envelope] = field(default_factory=list)

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = _SOON,  # noqa: ASYNC109 - part of the Outside protocol
    ) -> tuple[int, bytes]:
        """Answer."""
        del timeout
        reply = await self.exchange(method, url, body=body, headers=headers)
        return reply.status, reply.body

    async def exchange(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Answer, without headers."""
        asked = Asked(method, url, body, dict(headers or {}))
        self.requests.append(asked)
        await self._wait()
        return Reply(*self._given(asked), {})

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return no Secret."""
        raise OutsideError(f"there is no Secret {namespace}/{name}")

    async def file(self, path: str) -> bytes:
        """Return no file."""
        raise OutsideError(f"there is no file {path}")

    async def mail(self, envelope: Envelope) -> None:
        """Take a letter."""
        await self._wait()
        self._given(Asked("MAIL", envelope.server, envelope.letter, {}))
        self.letters.append(envelope)

    def _given(self, asked: Asked) -> tuple[int, bytes]:
        given = self.behave(asked) if self.behave else self.answers.pop(0) if self.answers else (200, b"ok")
        if isinstance(given, Exception):
            raise given
        return given

    async def _wait(self) -> None:
        if self.takes:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=self.takes.total_seconds())


@dataclass
class FakeSlack:
    """Slack's Web API: messages get time stamps, and may be replies to a message that is there."""

    token: str = "xoxb-1"
    posts: list[Mapping[str, str]] = field(default_factory=list)
    problem: str = ""  # what it says to all that comes

    def __call__(self, asked: Asked) -> Given:
        """Answer a request, as a behaviour of `FakeOutside`."""
        if not asked.url.endswith("/api/chat.postMessage"):
            return OutsideError("slack.com: 404")
        return 200, json.dumps(self.answer(asked.headers.get("Authorization", ""), asked.json)).encode()

    def answer(self, authorization: str, body: Mapping[str, str]) -> Mapping[str, Any]:
        """Take a message."""
        if self.problem:
            return {"ok": False, "error": self.problem}
        if authorization != f"Bearer {self.token}":
            return {"ok": False, "error": "invalid_auth"}
        thread = body.get("thread_ts")
        if thread and thread not in [it["ts"] for it in self.posts]:
            return {"ok": False, "error": "invalid_thread_ts"}
        stamp = f"1700000000.{len(self.posts):06}"
        self.posts.append({**body, "ts": stamp})
        return {"ok": True, "channel": body["channel"], "ts": stamp}

    @property
    def titles(self) -> list[str]:
        """Return the texts of messages that began a thread."""
        return [it["text"] for it in self.posts if "thread_ts" not in it]

    @property
    def replies(self) -> list[tuple[str, str]]:
        """Return the texts of replies, each after the title of its thread."""
        by_stamp = {it["ts"]: it["text"] for it in self.posts}
        return [(by_stamp[it["thread_ts"]], it["text"]) for it in self.posts if "thread_ts" in it]
