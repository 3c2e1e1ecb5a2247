"""Custom resources on any cluster: defined, and served."""

from contextlib import suppress
from typing import Any

import yaml

from haulout.errors import AlreadyExists, NotFound
from haulout.kube.client import Client
from haulout.kube.resources import DEFINITIONS, Resource
from support.backends import Cluster
from support.eventually import eventually


async def define(cluster: Cluster, client: Client, resource: Resource[Any], definition: str) -> None:
    """Have the cluster serve a resource, if it does not yet; one that another test is taking away is made anew."""
    body = yaml.safe_load(definition)

    async def served() -> bool:
        with suppress(AlreadyExists):
            await client.create(DEFINITIONS, body)
        with suppress(NotFound):
            found = await client.get(DEFINITIONS, body["metadata"]["name"])
            await client.list(resource)
            return "deletionTimestamp" not in found["metadata"]
        return False

    await eventually(cluster.clock, served)
