"""Custom resources on any cluster: defined, and served."""

from contextlib import suppress
from typing import Any

from haulout.errors import AlreadyExists, NotFound
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.resources import DEFINITIONS, Resource
from support.backends import Cluster
from support.eventually import eventually


async def define(cluster: Cluster, client: Client, resource: Resource[Any], definition: RawObject) -> None:
    """Have the cluster serve a resource, if it does not yet; one that another test is taking away is made anew."""

    async def served() -> bool:
        with suppress(AlreadyExists):
            await client.create(DEFINITIONS, definition)
        with suppress(NotFound):
            found = await client.get(DEFINITIONS, definition["metadata"]["name"])
            await client.list(resource)
            return "deletionTimestamp" not in found["metadata"]
        return False

    await eventually(cluster.clock, served)
