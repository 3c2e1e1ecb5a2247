"""The Google Cloud model over HTTP: the Compute API, tokens, and a metadata server per machine.

    async with serve(cloud, host="127.0.0.1") as port: …

The metadata server of a machine is at /machines/NAME/computeMetadata/v1/, because all machines share one address.
"""

from functools import partial

from aiohttp import web

from haulout_sandbox.clouds.gcp.cloud import GcpCloud
from haulout_sandbox.clouds.gcp.request_handler import HttpResponse
from haulout_sandbox.clouds.http_server import add_forwarding_route, serve_routes

_PATHS = ("/compute/v1/{path:.*}", "/machines/{path:.*}", "/computeMetadata/{path:.*}")


def add_routes(app: web.Application, cloud: GcpCloud) -> None:
    async def answer(request: web.Request) -> HttpResponse:
        return await cloud.answer(request.method, request.path_qs, request.headers, await request.read())

    for path in _PATHS:
        add_forwarding_route(app, path, answer)


serve = partial(serve_routes, add_routes)
