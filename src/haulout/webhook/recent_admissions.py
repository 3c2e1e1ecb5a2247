"""NodeMaintenances admitted within the last seconds that a list may not show yet.

Between our answer and the moment at which the API server stores the object, a second order for the same node, or for
another member of etcd, is judged by a list that shows neither. So an admission is remembered, and the second order
waits for a list that shows the first. A list that was begun `STORED_WITHIN` after the admission is certain: either it
shows the object, or somebody else refused it.

What is only remembered never refuses an order, and makes it wait no longer than `MAX_WAIT`: whoever reaches the webhook
can have an admission remembered, and two replicas that are asked at the same moment know nothing of each other. If two
orders for one node are admitted, the controller performs one, and the other waits
(`haulout.controllers.nodemaintenance.decision`).
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

STORED_WITHIN = timedelta(seconds=5)  # after our answer, unless somebody else refuses
MAX_WAIT = timedelta(seconds=1)  # of one order, for all remembered admissions together
_RETENTION = timedelta(minutes=1)  # longer than any list that is waited for takes
_MAX_ADMISSIONS = 1000


@dataclass(slots=True)
class _Admission:
    node: str
    unlisted_until: float  # lists that were begun before may not show it


class RecentAdmissions:
    """Remembered admissions, of which the oldest is forgotten first; instants are those of `Clock.monotonic`."""

    def __init__(self, *, max_size: int = _MAX_ADMISSIONS) -> None:
        self._max_size = max_size
        self._admissions: OrderedDict[str, _Admission] = OrderedDict()  # by the name of the object, the oldest first

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._admissions)

    def add(self, name: str, *, node: str, now: float) -> None:
        """Remember that an object was admitted."""
        self._admissions[name] = _Admission(node, now + STORED_WITHIN.total_seconds())
        self._admissions.move_to_end(name)
        oldest = now - _RETENTION.total_seconds()
        while len(self._admissions) > self._max_size or next(iter(self._admissions.values())).unlisted_until < oldest:
            self._admissions.popitem(last=False)

    def mark_stored(self, name: str, *, now: float) -> None:
        """Note that an object is there: whatever is listed from now on shows it, or it is gone again."""
        if admission := self._admissions.get(name):
            admission.unlisted_until = min(admission.unlisted_until, now)

    def possibly_unlisted(self, *, list_started: float, excluding: str) -> dict[str, str]:
        """Return the nodes of objects that a list begun at `list_started` need not show, and their names.

        `excluding` one of them.
        """
        unlisted = (
            (name, admission)
            for name, admission in self._admissions.items()
            if list_started <= admission.unlisted_until and name != excluding
        )
        return {admission.node: name for name, admission in unlisted}
