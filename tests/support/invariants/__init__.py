"""What must hold at every revision of the API server, whatever fails: checkers for the history of a cluster.

    violations = check(cluster.api.history, PodBudgetsKept(), OnlyOurCordonsLifted(operator={"operator"}))

    safety    DisruptionsWithinBudget, ControlPlaneOneAtATime     no more nodes at once than allowed
              OnlyOurCordonsLifted                                uncordon what is ours and nobody wants any more
              PodsLeaveByPolicy, PodBudgetsKept, GraceHonoured    how pods leave
              OneMaintenancePerNode                               the others queue, in order
              ForeignThingsUntouched                              labels, annotations, taints, conditions, finalizers
              CalledOnce                                          notifications, hooks, cloud calls
    liveness  EndsOrExplains, Converges                           an end, or a reason; all well once faults stop
              EventsBecomeObjects, DeadlinesTold                  in time, or said in time
              DeadHoldNothing                                     the dead let go
    record    RecordReplays                                       the history of a maintenance leads to its status

Each is a frozen value that says what it has to know; `check` runs any number of them in one pass.
"""

from support.invariants.budgets import PodBudgetsKept
from support.invariants.calls import Call, CalledOnce
from support.invariants.checking import Invariant, State, Violation, check
from support.invariants.liveness import (
    Converges,
    DeadHoldNothing,
    DeadlinesTold,
    Death,
    Delivery,
    EventsBecomeObjects,
)
from support.invariants.maintenances import (
    EndsOrExplains,
    Entry,
    Explanation,
    Maintenances,
    OneMaintenancePerNode,
    RecordReplays,
)
from support.invariants.nodes import (
    ControlPlaneOneAtATime,
    DisruptionsWithinBudget,
    NodeBudget,
    OnlyOurCordonsLifted,
    owners_in,
)
from support.invariants.ownership import ForeignThingsUntouched
from support.invariants.pods import GraceHonoured, PodsLeaveByPolicy, Policy, Window

__all__ = [
    "Call",
    "CalledOnce",
    "ControlPlaneOneAtATime",
    "Converges",
    "DeadHoldNothing",
    "DeadlinesTold",
    "Death",
    "Delivery",
    "DisruptionsWithinBudget",
    "EndsOrExplains",
    "Entry",
    "EventsBecomeObjects",
    "Explanation",
    "ForeignThingsUntouched",
    "GraceHonoured",
    "Invariant",
    "Maintenances",
    "NodeBudget",
    "OneMaintenancePerNode",
    "OnlyOurCordonsLifted",
    "PodBudgetsKept",
    "PodsLeaveByPolicy",
    "Policy",
    "RecordReplays",
    "State",
    "Violation",
    "Window",
    "check",
    "owners_in",
]
