"""The VolumeAttachments of a cluster, followed while a drain waits for volumes and at no other time.

    attachments = VolumeAttachments(client)      # one for all drains of a process; its `run` is a task of their owner
    leave = attachments.join("n1", changed=bell.set)
    attachments.on("n1")                         # None until all were seen

The API server cannot select them by node: `spec.nodeName` is no selectable field of VolumeAttachments
(`pkg/registry/storage/volumeattachment` of Kubernetes 1.36 defines none). So all of them come, by one watch for all who
wait, and only the fields that are used are kept.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from haulout.drain.volumes import VOLUME_ATTACHMENTS, VolumeAttachment
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection

_BY_NODE = "node"


class VolumeAttachments:
    """The VolumeAttachments of all nodes, for those who have joined."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._members: dict[int, tuple[str, Callable[[], object]]] = {}  # by number: the node, and whom to tell
        self._joined = 0
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._cache: Cache[VolumeAttachment] | None = None

    async def run(self) -> NoReturn:
        """Follow them whenever somebody has joined, until cancelled."""
        while True:
            await self._wanted.wait()
            self._cache = cache = Cache(
                self._client,
                Selection(VOLUME_ATTACHMENTS),
                row=as_is,
                indexes={_BY_NODE: lambda it: (it.spec.node_name,)},
                observe=lambda _: self._tell_all(),
            )
            cache.subscribe(self._tell)
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = group.create_task(cache.run()), group.create_task(self._tell_when_synced(cache))
                    await self._unwanted.wait()
                    for task in tasks:
                        task.cancel()
            finally:
                self._cache = None

    def join(self, node: str, *, changed: Callable[[], object]) -> Callable[[], None]:
        """Have them followed, and be told of changes on a node; returns what ends that."""
        self._joined += 1
        number = self._joined
        self._members[number] = node, changed
        self._wanted.set()
        self._unwanted.clear()
        return lambda: self._leave(number)

    def on(self, node: str) -> tuple[VolumeAttachment, ...] | None:
        """Return those of a node; None if they are not known yet."""
        if self._cache is None or not self._cache.health().synced:
            return None
        return tuple(sorted(self._cache.by(_BY_NODE, node), key=lambda it: it.name))

    @property
    def problem(self) -> str:
        """Why they are not known, or may be old."""
        return "" if self._cache is None else self._cache.health().problem or ""

    def _leave(self, number: int) -> None:
        self._members.pop(number, None)
        if not self._members:
            self._wanted.clear()
            self._unwanted.set()

    async def _tell_when_synced(self, cache: Cache[VolumeAttachment]) -> None:
        await cache.wait_synced()
        self._tell_all()

    def _tell_all(self) -> None:
        for _, changed in tuple(self._members.values()):
            changed()

    def _tell(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        about = new or old
        for node, changed in tuple(self._members.values()):
            if about is not None and about.spec.node_name == node:
                changed()
