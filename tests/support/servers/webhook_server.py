"""An admission webhook over HTTPS with configurable behaviour, which records its requests.

async with a_webhook_server(folder) as webhook:
    webhook.set_behaviour("/no", denies("not today"))
    entry = a_webhook_entry(webhook.client_config("/no"), rule("pods"))
    configuration = a_webhook_configuration("guard", entry)
"""

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import JsonObject
from support.servers.certificates import Authority

Behaviour = Callable[[JsonObject], JsonObject]
"""From an AdmissionRequest to the AdmissionResponse, which need not name the uid."""


class WebhookServer:
    """A webhook for every path; without a behaviour it allows everything."""

    def __init__(self, *, port: int, authority: Authority) -> None:
        self.port = port
        self.requests: list[tuple[str, JsonObject]] = []  # path and AdmissionRequest
        self._authority = authority
        self._behaviours: dict[str, Behaviour] = {}

    def set_behaviour(self, path: str, behaviour: Behaviour) -> None:
        """Set the behaviour for `path`."""
        self._behaviours[path] = behaviour

    def client_config(self, path: str, *, authority: Authority | None = None) -> JsonObject:
        """Return how an API server reaches `path`; another `authority` makes it distrust the certificate."""
        bundle = base64.b64encode((authority or self._authority).pem).decode()
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": bundle}

    async def handle(self, http_request: web.BaseRequest) -> web.StreamResponse:
        """Answer one review."""
        review = msgspec.json.decode(await http_request.read())
        request = review["request"]
        self.requests.append((http_request.path, request))
        admission_response = self._behaviours.get(http_request.path, allows)(request)
        if "raw" in admission_response:
            return web.Response(
                status=admission_response.get("code", 200),
                text=admission_response["raw"],
                content_type="application/json",
            )
        response = {"uid": request["uid"]} | admission_response
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})


@asynccontextmanager
async def a_webhook_server(
    folder: Path, *, names: tuple[str, ...] = ("127.0.0.1", "localhost")
) -> AsyncIterator[WebhookServer]:
    """Serve webhooks on loopback, with a certificate for these names."""
    authority = Authority()
    server = WebhookServer(port=0, authority=authority)
    listener = web.Server(server.handle, access_log=None)
    runner = web.ServerRunner(listener, shutdown_timeout=1)
    await runner.setup()
    try:
        tls = authority.issue(*names).server_context(folder)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        for connection in listener.connections:  # an API server keeps them open for its next request
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()
        await RealClock().sleep(timedelta())  # the loop closes them in its next turn


# Behaviours


def allows(_: JsonObject) -> JsonObject:
    """Allow."""
    return {"allowed": True}


def denies(message: str = "", **status: Any) -> Behaviour:
    """Deny with that status."""
    status_fields = ({"message": message} if message else {}) | status
    return lambda _: {"allowed": False} | ({"status": status_fields} if status_fields else {})


# Configurations


def rule(*resources: str, operations: tuple[str, ...] = ("*",), group: str = "*", **more: Any) -> JsonObject:
    """Return a rule about these resources."""
    scope = {"apiGroups": [group], "apiVersions": ["*"], "resources": list(resources)}
    return scope | {"operations": list(operations)} | more


def a_webhook_entry(
    client_config: JsonObject, *rules: JsonObject, name: str = "guard.example.com", **more: Any
) -> JsonObject:
    """Return one webhook of a configuration."""
    defaults = {"sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return {"name": name, "clientConfig": client_config, "rules": list(rules)} | defaults | more


def a_webhook_configuration(name: str, *hooks: JsonObject) -> JsonObject:
    """Return a configuration of webhooks."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }
