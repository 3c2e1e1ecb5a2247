"""A mutation cache, as in client-go: an informer's objects, overlaid with our own writes that it has not seen yet.

    nodes = MutationCache(informer)
    nodes.record_write(await client.patch(NODES, …))
    nodes.get("n1")                              # the result of the write, although the watch has not delivered it yet

A controller that decides from the cache alone would repeat its write, and the precondition would fail. `get` drops a
recorded write once the informer has caught up.

client-go's (tools/cache/mutation_cache.go) drops writes after a time, because it cannot know whether a missing object
was deleted or not seen yet. Here the informer tells which revision it has seen, so nothing depends on a time.
"""

from typing import Generic, TypeVar

from haulout.api.objects import Object, object_key
from haulout.api.resources import Resource
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer, revision

O = TypeVar("O", bound=Object)  # noqa: E741 - named like R and T elsewhere


class MutationCache(Generic[O]):
    """An informer's objects, and the writes of this process that the informer has not seen yet."""

    def __init__(self, informer: Informer[O]) -> None:
        self.informer = informer
        self._written: dict[str, O] = {}
        self._deleted: dict[str, str] = {}  # key to the UID of the object that we deleted

    def record_write(self, obj: O) -> O:
        """Record the response of a write, or of a read from the server. Return the newest known version."""
        self._deleted.pop(obj.key, None)
        known = self._written.get(obj.key)
        if known is not None and revision(known.resource_version) > revision(obj.resource_version):
            return known  # the two responses arrived out of order
        self._written[obj.key] = obj
        return obj

    def record_delete(self, obj: O) -> None:
        """Hide an object from `get`, until the informer has dropped it or has a new one of the same name."""
        self._written.pop(obj.key, None)
        self._deleted[obj.key] = obj.uid

    async def refresh(
        self, client: Client, resource: Resource[O], name: str, *, namespace: str | None = None
    ) -> O | None:
        """Read an object from the API server, because a conflict shows that it has changed; None if it is gone."""
        cached = self.get(object_key(name, namespace))
        try:
            return self.record_write(await client.get(resource, name, namespace=namespace))
        except NotFound:
            if cached is not None:
                self.record_delete(cached)
            return None

    def get(self, key: str) -> O | None:
        """Return the newest known version of an object; None if it was deleted, or is unknown."""
        written = self._written.get(key)
        if written is not None and not self.informer.has_observed(revision(written.resource_version)):
            return written
        self._written.pop(key, None)
        found = self.informer.get(key)
        # By UID: a new object of the same name is not the deleted one.
        if found is not None and found.uid == self._deleted.get(key):
            return None
        self._deleted.pop(key, None)
        return found
