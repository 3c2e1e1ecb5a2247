"""The metadata services of all instances over HTTP, on one address; in AWS each instance has its own.

HAULOUT_AWS_METADATA=http://127.0.0.1:PORT/aws/INSTANCE haulout agent …
"""

from aiohttp import web

from haulout.kube.transports.h11_client import FetchedResponse
from haulout_sandbox.clouds.aws.cloud import AwsCloud
from haulout_sandbox.clouds.http_server import add_forwarding_route

PREFIX = "/aws"


def add_routes(app: web.Application, cloud: AwsCloud) -> None:
    async def answer(request: web.Request) -> FetchedResponse:
        instance, target = request.match_info["instance"], f"/latest/{request.match_info['path']}"
        return await cloud.metadata_services.handle(instance, request.method, target, request.headers)

    add_forwarding_route(app, f"{PREFIX}/{{instance}}/latest/{{path:.*}}", answer)
