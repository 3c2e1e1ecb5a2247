"""A fleet history for browser tests: maintenance by profiles, NodeMaintenances, and a deleted node."""

from datetime import datetime, timedelta

from haulout.dashboard.api.types import HistoryEntry, HistoryList

_MINUTE = timedelta(minutes=1)


def a_history(
    now: datetime, *, total: int = 0, why: str = "wanted passed: node spot-07 has the label patch"
) -> HistoryList:
    """Return what happened within the last hours, the newest first; `why` is of the oldest."""
    deleted_at = now - 20 * _MINUTE
    entries = (
        HistoryEntry(
            node="spot-07",
            is_deleted=True,
            deleted=deleted_at,
            time=deleted_at,
            what="Node",
            result="Deleted",
            why="the Node object was deleted",
        ),
        HistoryEntry(
            node="general-04",
            time=now - 31 * _MINUTE,
            what="NodeMaintenance/patch",
            by="kubectl-create",
            before="Running",
            after="Succeeded",
            since=now - 33 * _MINUTE,
            why="new kernel",
            result="Drained",
            seconds=75,
            pods=7,
        ),
        HistoryEntry(
            node="general-04",
            time=now - 33 * _MINUTE,
            what="NodeMaintenance/patch",
            by="kubectl-create",
            after="Running",
            why="new kernel",
        ),
        HistoryEntry(
            node="large-02",
            time=now - 95 * _MINUTE,
            what="profile/os",
            before="in-maintenance",
            after="operational",
            since=now - 110 * _MINUTE,
            why="!wanted passed: node large-02 has no label patch",
        ),
        HistoryEntry(
            node="spot-07",
            is_deleted=True,
            deleted=deleted_at,
            time=now - 120 * _MINUTE,
            what="profile/os",
            before="operational",
            after="maintenance-required",
            why=why,
        ),
    )
    return HistoryList(entries=entries, total=max(total, len(entries)))
