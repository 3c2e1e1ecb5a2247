"""What may be notified of a NodeMaintenance: that it started, is blocked, succeeded or failed. Pure.

Phases are told by `status.phaseTransitions`, whose numbers tell two failures of one maintenance apart. Something that
blocks it is told once, by its name: another pod that the same PodDisruptionBudget keeps is no news.
"""

from collections.abc import Iterator

from haulout.drain.blockers import PROGRESS
from haulout.drain.words import some
from haulout.kinds.notification import EventName, InvolvedBlocker, InvolvedObject, ObjectEvent
from haulout.maintenance.recording import ordered_by
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance, Phase, PhaseTransition, StatusBlocker

_MOST_NAMED = 3
_LONGEST_KEY = 200


def involved_object(maintenance: NodeMaintenance) -> InvolvedObject:
    """Return the facts of a maintenance."""
    return InvolvedObject(
        kind=NODE_MAINTENANCES.kind,
        name=maintenance.name,
        uid=maintenance.uid,
        node=maintenance.node,
        phase=maintenance.status.phase,
        reason=maintenance.spec.reason,
        requested_by=ordered_by(maintenance),
        blockers=tuple(map(_involved, _lasting(maintenance))),
    )


def events(maintenance: NodeMaintenance) -> Iterator[ObjectEvent]:
    """Yield what happened to a maintenance, in order; nothing once it is deleted."""
    if maintenance.is_leaving:
        return
    changes = maintenance.status.phase_transitions
    for before, change in zip((PhaseTransition(number=0), *changes), changes, strict=False):
        name = _EVENTS.get(change.phase)
        if name is None or change.time is None or (name is EventName.NODE_MAINTENANCE_STARTED and before.phase):
            continue
        yield ObjectEvent(name=name, key=str(change.number), at=change.time, message=_message(maintenance, name))
    blockers = list(_lasting(maintenance))
    for it in blockers:
        if it.since is not None:
            yield ObjectEvent(
                name=EventName.NODE_MAINTENANCE_BLOCKED,
                key=_key(it),
                at=it.since,
                message=_blocked(maintenance, blockers),
                lasts=True,
            )


_EVENTS: dict[str, EventName] = {
    Phase.RUNNING: EventName.NODE_MAINTENANCE_STARTED,
    Phase.SUCCEEDED: EventName.NODE_MAINTENANCE_SUCCEEDED,
    Phase.FAILED: EventName.NODE_MAINTENANCE_FAILED,
}


def _message(maintenance: NodeMaintenance, name: EventName) -> str:
    about, spec, status = _about(maintenance), maintenance.spec, maintenance.status
    if name is EventName.NODE_MAINTENANCE_STARTED:
        return f"{about} started: {spec.reason}" if spec.reason else f"{about} started"
    if name is EventName.NODE_MAINTENANCE_SUCCEEDED:
        return f"{about} succeeded: the node is drained"
    return f"{about} failed: {status.last_error}" if status.last_error else f"{about} failed"


def _blocked(maintenance: NodeMaintenance, blockers: list[StatusBlocker]) -> str:
    first = min((it.since for it in blockers if it.since), default=None)
    since = "" if first is None else f" since {first:%Y-%m-%d %H:%M} UTC"
    named = dict.fromkeys(
        f"{it.object or it.pod}: {it.reason}" + (f"; {it.advice}" if it.advice else "") for it in blockers
    )
    return f"{_about(maintenance)} is blocked{since} by {some(named, most=_MOST_NAMED)}"


def _about(maintenance: NodeMaintenance) -> str:
    return f"NodeMaintenance {maintenance.name} of node {maintenance.node}"


def _lasting(maintenance: NodeMaintenance) -> Iterator[StatusBlocker]:
    """Yield what more than patience is needed for."""
    return (it for it in maintenance.status.blockers if it.kind not in PROGRESS)


def _key(blocker: StatusBlocker) -> str:
    """Return what a blocker is remembered by; that of a budget names the nodes that use it, which change."""
    named = blocker.object.partition(":")[0] if blocker.kind == "Budget" else blocker.object or blocker.pod
    return f"{blocker.kind} {named}"[:_LONGEST_KEY]


def _involved(blocker: StatusBlocker) -> InvolvedBlocker:
    return InvolvedBlocker(
        kind=blocker.kind,
        object=blocker.object,
        reason=blocker.reason,
        remedy=blocker.advice,
        pod=blocker.pod,
        workload=blocker.workload,
        since=blocker.since,
    )
