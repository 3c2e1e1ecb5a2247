"""What is known when something is decided about a Machine, and what a decision is."""

from dataclasses import dataclass, field
from datetime import datetime

from haulout.api.hold import Hold, active_hold
from haulout.api.machinemaintenance import PROFILE_EVENT_CODE, MachineMaintenance, MachineMaintenancePhase
from haulout.api.objects import Node
from haulout.api.openshift import CONTROL_PLANE_MACHINE_SETS, Machine, MachineSet
from haulout.controllers.machines.actions import Action
from haulout.controllers.machines.replacement_claim import ReplacementClaim, read_claim
from haulout.controllers.machines.replacement_time import ReplacementPolicy


@dataclass(frozen=True, slots=True)
class Peer:
    """A Machine of the same set, and its node."""

    machine: Machine
    node: Node | None = None

    @property
    def is_ready(self) -> bool:
        """Tell whether it serves as a node."""
        return self.node is not None and is_ready(self.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of one record."""

    maintenance: MachineMaintenance
    now: datetime
    policy: ReplacementPolicy = field(default_factory=ReplacementPolicy)
    machine: Machine | None = None
    owner: MachineSet | None = None  # who makes another Machine when it goes
    peers: tuple[Peer, ...] = ()  # all Machines of that owner
    control_plane: tuple[Node, ...] = ()

    @property
    def claim(self) -> ReplacementClaim | None:
        """Who of the set is being replaced."""
        return None if self.owner is None else read_claim(self.owner)

    @property
    def is_control_plane(self) -> bool:
        """Tell whether the Machine is of the control plane, by what it says or by what its node says."""
        if self.machine is None:
            return False
        return self.machine.is_control_plane or any(node.name == self.machine.node for node in self.control_plane)

    @property
    def hold(self) -> Hold | None:
        """The person who keeps maintenance off its node; a profile that wants it replaced has asked before."""
        machine = self.machine
        if machine is None or self.maintenance.spec.eventcode == PROFILE_EVENT_CODE:
            return None
        node = next((peer.node for peer in self.peers if peer.machine.uid == machine.uid), None)
        return None if node is None else active_hold(node, now=self.now)

    @property
    def may_surge(self) -> bool:
        """Tell whether the set can be had to make another Machine first."""
        owner = None if self.machine is None else self.machine.controller_owner
        requested = self.maintenance.spec.surge
        surges = self.policy.surge if requested is None else requested
        return surges and owner is not None and owner.kind != CONTROL_PLANE_MACHINE_SETS.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now, and how things stand when that is done, or if it is nothing."""

    phase: MachineMaintenancePhase
    reason: str  # in a word, for conditions and events
    message: str
    action: Action | None = None
    requeue_at: datetime | None = None
    is_warning: bool = False  # somebody should know
    is_on_time: bool = True


def is_ready(node: Node) -> bool:
    """Tell whether a node is Ready."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
