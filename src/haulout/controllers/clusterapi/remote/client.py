"""From a kubeconfig in a Secret to a client of the cluster that it leads to.

How that is done is given to the hub as `ClientFactory`; `network_client_factory` is the way it is done in earnest.
Secrets are written by others: what they say may lead to a server, but runs no program here and reads no file.
"""

import base64
import binascii
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random

from haulout.api.clusterapi import KUBECONFIG_KEY, ClusterKey
from haulout.api.objects import Secret
from haulout.core.clock import Clock
from haulout.errors import KubeconfigError
from haulout.kube.client import Client
from haulout.kube.limits import WORKLOAD_CLUSTER, CacheQuota, WorkloadClusterMemory
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport

ClientFactory = Callable[[bytes, ClusterKey], AbstractAsyncContextManager[Client]]

_CONNECTIONS = 8  # to one cluster, at once: there may be hundreds of clusters


def network_client_factory(*, clock: Clock, random: Random, memory: WorkloadClusterMemory) -> ClientFactory:
    """Return how clusters are reached over the network; `memory` is for all of them together."""

    @asynccontextmanager
    async def connect(kubeconfig: bytes, key: ClusterKey) -> AsyncIterator[Client]:
        connection = config.load_untrusted(kubeconfig, source=describe_secret(key), clock=clock)
        transport = HttpTransport(
            connection, clock=clock, connections=_CONNECTIONS, limits=WORKLOAD_CLUSTER, reads=memory.reads
        )
        cached = CacheQuota(WORKLOAD_CLUSTER, shared=memory.caches)
        client = Client(transport, clock=clock, random=random, cache_quota=cached)
        try:
            yield client
        finally:
            await client.close()

    return connect


def describe_secret(key: ClusterKey) -> str:
    """Return how the kubeconfig of a cluster is known to people."""
    return f"Secret {key.namespace}/{key.kubeconfig_secret}"


def read_kubeconfig(secret: Secret, key: ClusterKey) -> bytes:
    """Return the kubeconfig that a Secret holds; raises `KubeconfigError`."""
    encoded = (secret.data or {}).get(KUBECONFIG_KEY)
    if not encoded:
        raise KubeconfigError("expected a kubeconfig, found nothing", file=describe_secret(key), key=KUBECONFIG_KEY)
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise KubeconfigError("expected base64", file=describe_secret(key), key=KUBECONFIG_KEY) from None
