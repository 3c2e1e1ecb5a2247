"""The schedule `oneshot`: once, some time after a change of state."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import ProfileStatus, Schedule, SendDecision
from haulout.core.timestamps import add_saturating


@dataclass(frozen=True, slots=True, kw_only=True)
class Oneshot(Schedule):
    """Sends once, a certain time after the state has changed.

    A profile that is new to the node counts as a change, too.
    """

    type = "oneshot"
    example = "delay: 10m"

    delay: timedelta = option("How long after the change of the state it is sent.", default=timedelta(minutes=1))

    def due(self, *, status: ProfileStatus, last_sent: datetime | None, now: datetime) -> SendDecision:
        changed = status.transition
        if changed is None or (last_sent is not None and last_sent > changed):
            return SendDecision(is_due=False)
        send_at = add_saturating(changed, self.delay)
        return SendDecision(is_due=True) if now >= send_at else SendDecision(is_due=False, requeue_at=send_at)
