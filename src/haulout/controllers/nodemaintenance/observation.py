"""The input and the result of a decision about a NodeMaintenance. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from haulout.api.hold import Hold
from haulout.api.nodemaintenance import NodeMaintenance
from haulout.api.objects import Lease, Node
from haulout.api.reasons import NodeMaintenanceConditionReason
from haulout.budget.budget_check import BudgetExhausted
from haulout.controllers.nodemaintenance.actions import Action
from haulout.controllers.nodemaintenance.node_lease import LeaseState, lease_state
from haulout.controllers.nodemaintenance.recovery import RecoveryObservation
from haulout.drain.cordon import CordonOwnership as CordonHold
from haulout.drain.manager import DrainSnapshot
from haulout.runtime.freezes import Freezes


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayNode:
    """A node that is held for a maintenance whose `spec.nodeName` now names another node."""

    node: Node
    lease: Lease | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of a maintenance, its node, lease and drain at one moment."""

    maintenance: NodeMaintenance
    now: datetime
    node: Node | None = None
    lease: Lease | None = None
    drain: DrainSnapshot | None = None
    rivals: tuple[NodeMaintenance, ...] = ()  # other maintenances of the same node
    quorum_problem: str = ""  # why etcd's quorum forbids to cordon the node now
    missing_permission: str = ""  # permission that the drain may need and the operator lacks
    leased_at: datetime | None = None  # when we last acquired or renewed the lease
    restored_at: datetime | None = None  # when we last restored a cordon that somebody had undone
    stray_nodes: tuple[StrayNode, ...] = ()
    other_cordon_owners: Mapping[str, CordonHold] = field(
        default_factory=dict
    )  # set only if the cordon annotation is lost
    may_publish_conditions: bool = True  # False for a while after a 403
    has_budget: bool = False
    budget_exhausted: BudgetExhausted | None = None  # why the budget has no slot for the node
    freezes: Freezes = field(default_factory=Freezes)
    recovery: RecoveryObservation | None = None  # state of the workloads; None unless recovery is requested

    @property
    def lease_state(self) -> LeaseState:
        return lease_state(self.lease, now=self.now)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a maintenance failed, for condition Failed and `lastError`."""

    reason: NodeMaintenanceConditionReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMaintenanceDecision:
    """One action; without one, the facts for the status and the time to requeue."""

    action: Action | None = None
    requeue_at: datetime | None = None
    failure: Failure | None = None
    problem: str = ""  # why the maintenance waits, if it has not failed; becomes lastError
    waits_for: str = ""  # text: who or what must act first
    lease_lost_since: datetime | None = None
    lease_failures: int = 0
    budget_exhausted: BudgetExhausted | None = None  # the exhausted budget that it waits for
    hold: Hold | None = None  # the hold that it waits for
    is_recovering: bool = False  # the object is deleted, and workloads have yet to recover
