"""Invariants that must hold at every revision of the API server, whatever fails: checkers for the history of a cluster.

    violations = check(history, PodDisruptionBudgetsRespected(), OnlyOwnCordonsRemoved(operator={"operator"}))

    safety    DisruptionsWithinBudget, ControlPlaneOneAtATime        no more nodes at once than allowed
              OnlyOwnCordonsRemoved                                  uncordon only nodes without other cordon owners
              PodsLeaveByPolicy, PodDisruptionBudgetsRespected,
              GracePeriodRespected                                   how pods are evicted
              OneMaintenancePerNode                                  further maintenances queue, in order
              ForeignMetadataUntouched                               labels, annotations, taints, conditions, finalizers
              CalledOnce                                             notifications, hooks, cloud calls
    liveness  EndsOrExplainsItself, Converges                        an end, or a reason; recovery after faults
              EventsBecomeObjects, MissedDeadlinesAnnounced          in time, or reported in time
              DeadProcessesReleaseAll                                dead processes hold nothing
    record    RecordReplays                                          the recorded history leads to the status

Each invariant is a frozen value with its parameters; `check` evaluates any number of them in one pass.
"""

from support.invariants.checker import Invariant, State, Violation, check
from support.invariants.external_calls import CalledOnce, ExternalCall
from support.invariants.liveness import (
    Converges,
    DeadProcessesReleaseAll,
    Delivery,
    EventsBecomeObjects,
    MissedDeadlinesAnnounced,
    ProcessDeath,
)
from support.invariants.maintenances import (
    EndsOrExplainsItself,
    Explanation,
    Maintenances,
    OneMaintenancePerNode,
    RecordEntry,
    RecordReplays,
)
from support.invariants.nodes import (
    ControlPlaneOneAtATime,
    DisruptionsWithinBudget,
    NodeBudget,
    OnlyOwnCordonsRemoved,
    cordon_owners_from,
)
from support.invariants.ownership import ForeignMetadataUntouched
from support.invariants.pod_disruption_budgets import PodDisruptionBudgetsRespected
from support.invariants.pods import DrainRules, GracePeriodRespected, PodsLeaveByPolicy, TimeWindow

__all__ = [
    "CalledOnce",
    "ControlPlaneOneAtATime",
    "Converges",
    "DeadProcessesReleaseAll",
    "Delivery",
    "DisruptionsWithinBudget",
    "DrainRules",
    "EndsOrExplainsItself",
    "EventsBecomeObjects",
    "Explanation",
    "ExternalCall",
    "ForeignMetadataUntouched",
    "GracePeriodRespected",
    "Invariant",
    "Maintenances",
    "MissedDeadlinesAnnounced",
    "NodeBudget",
    "OneMaintenancePerNode",
    "OnlyOwnCordonsRemoved",
    "PodDisruptionBudgetsRespected",
    "PodsLeaveByPolicy",
    "ProcessDeath",
    "RecordEntry",
    "RecordReplays",
    "State",
    "TimeWindow",
    "Violation",
    "check",
    "cordon_owners_from",
]
