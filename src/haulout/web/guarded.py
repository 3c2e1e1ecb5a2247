"""`/metrics` over HTTPS, for those who may read it: where monitoring of the Node Maintenance Operator looks for it.

The certificate is the webhook's. Who calls is judged by `haulout.web.callers`: the permission that counts is `get` on
the URL `/metrics`, which the ClusterRole `node-maintenance-operator-metrics-reader` grants there and here.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from haulout.web import connections
from haulout.web.callers import Callers
from haulout.web.listening import listening
from haulout.web.metrics import CONTENT_TYPE

if TYPE_CHECKING:  # takes eight megabytes, which only those need who serve the webhook
    from haulout.web.presented import Presented

PORT = 8443
PATH = "/metrics"
SERVICE = "node-maintenance-operator-controller-manager-metrics-service"
READER_ROLE = "node-maintenance-operator-metrics-reader"


class GuardedMetrics:
    """Answers with what `metrics` returns."""

    def __init__(self, callers: Callers, *, metrics: Callable[[], bytes]) -> None:
        self._callers = callers
        self._metrics = metrics

    @contextlib.asynccontextmanager
    async def serving(self, presented: "Presented", *, host: str | None = None, port: int = PORT) -> AsyncIterator[int]:
        """Listen while the context lasts; yields the port."""
        app = web.Application()
        app.router.add_get(PATH, self._answer)
        async with listening(
            app, host=host, port=port, what="guarded metrics", limits=connections.GUARDED_METRICS, tls=presented.context
        ) as chosen:
            yield chosen

    async def _answer(self, request: web.Request) -> web.Response:
        verdict = await self._callers.may_get(PATH, authorization=request.headers.get("Authorization", ""))
        if verdict.is_allowed:
            return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})
        challenge = {"WWW-Authenticate": "Bearer"} if verdict.status is HTTPStatus.UNAUTHORIZED else None
        return web.Response(status=verdict.status, text=f"{verdict.why}\n", headers=challenge)
