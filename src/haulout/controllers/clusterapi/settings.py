"""How a hub behaves; without any settings as the runtime-extension-maintenance-controller, but for old approvals."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class OldApprovals(StrEnum):
    """What becomes of an approval that was on a node before it was asked for."""

    WAIT = "wait"  # it does not count, and nothing is asked for until it is gone
    CLEAR = "clear"  # it is taken off as it is asked for anew
    HONOUR = "honour"  # it counts, as for the runtime-extension-maintenance-controller


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterApiSettings:
    """What can differ from one hub to the next."""

    approval_timeout: timedelta | None = None  # after which a deletion is not held any longer; None: it is held
    overdue_after: timedelta = timedelta(hours=1)  # after which people are told that somebody still has to approve
    unreachable_after: timedelta | None = None  # how long a cluster may be silent while its deletions are held
    old_approvals: OldApprovals = OldApprovals.WAIT
    metal3: bool = False  # hosts of approved Machines are powered off
    metal3_unguarded: bool = False  # enabled and cordoned or not, as the runtime-extension-maintenance-controller does
    cluster_budget: tuple[str, ...] = ()  # as they were typed: how many clusters may be in maintenance at once
    memory_limit: int | None = None  # bytes that the process may use; None: what its container may use
