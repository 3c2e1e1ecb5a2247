"""A fake client for external services, and messages to send with it."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from haulout.controllers.profiles.external.smtp import Envelope
from haulout.controllers.profiles.plugin import HttpResponse, Message, State
from haulout.errors import ExternalError
from haulout_sandbox.event_loops.virtual_time import EPOCH

_TIMEOUT = timedelta(seconds=10)


def a_message(node: str = "n1", *, now: datetime = EPOCH, client: Any = None, **changes: Any) -> Message:
    """Return the message about a node that has just entered maintenance."""
    fields: dict[str, Any] = {
        "raw_node": {"metadata": {"name": node, "uid": f"uid-of-{node}", "labels": {"zone": "a"}}},
        "state": State.IN_MAINTENANCE,
        "profile": "kernel",
        "is_in_maintenance": True,
        "last_transition": now,
        "logs_details": False,
        "current_profile": "kernel",
        "last_profile": "kernel",
        "now": now,
        "client": client,
    }
    return Message(**(fields | changes))


@dataclass(frozen=True)
class SentRequest:
    """A request that was sent."""

    method: str
    url: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """Return its body, read as JSON."""
        return json.loads(self.body)


FakeReply = tuple[int, bytes] | Exception
ReplyFunction = Callable[[SentRequest], FakeReply]


@dataclass
class FakeExternalClient:
    """Replies by `reply_to`, or with its next scripted reply, else with `ok`. Records its requests."""

    replies: list[FakeReply] = field(default_factory=list)
    reply_to: ReplyFunction | None = None
    latency: timedelta = timedelta()  # how long a reply or a mail takes
    requests: list[SentRequest] = field(default_factory=list)
    mails: list[Envelope] = field(default_factory=list)

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = _TIMEOUT,
    ) -> HttpResponse:
        """Answer, without headers."""
        del timeout
        sent = SentRequest(method, url, body, dict(headers or {}))
        self.requests.append(sent)
        await self._wait()
        return HttpResponse(*self._reply(sent), {})

    async def read_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return no Secret."""
        raise ExternalError(f"there is no Secret {namespace}/{name}")

    async def read_file(self, path: str) -> bytes:
        """Return no file."""
        raise ExternalError(f"there is no file {path}")

    async def send_mail(self, envelope: Envelope) -> None:
        """Record a mail."""
        await self._wait()
        self._reply(SentRequest("MAIL", envelope.server, envelope.content, {}))
        self.mails.append(envelope)

    def _reply(self, sent: SentRequest) -> tuple[int, bytes]:
        reply = self.reply_to(sent) if self.reply_to else self.replies.pop(0) if self.replies else (200, b"ok")
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _wait(self) -> None:
        if self.latency:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=self.latency.total_seconds())


@dataclass
class FakeSlack:
    """Slack's Web API: messages get time stamps, and may be replies to a message that is there."""

    token: str = "xoxb-1"
    posts: list[Mapping[str, str]] = field(default_factory=list)
    problem: str = ""  # the reply to every request

    def __call__(self, request: SentRequest) -> FakeReply:
        """Answer a request, as a behaviour of `FakeExternalClient`."""
        if not request.url.endswith("/api/chat.postMessage"):
            return ExternalError("slack.com: 404")
        return 200, json.dumps(self.respond(request.headers.get("Authorization", ""), request.json)).encode()

    def respond(self, authorization: str, body: Mapping[str, str]) -> Mapping[str, Any]:
        """Take a message."""
        if self.problem:
            return {"ok": False, "error": self.problem}
        if authorization != f"Bearer {self.token}":
            return {"ok": False, "error": "invalid_auth"}
        thread = body.get("thread_ts")
        if thread and thread not in [post["ts"] for post in self.posts]:
            return {"ok": False, "error": "invalid_thread_ts"}
        stamp = f"1700000000.{len(self.posts):06}"
        self.posts.append({**body, "ts": stamp})
        return {"ok": True, "channel": body["channel"], "ts": stamp}

    @property
    def titles(self) -> list[str]:
        """Return the texts of messages that began a thread."""
        return [post["text"] for post in self.posts if "thread_ts" not in post]

    @property
    def replies(self) -> list[tuple[str, str]]:
        """Return the texts of replies, each after the title of its thread."""
        by_stamp = {post["ts"]: post["text"] for post in self.posts}
        return [(by_stamp[post["thread_ts"]], post["text"]) for post in self.posts if "thread_ts" in post]
