"""The steps on the way into a maintenance and out of it: values, which `decision` chooses and `controller` performs."""

from dataclasses import dataclass

from haulout.api.nodemaintenance import NodeBefore, RecoveryStatus
from haulout.api.objects import Lease, RawObject
from haulout.drain.policy import DrainPolicy
from haulout.drain.state import Checkpoint


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Make sure that we are asked before the object goes."""


@dataclass(frozen=True, slots=True)
class WriteInitialStatus:
    """Write the first status, with what was seen on the node."""


@dataclass(frozen=True, slots=True)
class ResetStatus:
    """Forget how it stood: that was about another node."""


@dataclass(frozen=True, slots=True)
class PrepareDrain:
    """Look at the node's pods, and let none leave yet."""

    policy: DrainPolicy
    checkpoint: Checkpoint | None


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """Let the drain go on by another policy."""

    policy: DrainPolicy


@dataclass(frozen=True, slots=True)
class StartEvictions:
    """Let pods leave."""


@dataclass(frozen=True, slots=True)
class StopDrain:
    """Ask no further pod to leave."""


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """Take or renew the node's lease."""


@dataclass(frozen=True, slots=True)
class RecordNodeState:
    """Write into the status how the node is, before it is changed."""

    before: NodeBefore


@dataclass(frozen=True, slots=True)
class RecordWorkloads:
    """Write into the status which workloads are on the node, before its pods leave."""

    recovery: RecoveryStatus


@dataclass(frozen=True, slots=True)
class StartRecovery:
    """Write into the status which workloads were evicted, and that their recovery is waited for from now on."""


@dataclass(frozen=True, slots=True)
class EndRecovery:
    """Take off the node that workloads recover; `missing` says what is not available though the time is over."""

    node: str
    change: RawObject
    is_recovered: bool = False
    missing: str = ""


@dataclass(frozen=True, slots=True)
class CordonNode:
    """Cordon, taint and label the node in our name; `is_first` if we did not hold it yet.

    `tampering` says what somebody has undone of it since.
    """

    change: RawObject
    is_first: bool
    tampering: str = ""


@dataclass(frozen=True, slots=True)
class PublishConditions:
    """Write conditions of a node; `is_last` if they say that the maintenance is over."""

    node: str
    change: RawObject
    is_last: bool


@dataclass(frozen=True, slots=True)
class ReleaseNode:
    """Give back what is ours on a node; `tampering` says what somebody has done to our mark on it."""

    node: str
    change: RawObject
    tampering: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Give a node's lease back."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the object go."""


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
