"""The steps on the way into a maintenance and out of it: values, which `decision` chooses and `controller` performs."""

from dataclasses import dataclass

from haulout.drain.memory import Checkpoint
from haulout.drain.policy import Policy
from haulout.kube.objects import Lease, RawObject
from haulout.maintenance.resource import NodeBefore, RecoveryStatus


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Make sure that we are asked before the object goes."""


@dataclass(frozen=True, slots=True)
class Accept:
    """Write the first status, with what was seen on the node."""


@dataclass(frozen=True, slots=True)
class StartOver:
    """Forget how it stood: that was about another node."""


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Look at the node's pods, and let none leave yet."""

    policy: Policy
    checkpoint: Checkpoint | None


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """Let the drain go on by another policy."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class BeginDrain:
    """Let pods leave."""


@dataclass(frozen=True, slots=True)
class StopDrain:
    """Ask no further pod to leave."""


@dataclass(frozen=True, slots=True)
class TakeLease:
    """Take or renew the node's lease."""


@dataclass(frozen=True, slots=True)
class RecordNode:
    """Write into the status how the node is, before it is changed."""

    before: NodeBefore


@dataclass(frozen=True, slots=True)
class RecordWorkloads:
    """Write into the status which workloads are on the node, before its pods leave."""

    recovery: RecoveryStatus


@dataclass(frozen=True, slots=True)
class BeginRecovery:
    """Write into the status which workloads were evicted, and that their recovery is waited for from now on."""


@dataclass(frozen=True, slots=True)
class EndRecovery:
    """Take off the node that workloads recover; `missing` says what is not available though the time is over."""

    node: str
    change: RawObject
    is_recovered: bool = False
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """Cordon, taint and label the node in our name; `is_first` if we did not hold it yet.

    `tampering` says what somebody has undone of it since.
    """

    change: RawObject
    is_first: bool
    tampering: str = ""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write conditions of a node; `is_last` if they say that the maintenance is over."""

    node: str
    change: RawObject
    is_last: bool


@dataclass(frozen=True, slots=True)
class Release:
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


Step = (
    AddFinalizer
    | Accept
    | StartOver
    | StartDrain
    | ChangePolicy
    | BeginDrain
    | StopDrain
    | TakeLease
    | RecordNode
    | RecordWorkloads
    | BeginRecovery
    | EndRecovery
    | Hold
    | Publish
    | Release
    | ReleaseLease
    | RemoveFinalizer
)
