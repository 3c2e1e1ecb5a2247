"""The connection to one workload cluster, maintained from the kubeconfig in its Secret.

The Secret is read when connecting, after the first failure (rejected credentials, an invalid certificate, no response),
repeatedly while the failure lasts, and every few minutes. A changed kubeconfig causes a new connection; until that has
synced, the nodes of the old one remain readable.

The controller receives a `ClientFactory`, which creates a client from a kubeconfig; `network_client_factory` is the
production one. Secrets are untrusted input: a kubeconfig may name a server, but must not run programs here or read
files.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from sys import getsizeof
from typing import NoReturn

from haulout.api.clusterapi import (
    APPROVE_DELETION,
    APPROVE_MAINTENANCE,
    DRAIN_RULES,
    KUBECONFIG_KEY,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    MAINTENANCE_STATE,
    ClusterKey,
)
from haulout.api.objects import Node, NodeSpec, ObjectMeta, Secret, WatchEvent
from haulout.api.resources import NODES, SECRETS
from haulout.controllers.clusterapi.cluster_health import ClusterHealth, HealthReportingTransport
from haulout.controllers.clusterapi.observation import (
    DELETION_REQUEST,
    MAINTENANCE_REQUEST,
)
from haulout.controllers.clusterapi.status import ConnectionState
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.errors import (
    ConfigError,
    KubeconfigError,
    KubeError,
    LimitExceeded,
    MalformedResponse,
    NotFound,
    ObservationStale,
)
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.limits import WORKLOAD_CLUSTER, CacheQuota, WorkloadClusterMemory
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import Patch
from haulout.kube.recorder import EventRecorder, object_reference
from haulout.kube.reflector import ListWatch
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout.runtime.journal import Transition, emit_events

log = logging.getLogger(__name__)

_SECRET_RECHECK_INTERVAL = timedelta(minutes=5)
_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=1), jitter=0.3)
_PAGE_SIZE = 100  # a page of nodes of 40 kB each is within the response limit
_MAX_VERSION_LENGTH = 64
_NODE_BYTES = 1000  # estimated size of a node, except its strings
_EVENT_FLUSH_TIMEOUT = timedelta(seconds=2)
_KEPT_LABELS = (MAINTENANCE_STATE, MACHINE_DELETED, MACHINE_MAINTENANCE, APPROVE_DELETION, APPROVE_MAINTENANCE)
_KEPT_ANNOTATIONS = (DELETION_REQUEST, MAINTENANCE_REQUEST, DRAIN_RULES)

ClientFactory = Callable[[bytes, ClusterKey], AbstractAsyncContextManager[Client]]

_CONNECTIONS = 8  # concurrent connections per cluster: there may be hundreds of clusters


class ClusterAccessor:
    """Access to one workload cluster.

    `on_change` is called when the connection is established, lost or restored; `on_node_change` for each node event.
    """

    def __init__(
        self,
        client: Client,
        key: ClusterKey,
        *,
        connect: ClientFactory,
        instance: str,
        reporter: str,
        on_change: Callable[[], None],
        on_node_change: Callable[[Node | None, Node | None], None],
    ) -> None:
        self.key = key
        self.server = ""
        self.version = ""
        self.client: Client | None = None  # set while the node informer has synced
        self.events: EventRecorder | None = None
        self.nodes: MutationCache[Node] | None = None
        self.health = ClusterHealth(client.clock, on_change=on_change)
        self._management = client
        self._clock = client.clock
        self._connect = connect
        self._instance, self._reporter = instance, reporter
        self._on_change = on_change
        self._on_node_change = on_node_change
        self._retry = Retry(client.clock, client.random, _BACKOFF)  # of connecting

    @property
    def is_connected(self) -> bool:
        return self.client is not None and self.health.connection_state is ConnectionState.CONNECTED

    # Nodes

    async def patch_node(self, node: Node, patch: Patch) -> None:
        """Patch a node; raise `ObservationStale` if the connection was lost since it was observed."""
        client, nodes = self._connection()
        nodes.record_write(strip_node(await client.patch(NODES, node.name, patch)))

    async def read_node(self, name: str) -> Node | None:
        """Return a node as it is now in the API server; raise `ObservationStale` if the connection was lost."""
        client, nodes = self._connection()
        try:
            return nodes.record_write(strip_node(await client.get(NODES, name)))
        except NotFound:
            if (cached := nodes.get(name)) is not None:
                nodes.record_delete(cached)
            return None

    async def refresh_node(self, name: str) -> bool:
        """Read a node from the API server, for the next observation; return False if the connection was lost."""
        with suppress(ObservationStale):
            await self.read_node(name)
            return True
        return False

    def emit_event(self, node: Node, transition: Transition) -> None:
        """Emit the Event of a transition for a node, beside that for its Machine in the management cluster."""
        if self.events is not None:
            emit_events(replace(transition, regarding=(object_reference(NODES, node),)), self.events)

    def _connection(self) -> tuple[Client, MutationCache[Node]]:
        if self.client is None or self.nodes is None:
            raise ObservationStale(f"the connection to cluster {self.key} was lost")
        return self.client, self.nodes

    # The connection

    async def run(self) -> NoReturn:
        secret: Secret | None = None
        try:
            while True:
                secret = (
                    await self._connect_with(secret) if secret is not None else await self._wait_for_new_secret(None)
                )
        finally:
            self.health.close()

    async def _connect_with(self, secret: Secret) -> Secret | None:
        """Stay connected until the Secret changes, and return the new one; None to read it again."""
        try:
            kubeconfig = read_kubeconfig(secret, self.key)
            async with self._connect(kubeconfig, self.key) as unobserved:
                client = unobserved.with_transport(
                    HealthReportingTransport(unobserved.transport, self.health)
                    # A leader that was deposed in the management cluster must not write to nodes, either.
                ).with_fence_of(self._management)
                self.server = client.transport.server
                return await self._serve_connection(client, secret)
        except ConfigError as error:
            self.health.mark_failed(str(error))
            return await self._wait_for_new_secret(secret)
        except KubeError as error:
            self.health.mark_failed(str(error))
            await self._retry.wait(error)
            return None
        finally:
            self.client = self.events = None

    async def _serve_connection(self, client: Client, secret: Secret) -> Secret:
        cache = Informer(
            client,
            ListWatch(NODES, page_size=_PAGE_SIZE),
            transform=strip_node,
            size=stripped_node_bytes,
            on_health_change=self._on_watch_result,
        )
        events = EventRecorder(client, instance=self._instance, controller=self._reporter)
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(coroutine)
                for coroutine in (cache.run(), events.run(), self._adopt(client, cache, events))
            ]
            try:
                return await self._wait_for_new_secret(secret)
            finally:
                await events.flush(_EVENT_FLUSH_TIMEOUT)
                for task in background:
                    task.cancel()

    async def _adopt(self, client: Client, cache: Informer[Node], events: EventRecorder) -> None:
        """Publish the connection once its node informer has synced."""
        await cache.wait_synced()
        # Not before the sync: a node that is not listed yet would look as if it did not exist, and its Machine's
        # deletion would be released.
        self.client, self.events, self.nodes = client, events, MutationCache(cache)
        self._retry.reset()
        self.health.mark_connected()
        cache.subscribe(self._on_node_change)
        self._on_change()
        with suppress(KubeError):
            self.version = (await client.server_version()).git_version[:_MAX_VERSION_LENGTH]

    def _on_watch_result(self, error: KubeError | None) -> None:
        if error is None:
            self.health.mark_connected()
        elif isinstance(error, LimitExceeded) or (
            isinstance(error, MalformedResponse) and self.health.failing_since is None
        ):
            self.health.mark_unreadable(str(error))

    # The Secret

    async def _wait_for_new_secret(self, previous: Secret | None) -> Secret:
        """Return the Secret once its data differs from the previous one."""
        retry = Retry(self._clock, self._management.random, _BACKOFF)
        wait = timedelta()  # after a failure
        while True:
            if wait:
                await self._wait_for_change(previous, wait)
            elif previous is not None:
                await self._wait_for_failure()
            self.health.check_needed.clear()
            try:
                current = await self._management.get(SECRETS, self.key.kubeconfig_secret, namespace=self.key.namespace)
            except KubeError as error:
                wait = retry.delay(error)
                if previous is None:
                    self._report_missing_secret(error)
                continue
            if previous is None or current.data != previous.data:
                if previous is not None:
                    log.info("cluster %s: its kubeconfig has changed, reconnecting", self.key)
                return current
            if self.health.failing_since is None:
                wait = timedelta()
                retry.reset()
            else:
                wait = retry.delay(KubeError(self.health.problem))

    def _report_missing_secret(self, error: KubeError) -> None:
        is_missing = isinstance(error, NotFound)
        self.health.mark_failed(
            f"there is no {describe_secret(self.key)} with its kubeconfig" if is_missing else str(error)
        )

    async def _wait_for_failure(self) -> None:
        """Wait for a connection failure, or for `_SECRET_RECHECK_INTERVAL`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECRET_RECHECK_INTERVAL.total_seconds()):
                await self.health.check_needed.wait()

    async def _wait_for_change(self, previous: Secret | None, timeout: timedelta) -> None:
        """Watch the Secret until it changes, at most for `timeout`: the controller may lack permission to watch it.

        Only Secrets that cannot be used are watched: there may be hundreds of clusters.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout.total_seconds()):
                try:
                    if await self._watch_for_change(previous):
                        return
                except KubeError as error:
                    log.debug("cluster %s: its kubeconfig Secret cannot be watched: %s", self.key, error)
                await asyncio.get_running_loop().create_future()

    async def _watch_for_change(self, previous: Secret | None) -> bool:
        """Return whether the Secret changes before the server ends the watch."""
        name = f"metadata.name={self.key.kubeconfig_secret}"
        async with self._management.watch(SECRETS, namespace=self.key.namespace, fields=name) as events:
            async for event in events:
                current = event.object if isinstance(event, WatchEvent) else None
                if isinstance(current, Secret) and (previous is None or current.data != previous.data):
                    return True
        return False


def strip_node(node: Node) -> Node:
    """Return the node with only the fields that the controller needs."""
    source = node.metadata
    metadata = ObjectMeta(
        name=source.name,
        uid=source.uid,
        resource_version=source.resource_version,
        labels={key: source.labels[key] for key in _KEPT_LABELS if key in source.labels},
        annotations={key: source.annotations[key] for key in _KEPT_ANNOTATIONS if key in source.annotations},
    )
    return Node(metadata=metadata, spec=NodeSpec(unschedulable=node.spec.unschedulable))


def stripped_node_bytes(node: Node) -> int:
    """Return the approximate size in bytes of a node that `strip_node` returned."""
    metadata = node.metadata
    texts = (
        metadata.name,
        metadata.uid,
        metadata.resource_version,
        *metadata.labels.values(),
        *metadata.annotations.values(),
    )
    return _NODE_BYTES + sum(map(getsizeof, texts))  # getsizeof, not len: one emoji makes each character take 4 bytes


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
