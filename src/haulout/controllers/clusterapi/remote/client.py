"""Create a client for a workload cluster from the kubeconfig in a Secret.

The controller receives a `ClientFactory`; `network_client_factory` is the production one. Secrets are untrusted input:
a kubeconfig may name a server, but must not run programs here or read files.
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

_CONNECTIONS = 8  # concurrent connections per cluster: there may be hundreds of clusters


def network_client_factory(*, clock: Clock, random: Random, memory: WorkloadClusterMemory) -> ClientFactory:
    """Return a factory that connects over the network; `memory` is shared by all clusters."""

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
    """Return the name of a cluster's kubeconfig Secret, for messages."""
    return f"Secret {key.namespace}/{key.kubeconfig_secret}"


def read_kubeconfig(secret: Secret, key: ClusterKey) -> bytes:
    """Return the kubeconfig in a Secret; raise `KubeconfigError`."""
    encoded = (secret.data or {}).get(KUBECONFIG_KEY)
    if not encoded:
        raise KubeconfigError("expected a kubeconfig, found nothing", file=describe_secret(key), key=KUBECONFIG_KEY)
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise KubeconfigError("expected base64", file=describe_secret(key), key=KUBECONFIG_KEY) from None
