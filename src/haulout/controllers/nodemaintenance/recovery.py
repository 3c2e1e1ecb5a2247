"""Whether a node whose NodeMaintenance was deleted has recovered: the decision, and the annotation on the node.

With `spec.recovery`, a deleted maintenance uncordons its node and then waits until the node is Ready and the workloads
whose pods it evicted are available again, for `timeout` at most. Meanwhile it keeps its finalizer, and the annotation
`haulout.dev/recovering` tells all budgets that the node is still unavailable.

The status names these workloads from before the drain. A successor thus waits for the same workloads until the same
deadline. The wait always ends, even if the status is edited or workloads cannot be read.
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
    """The workloads of a maintenance. `degraded` describes those that are not available."""

    record: WorkloadRecord | None = None  # workloads on the node, before the drain begins
    degraded: tuple[str, ...] = ()
    problem: str = ""  # why the state is unknown


def waits_for_recovery(maintenance: NodeMaintenance) -> bool:
    """Return whether the maintenance waits for recovery at its end: its workloads were recorded before the drain."""
    return maintenance.spec.recovery is not None and maintenance.status.recovery is not None


def record_of(recovery: RecoveryStatus) -> WorkloadRecord:
    return WorkloadRecord(workloads=recovery.workloads, omitted=recovery.omitted)


def recovery_deadline(maintenance: NodeMaintenance, now: datetime) -> datetime | None:
    """Return until when the maintenance waits for recovery; None if the wait has not begun."""
    recovery = maintenance.status.recovery
    if recovery is None or recovery.start_time is None:
        return None
    return min(recovery.start_time, now) + _timeout(maintenance)


def _timeout(maintenance: NodeMaintenance) -> timedelta:
    spec = maintenance.spec.recovery
    try:
        parsed = duration.parse(spec.timeout) if spec is not None and spec.timeout else DEFAULT_TIMEOUT
    except duration.DurationError:  # the CRD's validation does not admit such a value
        return DEFAULT_TIMEOUT
    return min(max(parsed, timedelta()), MAX_TIMEOUT)


def missing_for_recovery(node: Node, recovery: RecoveryStatus, observation: RecoveryObservation | None) -> str:
    """Return why a node has not recovered; empty if it has."""
    if not node.is_ready:
        return f"node {node.name} is not Ready"
    problem = recovery.problem or (observation.problem if observation is not None else "they are not watched")
    if problem:
        return f"cannot tell whether the workloads evicted from node {node.name} are available again: {problem}"
    if observation is not None and observation.degraded:
        return f"evicted from node {node.name} and not fully available again: {format_list(observation.degraded)}"
    return (
        f"cannot tell whether {recovery.omitted} workloads are available again: they do not fit into the status"
        if recovery.omitted
        else ""
    )


def recovering_annotation(node: Node, name: str) -> RawObject:
    """Return the recovering annotation of a node with this maintenance added."""
    return {
        unavailable_nodes.RECOVERING_ANNOTATION: ",".join(
            dict.fromkeys((*unavailable_nodes.recovering_node_maintenances_of(node), name))
        )
    }


def remove_recovering_patch(node: Node, name: str) -> RawObject:
    """Return the patch that removes a maintenance from the recovering annotation."""
    remaining = [other for other in unavailable_nodes.recovering_node_maintenances_of(node) if other != name]
    metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {
        "metadata": {**metadata, "annotations": {unavailable_nodes.RECOVERING_ANNOTATION: ",".join(remaining) or None}}
    }
