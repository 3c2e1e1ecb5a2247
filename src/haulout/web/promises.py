"""NodeMaintenances admitted within the last seconds that a list may not show yet.

Between our answer and the moment at which the API server stores the object, a second order for the same node, or for
another member of etcd, is judged by a list that shows neither. So an admission is remembered, and the second order
waits for a list that shows the first. A list that was begun `STORED_WITHIN` after the admission is certain: either it
shows the object, or somebody else refused it.

What is only remembered never refuses an order, and makes it wait no longer than `MAX_WAIT`: whoever reaches the webhook
can have an admission remembered, and two replicas that are asked at the same moment know nothing of each other. If two
orders for one node are admitted, the controller performs one, and the other waits (`haulout.maintenance.decision`).
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

STORED_WITHIN = timedelta(seconds=5)  # after our answer, unless somebody else refuses
MAX_WAIT = timedelta(seconds=1)  # of one order, for all remembered admissions together
_REMEMBERED = timedelta(minutes=1)  # longer than any list that is waited for takes
_MAX_REMEMBERED = 1000


@dataclass(slots=True)
class _Promise:
    node: str
    doubtful_until: float  # lists that were begun before may not show it


class Promises:
    """Remembered admissions, of which the oldest is forgotten first; instants are those of `Clock.monotonic`."""

    def __init__(self, *, most: int = _MAX_REMEMBERED) -> None:
        self._most = most
        self._promises: OrderedDict[str, _Promise] = OrderedDict()  # by the name of the object, the oldest first

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._promises)

    def add(self, name: str, *, node: str, now: float) -> None:
        """Remember that an object was admitted."""
        self._promises[name] = _Promise(node, now + STORED_WITHIN.total_seconds())
        self._promises.move_to_end(name)
        oldest = now - _REMEMBERED.total_seconds()
        while len(self._promises) > self._most or next(iter(self._promises.values())).doubtful_until < oldest:
            self._promises.popitem(last=False)

    def stored(self, name: str, *, now: float) -> None:
        """Note that an object is there: whatever is listed from now on shows it, or it is gone again."""
        if promise := self._promises.get(name):
            promise.doubtful_until = min(promise.doubtful_until, now)

    def unseen(self, *, by: float, but: str) -> dict[str, str]:
        """Return the nodes of objects that a list begun at `by` need not show, and their names; `but` one of them."""
        doubtful = ((name, it) for name, it in self._promises.items() if by <= it.doubtful_until and name != but)
        return {it.node: name for name, it in doubtful}
