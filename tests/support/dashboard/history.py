"""A fleet history for browser tests: maintenance by profiles, NodeMaintenances, and a deleted node."""

from datetime import datetime, timedelta

from haulout.dashboard.api.types import HistoryList, NodeHistoryEntry

_MINUTE = timedelta(minutes=1)


def a_history(
    now: datetime, *, total: int = 0, reason: str = "wanted passed: node spot-07 has the label patch"
) -> HistoryList:
    """Return what happened within the last hours, the newest first; `why` is of the oldest."""
    deleted_at = now - 20 * _MINUTE
    entries = (
        NodeHistoryEntry(
            node="spot-07",
            is_deleted=True,
            deleted=deleted_at,
            time=deleted_at,
            object="Node",
            result="Deleted",
            reason="the Node object was deleted",
        ),
        NodeHistoryEntry(
            node="general-04",
            time=now - 31 * _MINUTE,
            object="NodeMaintenance/patch",
            requested_by="kubectl-create",
            from_="Running",
            to="Succeeded",
            since=now - 33 * _MINUTE,
            reason="new kernel",
            result="Drained",
            drain_seconds=75,
            drain_pods=7,
        ),
        NodeHistoryEntry(
            node="general-04",
            time=now - 33 * _MINUTE,
            object="NodeMaintenance/patch",
            requested_by="kubectl-create",
            to="Running",
            reason="new kernel",
        ),
        NodeHistoryEntry(
            node="large-02",
            time=now - 95 * _MINUTE,
            object="profile/os",
            from_="in-maintenance",
            to="operational",
            since=now - 110 * _MINUTE,
            reason="!wanted passed: node large-02 has no label patch",
        ),
        NodeHistoryEntry(
            node="spot-07",
            is_deleted=True,
            deleted=deleted_at,
            time=now - 120 * _MINUTE,
            object="profile/os",
            from_="operational",
            to="maintenance-required",
            reason=reason,
        ),
    )
    return HistoryList(entries=entries, total=max(total, len(entries)), components=("Widgets",))
