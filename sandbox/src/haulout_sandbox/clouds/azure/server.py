"""The metadata services of all machines over HTTP, on one address; in Azure each machine has its own.

HAULOUT_AZURE_METADATA=http://127.0.0.1:PORT/azure/MACHINE haulout agent …
"""

from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.clouds.azure.cloud import AzureCloud

PREFIX = "/azure"


def add_routes(app: web.Application, cloud: AzureCloud) -> None:
    """Add the routes for the machines of a cloud."""

    async def handle(request: web.Request) -> web.Response:
        target = f"/metadata/{request.match_info['path']}?{request.query_string}"
        body = await request.read() if request.can_read_body else None
        try:
            answer = await cloud.handle(
                request.match_info["machine"], request.method, target, headers=request.headers, body=body
            )
        except CloudError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        return web.Response(status=answer.status, headers=dict(answer.headers), body=answer.body)

    app.router.add_route("*", f"{PREFIX}/{{machine}}/metadata/{{path:.*}}", handle)
