"""The Google Cloud model over HTTP: the Compute API, tokens, and a metadata server per machine.

    async with serve(cloud, host="127.0.0.1") as port: …

The metadata server of a machine is at /machines/NAME/computeMetadata/v1/, because all machines share one address.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.clouds.gcp.cloud import GcpCloud
from haulout_sandbox.clouds.http_server import serve_app
from haulout_sandbox.https_server import listen

_PATHS = (
    "/compute/v1/{path:.*}",
    "/machines/{path:.*}",
    "/computeMetadata/{path:.*}",
)


@asynccontextmanager
async def serve(cloud: GcpCloud, *, host: str, port: int = 0) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port."""
    app = web.Application()
    add_routes(app, cloud)
    async with serve_app(app, listen(host, port)) as bound_port:
        yield bound_port


def add_routes(app: web.Application, cloud: GcpCloud) -> None:
    """Add the routes of a cloud."""

    async def handle(request: web.Request) -> web.Response:
        try:
            answer = await cloud.answer(request.method, request.path_qs, request.headers, await request.read())
        except CloudError:  # no response must be sent
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        return web.Response(status=answer.status, headers=dict(answer.headers), body=answer.body)

    for path in _PATHS:
        app.router.add_route("*", path, handle)
