"""The input and the result of a decision about a Machine."""

from dataclasses import dataclass, field
from datetime import datetime

from haulout.api.hold import Hold
from haulout.api.machinemaintenance import PROFILE_EVENT_CODE, MachineMaintenance, MachineMaintenancePhase
from haulout.api.objects import Node
from haulout.api.openshift import CONTROL_PLANE_MACHINE_SETS, Machine, MachineSet
from haulout.controllers.machines.actions import Action
from haulout.controllers.machines.replacement_claim import ReplacementClaim, read_claim
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.runtime.freezes import Freezes


@dataclass(frozen=True, slots=True)
class Peer:
    """A Machine of the same set, with its node."""

    machine: Machine
    node: Node | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the Machine has a Ready node."""
        return self.node is not None and self.node.is_ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of one MachineMaintenance at one moment."""

    maintenance: MachineMaintenance
    now: datetime
    policy: ReplacementPolicy = field(default_factory=ReplacementPolicy)
    machine: Machine | None = None
    owner: MachineSet | None = None  # the set that creates a replacement
    peers: tuple[Peer, ...] = ()  # all Machines of that set
    control_plane: tuple[Node, ...] = ()
    freezes: Freezes = field(default_factory=Freezes)

    @property
    def claim(self) -> ReplacementClaim | None:
        """The claim on the set: which of its Machines is being replaced."""
        return None if self.owner is None else read_claim(self.owner)

    @property
    def is_control_plane(self) -> bool:
        """Whether the Machine is of the control plane, by its own labels or those of its node."""
        if self.machine is None:
            return False
        return self.machine.is_control_plane or any(node.name == self.machine.node for node in self.control_plane)

    @property
    def hold(self) -> Hold | None:
        """What holds its node; None for a replacement by a profile, which has checked that already.

        A cloud's event counts as announced by a notice.
        """
        machine = self.machine
        if machine is None or self.maintenance.spec.eventcode == PROFILE_EVENT_CODE:
            return None
        node = next((peer.node for peer in self.peers if peer.machine.uid == machine.uid), None)
        spec = self.maintenance.spec
        is_announced = bool(spec.eventid) or spec.notbefore is not None
        return None if node is None else self.freezes.hold_on(node, now=self.now, is_announced=is_announced)

    @property
    def may_surge(self) -> bool:
        """Whether the set may create a replacement before the Machine is deleted."""
        owner = None if self.machine is None else self.machine.controller_owner
        requested = self.maintenance.spec.surge
        surges = self.policy.surge if requested is None else requested
        return surges and owner is not None and owner.kind != CONTROL_PLANE_MACHINE_SETS.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One action, with the phase and reason for the status; without an action, the final state of this reconcile."""

    phase: MachineMaintenancePhase
    reason: str  # CamelCase, for conditions and events
    message: str
    action: Action | None = None
    requeue_at: datetime | None = None
    is_warning: bool = False  # events are of type Warning
    is_on_time: bool = True
