"""The schedule `periodic`: after a change of state, and then at intervals."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import ProfileStatus, Schedule, SendDecision, State
from haulout.core.timestamps import add_saturating


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic(Schedule):
    """Sends when the state has changed, and then periodically, but not while the node is operational.

    Unless the node is operational, a notification that was never sent is sent at once.
    """

    type = "periodic"
    example = "interval: 24h"

    interval: timedelta = option("How long after the last time it is sent again.", default=timedelta(hours=1))

    def due(self, *, status: ProfileStatus, last_sent: datetime | None, now: datetime) -> SendDecision:
        if status.current != status.previous:
            return SendDecision(is_due=True)
        if status.previous == State.OPERATIONAL:
            return SendDecision(is_due=False)
        if last_sent is None or now >= (next_at := add_saturating(last_sent, self.interval)):
            return SendDecision(is_due=True)
        return SendDecision(is_due=False, requeue_at=next_at)
