"""NodeMaintenances admitted within the last seconds that a list may not show yet.

Between our response and the moment at which the API server stores the object, a second NodeMaintenance for the same
node, or for another etcd member, would be validated against a list that shows neither. The webhook therefore remembers
each admission, and the second request waits for a list that shows the first object. A list begun `STORED_WITHIN` after
the admission is certain: it shows the object, or another admission plugin refused it.

A remembered admission alone never refuses a request, and delays it by at most `MAX_WAIT`: any client that reaches the
webhook can cause an admission to be remembered, and two replicas called at the same moment do not know of each other.
If two NodeMaintenances for one node are admitted, the controller executes one, and the other waits
(`haulout.controllers.nodemaintenance.decision`).
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

STORED_WITHIN = timedelta(seconds=5)  # after our response, unless another admission plugin refuses
MAX_WAIT = timedelta(seconds=1)  # per request, for all remembered admissions together
_RETENTION = timedelta(minutes=1)  # longer than any list takes that a request waits for
_MAX_ADMISSIONS = 1000


@dataclass(slots=True)
class _Admission:
    node: str
    unlisted_until: float  # a list begun before this instant may not show the object


class RecentAdmissions:
    """Remembered admissions, the oldest evicted first; instants are those of `Clock.monotonic`."""

    def __init__(self, *, max_size: int = _MAX_ADMISSIONS) -> None:
        self._max_size = max_size
        self._admissions: OrderedDict[str, _Admission] = OrderedDict()  # by object name, the oldest first

    def __len__(self) -> int:
        return len(self._admissions)

    def add(self, name: str, *, node: str, now: float) -> None:
        """Remember that an object was admitted."""
        self._admissions[name] = _Admission(node, now + STORED_WITHIN.total_seconds())
        self._admissions.move_to_end(name)
        oldest = now - _RETENTION.total_seconds()
        while len(self._admissions) > self._max_size or next(iter(self._admissions.values())).unlisted_until < oldest:
            self._admissions.popitem(last=False)

    def mark_stored(self, name: str, *, now: float) -> None:
        """Record that an object is stored: any later list shows it, unless it was deleted again."""
        if admission := self._admissions.get(name):
            admission.unlisted_until = min(admission.unlisted_until, now)

    def possibly_unlisted(self, *, list_started: float, excluding: str) -> dict[str, str]:
        """Return node → object name for objects that a list begun at `list_started` may not show.

        `excluding` is the name of an object to leave out.
        """
        unlisted = (
            (name, admission)
            for name, admission in self._admissions.items()
            if list_started <= admission.unlisted_until and name != excluding
        )
        return {admission.node: name for name, admission in unlisted}
