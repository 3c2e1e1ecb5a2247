"""Settings of the Cluster API controller.

The defaults behave like the runtime-extension-maintenance-controller, except for old approvals.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class OldApprovals(StrEnum):
    """What happens to an approval that was on a node before the request."""

    WAIT = "wait"  # it does not count; no request is written until it is removed
    CLEAR = "clear"  # it is removed in the patch that writes the request
    HONOUR = "honour"  # it counts, as in the runtime-extension-maintenance-controller


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterApiSettings:
    """Settings of the Cluster API controller, from the flags of `haulout run --mode management`."""

    approval_timeout: timedelta | None = None  # after this time a deletion is no longer held; None: no limit
    overdue_after: timedelta = timedelta(hours=1)  # after this time an event says that an approval is missing
    unreachable_after: timedelta | None = None  # limit for holding deletions of an unreachable cluster; None: no limit
    old_approvals: OldApprovals = OldApprovals.WAIT
    metal3: bool = False  # power off hosts of approved Machines
    metal3_unguarded: bool = False  # ignore enabled and cordoned, as the predecessor does
    cluster_budget: tuple[str, ...] = ()  # limits as given on the command line: clusters in maintenance at once
    memory_limit: int | None = None  # bytes that the process may use; None: the limit of its container
