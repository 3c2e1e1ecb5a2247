"""The connection to one workload cluster, kept up by the kubeconfig in its Secret, whatever happens to either.

The Secret is read when the connection is made, at the first sign of trouble (credentials that are not accepted, a
certificate that does not fit, no answer at all), again and again while that lasts, and every few minutes. Another
kubeconfig makes a new connection; until that is complete, what the old one told stays to be read.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from sys import getsizeof
from typing import NoReturn

from haulout.core.backoff import Backoff
from haulout.errors import ConfigError, GarbledAnswer, KubeError, LimitExceeded, NotFound
from haulout.hub.asks import DELETION_ASK, MAINTENANCE_ASK
from haulout.hub.connecting import Connect, kubeconfig_in, said_of
from haulout.hub.contact import Contact, Observed
from haulout.hub.standing import Reach
from haulout.kinds.clusterapi import (
    APPROVE_DELETION,
    APPROVE_MAINTENANCE,
    DRAIN_RULES,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    MANAGED,
    ClusterKey,
)
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.fresh import Fresh
from haulout.kube.objects import Metadata, Node, NodeSpec, Secret, WatchEvent
from haulout.kube.resources import NODES, SECRETS

log = logging.getLogger(__name__)

_LOOKED_AT_EVERY = timedelta(minutes=5)
_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=1), jitter=0.3)
_PAGE_SIZE = 100  # nodes of 40 kB are within the limit of a response
_LONGEST_VERSION = 64
_NODE_BYTES = 1000  # that a node takes, besides its texts
_LAST_WORDS = timedelta(seconds=2)
_LABELS = (MANAGED, MACHINE_DELETED, MACHINE_MAINTENANCE, APPROVE_DELETION, APPROVE_MAINTENANCE)
_ANNOTATIONS = (DELETION_ASK, MAINTENANCE_ASK, DRAIN_RULES)


class Link:
    """The way to one cluster; `changed` is called when it is up, down or up again, and `noted` with nodes."""

    def __init__(
        self,
        client: Client,
        key: ClusterKey,
        *,
        connect: Connect,
        instance: str,
        reporter: str,
        changed: Callable[[], None],
        noted: Callable[[Node | None, Node | None], None],
    ) -> None:
        self.key = key
        self.server = ""
        self.version = ""
        self.client: Client | None = None  # while all of its nodes are known
        self.events: EventRecorder | None = None
        self.nodes: Fresh[Node] | None = None
        self.contact = Contact(client.clock, changed=changed)
        self._management = client
        self._clock = client.clock
        self._connect = connect
        self._instance, self._reporter = instance, reporter
        self._changed = changed
        self._noted = noted
        self._failures = 0  # to connect at all, in a row

    @property
    def is_up(self) -> bool:
        """Tell whether the nodes are known as they are now."""
        return self.client is not None and self.contact.reach is Reach.CONNECTED

    async def run(self) -> NoReturn:
        """Keep it up until cancelled."""
        secret: Secret | None = None
        try:
            while True:
                secret = await self._used(secret) if secret is not None else await self._another(None)
        finally:
            self.contact.close()

    async def _used(self, secret: Secret) -> Secret | None:
        """Be connected until there is another Secret, and return that; None if there is no such connection."""
        try:
            kubeconfig = kubeconfig_in(secret, self.key)
            async with self._connect(kubeconfig, self.key) as raw:
                client = raw.over(Observed(raw.transport, self.contact)).fenced_as(self._management)
                self.server = client.transport.server
                return await self._connected(client, secret)
        except ConfigError as error:
            self.contact.failed(str(error))
            return await self._another(secret)
        except KubeError as error:
            self.contact.failed(str(error))
            self._failures += 1
            await self._clock.sleep(_BACKOFF.delay(self._failures, self._management.random))
            return None
        finally:
            self.client = self.events = None

    async def _connected(self, client: Client, secret: Secret) -> Secret:
        cache = Cache(
            client, Selection(NODES, page_size=_PAGE_SIZE), row=slim, size=kept_bytes, observe=self._note_following
        )
        events = EventRecorder(client, instance=self._instance, controller=self._reporter)
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(it) for it in (cache.run(), events.run(), self._adopt(client, cache, events))]
            try:
                return await self._another(secret)
            finally:
                await events.flush(_LAST_WORDS)
                for task in beside:
                    task.cancel()

    async def _adopt(self, client: Client, cache: Cache[Node], events: EventRecorder) -> None:
        """Use a connection from when all nodes are known by it."""
        await cache.wait_synced()
        self.client, self.events, self.nodes = client, events, Fresh(cache)
        self._failures = 0
        self.contact.connected()
        cache.subscribe(self._noted)
        self._changed()
        with suppress(KubeError):
            self.version = (await client.server_version()).git_version[:_LONGEST_VERSION]

    def _note_following(self, error: KubeError | None) -> None:
        if error is None:
            self.contact.connected()
        elif isinstance(error, LimitExceeded) or (
            isinstance(error, GarbledAnswer) and self.contact.failing_since is None
        ):
            self.contact.unreadable(str(error))

    # The Secret

    async def _another(self, known: Secret | None) -> Secret:
        """Return the Secret once it is another than the known one."""
        failures = 0
        while True:
            if failures:
                await self._until_changed(known, failures)
            elif known is not None:
                await self._until_trouble()
            self.contact.trouble.clear()
            try:
                found = await self._management.get(SECRETS, self.key.secret, namespace=self.key.namespace)
            except KubeError as error:
                failures += 1
                if known is None:
                    self._lack(error)
                continue
            if known is None or found.data != known.data:
                if known is not None:
                    log.info("cluster %s: its kubeconfig has changed, connecting anew", self.key)
                return found
            failures = 0 if self.contact.failing_since is None else failures + 1

    def _lack(self, error: KubeError) -> None:
        is_missing = isinstance(error, NotFound)
        self.contact.failed(f"there is no {said_of(self.key)} with its kubeconfig" if is_missing else str(error))

    async def _until_trouble(self) -> None:
        """Wait for trouble, or for some minutes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOKED_AT_EVERY.total_seconds()):
                await self.contact.trouble.wait()

    async def _until_changed(self, known: Secret | None, failures: int) -> None:
        """Watch the Secret until it changes, but no longer than a backoff: a hub may lack the right to watch it.

        Only a Secret that cannot be used is watched: a hub may have hundreds of clusters.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_BACKOFF.delay(failures, self._management.random).total_seconds()):
                try:
                    if await self._changes(known):
                        return
                except KubeError as error:
                    log.debug("cluster %s: its kubeconfig is not watched: %s", self.key, error)
                await asyncio.get_running_loop().create_future()

    async def _changes(self, known: Secret | None) -> bool:
        """Return whether the Secret changes before the server ends the watch."""
        name = f"metadata.name={self.key.secret}"
        async with self._management.watch(SECRETS, namespace=self.key.namespace, fields=name) as events:
            async for event in events:
                found = event.object if isinstance(event, WatchEvent) else None
                if isinstance(found, Secret) and (known is None or found.data != known.data):
                    return True
        return False


def slim(node: Node) -> Node:
    """Return what the hub needs of a node."""
    whole = node.metadata
    metadata = Metadata(
        name=whole.name,
        uid=whole.uid,
        resource_version=whole.resource_version,
        labels={key: whole.labels[key] for key in _LABELS if key in whole.labels},
        annotations={key: whole.annotations[key] for key in _ANNOTATIONS if key in whole.annotations},
    )
    return Node(metadata=metadata, spec=NodeSpec(unschedulable=node.spec.unschedulable))


def kept_bytes(node: Node) -> int:
    """Return about how many bytes a node takes that `slim` returned."""
    metadata = node.metadata
    texts = (
        metadata.name,
        metadata.uid,
        metadata.resource_version,
        *metadata.labels.values(),
        *metadata.annotations.values(),
    )
    return _NODE_BYTES + sum(map(getsizeof, texts))  # not their lengths: one emoji makes a character take 4 bytes
