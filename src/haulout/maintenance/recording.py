"""What a NodeMaintenance leaves in the history of its node: that it was ordered, how it went, and that it is over.

    Running → Succeeded → Ended

All of it is told by the object itself: its phase, and the instants of its conditions and of its deletion. So it is
enough to look: whoever looks at a maintenance notes where it stands, once; a successor notes the same, which then is
the same entry. The finalizer goes after the last entry is written, or after a second if it cannot be: by then the node
is back in service already.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from haulout.drain.keeper import Kept
from haulout.history.keeper import History
from haulout.history.record import DrainFacts, Entry, Note
from haulout.maintenance.holding import owner_name
from haulout.maintenance.resource import ConditionType, NodeMaintenance, Phase
from haulout.maintenance.seen import Decision, Seen
from haulout.maintenance.steps import RemoveFinalizer

ENDED = "Ended"
_SETTLED_WITHIN = timedelta(seconds=1)
_FIRST = datetime.min.replace(tzinfo=UTC)


class Recorder:
    """Notes how maintenances stand."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._noted: dict[str, tuple[object, ...]] = {}  # by maintenance: what was noted last

    async def sees(self, seen: Seen, decision: Decision) -> None:
        """Note how a maintenance stands, if that is news; before it goes, wait a moment until that is written."""
        node, maintenance = seen.node, seen.maintenance
        for stray in seen.strays:
            self._history.note(stray.node, *left(maintenance, now=seen.now))
        if node is None or not maintenance.status.phase or seen.strays:  # then the status is about another node
            return
        news = (node.uid, maintenance.uid, maintenance.status.phase, _since(maintenance), maintenance.is_leaving)
        if self._noted.get(maintenance.name) != news:
            self._noted[maintenance.name] = news
            self._history.note(node, *notes(maintenance, seen.drain))
        if isinstance(decision.step, RemoveFinalizer):
            await self._history.settle(node.name, within=_SETTLED_WITHIN)

    def forget(self, name: str) -> None:
        """Forget a maintenance."""
        self._noted.pop(name, None)


def notes(maintenance: NodeMaintenance, drain: Kept | None) -> Iterator[Note]:
    """Yield where a maintenance stands and, if it was deleted, that it is over."""
    born, since = maintenance.metadata.creation_timestamp, _since(maintenance)
    if born is None or since is None:
        return
    at = max(since, born)  # the one is by our clock, the other by the server's
    yield Note(entry=_standing(maintenance, drain, at=at), is_claim=True, born=born)
    deleted = maintenance.metadata.deletion_timestamp
    if deleted is not None:
        what, phase = owner_name(maintenance), maintenance.status.phase
        over = Entry(time=max(deleted, at), what=what, from_=phase, to=ENDED, why="the NodeMaintenance was deleted")
        yield Note(entry=over, is_claim=True, born=born)


def left(maintenance: NodeMaintenance, *, now: datetime) -> Iterator[Note]:
    """Yield that a maintenance is over for a node that it does not name any more."""
    why = f"the NodeMaintenance names node {maintenance.node} now"
    over = Entry(time=now, what=owner_name(maintenance), from_=Phase.RUNNING, to=ENDED, why=why)
    yield Note(entry=over, is_claim=True, born=maintenance.metadata.creation_timestamp)


def ordered_by(maintenance: NodeMaintenance) -> str:
    """Return the program that made an object, as far as the API server tells: it does not tell the user."""
    writers = [it for it in maintenance.metadata.managed_fields if not it.subresource]
    first = min(writers, key=lambda it: it.time or _FIRST, default=None)
    return "" if first is None else first.manager


def _standing(maintenance: NodeMaintenance, drain: Kept | None, *, at: datetime) -> Entry:
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
