"""The history of a NodeMaintenance in the record of its node: created, each phase, and ended.

    Running → Succeeded → Ended

The object itself supplies everything: its UID and the numbered transitions in `status.phaseTransitions`. Each reconcile
records the current phase and those before it, once; a successor records the same entries, which are recognized as equal
whatever its clock says. The finalizer is removed after the last entry is written, or after a second if it cannot be:
the node is back in service by then. If the object vanished unobserved, the end is recorded when the records are listed.

The entries are no part of the transitions in `events`: those are told by the process that writes them, once. If it dies
between the write and the entry, a successor must still record the entry, so entries follow from the status alone.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from haulout.api.maintenancerecord import ENDED, RECONSTRUCTED_REASON, DrainFacts, Entry, NewEntry
from haulout.api.nodemaintenance import (
    NODE_MAINTENANCES,
    NodeMaintenance,
    NodeMaintenanceConditionType,
    NodeMaintenancePhase,
    PhaseTransition,
)
from haulout.api.objects import Node
from haulout.controllers.nodemaintenance.actions import RemoveFinalizer
from haulout.controllers.nodemaintenance.node_cordon import owner_name
from haulout.controllers.nodemaintenance.observation import NodeMaintenanceDecision, Observation
from haulout.drain.manager import DrainSnapshot
from haulout.errors import NotFound
from haulout.history.interface import History
from haulout.kube.client import Client

_FLUSH_TIMEOUT = timedelta(seconds=1)
_FIRST = datetime.min.replace(tzinfo=UTC)


class HistoryRecorder:
    """Records the state of NodeMaintenances in the history."""

    def __init__(self, history: History, client: Client) -> None:
        self._history = history
        self._client = client
        # By maintenance: fingerprint of the last recorded state.
        self._last_recorded: dict[str, tuple[object, ...]] = {}
        # By name: last recorded state of maintenances without a recorded end.
        self._unfinished: dict[str, tuple[Node, NodeMaintenance]] = {}
        history.subscribe(self._last_recorded.clear)

    def start(self) -> None:
        """Let the history record the end of maintenances that ended unobserved."""
        self._history.register_kind(NODE_MAINTENANCES.kind, self._is_gone)

    async def record(self, observation: Observation, decision: NodeMaintenanceDecision) -> None:
        """Record the state of a maintenance if it changed.

        Before the finalizer is removed, wait until that is written.
        """
        node, maintenance = observation.node, observation.maintenance
        for stray_node in observation.stray_nodes:
            self._history.add(stray_node.node, *node_changed_notes(maintenance, now=observation.now))
        if (
            node is None or not maintenance.status.phase or observation.stray_nodes
        ):  # the status is about another node then
            return
        status = maintenance.status
        fingerprint = (
            node.uid,
            maintenance.uid,
            status.phase,
            status.phase_transitions,
            _phase_since(maintenance),
            maintenance.is_being_deleted,
        )
        if self._last_recorded.get(maintenance.name) != fingerprint:
            self._last_recorded[maintenance.name] = fingerprint
            self._unfinished[maintenance.name] = (node, maintenance)
            self._history.add(node, *history_notes(maintenance, observation.drain))
        if isinstance(decision.action, RemoveFinalizer):
            # Once the finalizer is removed, the object, which supplies the entry, is gone.
            await self._history.wait_written(node.name, within=_FLUSH_TIMEOUT)

    async def forget(self, name: str, *, now: datetime) -> None:
        """Forget a deleted maintenance. Record its end in case its finalizer was removed by somebody else."""
        self._last_recorded.pop(name, None)
        node, maintenance = self._unfinished.get(name, (None, None))
        if node is None or maintenance is None:
            return
        if not maintenance.is_being_deleted and await self._is_gone(name, maintenance.uid):
            self._history.add(node, _end_note(maintenance, "the NodeMaintenance no longer exists", at=now))
        self._unfinished.pop(name, None)

    async def _is_gone(self, name: str, uid: str) -> bool:
        """Return whether a maintenance is gone or replaced by another one with its name, read from the API server."""
        try:
            found = await self._client.get(NODE_MAINTENANCES, name)
        except NotFound:
            return True
        return bool(uid) and found.uid != uid


def history_notes(maintenance: NodeMaintenance, drain: DrainSnapshot | None) -> Iterator[NewEntry]:
    """Yield entries for the previous phases, the current phase and, if the maintenance is deleted, its end."""
    created_at, since = maintenance.metadata.creation_timestamp, _phase_since(maintenance)
    if created_at is None or since is None:
        return
    changes = _phase_changes(maintenance)
    yield from (_past_phase_note(maintenance, change, created_at=created_at) for change in changes[:-1])
    current = changes[-1] if changes else PhaseTransition(number=0, time=max(since, created_at))
    at = current.time or since
    yield NewEntry(
        entry=_current_entry(maintenance, drain, at=at, number=current.number),
        is_state_claim=True,
        created_at=created_at,
    )
    deleted = maintenance.metadata.deletion_timestamp
    if deleted is not None:
        yield _end_note(maintenance, "the NodeMaintenance was deleted", at=deleted)


def node_changed_notes(maintenance: NodeMaintenance, *, now: datetime) -> Iterator[NewEntry]:
    """Yield the end of a maintenance for a node that its spec does not name any more."""
    yield _end_note(
        maintenance,
        f"spec.nodeName of the NodeMaintenance changed to {maintenance.node}",
        at=now,
        phase=NodeMaintenancePhase.RUNNING,
    )


def creating_manager(maintenance: NodeMaintenance) -> str:
    """Return the field manager that created an object; the API server does not tell the user."""
    writers = [writer for writer in maintenance.metadata.managed_fields if not writer.subresource]
    first = min(writers, key=lambda writer: writer.time or _FIRST, default=None)
    return "" if first is None else first.manager


def _phase_changes(maintenance: NodeMaintenance) -> Sequence[PhaseTransition]:
    """Return the phase transitions on the current node; none if an older version wrote the status."""
    changes = maintenance.status.phase_transitions
    restart = max((number for number, change in enumerate(changes, start=1) if not change.phase), default=0)
    since_restart = changes[restart:]
    return since_restart if since_restart and since_restart[-1].phase == maintenance.status.phase else ()


def _past_phase_note(maintenance: NodeMaintenance, change: PhaseTransition, *, created_at: datetime) -> NewEntry:
    """Return the entry of a previous phase. Its details are not in the object any more."""
    entry = Entry(
        time=change.time or created_at,
        object=owner_name(maintenance),
        requested_by=creating_manager(maintenance),
        to=change.phase,
        reason=RECONSTRUCTED_REASON,
        instance=maintenance.uid,
        number=change.number,
        reconstructed=True,
    )
    return NewEntry(entry=entry, is_state_claim=True, created_at=created_at)


def _end_note(maintenance: NodeMaintenance, reason: str, *, at: datetime, phase: str = "") -> NewEntry:
    changes = maintenance.status.phase_transitions
    entry = Entry(
        time=at,
        object=owner_name(maintenance),
        from_=phase or maintenance.status.phase,
        to=ENDED,
        reason=reason,
        instance=maintenance.uid,
        number=changes[-1].number if changes else 0,
    )
    return NewEntry(entry=entry, is_state_claim=True, created_at=maintenance.metadata.creation_timestamp)


def _current_entry(maintenance: NodeMaintenance, drain: DrainSnapshot | None, *, at: datetime, number: int) -> Entry:
    status = maintenance.status
    drained, failed = (
        status.condition(NodeMaintenanceConditionType.DRAINED),
        status.condition(NodeMaintenanceConditionType.FAILED),
    )
    before, reason, result, facts = (
        NodeMaintenancePhase.RUNNING.value,
        "",
        "",
        _drain_facts(maintenance, drain, until=at),
    )
    match status.phase:
        case NodeMaintenancePhase.SUCCEEDED:
            reason, result = drained.message if drained else "", "Drained"
        case NodeMaintenancePhase.FAILED:
            reason, result = (failed.message, failed.reason) if failed else (status.last_error, status.phase)
        case _:
            before, reason, facts = "", maintenance.spec.reason, None
    return Entry(
        time=at,
        object=owner_name(maintenance),
        requested_by=creating_manager(maintenance),
        from_=before,
        to=status.phase,
        reason=reason,
        result=result,
        drain=facts,
        instance=maintenance.uid,
        number=number,
    )


def _phase_since(maintenance: NodeMaintenance) -> datetime | None:
    """Return since when a maintenance is in its phase: the transition time of the condition for that phase."""
    drained = maintenance.status.condition(NodeMaintenanceConditionType.DRAINED)
    failed = maintenance.status.condition(NodeMaintenanceConditionType.FAILED)
    match maintenance.status.phase:
        case NodeMaintenancePhase.SUCCEEDED:
            conditions = [drained]
        case NodeMaintenancePhase.FAILED:
            conditions = [failed]
        case _:
            conditions = [drained, failed]
    instants = [
        condition.last_transition_time
        for condition in conditions
        if condition is not None and condition.last_transition_time is not None
    ]
    return max(instants, default=maintenance.metadata.creation_timestamp)


def _drain_facts(maintenance: NodeMaintenance, drain: DrainSnapshot | None, *, until: datetime) -> DrainFacts | None:
    """Return duration, pods and longest blocker of the drain; None if it has not begun."""
    status = maintenance.status.drain
    if status is None or status.start_time is None:
        return None
    longest_blocker = None if drain is None else drain.longest_blocker
    return DrainFacts(
        seconds=max((until - status.start_time).total_seconds(), 0),
        pods=status.removed,
        blocked_by="" if longest_blocker is None else longest_blocker.object,
        blocked_seconds=0 if longest_blocker is None else longest_blocker.duration.total_seconds(),
    )
