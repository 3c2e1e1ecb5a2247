"""What is known when something is decided about a Machine, and what a decision is."""

from dataclasses import dataclass, field
from datetime import datetime

from haulout.kinds.hold import Hold, holding
from haulout.kinds.machinemaintenance import BY_PROFILE, MachineMaintenance, Phase
from haulout.kinds.openshift import CONTROL_PLANE_MACHINE_SETS, Machine, MachineSet
from haulout.kube.objects import Node
from haulout.machines.claims import Claim, claim_on
from haulout.machines.steps import Step
from haulout.machines.timing import Terms


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
class Seen:
    """What is known of one record."""

    record: MachineMaintenance
    now: datetime
    terms: Terms = field(default_factory=Terms)
    machine: Machine | None = None
    owner: MachineSet | None = None  # who makes another Machine when it goes
    peers: tuple[Peer, ...] = ()  # all Machines of that owner
    control_plane: tuple[Node, ...] = ()

    @property
    def claim(self) -> Claim | None:
        """Who of the set is being replaced."""
        return None if self.owner is None else claim_on(self.owner)

    @property
    def is_control_plane(self) -> bool:
        """Tell whether the Machine is of the control plane, by what it says or by what its node says."""
        if self.machine is None:
            return False
        return self.machine.is_control_plane or any(it.name == self.machine.node for it in self.control_plane)

    @property
    def hold(self) -> Hold | None:
        """The person who keeps maintenance off its node; a profile that wants it replaced has asked before."""
        machine = self.machine
        if machine is None or self.record.spec.eventcode == BY_PROFILE:
            return None
        node = next((it.node for it in self.peers if it.machine.uid == machine.uid), None)
        return None if node is None else holding(node, now=self.now)

    @property
    def may_surge(self) -> bool:
        """Tell whether the set can be had to make another Machine first."""
        owner = None if self.machine is None else self.machine.owner
        wished = self.record.spec.surge
        surges = self.terms.surge if wished is None else wished
        return surges and owner is not None and owner.kind != CONTROL_PLANE_MACHINE_SETS.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now, and how things stand when that is done, or if it is nothing."""

    phase: Phase
    reason: str  # in a word, for conditions and events
    why: str
    step: Step | None = None
    next_look: datetime | None = None
    is_bad: bool = False  # somebody should know
    is_on_time: bool = True


def is_ready(node: Node) -> bool:
    """Tell whether a node is Ready."""
    return any(it.type == "Ready" and it.status == "True" for it in node.status.conditions)
