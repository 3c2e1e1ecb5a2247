"""`/metrics` over HTTPS with authentication, where the monitoring of the Node Maintenance Operator scrapes it.

The server uses the webhook's certificate. `haulout.httpserver.delegated_auth` requires the permission to `get` the
non-resource URL `/metrics`, which the ClusterRole `node-maintenance-operator-metrics-reader` grants.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from haulout.httpserver import connections
from haulout.httpserver.delegated_auth import DelegatedAuth
from haulout.httpserver.listener import listen
from haulout.httpserver.metrics import CONTENT_TYPE

if TYPE_CHECKING:  # this import costs 8 MB of memory, which only replicas that serve the webhook should pay
    from haulout.httpserver.serving_certificate import ServingCertificate

PORT = 8443
PATH = "/metrics"
SERVICE = "node-maintenance-operator-controller-manager-metrics-service"
READER_ROLE = "node-maintenance-operator-metrics-reader"


class SecureMetricsServer:
    """Serves the result of `metrics` to authorized callers."""

    def __init__(self, auth: DelegatedAuth, *, metrics: Callable[[], bytes]) -> None:
        self._auth = auth
        self._metrics = metrics

    @contextlib.asynccontextmanager
    async def serve(
        self, serving_certificate: "ServingCertificate", *, host: str | None = None, port: int = PORT
    ) -> AsyncIterator[int]:
        """Listen while the context lasts; yield the port."""
        app = web.Application()
        app.router.add_get(PATH, self._handle)
        async with listen(
            app,
            host=host,
            port=port,
            what="secure metrics",
            limits=connections.SECURE_METRICS,
            tls=serving_certificate.context,
        ) as bound_port:
            yield bound_port

    async def _handle(self, request: web.Request) -> web.Response:
        decision = await self._auth.authorize_get(PATH, authorization=request.headers.get("Authorization", ""))
        if decision.is_allowed:
            return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})
        challenge = {"WWW-Authenticate": "Bearer"} if decision.status is HTTPStatus.UNAUTHORIZED else None
        return web.Response(status=decision.status, text=f"{decision.reason}\n", headers=challenge)
