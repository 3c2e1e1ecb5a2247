"""All clouds over HTTP on one address; paths of no other cloud belong to AWS.

async with serve(oci, aws, azure, gcp, listen("127.0.0.1", 0)) as port:
    ec2 = boto3.client("ec2", endpoint_url=f"http://127.0.0.1:{port}", …)
    client = oci.streaming.StreamClient({}, f"http://127.0.0.1:{port}", signer=…)
"""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws import imds_server as aws_metadata_front
from haulout_sandbox.clouds.aws import server as aws_front
from haulout_sandbox.clouds.azure import AzureCloud
from haulout_sandbox.clouds.azure import server as azure_front
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.gcp import server as gcp_front
from haulout_sandbox.clouds.http_server import serve_app
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci import server as oci_front


@asynccontextmanager
async def serve(
    oci: OciCloud, aws: AwsCloud, azure: AzureCloud, gcp: GcpCloud, listener: socket.socket, *, speed: float = 1.0
) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port. Takes ownership of the listener."""
    app = web.Application()
    oci_front.add_routes(app, oci)
    azure_front.add_routes(app, azure)
    gcp_front.add_routes(app, gcp)
    aws_metadata_front.add_routes(app, aws)
    aws_front.add_routes(app, aws)
    async with serve_app(app, listener, speed=speed) as port:
        yield port
