"""What a component wrote itself, so that hearing of it is no news.

The cluster shows every write twice: as the answer to it and as an event, and either may come first. Who looked at a pod
and wrote what followed has nothing to learn from that event, but must not act on an older state before it has come. So
of each write its revision is remembered until the copy of the pods has caught up. The answer is not read beyond that:
the event brings the same.
"""

from dataclasses import dataclass

from haulout.kube.informer import revision
from haulout_sandbox.nodes.informers import PodView


@dataclass(slots=True)
class _UnobservedWrite:
    """A write that the copy does not show yet."""

    uid: str
    revision: int
    must_sync_again: bool  # there is more to do about the pod, as soon as the copy shows it


class OwnWrites:
    """Own writes of the status of pods, by the key of the pod: under way, or not yet shown by the copy of the pods."""

    def __init__(self) -> None:
        self._in_flight: set[str] = set()
        self._unobserved: dict[str, _UnobservedWrite] = {}

    def begin(self, key: str) -> None:
        """Begin a write: until its end no event about the pod is news, as who writes looks at the copy afterwards."""
        self._in_flight.add(key)

    def end(self, key: str) -> None:
        """End the write, whatever came of it."""
        self._in_flight.discard(key)

    def record(self, pod: PodView, written_revision: int, *, must_sync_again: bool) -> None:
        """Note that the pod was written at a revision that the copy is yet to show."""
        self._unobserved[pod.key] = _UnobservedWrite(pod.uid, written_revision, must_sync_again)

    def has_unobserved_write(self, pod: PodView) -> bool:
        """Tell whether the pod was written since it was like this; if so, the event of that will be news."""
        unobserved = self._unobserved.get(pod.key)
        if unobserved is None or unobserved.uid != pod.uid or revision(pod.resource_version) >= unobserved.revision:
            return False
        unobserved.must_sync_again = True
        return True

    def must_sync(self, pod: PodView) -> bool:
        """Tell whether a state that the copy now shows is to be looked at."""
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
        """Forget about a pod that is gone."""
        self._unobserved.pop(key, None)
