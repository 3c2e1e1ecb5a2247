"""What a NodeMaintenance leaves in the history of its node: that it was ordered, how it went, and that it is over.

    Running → Succeeded → Ended

All of it is told by the object itself: its uid, and the numbered changes of its phase (`status.phaseTransitions`). So
it is enough to look: whoever looks at a maintenance notes where it stands and what it passed, once; a successor notes
the same, which then is the same entry, whatever its clock says. The finalizer goes after the last entry is written, or
after a second if it cannot be: by then the node is back in service already. The end of a maintenance whose object
vanished while nobody watched is noted when its record is looked at.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from haulout.drain.keeper import Kept
from haulout.errors import NotFound
from haulout.history.interface import History
from haulout.history.record import COMPLETED, ENDED, DrainFacts, Entry, Note
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.maintenance.holding import owner_name
from haulout.maintenance.resource import (
    NODE_MAINTENANCES,
    ConditionType,
    NodeMaintenance,
    Phase,
    PhaseTransition,
)
from haulout.maintenance.seen import Decision, Seen
from haulout.maintenance.steps import RemoveFinalizer

_SETTLED_WITHIN = timedelta(seconds=1)
_FIRST = datetime.min.replace(tzinfo=UTC)


class Recorder:
    """Notes how maintenances stand."""

    def __init__(self, history: History, client: Client) -> None:
        self._history = history
        self._client = client
        self._noted: dict[str, tuple[object, ...]] = {}  # by maintenance: what was noted last
        self._open: dict[str, tuple[Node, NodeMaintenance]] = {}  # as they were noted last, until their end is
        history.subscribe(self._noted.clear)

    def begin(self) -> None:
        """Have the history completed by the ends of maintenances that ended while nobody watched."""
        self._history.completes(NODE_MAINTENANCES.kind, self._is_gone)

    async def sees(self, seen: Seen, decision: Decision) -> None:
        """Note how a maintenance stands, if that is news; before it goes, wait a moment until that is written."""
        node, maintenance = seen.node, seen.maintenance
        for stray in seen.strays:
            self._history.note(stray.node, *left(maintenance, now=seen.now))
        if node is None or not maintenance.status.phase or seen.strays:  # then the status is about another node
            return
        status = maintenance.status
        news = (
            node.uid,
            maintenance.uid,
            status.phase,
            status.phase_transitions,
            _since(maintenance),
            maintenance.is_leaving,
        )
        if self._noted.get(maintenance.name) != news:
            self._noted[maintenance.name] = news
            self._open[maintenance.name] = (node, maintenance)
            self._history.note(node, *notes(maintenance, seen.drain))
        if isinstance(decision.step, RemoveFinalizer):
            await self._history.settle(node.name, within=_SETTLED_WITHIN)

    async def forget(self, name: str, *, now: datetime) -> None:
        """Forget a maintenance that is gone; its end is noted, should somebody have taken its finalizer off."""
        self._noted.pop(name, None)
        node, maintenance = self._open.get(name, (None, None))
        if node is None or maintenance is None:
            return
        if not maintenance.is_leaving and await self._is_gone(name, maintenance.uid):
            self._history.note(node, _end(maintenance, "the NodeMaintenance is gone", at=now))
        self._open.pop(name, None)

    async def _is_gone(self, name: str, uid: str) -> bool:
        """Ask the server itself whether a maintenance is gone, or another one of its name: copies may be old."""
        try:
            found = await self._client.get(NODE_MAINTENANCES, name)
        except NotFound:
            return True
        return bool(uid) and found.uid != uid


def notes(maintenance: NodeMaintenance, drain: Kept | None) -> Iterator[Note]:
    """Yield which phases a maintenance passed, where it stands and, if it was deleted, that it is over."""
    born, since = maintenance.metadata.creation_timestamp, _since(maintenance)
    if born is None or since is None:
        return
    changes = _changes(maintenance)
    yield from (_passed(maintenance, it, born=born) for it in changes[:-1])
    current = changes[-1] if changes else PhaseTransition(number=0, time=max(since, born))
    at = current.time or since
    yield Note(entry=_standing(maintenance, drain, at=at, number=current.number), is_claim=True, born=born)
    deleted = maintenance.metadata.deletion_timestamp
    if deleted is not None:
        yield _end(maintenance, "the NodeMaintenance was deleted", at=deleted)


def left(maintenance: NodeMaintenance, *, now: datetime) -> Iterator[Note]:
    """Yield that a maintenance is over for a node that it does not name any more."""
    yield _end(maintenance, f"the NodeMaintenance names node {maintenance.node} now", at=now, phase=Phase.RUNNING)


def ordered_by(maintenance: NodeMaintenance) -> str:
    """Return the program that made an object, as far as the API server tells: it does not tell the user."""
    writers = [it for it in maintenance.metadata.managed_fields if not it.subresource]
    first = min(writers, key=lambda it: it.time or _FIRST, default=None)
    return "" if first is None else first.manager


def _changes(maintenance: NodeMaintenance) -> Sequence[PhaseTransition]:
    """Return the numbered changes that led to the phase, on this node; none if an older version wrote the status."""
    changes = maintenance.status.phase_transitions
    anew = max((number for number, it in enumerate(changes, start=1) if not it.phase), default=0)
    ours = changes[anew:]
    return ours if ours and ours[-1].phase == maintenance.status.phase else ()


def _passed(maintenance: NodeMaintenance, change: PhaseTransition, *, born: datetime) -> Note:
    """Return a phase that a maintenance has left again: what was known of it then is not in the object any more."""
    entry = Entry(
        time=change.time or born,
        what=owner_name(maintenance),
        by=ordered_by(maintenance),
        to=change.phase,
        why=COMPLETED,
        instance=maintenance.uid,
        number=change.number,
        reconstructed=True,
    )
    return Note(entry=entry, is_claim=True, born=born)


def _end(maintenance: NodeMaintenance, why: str, *, at: datetime, phase: str = "") -> Note:
    changes = maintenance.status.phase_transitions
    entry = Entry(
        time=at,
        what=owner_name(maintenance),
        from_=phase or maintenance.status.phase,
        to=ENDED,
        why=why,
        instance=maintenance.uid,
        number=changes[-1].number if changes else 0,
    )
    return Note(entry=entry, is_claim=True, born=maintenance.metadata.creation_timestamp)


def _standing(maintenance: NodeMaintenance, drain: Kept | None, *, at: datetime, number: int) -> Entry:
    status = maintenance.status
    drained, failed = status.condition(ConditionType.DRAINED), status.condition(ConditionType.FAILED)
    before, why, result, facts = Phase.RUNNING.value, "", "", _facts(maintenance, drain, until=at)
    match status.phase:
        case Phase.SUCCEEDED:
            why, result = drained.message if drained else "", "Drained"
        case Phase.FAILED:
            why, result = (failed.message, failed.reason) if failed else (status.last_error, status.phase)
        case _:
            before, why, facts = "", maintenance.spec.reason, None
    return Entry(
        time=at,
        what=owner_name(maintenance),
        by=ordered_by(maintenance),
        from_=before,
        to=status.phase,
        why=why,
        result=result,
        drain=facts,
        instance=maintenance.uid,
        number=number,
    )


def _since(maintenance: NodeMaintenance) -> datetime | None:
    """Return since when a maintenance is in its phase: the instant of the condition that says so."""
    drained = maintenance.status.condition(ConditionType.DRAINED)
    failed = maintenance.status.condition(ConditionType.FAILED)
    match maintenance.status.phase:
        case Phase.SUCCEEDED:
            telling = [drained]
        case Phase.FAILED:
            telling = [failed]
        case _:
            telling = [drained, failed]
    instants = [it.last_transition_time for it in telling if it is not None and it.last_transition_time is not None]
    return max(instants, default=maintenance.metadata.creation_timestamp)


def _facts(maintenance: NodeMaintenance, drain: Kept | None, *, until: datetime) -> DrainFacts | None:
    """Return what the drain took; None if none has begun."""
    status = maintenance.status.drain
    if status is None or status.start_time is None:
        return None
    hindrance = None if drain is None else drain.hindrance
    return DrainFacts(
        seconds=max((until - status.start_time).total_seconds(), 0),
        pods=status.gone,
        blocked_by="" if hindrance is None else hindrance.what,
        blocked_seconds=0 if hindrance is None else hindrance.lasted.total_seconds(),
    )
