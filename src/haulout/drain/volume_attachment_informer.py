"""The VolumeAttachments of a cluster, watched only while a drain waits for volumes.

    informer = VolumeAttachmentInformer(client)      # one for all drains of a process; the caller runs its `run`
    unsubscribe = informer.subscribe("n1", on_change=wake.set)
    informer.of_node("n1")                           # None until the first list is complete

The API server cannot select VolumeAttachments by node: `spec.nodeName` is no selectable field
(`pkg/registry/storage/volumeattachment` of Kubernetes 1.36 defines none). So one watch for all subscribers delivers all
of them, and only the fields in use are kept.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from haulout.drain.volumes import VOLUME_ATTACHMENTS, VolumeAttachment
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch

_BY_NODE = "node"


class VolumeAttachmentInformer:
    """The VolumeAttachments of all nodes, while there are subscribers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._subscribers: dict[int, tuple[str, Callable[[], object]]] = {}  # by number: node and callback
        self._last_subscriber = 0
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._cache: Informer[VolumeAttachment] | None = None

    async def run(self) -> NoReturn:
        """Watch whenever there are subscribers, until cancelled."""
        while True:
            await self._wanted.wait()
            self._cache = cache = Informer(
                self._client,
                ListWatch(VOLUME_ATTACHMENTS),
                transform=as_is,
                indexes={_BY_NODE: lambda attachment: (attachment.spec.node_name,)},
                on_health_change=lambda _: self._notify_all(),
            )
            cache.subscribe(self._notify)
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = group.create_task(cache.run()), group.create_task(self._notify_when_synced(cache))
                    await self._unwanted.wait()
                    for task in tasks:
                        task.cancel()
            finally:
                self._cache = None

    def subscribe(self, node: str, *, on_change: Callable[[], object]) -> Callable[[], None]:
        """Call `on_change` for changes on a node; return the function to unsubscribe."""
        self._last_subscriber += 1
        number = self._last_subscriber
        self._subscribers[number] = node, on_change
        self._wanted.set()
        self._unwanted.clear()
        return lambda: self._unsubscribe(number)

    def of_node(self, node: str) -> tuple[VolumeAttachment, ...] | None:
        """Return the VolumeAttachments of a node; None if they are not known yet."""
        if self._cache is None or not self._cache.health().has_synced:
            return None
        return tuple(sorted(self._cache.by_index(_BY_NODE, node), key=lambda attachment: attachment.name))

    @property
    def problem(self) -> str:
        """Why VolumeAttachments are unknown or may be stale."""
        return "" if self._cache is None else self._cache.health().problem or ""

    def _unsubscribe(self, number: int) -> None:
        self._subscribers.pop(number, None)
        if not self._subscribers:
            self._wanted.clear()
            self._unwanted.set()

    async def _notify_when_synced(self, cache: Informer[VolumeAttachment]) -> None:
        await cache.wait_synced()
        self._notify_all()

    def _notify_all(self) -> None:
        for _, on_change in tuple(self._subscribers.values()):
            on_change()

    def _notify(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        attachment = new or old
        for node, on_change in tuple(self._subscribers.values()):
            if attachment is not None and attachment.spec.node_name == node:
                on_change()
