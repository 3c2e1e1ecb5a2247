"""All clouds over HTTP, at one address: what is none of the others' paths is for AWS.

async with serving(oci, aws, azure, gcp, listening("127.0.0.1", 0)) as port:
    ec2 = boto3.client("ec2", endpoint_url=f"http://127.0.0.1:{port}", …)
    client = oci.streaming.StreamClient({}, f"http://127.0.0.1:{port}", signer=…)
"""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from haulout_sandbox.clouds.answering import answering
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws import front as aws_front
from haulout_sandbox.clouds.aws import metadata_front as aws_metadata_front
from haulout_sandbox.clouds.azure import AzureCloud
from haulout_sandbox.clouds.azure import front as azure_front
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.gcp import front as gcp_front
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci import front as oci_front


@asynccontextmanager
async def serving(
    oci: OciCloud, aws: AwsCloud, azure: AzureCloud, gcp: GcpCloud, listener: socket.socket, *, pace: float = 1.0
) -> AsyncIterator[int]:
    """Answer while the context lasts; yields the port. The listener is taken over."""
    app = web.Application()
    oci_front.mount(app, oci)
    azure_front.mount(app, azure)
    gcp_front.mount(app, gcp)
    aws_metadata_front.mount(app, aws)
    aws_front.mount(app, aws)
    async with answering(app, listener, pace=pace) as port:
        yield port
