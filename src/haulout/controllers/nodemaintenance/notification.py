"""Notifications about a NodeMaintenance: started, blocked, succeeded or failed. Pure.

Phases come from `status.phaseTransitions`, whose numbers tell two failures of one maintenance apart. A blocker is
notified once, by its name: another pod behind the same PodDisruptionBudget is no new event.
"""

from collections.abc import Iterator

from haulout.api.nodemaintenance import (
    NODE_MAINTENANCES,
    BlockerStatus,
    NodeMaintenance,
    NodeMaintenancePhase,
    PhaseTransition,
)
from haulout.api.notification_events import EventName, InvolvedBlocker, InvolvedObject, ObjectEvent
from haulout.controllers.nodemaintenance.history_recorder import creating_manager
from haulout.core.text import format_list
from haulout.drain.blockers import PROGRESS_KINDS

_MAX_NAMED = 3
_MAX_KEY_LENGTH = 200


def involved_object(maintenance: NodeMaintenance) -> InvolvedObject:
    """Return the fields of a maintenance that notifications use."""
    return InvolvedObject(
        kind=NODE_MAINTENANCES.kind,
        name=maintenance.name,
        uid=maintenance.uid,
        node=maintenance.node,
        phase=maintenance.status.phase,
        reason=maintenance.spec.reason,
        requested_by=creating_manager(maintenance),
        blockers=tuple(map(_involved_blocker, _blockers_without_progress(maintenance))),
    )


def object_events(maintenance: NodeMaintenance) -> Iterator[ObjectEvent]:
    """Yield the events of a maintenance in order; none once it is deleted."""
    # A person who deletes the maintenance knows about it. The phases of the release would look like new events.
    if maintenance.is_being_deleted:
        return
    changes = maintenance.status.phase_transitions
    # Each transition is paired with the one before it: Running after Failed is a retry, and not a second start.
    for before, change in zip((PhaseTransition(number=0), *changes), changes, strict=False):
        name = _EVENTS.get(change.phase)
        if name is None or change.time is None or (name is EventName.NODE_MAINTENANCE_STARTED and before.phase):
            continue
        yield ObjectEvent(name=name, key=str(change.number), at=change.time, message=_message(maintenance, name))
    blockers = list(_blockers_without_progress(maintenance))
    for blocker in blockers:
        if blocker.since is not None:
            yield ObjectEvent(
                name=EventName.NODE_MAINTENANCE_BLOCKED,
                key=_blocker_key(blocker),
                at=blocker.since,
                message=_blocked_message(maintenance, blockers),
                is_ongoing=True,
            )


_EVENTS: dict[str, EventName] = {
    NodeMaintenancePhase.RUNNING: EventName.NODE_MAINTENANCE_STARTED,
    NodeMaintenancePhase.SUCCEEDED: EventName.NODE_MAINTENANCE_SUCCEEDED,
    NodeMaintenancePhase.FAILED: EventName.NODE_MAINTENANCE_FAILED,
}


def _message(maintenance: NodeMaintenance, name: EventName) -> str:
    prefix, spec, status = _describe(maintenance), maintenance.spec, maintenance.status
    if name is EventName.NODE_MAINTENANCE_STARTED:
        return f"{prefix} started: {spec.reason}" if spec.reason else f"{prefix} started"
    if name is EventName.NODE_MAINTENANCE_SUCCEEDED:
        return f"{prefix} succeeded: the node is drained"
    return f"{prefix} failed: {status.last_error}" if status.last_error else f"{prefix} failed"


def _blocked_message(maintenance: NodeMaintenance, blockers: list[BlockerStatus]) -> str:
    first = min((blocker.since for blocker in blockers if blocker.since), default=None)
    since = "" if first is None else f" since {first:%Y-%m-%d %H:%M} UTC"
    # A dict keeps the order and drops repetitions: ten pods behind one PodDisruptionBudget are one line.
    named = dict.fromkeys(
        f"{blocker.object or blocker.pod}: {blocker.reason}" + (f"; {blocker.remedy}" if blocker.remedy else "")
        for blocker in blockers
    )
    return f"{_describe(maintenance)} is blocked{since} by {format_list(named, max_names=_MAX_NAMED)}"


def _describe(maintenance: NodeMaintenance) -> str:
    return f"NodeMaintenance {maintenance.name} of node {maintenance.node}"


def _blockers_without_progress(maintenance: NodeMaintenance) -> Iterator[BlockerStatus]:
    """Yield the blockers that do not end by themselves."""
    return (blocker for blocker in maintenance.status.blockers if blocker.kind not in PROGRESS_KINDS)


def _blocker_key(blocker: BlockerStatus) -> str:
    """Return the key of a blocker. That of a budget omits the nodes that use it, because they change."""
    named = blocker.object.partition(":")[0] if blocker.kind == "Budget" else blocker.object or blocker.pod
    return f"{blocker.kind} {named}"[:_MAX_KEY_LENGTH]


def _involved_blocker(blocker: BlockerStatus) -> InvolvedBlocker:
    return InvolvedBlocker(
        kind=blocker.kind,
        object=blocker.object,
        reason=blocker.reason,
        remedy=blocker.remedy,
        pod=blocker.pod,
        workload=blocker.workload,
        since=blocker.since,
    )
