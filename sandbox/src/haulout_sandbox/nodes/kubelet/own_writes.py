"""Tracks a component's own writes, so that their watch events cause no further work.

The cluster shows every write twice, as the response and as a watch event, and either may come first. The component has
nothing to learn from the event of its own write, but must not act on an older state before the event arrives. So the
revision of each write is kept until the informer has caught up. The response is not read beyond that: the event brings
the same object.
"""

from dataclasses import dataclass

from haulout.kube.informer import revision
from haulout_sandbox.nodes.informers import PodView


@dataclass(slots=True)
class _UnobservedWrite:
    """A write that the informer does not show yet."""

    uid: str
    revision: int
    must_sync_again: bool  # the pod needs another pass as soon as the informer shows the write


class OwnWrites:
    """Own writes of pod statuses, by the key of the pod: in flight, or not yet shown by the informer."""

    def __init__(self) -> None:
        self._in_flight: set[str] = set()
        self._unobserved: dict[str, _UnobservedWrite] = {}

    def begin(self, key: str) -> None:
        """Begin a write: until `end`, events about the pod are ignored. The writer reads the informer afterwards."""
        self._in_flight.add(key)

    def end(self, key: str) -> None:
        """End the write, whatever its outcome."""
        self._in_flight.discard(key)

    def record(self, pod: PodView, written_revision: int, *, must_sync_again: bool) -> None:
        """Record that the pod was written at a revision that the informer does not show yet."""
        self._unobserved[pod.key] = _UnobservedWrite(pod.uid, written_revision, must_sync_again)

    def has_unobserved_write(self, pod: PodView) -> bool:
        """Return whether the pod was written after this state; if so, the event of that write causes the next pass."""
        unobserved = self._unobserved.get(pod.key)
        if unobserved is None or unobserved.uid != pod.uid or revision(pod.resource_version) >= unobserved.revision:
            return False
        unobserved.must_sync_again = True
        return True

    def must_sync(self, pod: PodView) -> bool:
        """Return whether a state that the informer now shows needs a pass."""
        if pod.key in self._in_flight:
            return False
        unobserved = self._unobserved.get(pod.key)
        if unobserved is None:
            return True
        revisions_newer = revision(pod.resource_version) - unobserved.revision
        if unobserved.uid == pod.uid and revisions_newer < 0:
            return False
        del self._unobserved[pod.key]
        return unobserved.uid != pod.uid or revisions_newer > 0 or unobserved.must_sync_again

    def forget(self, key: str) -> None:
        self._unobserved.pop(key, None)
