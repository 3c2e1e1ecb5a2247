"""Where a drain learns which pods are on its node.

There are two sources. `NodePodInformer` opens one watch on the pods of the node; a `haulout.drain.shared_pod_informer`
has one for all its members. Either may be old, and that of an operator which was deposed without knowing it surely is.
That is safe: each request carries the uid of the pod it is about, and a drain ends only after a list from the server
has confirmed that it may.

`PresentPods` puts together what the source shows and what the last list showed. Of two states of one pod the newer
counts, and a pod that was seen to go stays gone, since no uid comes twice. So an event that was lost delays a drain,
and cannot mislead it.
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
    """Return the field selector for the pods of a node."""
    return f"spec.nodeName={node}"


class PodSource(Protocol):
    """The pods of one node, as far as they are known."""

    async def run(self) -> object:
        """Follow them until cancelled."""
        ...

    async def wait_synced(self) -> None:
        """Return when all were seen once."""
        ...

    def pods(self) -> Iterable[Pod]:
        """Return them."""
        ...

    def subscribe(self, handler: Callable[[Pod | None, Pod | None], None]) -> Callable[[], None]:
        """Call `handler(old, new)` for each change of one of them; returns what ends that."""
        ...

    @property
    def stale_reason(self) -> str:
        """Why they may be out of date; empty if they are not."""
        ...


class PodChangeHandler(Protocol):
    """Whoever hears of changes of pods."""

    def __call__(self, uid: str, *, is_gone: bool) -> object:
        """Hear of one."""
        ...


class NodePodInformer:
    """The pods of a node, by a watch of their own."""

    def __init__(self, client: Client, node: str) -> None:
        self._cache: Informer[Pod] = Informer(
            client, ListWatch(PODS, fields=node_field_selector(node)), transform=as_is
        )

    async def run(self) -> None:
        """Follow them until cancelled."""
        await self._cache.run()

    async def wait_synced(self) -> None:
        """Return when all were seen once."""
        await self._cache.wait_synced()

    def pods(self) -> Iterable[Pod]:
        """Return them."""
        return self._cache.all()

    def subscribe(self, handler: Callable[[Pod | None, Pod | None], None]) -> Callable[[], None]:
        """Call `handler(old, new)` for each change."""
        return self._cache.subscribe(handler)

    @property
    def stale_reason(self) -> str:
        """Why they may be out of date."""
        health = self._cache.health()
        misfits = "; ".join(f"pod {key} cannot be read: {problem}" for key, problem in health.undecodable.items())
        return health.problem or misfits


class PresentPods:
    """The pods that are on a node, by all that is known."""

    def __init__(self, source: PodSource, *, on_change: PodChangeHandler) -> None:
        self._source = source
        self._on_change = on_change
        self._gone: set[str] = set()
        self._listed: dict[str, Pod] = {}

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Take note of changes while the context lasts."""
        unsubscribe = self._source.subscribe(self._handle_change)
        try:
            yield
        finally:
            unsubscribe()

    def pods(self) -> list[Pod]:
        """Return the pods, in the order of their names."""
        known = {pod.uid: pod for pod in self._source.pods()}
        for uid, pod in self._listed.items():
            if uid not in known or _revision(known[uid]) < _revision(pod):
                known[uid] = pod
        return sorted((pod for uid, pod in known.items() if uid not in self._gone), key=lambda pod: pod.key)

    def confirm(self, page: Page[Pod]) -> None:
        """Take what a list showed: what it lacks, and is not newer than it, is gone."""
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
    """Return what a decision may rest on: what a kubelet says while a pod starts or ends is mostly not of interest."""
    metadata = pod.metadata
    ends = metadata.deletion_timestamp, metadata.deletion_grace_period_seconds
    return pod.uid, pod.spec, pod.status.phase, ends, metadata.finalizers, metadata.labels, metadata.annotations


def _revision(pod: Pod) -> int:
    return revision(pod.resource_version)
