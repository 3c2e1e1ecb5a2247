"""Whether a node whose NodeMaintenance was deleted has recovered: the decision, and the mark on the node.

With `spec.recovery`, a maintenance that is deleted uncordons its node and then waits until the node is Ready and the
workloads whose pods it evicted are available again, for `timeout` at most. Meanwhile it keeps its finalizer, and the
annotation `haulout.dev/recovering` of the node tells all budgets that the node is not back yet.

Which workloads these are stands in the status, from before the drain. So a successor waits for the same ones, until the
same instant. Nothing waits for ever: not if the status is edited, not if workloads may not be read.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.budget import away
from haulout.core import duration
from haulout.drain.words import some
from haulout.drain.workloads import Record
from haulout.kube.objects import Node, RawObject
from haulout.maintenance.resource import NodeMaintenance, RecoveryStatus

DEFAULT_TIMEOUT = timedelta(minutes=10)
LONGEST_TIMEOUT = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySeen:
    """What is known of the workloads of a maintenance: `short` are those that are not available, in words."""

    record: Record | None = None  # of those on the node, while the drain has not begun
    short: tuple[str, ...] = ()
    problem: str = ""  # why it is not known


def is_wanted(maintenance: NodeMaintenance) -> bool:
    """Tell whether a maintenance waits for recovery in the end: its workloads were recorded before the drain."""
    return maintenance.spec.recovery is not None and maintenance.status.recovery is not None


def record_of(recovery: RecoveryStatus) -> Record:
    """Return the workloads that a status names."""
    return Record(workloads=recovery.workloads, omitted=recovery.omitted)


def until(maintenance: NodeMaintenance, now: datetime) -> datetime | None:
    """Return until when a maintenance waits for recovery; None if it has not begun to."""
    recovery = maintenance.status.recovery
    if recovery is None or recovery.start_time is None:
        return None
    return min(recovery.start_time, now) + _timeout(maintenance)


def _timeout(maintenance: NodeMaintenance) -> timedelta:
    wanted = maintenance.spec.recovery
    try:
        found = duration.parse(wanted.timeout) if wanted is not None and wanted.timeout else DEFAULT_TIMEOUT
    except duration.DurationError:  # the definition of the resource does not let it in
        return DEFAULT_TIMEOUT
    return min(max(found, timedelta()), LONGEST_TIMEOUT)


def missing(node: Node, recovery: RecoveryStatus, seen: RecoverySeen | None) -> str:
    """Return why a node has not recovered; empty if it has."""
    ready = next((it for it in node.status.conditions if it.type == "Ready"), None)
    if ready is None or ready.status != "True":
        return f"node {node.name} is not Ready"
    problem = recovery.problem or (seen.problem if seen is not None else "they are not followed")
    if problem:
        return f"which workloads were evicted from node {node.name} and are available again is not known: {problem}"
    if seen is not None and seen.short:
        return f"evicted from node {node.name} and not fully available again: {some(seen.short)}"
    return f"{recovery.omitted} workloads are not known: the status has no room for them" if recovery.omitted else ""


def marked(node: Node, name: str) -> RawObject:
    """Return the annotation that says that workloads of a node recover from a maintenance of this name."""
    return {away.RECOVERING: ",".join(dict.fromkeys((*away.recovering_of(node), name)))}


def unmarked(node: Node, name: str) -> RawObject:
    """Return the change that takes a maintenance off this annotation."""
    left = [it for it in away.recovering_of(node) if it != name]
    metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": {**metadata, "annotations": {away.RECOVERING: ",".join(left) or None}}}
