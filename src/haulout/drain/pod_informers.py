"""The pods on a node, from a watch and from lists.

There are two sources. `NodePodInformer` has a watch on the pods of one node; `haulout.drain.shared_pod_informer` has
one for many drains. Either may be stale, and that of an operator that was deposed without noticing certainly is. That
is safe: each request carries the UID of its pod, and a drain ends only after a list from the API server has confirmed
that.

`PresentPods` merges the source with the last list. The newer state of a pod counts, and a pod that was deleted stays
deleted, since UIDs are never reused. So a lost event delays a drain, and cannot mislead it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from haulout.api.objects import Page, Pod
from haulout.api.resources import PODS
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is, revision
from haulout.kube.reflector import ListWatch


def node_field_selector(node: str) -> str:
    return f"spec.nodeName={node}"


class PodSource(Protocol):
    """The pods of one node."""

    async def run(self) -> object:
        """Watch the pods until cancelled."""
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
    """Handles changes of pods."""

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
        self._gone: set[str] = set()
        self._listed: dict[str, Pod] = {}

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Subscribe to changes while the context lasts."""
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
