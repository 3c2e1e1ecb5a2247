"""Clouds that announce some maintenance only seconds ahead, and whether a standby takes over soon enough for them.

After a crash of the leader nothing is done until a standby leads. At least half of the shortest notice must be left
then, for the pods to leave. Where it is not, the operator suggests shorter leases, and changes nothing by itself.
"""

from collections.abc import Iterable
from datetime import timedelta

from haulout.core import duration
from haulout.kube.lease_timing import LeaseTiming

# By `spec.source`. Azure: "Preempt" of Scheduled Events. Google: preemption of Spot VMs. AWS: interruption of Spot
# instances. OCI: preemption of preemptible instances.
_SHORTEST = {
    "azure": timedelta(seconds=30),
    "gcp": timedelta(seconds=30),
    "aws": timedelta(minutes=2),
    "oci": timedelta(minutes=2),
}


def lease_suggestion(timing: LeaseTiming, sources: Iterable[str]) -> str:
    """Return which flags to set, and why; empty if the leases are short enough for notices of these sources."""
    late = sorted((_SHORTEST[it], it) for it in set(sources) & _SHORTEST.keys() if timing.takeover > _SHORTEST[it] / 2)
    if not late:
        return ""
    notice, source = late[0]
    wanted = LeaseTiming()
    flags = {
        "lease-duration": wanted.lease_duration,
        "renew-deadline": wanted.renew_deadline,
        "retry-period": wanted.retry_period,
    }
    return (
        f"{source} may announce maintenance only {duration.short(notice)} ahead, and after a crash of the leader a"
        f" standby begins to drain within {duration.short(timing.takeover)}: consider "
        + " ".join(f"--{name}={duration.short(it)}" for name, it in flags.items())
    )
