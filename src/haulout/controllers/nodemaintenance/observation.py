"""What is known of a NodeMaintenance at one moment, and what is decided from it: values, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from haulout.api.hold import Hold
from haulout.api.nodemaintenance import NodeMaintenance
from haulout.api.objects import Lease, Node
from haulout.budget.budget_check import BudgetExhausted
from haulout.controllers.nodemaintenance.actions import Action
from haulout.controllers.nodemaintenance.node_lease import LeaseState, lease_state
from haulout.controllers.nodemaintenance.recovery import RecoveryObservation
from haulout.drain.cordon import CordonOwnership as CordonHold
from haulout.drain.manager import DrainSnapshot


class FailureReason(StrEnum):
    """Why a maintenance failed: the reason of the condition Failed."""

    NODE_MISSING = "NodeMissing"
    NODE_UNNAMED = "NodeUnnamed"
    POLICY_INVALID = "PolicyInvalid"
    LEASE_LOST = "LeaseLost"
    DRAIN_TIMED_OUT = "DrainTimedOut"
    DRAIN_REFUSED = "DrainRefused"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayNode:
    """A node that is held in the name of a maintenance which names another one by now."""

    node: Node
    lease: Lease | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of a maintenance at one moment."""

    maintenance: NodeMaintenance
    now: datetime
    node: Node | None = None
    lease: Lease | None = None
    drain: DrainSnapshot | None = None
    rivals: tuple[NodeMaintenance, ...] = ()  # other maintenances of the same node
    quorum_problem: str = ""  # why the node may not be taken out of service now
    missing_permission: str = ""  # a permission that the drain may need and that the operator does not have
    leased_at: datetime | None = None  # when we took or renewed the lease
    restored_at: datetime | None = None  # when somebody had undone what we hold, and we did it again
    stray_nodes: tuple[StrayNode, ...] = ()
    other_cordon_owners: Mapping[str, CordonHold] = field(
        default_factory=dict
    )  # other controllers', if the mark is lost
    may_publish_conditions: bool = True  # conditions of nodes, as far as we know
    has_budget: bool = False
    budget_exhausted: BudgetExhausted | None = None  # why the budget has no room for the node
    recovery: RecoveryObservation | None = None  # of the workloads, where the maintenance asks for it

    @property
    def lease_state(self) -> LeaseState:
        """How it stands with the lease."""
        return lease_state(self.lease, now=self.now)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a maintenance failed, and in which words."""

    reason: FailureReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMaintenanceDecision:
    """One step; or, when there is nothing to do, how things stand and when to look again."""

    action: Action | None = None
    requeue_at: datetime | None = None
    failure: Failure | None = None
    problem: str = ""  # why it does not go on, if it has not failed: the last error
    waits_for: str = ""  # in words, who or what must act first
    lease_lost_since: datetime | None = None
    lease_failures: int = 0
    budget_exhausted: BudgetExhausted | None = None  # the budget for which it waits
    hold: Hold | None = None  # the person for whom it waits
    is_recovering: bool = False  # it is over, and waits for workloads to recover
