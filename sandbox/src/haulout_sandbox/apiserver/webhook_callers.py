"""How the sandbox's API server reaches admission webhooks: in-process on simulated time, or over HTTPS.

    cluster = ApiServer(clock)
    cluster.webhooks.serve("https://guard.example/validate", handler)
    cluster.webhooks.serve(service_url("haulout", "webhook", path="/validate"), handler)

A handler gets the AdmissionReview and returns one; it may use the cluster meanwhile. What is not served in-process is
left to `otherwise`, usually an `HttpsCaller`; without one there is no network, and nobody answers. There is no cluster
network either, so that the `HttpsCaller` has a table of services.
"""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

import aiohttp
import msgspec

from haulout.kube.network.tls import Tls, context_for
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.webhooks import Question, Verdict

Handler = Callable[[JsonObject], Awaitable[JsonObject]]
"""From an AdmissionReview that asks to one that answers."""

_OK = 200
_HTTPS_PORT = 443


class CallFailed(Exception):
    """No usable answer; the message says why."""


class Caller(Protocol):
    """Puts questions to webhooks."""

    async def ask(self, client_config: JsonObject, review: JsonObject, *, query: str) -> JsonObject:
        """Return the answer; raises `CallFailed`. The `query` of the URL tells how long the server waits."""
        ...


async def verdicts(caller: Caller, questions: Iterable[Question]) -> dict[str, Verdict]:
    """Put all questions at once; return the verdicts by the keys of the questions."""
    async with asyncio.TaskGroup() as group:
        tasks = {it.key: group.create_task(_verdict(caller, it)) for it in questions}
    return {key: task.result() for key, task in tasks.items()}


async def _verdict(caller: Caller, question: Question) -> Verdict:
    query = f"timeout={question.timeout.total_seconds():g}s"
    try:
        async with asyncio.timeout(question.timeout.total_seconds()):
            review = await caller.ask(question.client_config, question.review, query=query)
    except CallFailed as problem:
        return Verdict(failure=str(problem))
    except TimeoutError:
        return Verdict(failure=_posting(address_of(question.client_config), query, "context deadline exceeded"))
    return Verdict(review, question.review["request"]["uid"])


def service_url(namespace: str, name: str, *, path: str = "", port: int = _HTTPS_PORT) -> str:
    """Return the URL that stands for a service."""
    return f"https://{name}.{namespace}.svc:{port}{path}"


def address_of(client_config: JsonObject) -> str:
    """Return the URL that a webhook is reached at."""
    service = client_config.get("service")
    if not service:
        return str(client_config["url"])
    path, port = service.get("path") or "", service.get("port") or _HTTPS_PORT
    return service_url(service["namespace"], service["name"], path=path, port=port)


class LocalWebhooks:
    """Webhooks in this process."""

    def __init__(self, *, otherwise: Caller | None = None) -> None:
        self._handlers: dict[str, Handler] = {}
        self._otherwise = otherwise

    def serve(self, url: str, handler: Handler) -> None:
        """Let `handler` answer whoever posts to `url`."""
        self._handlers[url] = handler

    def stop(self, url: str) -> None:
        """Serve `url` no more."""
        del self._handlers[url]

    async def ask(self, client_config: JsonObject, review: JsonObject, *, query: str) -> JsonObject:
        """Return the handler's answer."""
        url = address_of(client_config)
        handler = self._handlers.get(url)
        if handler is None and self._otherwise is not None:
            return await self._otherwise.ask(client_config, review, query=query)
        if handler is None:
            raise CallFailed(_posting(url, query, "connect: connection refused"))
        # The copies are what a wire would make: neither side sees what the other does to its object.
        return _answer(msgspec.json.encode(await handler(msgspec.json.decode(msgspec.json.encode(review)))))


class HttpsCaller:
    """Webhooks on the network; `services` says where (namespace, name, port) listens: a host with a port."""

    def __init__(self, services: Mapping[tuple[str, str, int], str] | None = None) -> None:
        self._services = dict(services or {})

    async def ask(self, client_config: JsonObject, review: JsonObject, *, query: str) -> JsonObject:
        """Post the review, and return what comes back."""
        url = address_of(client_config)
        target, server_name = self._place(client_config, url, query)
        bundle = base64.b64decode(client_config.get("caBundle") or "")
        body = msgspec.json.encode(review)
        headers = {"content-type": "application/json", "accept": "application/json, */*"}
        try:
            tls = context_for(Tls(ca_pem=bundle or None), None, owner="the API server")
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
                session.post(
                    f"{target}?{query}", data=body, headers=headers, ssl=tls, server_hostname=server_name
                ) as response,
            ):
                return _checked(response.status, await response.read())
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise CallFailed(_posting(url, query, str(error))) from None

    def _place(self, client_config: JsonObject, url: str, query: str) -> tuple[str, str | None]:
        """Return the URL to post to, and the name on the certificate if it is another."""
        service = client_config.get("service")
        if not service:
            return url, None
        namespace, name, port = service["namespace"], service["name"], service.get("port") or _HTTPS_PORT
        place = self._services.get((namespace, name, port))
        if place is None:
            raise CallFailed(_posting(url, query, f'service "{name}" not found'))
        return f"https://{place}{service.get('path') or ''}", f"{name}.{namespace}.svc"


def _posting(url: str, query: str, problem: str) -> str:
    return f'Post "{url}?{query}": {problem}'


def _checked(code: int, body: bytes) -> JsonObject:
    if code != _OK:
        raise CallFailed(f"it answered with the status {code}")
    return _answer(body)


def _answer(body: bytes) -> JsonObject:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CallFailed("its answer is no AdmissionReview")
    return found
