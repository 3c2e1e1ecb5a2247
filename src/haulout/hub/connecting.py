"""From a kubeconfig in a Secret to a client of the cluster that it leads to.

How that is done is given to the hub as `Connect`; `over_the_network` is the way it is done in earnest. Secrets are
written by others: what they say may lead to a server, but runs no program here and reads no file.
"""

import base64
import binascii
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random

from haulout.core.clock import Clock
from haulout.errors import KubeconfigError
from haulout.kinds.clusterapi import KUBECONFIG_KEY, ClusterKey
from haulout.kube.client import Client
from haulout.kube.limits import WORKLOAD_CLUSTER, CacheBudget, MemoryBudget
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.objects import Secret

Connect = Callable[[bytes, ClusterKey], AbstractAsyncContextManager[Client]]

_CONNECTIONS = 8  # to one cluster, at once: there may be hundreds of clusters


def over_the_network(*, clock: Clock, random: Random, memory: MemoryBudget) -> Connect:
    """Return how clusters are reached over the network; `memory` is for all of them together."""

    @asynccontextmanager
    async def connect(kubeconfig: bytes, key: ClusterKey) -> AsyncIterator[Client]:
        connection = config.from_others(kubeconfig, source=said_of(key), clock=clock)
        transport = HttpTransport(
            connection, clock=clock, connections=_CONNECTIONS, limits=WORKLOAD_CLUSTER, reads=memory.reads
        )
        cached = CacheBudget(WORKLOAD_CLUSTER, shared=memory.caches)
        client = Client(transport, clock=clock, random=random, cached=cached)
        try:
            yield client
        finally:
            await client.close()

    return connect


def said_of(key: ClusterKey) -> str:
    """Return how the kubeconfig of a cluster is known to people."""
    return f"Secret {key.namespace}/{key.secret}"


def kubeconfig_in(secret: Secret, key: ClusterKey) -> bytes:
    """Return the kubeconfig that a Secret holds; raises `KubeconfigError`."""
    text = (secret.data or {}).get(KUBECONFIG_KEY)
    if not text:
        raise KubeconfigError("expected a kubeconfig, found nothing", file=said_of(key), key=KUBECONFIG_KEY)
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise KubeconfigError("expected base64", file=said_of(key), key=KUBECONFIG_KEY) from None
