"""Whether a node whose NodeMaintenance was deleted has recovered: the decision, and the mark on the node.

With `spec.recovery`, a maintenance that is deleted uncordons its node and then waits until the node is Ready and the
workloads whose pods it evicted are available again, for `timeout` at most. Meanwhile it keeps its finalizer, and the
annotation `haulout.dev/recovering` of the node tells all budgets that the node is not back yet.

Which workloads these are stands in the status, from before the drain. So a successor waits for the same ones, until the
same instant. Nothing waits for ever: not if the status is edited, not if workloads may not be read.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.nodemaintenance import NodeMaintenance, RecoveryStatus
from haulout.api.objects import Node, RawObject
from haulout.api.workloads import WorkloadRecord
from haulout.budget import unavailable_nodes
from haulout.core import duration
from haulout.core.text import format_list

DEFAULT_TIMEOUT = timedelta(minutes=10)
MAX_TIMEOUT = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryObservation:
    """What is known of the workloads of a maintenance: `degraded` are those that are not available, in words."""

    record: WorkloadRecord | None = None  # of those on the node, while the drain has not begun
    degraded: tuple[str, ...] = ()
    problem: str = ""  # why it is not known


def waits_for_recovery(maintenance: NodeMaintenance) -> bool:
    """Tell whether a maintenance waits for recovery in the end: its workloads were recorded before the drain."""
    return maintenance.spec.recovery is not None and maintenance.status.recovery is not None


def record_of(recovery: RecoveryStatus) -> WorkloadRecord:
    """Return the workloads that a status names."""
    return WorkloadRecord(workloads=recovery.workloads, omitted=recovery.omitted)


def recovery_deadline(maintenance: NodeMaintenance, now: datetime) -> datetime | None:
    """Return until when a maintenance waits for recovery; None if it has not begun to."""
    recovery = maintenance.status.recovery
    if recovery is None or recovery.start_time is None:
        return None
    return min(recovery.start_time, now) + _timeout(maintenance)


def _timeout(maintenance: NodeMaintenance) -> timedelta:
    spec = maintenance.spec.recovery
    try:
        parsed = duration.parse(spec.timeout) if spec is not None and spec.timeout else DEFAULT_TIMEOUT
    except duration.DurationError:  # the definition of the resource does not let it in
        return DEFAULT_TIMEOUT
    return min(max(parsed, timedelta()), MAX_TIMEOUT)


def missing_for_recovery(node: Node, recovery: RecoveryStatus, observation: RecoveryObservation | None) -> str:
    """Return why a node has not recovered; empty if it has."""
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
    if ready is None or ready.status != "True":
        return f"node {node.name} is not Ready"
    problem = recovery.problem or (observation.problem if observation is not None else "they are not followed")
    if problem:
        return f"which workloads were evicted from node {node.name} and are available again is not known: {problem}"
    if observation is not None and observation.degraded:
        return f"evicted from node {node.name} and not fully available again: {format_list(observation.degraded)}"
    return f"{recovery.omitted} workloads are not known: the status has no room for them" if recovery.omitted else ""


def recovering_annotation(node: Node, name: str) -> RawObject:
    """Return the annotation that says that workloads of a node recover from a maintenance of this name."""
    return {
        unavailable_nodes.RECOVERING_ANNOTATION: ",".join(
            dict.fromkeys((*unavailable_nodes.recovering_node_maintenances_of(node), name))
        )
    }


def remove_recovering_patch(node: Node, name: str) -> RawObject:
    """Return the change that takes a maintenance off this annotation."""
    remaining = [other for other in unavailable_nodes.recovering_node_maintenances_of(node) if other != name]
    metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {
        "metadata": {**metadata, "annotations": {unavailable_nodes.RECOVERING_ANNOTATION: ",".join(remaining) or None}}
    }
