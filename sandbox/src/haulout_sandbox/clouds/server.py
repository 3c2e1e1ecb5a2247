"""All clouds over HTTP on one address; paths of no other cloud belong to AWS.

async with serve(oci, aws, azure, gcp, listen("127.0.0.1", 0)) as port:
    ec2 = boto3.client("ec2", endpoint_url=f"http://127.0.0.1:{port}", …)
    client = oci.streaming.StreamClient({}, f"http://127.0.0.1:{port}", signer=…)

In AWS and Azure each machine has its own metadata service, always at the same address. Here it has a path:

HAULOUT_AWS_METADATA=http://127.0.0.1:PORT/aws/INSTANCE haulout agent …
HAULOUT_AZURE_METADATA=http://127.0.0.1:PORT/azure/MACHINE haulout agent …
"""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from haulout.kube.transports.h11_client import FetchedResponse
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws import server as aws_server
from haulout_sandbox.clouds.azure import AzureCloud
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.gcp import server as gcp_server
from haulout_sandbox.clouds.http_server import add_forwarding_route, serve_app
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci import server as oci_server

AWS_METADATA_PREFIX = "/aws"


@asynccontextmanager
async def serve(
    oci: OciCloud, aws: AwsCloud, azure: AzureCloud, gcp: GcpCloud, listener: socket.socket, *, speed: float = 1.0
) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port. Takes ownership of the listener."""
    app = web.Application()
    oci_server.add_routes(app, oci)
    add_azure_metadata_route(app, azure)
    gcp_server.add_routes(app, gcp)
    add_aws_metadata_route(app, aws)
    aws_server.add_routes(app, aws)
    async with serve_app(app, listener, speed=speed) as port:
        yield port


def add_aws_metadata_route(app: web.Application, cloud: AwsCloud) -> None:
    async def answer(request: web.Request) -> FetchedResponse:
        instance, target = request.match_info["instance"], f"/latest/{request.match_info['path']}"
        return await cloud.metadata_services.handle(instance, request.method, target, request.headers)

    add_forwarding_route(app, f"{AWS_METADATA_PREFIX}/{{instance}}/latest/{{path:.*}}", answer)


def add_azure_metadata_route(app: web.Application, cloud: AzureCloud) -> None:
    async def answer(request: web.Request) -> FetchedResponse:
        machine, target = request.match_info["machine"], f"/metadata/{request.match_info['path']}"
        body = await request.read() if request.can_read_body else None
        return await cloud.handle(
            machine, request.method, f"{target}?{request.query_string}", headers=request.headers, body=body
        )

    add_forwarding_route(app, "/azure/{machine}/metadata/{path:.*}", answer)
