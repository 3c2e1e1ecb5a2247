"""Whether we are well, for kubelets: `/healthz` and `/readyz` over plain HTTP.

`/healthz` answers for as long as the event loop turns; that is what a restart can mend. `/readyz` says what a check
that somebody else brought says: 200 and `ok`, or 503 and the reasons, a line each. What somebody should look after
though we can be used is told after the `ok`: with a 503 Kubernetes would take us out of service as a whole.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from http import HTTPStatus

from aiohttp import web

from haulout.web.listening import listening

PORT = 8081
_FAREWELL_SECONDS = 1

Check = Callable[[], Sequence[str]]
"""Returns why we are not ready, a line each; nothing if we are."""


@contextlib.asynccontextmanager
async def serving(
    check: Check, *, troubles: Check = tuple, host: str | None = None, port: int = PORT
) -> AsyncIterator[int]:
    """Answer while the context lasts; yields the port."""

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        reasons = check()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        lines = (*(reasons or ("ok",)), *troubles())
        return web.Response(status=status, text="".join(f"{it}\n" for it in lines))

    app = web.Application()
    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_FAREWELL_SECONDS)
    async with listening(runner, host=host, port=port, what="health checks") as chosen:
        yield chosen
