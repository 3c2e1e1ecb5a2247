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

from haulout.sandbox.invariants.budgets import PodBudgetsKept
from haulout.sandbox.invariants.calls import Call, CalledOnce
from haulout.sandbox.invariants.checking import Invariant, State, Violation, check
from haulout.sandbox.invariants.liveness import (
    Converges,
    DeadHoldNothing,
    DeadlinesTold,
    Death,
    Delivery,
    EventsBecomeObjects,
)
from haulout.sandbox.invariants.maintenances import (
    EndsOrExplains,
    Entry,
    Explanation,
    Maintenances,
    OneMaintenancePerNode,
    RecordReplays,
)
from haulout.sandbox.invariants.nodes import (
    ControlPlaneOneAtATime,
    DisruptionsWithinBudget,
    NodeBudget,
    OnlyOurCordonsLifted,
    owners_in,
)
from haulout.sandbox.invariants.ownership import ForeignThingsUntouched
from haulout.sandbox.invariants.pods import GraceHonoured, PodsLeaveByPolicy, Policy, Window

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
