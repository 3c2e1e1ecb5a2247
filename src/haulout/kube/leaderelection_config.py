"""The timing of leader election: the three durations of client-go's leader election.

A standby takes over `lease_duration` after the last renewal of a leader that crashed. The duration bounds the pause
after a crash, so the default is shorter than client-go's 15 s: some clouds announce a preemption 30 s ahead, and the
pods need most of that. The cost is one write every 1.5 s instead of every 2 s, and a leader that cannot reach the API
server for `renew_deadline` stops. It restarts with its caches, and nothing is lost.

The difference between `lease_duration` and `renew_deadline` is the margin for requests in flight when a leader stops.
"""

from dataclasses import dataclass
from datetime import timedelta

from haulout.core import duration

JITTER_FACTOR = 1.2  # client-go's: a candidate that polls reads the lease again after 1 to 2.2 retry periods
_START_TIME = timedelta(seconds=4)  # for a new leader to fill its caches and reconcile the nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionConfig:
    """The durations of one election. Raise `ValueError` if they are not safe, as client-go does."""

    lease_duration: timedelta = timedelta(seconds=8)
    renew_deadline: timedelta = timedelta(seconds=6)
    retry_period: timedelta = timedelta(seconds=1.5)

    @property
    def max_takeover_time(self) -> timedelta:
        """Return how long after a crash of the leader a standby begins to drain, in the worst case."""
        return self.lease_duration + _START_TIME

    def __post_init__(self) -> None:
        """Check what client-go checks, and that `lease_duration` fits the Lease's `leaseDurationSeconds`."""
        lease, renew, retry = map(duration.format, (self.lease_duration, self.renew_deadline, self.retry_period))
        if self.retry_period <= timedelta():
            raise ValueError(f"the retry period must be greater than 0, got {retry}")
        if self.lease_duration % timedelta(seconds=1):
            raise ValueError(f"the lease duration must be whole seconds, as in the Lease, got {lease}")
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(f"the lease duration must be greater than the renew deadline, got {lease} and {renew}")
        if self.renew_deadline <= self.retry_period * JITTER_FACTOR:
            raise ValueError(
                f"the renew deadline must be greater than {JITTER_FACTOR} "
                f"times the retry period, got {renew} and {retry}"
            )
