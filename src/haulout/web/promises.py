"""NodeMaintenances that were let in a moment ago, and are not to be seen in any list yet.

Between our yes and the moment at which the object is stored, a second one for the same node, or for another member of
etcd, would be judged by a list that has neither. So what was let in is remembered, and counts as if it was there, for
every list that was begun too early to tell. A list that was begun later is right: either it shows the object, or
somebody else refused it.

This holds within one process. Two replicas that are asked at the same moment can still let in one each; that is the
controller's to notice, which looks again before it touches a node.
"""

from dataclasses import dataclass
from datetime import timedelta

STORED_WITHIN = timedelta(seconds=5)  # after our yes, if nobody else says no
_REMEMBERED = timedelta(minutes=1)  # longer than any list that is waited for takes


@dataclass(slots=True)
class _Promise:
    node: str
    doubtful_until: float  # lists that were begun before may not show it


class Promises:
    """What was let in; instants are those of `Clock.monotonic`."""

    def __init__(self) -> None:
        self._promises: dict[str, _Promise] = {}  # by the name of the object

    def add(self, name: str, *, node: str, now: float) -> None:
        """Remember that an object was let in."""
        oldest = now - _REMEMBERED.total_seconds()
        self._promises = {key: it for key, it in self._promises.items() if it.doubtful_until >= oldest}
        self._promises[name] = _Promise(node, now + STORED_WITHIN.total_seconds())

    def stored(self, name: str, *, now: float) -> None:
        """Note that an object is there: whatever is listed from now on shows it, or it is gone again."""
        if promise := self._promises.get(name):
            promise.doubtful_until = min(promise.doubtful_until, now)

    def unseen(self, *, by: float, but: str) -> dict[str, str]:
        """Return the nodes of objects that a list begun at `by` need not show, and their names; `but` one of them."""
        doubtful = ((name, it) for name, it in self._promises.items() if by <= it.doubtful_until and name != but)
        return {it.node: name for name, it in doubtful}
