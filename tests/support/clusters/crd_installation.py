"""Installs CustomResourceDefinitions in any cluster, and waits until they are served."""

from contextlib import suppress
from typing import Any

from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from haulout.errors import AlreadyExists, NotFound
from haulout.kube.client import Client
from support.clusters.backends import ClusterBackend
from support.expectations.eventually import eventually


async def install_crd(cluster: ClusterBackend, client: Client, resource: Resource[Any], definition: RawObject) -> None:
    """Install a definition unless it is served; create it again if another test is deleting it."""

    async def is_served() -> bool:
        with suppress(AlreadyExists):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        with suppress(NotFound):
            found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, definition["metadata"]["name"])
            await client.list(resource)
            return "deletionTimestamp" not in found["metadata"]
        return False

    await eventually(cluster.clock, is_served)
