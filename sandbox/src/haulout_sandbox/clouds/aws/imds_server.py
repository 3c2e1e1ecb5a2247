"""The metadata services of all instances over HTTP, on one address; in AWS each instance has its own.

HAULOUT_AWS_METADATA=http://127.0.0.1:PORT/aws/INSTANCE haulout agent …
"""

from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.clouds.aws.cloud import AwsCloud

PREFIX = "/aws"


def add_routes(app: web.Application, cloud: AwsCloud) -> None:
    """Add the routes for the instances of a cloud."""

    async def handle(request: web.Request) -> web.Response:
        target = f"/latest/{request.match_info['path']}"
        try:
            answer = await cloud.metadata_services.handle(
                request.match_info["instance"], request.method, target, request.headers
            )
        except CloudError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        return web.Response(status=answer.status, headers=dict(answer.headers), body=answer.body)

    app.router.add_route("*", f"{PREFIX}/{{instance}}/latest/{{path:.*}}", handle)
