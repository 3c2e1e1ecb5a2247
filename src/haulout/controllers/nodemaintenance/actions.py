"""The actions of a NodeMaintenance: values that `decision` chooses and `executor` executes.

An action is one or two writes, and idempotent: after a crash a new leader may choose it again.
"""

from dataclasses import dataclass

from haulout.api.nodemaintenance import NodeBefore, RecoveryStatus
from haulout.api.objects import Lease, RawObject
from haulout.drain.policy import DrainPolicy
from haulout.drain.state import Checkpoint


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add the finalizer, so that the object stays until the node is released."""


@dataclass(frozen=True, slots=True)
class WriteInitialStatus:
    """Write the first status, with the pods found on the node."""


@dataclass(frozen=True, slots=True)
class ResetStatus:
    """Reset the status, which is about another node."""


@dataclass(frozen=True, slots=True)
class PrepareDrain:
    """Watch the node's pods without evicting any."""

    policy: DrainPolicy
    checkpoint: Checkpoint | None


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """Continue the drain with another policy, without starting it again."""

    policy: DrainPolicy


@dataclass(frozen=True, slots=True)
class StartEvictions:
    """Start evicting pods. The drain was prepared before, so its pods are known."""


@dataclass(frozen=True, slots=True)
class StopDrain:
    """Stop evicting pods, and wait for the requests in flight."""


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """Acquire the node's lease, or renew it."""


@dataclass(frozen=True, slots=True)
class RecordNodeState:
    """Record the state of the node in the status before the node is changed."""

    before: NodeBefore


@dataclass(frozen=True, slots=True)
class RecordWorkloads:
    """Record the workloads on the node in the status before the first eviction."""

    recovery: RecoveryStatus


@dataclass(frozen=True, slots=True)
class StartRecovery:
    """Record in the status which workloads were evicted, and the time at which the wait for their recovery begins."""


@dataclass(frozen=True, slots=True)
class EndRecovery:
    """Remove the recovery mark from the node. `missing` names what is not available at the deadline."""

    node: str
    change: RawObject
    is_recovered: bool = False
    missing: str = ""


@dataclass(frozen=True, slots=True)
class CordonNode:
    """Cordon, taint and label the node as a cordon owner.

    `is_first`: we did not own the cordon before. `tampering` tells which part of our cordon was undone since.
    """

    change: RawObject
    is_first: bool
    tampering: str = ""


@dataclass(frozen=True, slots=True)
class PublishConditions:
    """Write conditions of a node. `is_last` if they report the end of the maintenance."""

    node: str
    change: RawObject
    is_last: bool


@dataclass(frozen=True, slots=True)
class ReleaseNode:
    """Undo our changes of a node. `tampering` tells how our cordon annotation was changed by others."""

    node: str
    change: RawObject
    tampering: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Release a node's lease, if it has not changed since."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove the finalizer, so that the object is deleted."""


Action = (
    AddFinalizer
    | WriteInitialStatus
    | ResetStatus
    | PrepareDrain
    | ChangePolicy
    | StartEvictions
    | StopDrain
    | AcquireLease
    | RecordNodeState
    | RecordWorkloads
    | StartRecovery
    | EndRecovery
    | CordonNode
    | PublishConditions
    | ReleaseNode
    | ReleaseLease
    | RemoveFinalizer
)
