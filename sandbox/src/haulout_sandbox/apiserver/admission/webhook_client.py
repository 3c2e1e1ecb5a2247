"""How the API server reaches admission webhooks: in-process on simulated time, or over HTTPS.

    cluster = ApiServer(clock)
    cluster.webhooks.serve("https://guard.example/validate", handler)
    cluster.webhooks.serve(service_url("haulout", "webhook", path="/validate"), handler)

A handler gets the AdmissionReview and returns one; it may use the cluster meanwhile. URLs that are not served
in-process go to `fallback`, usually an `HttpsWebhookClient`; without a fallback such calls fail. There is no cluster
network, so the `HttpsWebhookClient` has a table of services and their addresses.
"""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

import aiohttp
import msgspec

from haulout.kube.transports.tls import TlsClientConfig, client_context
from haulout_sandbox.apiserver.admission.webhook import WebhookCall, WebhookResult
from haulout_sandbox.apiserver.kinds.kind import JsonObject

Handler = Callable[[JsonObject], Awaitable[JsonObject]]
"""From an AdmissionReview that asks to one that answers."""

_OK = 200
_HTTPS_PORT = 443


class WebhookCallFailed(Exception):
    """The call returned no usable response; the message says why."""


class WebhookClient(Protocol):
    async def call(self, client_config: JsonObject, review: JsonObject, *, query: str) -> JsonObject:
        """Return the response; raise `WebhookCallFailed`. The `query` of the URL contains the server's timeout."""
        ...


async def call_webhooks(client: WebhookClient, calls: Iterable[WebhookCall]) -> dict[str, WebhookResult]:
    """Make all calls concurrently; return their results by the keys of the calls."""
    async with asyncio.TaskGroup() as group:
        tasks = {call.key: group.create_task(_call_webhook(client, call)) for call in calls}
    return {key: task.result() for key, task in tasks.items()}


async def _call_webhook(client: WebhookClient, call: WebhookCall) -> WebhookResult:
    query = f"timeout={call.timeout.total_seconds():g}s"
    try:
        async with asyncio.timeout(call.timeout.total_seconds()):
            review = await client.call(call.client_config, call.review, query=query)
    except WebhookCallFailed as error:
        return WebhookResult(failure=str(error))
    except TimeoutError:
        return WebhookResult(failure=_post_error(webhook_url(call.client_config), query, "context deadline exceeded"))
    return WebhookResult(review, call.review["request"]["uid"])


def service_url(namespace: str, name: str, *, path: str = "", port: int = _HTTPS_PORT) -> str:
    """Return the URL under which a service is registered."""
    return f"https://{name}.{namespace}.svc:{port}{path}"


def webhook_url(client_config: JsonObject) -> str:
    service = client_config.get("service")
    if not service:
        return str(client_config["url"])
    path, port = service.get("path") or "", service.get("port") or _HTTPS_PORT
    return service_url(service["namespace"], service["name"], path=path, port=port)


class LocalWebhooks:
    def __init__(self, *, fallback: WebhookClient | None = None) -> None:
        self._handlers: dict[str, Handler] = {}
        self._fallback = fallback

    def serve(self, url: str, handler: Handler) -> None:
        """Register `handler` for calls to `url`."""
        self._handlers[url] = handler

    def stop(self, url: str) -> None:
        del self._handlers[url]

    async def call(self, client_config: JsonObject, review: JsonObject, *, query: str) -> JsonObject:
        url = webhook_url(client_config)
        handler = self._handlers.get(url)
        if handler is None and self._fallback is not None:
            return await self._fallback.call(client_config, review, query=query)
        if handler is None:
            raise WebhookCallFailed(_post_error(url, query, "connect: connection refused"))
        # Encode and decode as the network does: neither side sees the other's changes of the object.
        return _decode_review(msgspec.json.encode(await handler(msgspec.json.decode(msgspec.json.encode(review)))))


class HttpsWebhookClient:
    """Calls webhooks over the network; `services` maps (namespace, name, port) to a host with a port."""

    def __init__(self, services: Mapping[tuple[str, str, int], str] | None = None) -> None:
        self._services = dict(services or {})

    async def call(self, client_config: JsonObject, review: JsonObject, *, query: str) -> JsonObject:
        url = webhook_url(client_config)
        target, server_name = self._resolve(client_config, url, query)
        bundle = base64.b64decode(client_config.get("caBundle") or "")
        body = msgspec.json.encode(review)
        headers = {"content-type": "application/json", "accept": "application/json, */*"}
        try:
            tls = client_context(TlsClientConfig(ca_pem=bundle or None), None, owner="the API server")
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
                session.post(
                    f"{target}?{query}", data=body, headers=headers, ssl=tls, server_hostname=server_name
                ) as response,
            ):
                return _decode_response(response.status, await response.read())
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise WebhookCallFailed(_post_error(url, query, str(error))) from None

    def _resolve(self, client_config: JsonObject, url: str, query: str) -> tuple[str, str | None]:
        """Return the URL to post to, and the TLS server name if it differs."""
        service = client_config.get("service")
        if not service:
            return url, None
        namespace, name, port = service["namespace"], service["name"], service.get("port") or _HTTPS_PORT
        address = self._services.get((namespace, name, port))
        if address is None:
            raise WebhookCallFailed(_post_error(url, query, f'service "{name}" not found'))
        return f"https://{address}{service.get('path') or ''}", f"{name}.{namespace}.svc"


def _post_error(url: str, query: str, problem: str) -> str:
    return f'Post "{url}?{query}": {problem}'


def _decode_response(code: int, body: bytes) -> JsonObject:
    if code != _OK:
        raise WebhookCallFailed(f"it answered with the status {code}")
    return _decode_review(body)


def _decode_review(body: bytes) -> JsonObject:
    try:
        review = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        review = None
    if not isinstance(review, dict):
        raise WebhookCallFailed("its answer is no AdmissionReview")
    return review
