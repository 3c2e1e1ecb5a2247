"""Whether we are well, for kubelets: `/healthz` and `/readyz` over plain HTTP.

`/healthz` answers for as long as the event loop turns; that is what a restart can mend. `/readyz` says what a check
that somebody else brought says: 200 and `ok`, or 503 and the reasons, a line each. What somebody should look after
though we can be used is told after the `ok`: with a 503 Kubernetes would take us out of service as a whole.

With `?verbose` both tell people how it stands. `/healthz/healthz` and `/readyz/readyz`, as the SAP
maintenance-controller has them, are the same.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus

from aiohttp import web

from haulout.httpserver import connections
from haulout.httpserver.listener import listen

PORT = 8081
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
    """Answer while the context lasts; yields the port.

    `not_ready` says why we are not ready, a line each; nothing if we are. `warnings` says what is worth a look,
    `details` how it stands.
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
