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

from haulout.web import connections
from haulout.web.listening import listening

PORT = 8081
_FAREWELL = timedelta(seconds=1)

Lines = Callable[[], Sequence[str]]


@contextlib.asynccontextmanager
async def serving(
    unready: Lines, *, troubles: Lines = tuple, told: Lines = tuple, host: str | None = None, port: int = PORT
) -> AsyncIterator[int]:
    """Answer while the context lasts; yields the port.

    `unready` says why we are not ready, a line each; nothing if we are. `troubles` says what is worth a look, `told`
    how it stands.
    """

    def more(request: web.Request) -> Sequence[str]:
        return told() if "verbose" in request.query else ()

    async def alive(request: web.Request) -> web.Response:
        return _answer([*more(request), "ok"])

    async def ready(request: web.Request) -> web.Response:
        reasons = unready()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _answer([*more(request), *(reasons or ("ok",)), *troubles()], status)

    app = web.Application()
    for path, handler in (("/healthz", alive), ("/readyz", ready)):
        app.router.add_get(path, handler)
        app.router.add_get(path + path, handler)
    async with listening(
        app, host=host, port=port, what="health checks", limits=connections.HEALTH, farewell=_FAREWELL
    ) as chosen:
        yield chosen


def _answer(lines: Sequence[str], status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    text = "".join(f"{line}\n" for line in lines)
    return web.Response(status=status, text=text)
