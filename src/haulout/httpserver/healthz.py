"""Health probes for the kubelet: `/healthz` and `/readyz` over plain HTTP.

`/healthz` succeeds as long as the event loop runs, because a restart repairs only that. `/readyz` returns 200 and `ok`,
or 503 and one reason per line. Warnings that do not affect readiness follow the `ok`: a 503 would remove the pod from
its Services.

`?verbose` adds the details of both. `/healthz/healthz` and `/readyz/readyz` are aliases, as in the SAP
maintenance-controller.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus

from aiohttp import web

from haulout.httpserver import connections
from haulout.httpserver.listener import listen

PORT = 8081
# Probes are answered at once, so there is nothing to wait for.
_SHUTDOWN_TIMEOUT = timedelta(seconds=1)

ReportLines = Callable[[], Sequence[str]]


@contextlib.asynccontextmanager
async def serve(
    not_ready: ReportLines,
    *,
    warnings: ReportLines = tuple,
    details: ReportLines = tuple,
    host: str | None = None,
    port: int = PORT,
) -> AsyncIterator[int]:
    """Serve the probes while the context lasts; yield the port.

    `not_ready` returns one line per reason, and nothing if we are ready. `warnings` returns lines that need attention
    but do not affect readiness. `details` returns the lines of `?verbose`.
    """

    def verbose_lines(request: web.Request) -> Sequence[str]:
        return details() if "verbose" in request.query else ()

    async def healthz(request: web.Request) -> web.Response:
        return _response([*verbose_lines(request), "ok"])

    async def readyz(request: web.Request) -> web.Response:
        reasons = not_ready()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _response([*verbose_lines(request), *(reasons or ("ok",)), *warnings()], status)

    app = web.Application()
    for path, handler in (("/healthz", healthz), ("/readyz", readyz)):
        app.router.add_get(path, handler)
        app.router.add_get(path + path, handler)
    async with listen(
        app, host=host, port=port, what="health checks", limits=connections.HEALTH, shutdown_timeout=_SHUTDOWN_TIMEOUT
    ) as bound_port:
        yield bound_port


def _response(lines: Sequence[str], status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    text = "".join(f"{line}\n" for line in lines)
    return web.Response(status=status, text=text)
