"""Advice on the timing of leader election.

It is for clouds that announce some maintenance only seconds ahead. After a crash of the leader nothing happens
until a standby leads. At least half of the shortest notice must then be left to drain. If not, the operator recommends
shorter leases; it never changes them itself.
"""

from collections.abc import Iterable
from datetime import timedelta

from haulout.core import duration
from haulout.kube.leaderelection_config import LeaderElectionConfig

# By `spec.source`. Azure: "Preempt" of Scheduled Events. Google: preemption of Spot VMs. AWS: interruption of Spot
# instances. OCI: preemption of preemptible instances.
_SHORTEST_NOTICE = {
    "azure": timedelta(seconds=30),
    "gcp": timedelta(seconds=30),
    "aws": timedelta(minutes=2),
    "oci": timedelta(minutes=2),
}


def lease_advice(timing: LeaderElectionConfig, sources: Iterable[str]) -> str:
    """Return which flags to set, and why; empty if the takeover is fast enough for notices of these sources."""
    too_short = sorted(
        (_SHORTEST_NOTICE[item], item)
        for item in set(sources) & _SHORTEST_NOTICE.keys()
        if timing.max_takeover_time > _SHORTEST_NOTICE[item] / 2
    )
    if not too_short:
        return ""
    notice, source = too_short[0]
    recommended = LeaderElectionConfig()
    flags = {
        "lease-duration": recommended.lease_duration,
        "renew-deadline": recommended.renew_deadline,
        "retry-period": recommended.retry_period,
    }
    return (
        f"{source} may announce maintenance only {duration.format_short(notice)} "
        "ahead, and after a crash of the leader a"
        f" standby begins to drain within {duration.format_short(timing.max_takeover_time)}: consider "
        + " ".join(f"--{name}={duration.format_short(item)}" for name, item in flags.items())
    )
