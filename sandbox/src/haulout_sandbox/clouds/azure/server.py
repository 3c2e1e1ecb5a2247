"""The metadata services of all machines over HTTP, on one address; in Azure each machine has its own.

HAULOUT_AZURE_METADATA=http://127.0.0.1:PORT/azure/MACHINE haulout agent …
"""

from aiohttp import web

from haulout.kube.transports.h11_client import FetchedResponse
from haulout_sandbox.clouds.azure.cloud import AzureCloud
from haulout_sandbox.clouds.http_server import add_forwarding_route

PREFIX = "/azure"


def add_routes(app: web.Application, cloud: AzureCloud) -> None:
    async def answer(request: web.Request) -> FetchedResponse:
        target = f"/metadata/{request.match_info['path']}?{request.query_string}"
        body = await request.read() if request.can_read_body else None
        return await cloud.handle(
            request.match_info["machine"], request.method, target, headers=request.headers, body=body
        )

    add_forwarding_route(app, f"{PREFIX}/{{machine}}/metadata/{{path:.*}}", answer)
