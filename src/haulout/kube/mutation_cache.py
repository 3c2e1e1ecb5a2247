"""Objects as we last knew them: from a cache, or from the answer to a write of ours that the cache has not seen yet.

    nodes = Fresh(cache)
    nodes.note(await client.patch(NODES, …))
    nodes.get("n1")                              # what the write made of it, though the watch has not told yet

Who decides from a cache alone repeats itself right after each write, and is refused by its own precondition. What was
noted is forgotten when it is looked at after the cache has caught up.
"""

from typing import Generic, TypeVar

from haulout.api.objects import Object
from haulout.kube.informer import Informer, revision

O = TypeVar("O", bound=Object)  # noqa: E741 - as R and T elsewhere


class MutationCache(Generic[O]):
    """A cache, and what we have written since."""

    def __init__(self, informer: Informer[O]) -> None:
        self.informer = informer
        self._written: dict[str, O] = {}
        self._deleted: dict[str, str] = {}  # the uids of what we deleted

    def record_write(self, obj: O) -> O:
        """Take what a write was answered with, or a read from the server itself; return the newest that is known."""
        self._deleted.pop(obj.key, None)
        known = self._written.get(obj.key)
        if known is not None and revision(known.resource_version) > revision(obj.resource_version):
            return known  # two answers have overtaken each other
        self._written[obj.key] = obj
        return obj

    def record_delete(self, obj: O) -> None:
        """Take note that an object is no more."""
        self._written.pop(obj.key, None)
        self._deleted[obj.key] = obj.uid

    def get(self, key: str) -> O | None:
        """Return the newest state that is known of an object; None if it is known to be gone, or not known."""
        written = self._written.get(key)
        if written is not None and not self.informer.has_seen(revision(written.resource_version)):
            return written
        self._written.pop(key, None)
        found = self.informer.get(key)
        if found is not None and found.uid == self._deleted.get(key):
            return None
        self._deleted.pop(key, None)
        return found
