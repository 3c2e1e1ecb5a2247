"""One watch of all pods for very many drains, instead of one for each.

    pool = PodPool(client)
    drain = Drain(client, "n1", policy, pods=pool.of("n1"))

A watch costs a connection and a quarter of a megabyte, here and at the server: too much for the thousand nodes that a
cloud may want to reboot at the same hour. The watch of the pool brings the pods of all nodes, and only those are kept
whose node is being drained. Who joins later asks for the pods of its node once; all that happens from then on the watch
tells. Somebody runs `run` for as long as there is anybody in the pool.
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
    """The pods of all nodes that somebody has joined for."""

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
        """Follow all pods, until cancelled."""
        await self._cache.run()

    def for_node(self, node: str) -> "_SharedPodSource":
        """Return the pods of a node; they are followed while its `run` runs."""
        return _SharedPodSource(self, node)

    def __len__(self) -> int:
        return len(self._cache)

    # For members

    async def add_member(self, member: "_SharedPodSource") -> None:
        """Have the pods of a member's node; return when all were seen."""
        self._members.setdefault(member.node, []).append(member)
        await self._cache.wait_synced()
        # The list with which the watch began may have come before we joined.
        for pod in (await self._client.list(PODS, fields=node_field_selector(member.node))).items:
            self._cache.update(pod)

    def remove_member(self, member: "_SharedPodSource") -> None:
        """Forget about a member, and about the pods of its node unless others need them."""
        remaining = [other for other in self._members.get(member.node, ()) if other is not member]
        if remaining:
            self._members[member.node] = remaining
        elif self._members.pop(member.node, None):
            self._cache.remove(self.pods(member.node))

    def pods(self, node: str) -> Iterable[Pod]:
        """Return the pods of a node."""
        return self._cache.by_index(_BY_NODE, node)

    async def back_off(self, failures: int) -> None:
        """Wait before the server is asked again."""
        await self._client.clock.sleep(_BACKOFF.delay(failures, self._client.random))

    @property
    def problem(self) -> str:
        """Why what is known may be old."""
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
        """Be in the pool until cancelled."""
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
        """Return when all were seen once."""
        await self._synced.wait()

    def pods(self) -> Iterable[Pod]:
        """Return them."""
        return self._informer.pods(self.node)

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Call `handler(old, new)` for each that there is, and for each change."""
        self._handlers.append(handler)
        for pod in list(self.pods()):
            handler(None, pod)
        return lambda: self._handlers.remove(handler)

    @property
    def stale_reason(self) -> str:
        """Why they may be out of date."""
        return self._problem or self._informer.problem

    def handle_change(self, old: Pod | None, new: Pod | None) -> None:
        """Hear of a change."""
        for handler in tuple(self._handlers):
            handler(old, new)
