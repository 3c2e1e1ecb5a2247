"""What a component wrote itself, so that hearing of it is no news.

The cluster shows every write twice: as the answer to it and as an event, and either may come first. Who looked at a pod
and wrote what followed has nothing to learn from that event, but must not act on an older state before it has come. So
of each write its revision is remembered until the copy of the pods has caught up. The answer is not read beyond that:
the event brings the same.
"""

from dataclasses import dataclass

from haulout.kube.cache import revision
from haulout_sandbox.nodes.view import PodView


@dataclass(slots=True)
class _Ahead:
    """A write that the copy does not show yet."""

    uid: str
    revision: int
    is_due: bool  # there is more to do about the pod, as soon as the copy shows it


class OwnWrites:
    """Own writes of the status of pods, by the key of the pod: under way, or not yet shown by the copy of the pods."""

    def __init__(self) -> None:
        self._under_way: set[str] = set()
        self._ahead: dict[str, _Ahead] = {}

    def begin(self, key: str) -> None:
        """Begin a write: until its end no event about the pod is news, as who writes looks at the copy afterwards."""
        self._under_way.add(key)

    def end(self, key: str) -> None:
        """End the write, whatever came of it."""
        self._under_way.discard(key)

    def note(self, pod: PodView, at: int, *, is_due: bool) -> None:
        """Note that the pod was written at a revision that the copy is yet to show."""
        self._ahead[pod.key] = _Ahead(pod.uid, at, is_due)

    def awaits(self, pod: PodView) -> bool:
        """Tell whether the pod was written since it was like this; if so, the event of that will be news."""
        ahead = self._ahead.get(pod.key)
        if ahead is None or ahead.uid != pod.uid or revision(pod.resource_version) >= ahead.revision:
            return False
        ahead.is_due = True
        return True

    def is_news(self, pod: PodView) -> bool:
        """Tell whether a state that the copy now shows is to be looked at."""
        if pod.key in self._under_way:
            return False
        ahead = self._ahead.get(pod.key)
        if ahead is None:
            return True
        newer = revision(pod.resource_version) - ahead.revision
        if ahead.uid == pod.uid and newer < 0:
            return False
        del self._ahead[pod.key]
        return ahead.uid != pod.uid or newer > 0 or ahead.is_due

    def forget(self, key: str) -> None:
        """Forget about a pod that is gone."""
        self._ahead.pop(key, None)
