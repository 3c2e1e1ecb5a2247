"""The notification `slackThread`: posts the messages of a period to one Slack thread, which a Lease records.

The holder of the Lease is the thread: the timestamp of its first message. Several processes may send at the same time,
and a period must not get two threads. So a process that finds no current thread claims the Lease first, by
compare-and-swap and for a short time, then starts the thread, and then stores its timestamp. A process that finds a
claim retries later. If the thread cannot be started, the claim is released; if the process crashes, the claim expires.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from haulout.api.objects import Lease, LeaseSpec, object_key
from haulout.api.resources import LEASES
from haulout.controllers.profiles.config.options import option, secret_option
from haulout.controllers.profiles.external.error_text import origin, quote_response, url_problem
from haulout.controllers.profiles.plugin import ExternalClient, Message, Notification
from haulout.controllers.profiles.plugins.notifications._common import render, template_problems
from haulout.errors import AlreadyExists, Conflict, ExternalError, KubeError, NotFound, Unreachable
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.leases import held_until
from haulout.kube.rbac import Permission

_CLAIMED = "haulout is beginning a thread"
_CLAIM_DURATION = timedelta(minutes=1)
_WRITE_ATTEMPTS = 3
_RETRY_DELAY = timedelta(seconds=1)
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackThread(Notification):
    """Posts to Slack as replies in one thread for each period, by the Web API (`chat.postMessage`).

    The first message of a period starts a thread with `title`; all messages of the period are replies in it. A Lease
    records the thread, so that it survives a restart and several processes share it. The Lease is not deleted when
    Haulout is uninstalled.

    The token needs the scope `chat:write`, and the app must be in the channel. `&`, `<` and `>` are escaped: markup for
    links does not work.
    """

    type = "slackThread"
    example = """\
token: ${SLACK_TOKEN}
channel: "#maintenance"
title: Maintenance of today
message: "{{ .Node.Name }} is now {{ .State }}"
leaseName: maintenance-thread
leaseNamespace: kube-system
period: 24h
"""
    object_options = frozenset({"lease_name", "lease_namespace"})

    token: str = secret_option("The token of the Slack app, `xoxb-…`.", required=True)
    channel: str = option("The channel, by name or id.", required=True)
    title: str = option("A template of the message that begins a thread.", required=True)
    message: str = option("A template of the replies.", required=True)
    lease_name: str = option("The name of the Lease that stores the thread.", required=True)
    lease_namespace: str = option("The namespace of the Lease.", required=True)
    period: timedelta = option("For how long replies go into the same thread.", required=True)
    url: str = option(
        "Haulout only, not in the SAP maintenance-controller: the URL of the Web API, such as "
        "`https://slack-gov.com/api/`.",
        default="https://slack.com/api/",
    )

    async def send(self, message: Message, external: ExternalClient) -> None:
        """Post the reply; start the thread first if there is no current one."""
        title, text = render("title", self.title, message), render("message", self.message, message)
        lease = _ThreadLease(message.client, self.lease_name, self.lease_namespace)
        try:
            thread = await lease.current() or await self._start_thread(title, lease, external)
        except KubeError as error:
            key = object_key(self.lease_name, self.lease_namespace)
            raise ExternalError(f"the thread in Lease {key} is unknown: {error}") from None
        await self._post(text, external, thread=thread)

    def problems(self) -> Iterator[tuple[str, str]]:
        if problem := url_problem(self.url):
            yield "url", problem

    def warnings(self) -> Iterator[tuple[str, str]]:
        if self.period < timedelta(seconds=1):
            yield "period", "found less than a second, which counts as one, expected a duration such as 24h"

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        """Return the permissions to record the thread in the Lease."""
        del namespace
        return leases.permissions(namespace=self.lease_namespace, why="keep Slack threads", names=(self.lease_name,))

    def template_problems(self) -> Iterator[tuple[str, str]]:
        yield from template_problems(title=self.title, message=self.message)

    async def _start_thread(self, title: str, lease: "_ThreadLease", external: ExternalClient) -> str:
        """Start a thread and return its timestamp."""
        await lease.claim()
        try:
            thread = await self._post(title, external)
        except ExternalError:
            await lease.release()
            raise
        await lease.store(thread, self.period)
        return thread

    async def _post(self, text: str, external: ExternalClient, *, thread: str = "") -> str:
        """Post a message and return its timestamp."""
        token = self.token.strip()
        body: dict[str, Any] = {"channel": self.channel, "text": text.translate(_ESCAPES)}
        if thread:
            body["thread_ts"] = thread
        response = await external.request(
            "POST",
            f"{self.url.strip().rstrip('/')}/chat.postMessage",
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json; charset=utf-8", "Authorization": f"Bearer {token}"},
        )
        try:
            answer = msgspec.json.decode(response.body, type=_SlackResponse)
        except msgspec.DecodeError:
            quoted_body = quote_response(response.body, secrets=(token,))
            raise ExternalError(
                f"{origin(self.url)} does not answer like the Slack API: status {response.status}: {quoted_body}"
            ) from None
        if not answer.ok or not answer.ts:
            quoted_body = quote_response(answer.error or "no reason given", secrets=(token,))
            raise ExternalError(f"Slack does not accept the message for {self.channel}: {quoted_body}")
        return answer.ts


class _SlackResponse(msgspec.Struct):
    ok: bool = False
    ts: str = ""
    error: str = ""


class _ThreadLease:
    """The Lease that records the current thread."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._lease: Lease | None = None

    async def current(self) -> str | None:
        """Return the current thread; None if there is none. Raise if another process is starting one."""
        self._lease = await self._client.find(LEASES, self._name, namespace=self._namespace)
        if self._lease is None or held_until(self._lease.spec, now=self._client.clock.now()) is None:
            return None
        if self._lease.spec.holder_identity == _CLAIMED:
            raise self._claimed_error()
        return self._lease.spec.holder_identity or None

    async def claim(self) -> None:
        """Claim the Lease, so that no other process starts a thread. Raise if another process was first."""
        now = self._client.clock.now()
        spec = _spec(_CLAIMED, _CLAIM_DURATION, renew_time=now, acquire_time=None if self._lease else now)
        try:
            await self._write(spec)
        except (AlreadyExists, Conflict, NotFound):
            raise self._claimed_error() from None

    async def store(self, thread: str, period: timedelta) -> None:
        """Store a started thread. Retry, since no other process knows the thread."""
        spec = _spec(thread, period, renew_time=self._client.clock.now())
        for attempts_left in reversed(range(_WRITE_ATTEMPTS)):
            try:
                await self._write(spec)
            except KubeError as error:
                if not attempts_left or not isinstance(error, Unreachable):
                    raise
                await self._client.clock.sleep(_RETRY_DELAY)
            else:
                return

    async def release(self) -> None:
        """Release the claim, so that another process can start a thread at once. If that fails, the claim expires."""
        with contextlib.suppress(KubeError):
            await self._write(_spec(_CLAIMED, timedelta(), renew_time=self._client.clock.now() - _CLAIM_DURATION))

    async def _write(self, spec: LeaseSpec) -> None:
        version = self._lease.resource_version if self._lease else ""
        self._lease = await leases.write(self._client, self._name, spec, namespace=self._namespace, version=version)

    def _claimed_error(self) -> ExternalError:
        key = object_key(self._name, self._namespace)
        return ExternalError(f"another process is starting the thread of Lease {key}; this message waits for it")


def _spec(holder: str, duration: timedelta, **times: Any) -> LeaseSpec:
    return LeaseSpec(holder_identity=holder, lease_duration_seconds=max(int(duration.total_seconds()), 1), **times)
