"""The pods on a node, from watches and lists: one watch for a single drain, or one for many.

There are two sources: `NodePodInformer` watches the pods of one node, `SharedPodInformer` those of many. Either may be
stale, and that of an operator that was deposed without noticing certainly is. That is safe: each request carries the
UID of its pod, and a drain ends only after a list from the API server has confirmed that no pod is left.

`PresentPods` merges the source with the last list. The newer state of a pod counts, and a pod that was deleted stays
deleted, since UIDs are never reused. So a lost event delays a drain, and cannot mislead it.

`SharedPodInformer` is one watch of all pods for many drains, instead of one for each:

    informer = SharedPodInformer(client)
    drainer = Drainer(client, "n1", policy, pods=informer.for_node("n1"))

A watch costs a connection and a quarter of a megabyte, in this process and at the API server: too much for a thousand
nodes that a cloud may want to reboot in the same hour. The shared watch delivers the pods of all nodes, and only those
on nodes with a drain are kept. A drain that joins later lists the pods of its node once; the watch delivers all later
changes. The caller runs `run` as long as there are members.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from haulout.api.objects import Page, Pod
from haulout.api.resources import PODS
from haulout.core.backoff import RECONNECT
from haulout.core.retry import Retry
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is, revision
from haulout.kube.reflector import ListWatch

_BY_NODE = "node"

Handler = Callable[[Pod | None, Pod | None], None]


def node_field_selector(node: str) -> str:
    # The watch cache of the API server has an index for this selector (NodeNameTriggerFunc in
    # pkg/registry/core/pod/strategy.go), since each kubelet uses it.
    return f"spec.nodeName={node}"


class PodSource(Protocol):
    """The pods of one node, which may be stale. `PresentPods` corrects them by lists."""

    async def run(self) -> object:
        """Watch the pods until cancelled. `subscribe` and `pods` may be called before."""
        ...

    async def wait_synced(self) -> None:
        """Wait until the first list is complete."""
        ...

    def pods(self) -> Iterable[Pod]: ...

    def subscribe(self, handler: Callable[[Pod | None, Pod | None], None]) -> Callable[[], None]:
        """Call `handler(old, new)` for each change; return the function to unsubscribe."""
        ...

    @property
    def stale_reason(self) -> str:
        """Why the pods may be stale; empty if they are not."""
        ...


class PodChangeHandler(Protocol):
    """Called with the UID of a pod that changed in a way that matters, and whether it is gone."""

    def __call__(self, uid: str, *, is_gone: bool) -> object: ...


class NodePodInformer:
    """The pods of a node, by a watch of its own."""

    def __init__(self, client: Client, node: str) -> None:
        self._cache: Informer[Pod] = Informer(
            client, ListWatch(PODS, fields=node_field_selector(node)), transform=as_is
        )

    async def run(self) -> None:
        await self._cache.run()

    async def wait_synced(self) -> None:
        await self._cache.wait_synced()

    def pods(self) -> Iterable[Pod]:
        return self._cache.all()

    def subscribe(self, handler: Callable[[Pod | None, Pod | None], None]) -> Callable[[], None]:
        return self._cache.subscribe(handler)

    @property
    def stale_reason(self) -> str:
        health = self._cache.health()
        misfits = "; ".join(f"pod {key} cannot be read: {problem}" for key, problem in health.undecodable.items())
        return health.problem or misfits


class PresentPods:
    """The pods on a node by watch and list together."""

    def __init__(self, source: PodSource, *, on_change: PodChangeHandler) -> None:
        self._source = source
        self._on_change = on_change
        # Never removed from: a UID is never used again, and a stale source may still have the pod.
        self._gone: set[str] = set()
        self._listed: dict[str, Pod] = {}

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        unsubscribe = self._source.subscribe(self._handle_change)
        try:
            yield
        finally:
            unsubscribe()

    def pods(self) -> list[Pod]:
        """Return the pods, sorted by namespace and name."""
        known = {pod.uid: pod for pod in self._source.pods()}
        for uid, pod in self._listed.items():
            if uid not in known or _revision(known[uid]) < _revision(pod):
                known[uid] = pod
        return sorted((pod for uid, pod in known.items() if uid not in self._gone), key=lambda pod: pod.key)

    def confirm(self, page: Page[Pod]) -> None:
        """Merge a list: pods that it lacks, and that are not newer than it, are gone."""
        self._listed = {pod.uid: pod for pod in page.items}
        list_revision = revision(page.resource_version)
        # A pod that is newer than the list was created after it, so its absence from the list means nothing.
        self._gone |= {
            pod.uid for pod in self._source.pods() if pod.uid not in self._listed and _revision(pod) <= list_revision
        }

    def _handle_change(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is None:
            self._gone.add(old.uid)
        changed = new or old
        if changed is not None and (old is None or new is None or _relevant_fields(old) != _relevant_fields(new)):
            self._on_change(changed.uid, is_gone=new is None)


def _relevant_fields(pod: Pod) -> tuple[object, ...]:
    """Return the fields on which decisions depend. Most status changes of starting and ending pods are irrelevant."""
    metadata = pod.metadata
    ends = metadata.deletion_timestamp, metadata.deletion_grace_period_seconds
    return pod.uid, pod.spec, pod.status.phase, ends, metadata.finalizers, metadata.labels, metadata.annotations


def _revision(pod: Pod) -> int:
    return revision(pod.resource_version)


class SharedPodInformer:
    """The pods of all nodes with a member, from one watch of all pods."""

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
        await self._cache.run()

    def for_node(self, node: str) -> "_SharedPodSource":
        """Return a source for the pods of a node. It is a member while its `run` runs."""
        return _SharedPodSource(self, node)

    def __len__(self) -> int:
        return len(self._cache)

    # For members

    async def add_member(self, member: "_SharedPodSource") -> None:
        """Add a member, and return when all pods of its node are known."""
        # Before the list, so that no event between the list and the membership is dropped.
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

    def new_retry(self) -> Retry:
        return Retry(self._client.clock, self._client.random, RECONNECT)

    @property
    def problem(self) -> str:
        """Why the pods may be stale; empty if they are not."""
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
        retry = self._informer.new_retry()
        try:
            while not self._synced.is_set():
                try:
                    await self._informer.add_member(self)
                # Not a member while it fails: the pods of its node would be incomplete.
                except KubeError as error:
                    self._informer.remove_member(self)
                    self._problem = str(error)
                    await retry.wait(error)
                else:
                    self._problem = ""
                    self._synced.set()
            await asyncio.Event().wait()
        finally:
            self._informer.remove_member(self)

    async def wait_synced(self) -> None:
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
        return self._problem or self._informer.problem

    def handle_change(self, old: Pod | None, new: Pod | None) -> None:
        for handler in tuple(self._handlers):
            handler(old, new)
