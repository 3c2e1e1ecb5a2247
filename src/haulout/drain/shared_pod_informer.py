"""One watch of all pods for many drains, instead of one for each.

    informer = SharedPodInformer(client)
    drainer = Drainer(client, "n1", policy, pods=informer.for_node("n1"))

A watch costs a connection and a quarter of a megabyte, in this process and at the API server: too much for a thousand
nodes that a cloud may want to reboot in the same hour. The shared watch delivers the pods of all nodes, and only those
on nodes with a drain are kept. A drain that joins later lists the pods of its node once; the watch delivers all later
changes. The caller runs `run` as long as there are members.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta

from haulout.api.objects import Pod
from haulout.api.resources import PODS
from haulout.core.backoff import Backoff
from haulout.drain.pod_informers import node_field_selector
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch

_BACKOFF = Backoff(first=timedelta(seconds=1), factor=2, limit=timedelta(seconds=30), jitter=0.5)

_BY_NODE = "node"

Handler = Callable[[Pod | None, Pod | None], None]


class SharedPodInformer:
    """The pods of all nodes with a member."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._members: dict[str, list[_SharedPodSource]] = {}  # by node
        self._cache: Informer[Pod] = Informer(
            client,
            ListWatch(PODS),
            transform=as_is,
            indexes={_BY_NODE: lambda pod: (pod.spec.node_name,)},
            keep=lambda pod: pod.spec.node_name in self._members,
        )
        self._cache.subscribe(self._handle_change)

    async def run(self) -> None:
        """Watch all pods until cancelled."""
        await self._cache.run()

    def for_node(self, node: str) -> "_SharedPodSource":
        """Return a source for the pods of a node. It is a member while its `run` runs."""
        return _SharedPodSource(self, node)

    def __len__(self) -> int:
        return len(self._cache)

    # For members

    async def add_member(self, member: "_SharedPodSource") -> None:
        """Add a member, and return when all pods of its node are known."""
        self._members.setdefault(member.node, []).append(member)
        await self._cache.wait_synced()
        # The list that started the watch may be older than this membership, and its pods were not kept.
        for pod in (await self._client.list(PODS, fields=node_field_selector(member.node))).items:
            self._cache.update(pod)

    def remove_member(self, member: "_SharedPodSource") -> None:
        """Remove a member, and the pods of its node unless another member needs them."""
        remaining = [other for other in self._members.get(member.node, ()) if other is not member]
        if remaining:
            self._members[member.node] = remaining
        elif self._members.pop(member.node, None):
            self._cache.remove(self.pods(member.node))

    def pods(self, node: str) -> Iterable[Pod]:
        return self._cache.by_index(_BY_NODE, node)

    async def back_off(self, failures: int) -> None:
        """Wait before the next attempt to join."""
        await self._client.clock.sleep(_BACKOFF.delay(failures, self._client.random))

    @property
    def problem(self) -> str:
        """Why the pods may be stale."""
        return self._cache.health().problem or ""

    def _handle_change(self, old: Pod | None, new: Pod | None) -> None:
        changed = new or old
        if changed is not None:
            for member in self._members.get(changed.spec.node_name, ()):
                member.handle_change(old, new)


class _SharedPodSource:
    """The pods of one node, for one drain."""

    def __init__(self, informer: SharedPodInformer, node: str) -> None:
        self.node = node
        self._informer = informer
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._problem = ""

    async def run(self) -> None:
        """Join with retries, and stay a member until cancelled."""
        failures = 0
        try:
            while not self._synced.is_set():
                try:
                    await self._informer.add_member(self)
                except KubeError as error:
                    self._informer.remove_member(self)
                    failures += 1
                    self._problem = str(error)
                    await self._informer.back_off(failures)
                else:
                    self._problem = ""
                    self._synced.set()
            await asyncio.Event().wait()
        finally:
            self._informer.remove_member(self)

    async def wait_synced(self) -> None:
        """Wait until all pods of the node are known."""
        await self._synced.wait()

    def pods(self) -> Iterable[Pod]:
        return self._informer.pods(self.node)

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Call `handler(old, new)` for each existing pod and each change; return the function to unsubscribe."""
        self._handlers.append(handler)
        for pod in list(self.pods()):
            handler(None, pod)
        return lambda: self._handlers.remove(handler)

    @property
    def stale_reason(self) -> str:
        """Why the pods may be stale."""
        return self._problem or self._informer.problem

    def handle_change(self, old: Pod | None, new: Pod | None) -> None:
        for handler in tuple(self._handlers):
            handler(old, new)
