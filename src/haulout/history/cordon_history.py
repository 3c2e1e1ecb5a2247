"""The history of cordon owners without an API object of their own.

    Running → Ended

The cordon annotation contains since when an owner holds the node, which identifies the hold. Every process thus records
the same entry, whatever its clock says. For a node that is observed for the first time, the current state is recorded,
which completes what a predecessor could not write. Actions in between, such as a drain, are recorded when they happen.

Entries about transitions are returned, for `haulout.runtime.journal.Transition`.
"""

from datetime import datetime

from haulout.api.maintenancerecord import ENDED, RECONSTRUCTED_REASON, DrainFacts, Entry, NewEntry
from haulout.api.objects import Node
from haulout.core.clock import Clock
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of
from haulout.drain.manager import DrainSnapshot
from haulout.history.interface import History

RUNNING = "Running"


class CordonHistory:
    """The history of the cordon owner `what`."""

    def __init__(self, what: str, history: History, clock: Clock) -> None:
        self._what = what
        self._history = history
        self._clock = clock
        self._completed: dict[str, str] = {}  # by node: UID, once its state is recorded or queued
        self._drained: dict[str, datetime] = {}  # by node: start of the last recorded drain
        # When the CRD is installed later, the states must be supplied again.
        history.subscribe(self._completed.clear)

    def observe(self, node: Node) -> None:
        """Record the current state of a node once."""
        if self._completed.get(node.name) != node.uid:
            self._completed[node.name] = node.uid
            self._history.ensure_state(node, state_claim(node, self._what, now=self._clock.now()))

    def start_entry(self, node: Node, why: str) -> NewEntry | None:
        """Return the start of a hold; None if `node` does not have our cordon annotation."""
        since = _since(node, self._what)
        return None if since is None else _running_claim(self._what, since, why)

    def action_entry(self, result: str, why: str) -> NewEntry:
        """Return an action between start and end of a hold."""
        return NewEntry(entry=Entry(time=self._clock.now(), object=self._what, reason=why, result=result))

    def record_drain(self, node: Node, drain: DrainSnapshot | None) -> None:
        """Record duration, pods and longest blocker of a drain once it has ended."""
        if drain is None or drain.outcome is None or not drain.outcome.progress.total:  # no pod had to leave
            return
        # Once per drain: the caller reports the same outcome in every reconcile until the drain is removed.
        if self._drained.get(node.name) == drain.progress.started:
            return
        self._drained[node.name] = drain.progress.started
        now = self._clock.now()
        entry = Entry(
            time=now,
            object=self._what,
            reason=drain.outcome.message,
            result=drain.outcome.result,
            drain=drain_facts(drain, now),
        )
        self._history.add(node, NewEntry(entry=entry))

    def end_entry(self, before: Node, why: str) -> NewEntry:
        """Return the end of a hold; `before` is the node before its release."""
        since = _since(before, self._what)
        entry = Entry(
            time=self._clock.now(), object=self._what, from_=RUNNING, to=ENDED, reason=why, instance=_instance(since)
        )
        begins_in = RUNNING if since is None else ""  # without an annotation the start is unknown
        return NewEntry(entry=entry, initial_state=begins_in, is_state_claim=True, created_at=since)

    def forget(self, name: str) -> None:
        self._completed.pop(name, None)
        self._drained.pop(name, None)


def state_claim(node: Node, what: str, *, now: datetime) -> NewEntry:
    """Return the entry with the current state of a node: held or not."""
    since = _since(node, what)
    if since is not None:
        return _running_claim(what, since, RECONSTRUCTED_REASON)
    entry = Entry(time=now, object=what, to=ENDED, reason=RECONSTRUCTED_REASON, reconstructed=True)
    return NewEntry(entry=entry, initial_state=ENDED, is_state_claim=True)


def drain_facts(drain: DrainSnapshot, now: datetime) -> DrainFacts:
    """Return duration, pods and longest blocker of the drain until now."""
    progress = drain.progress if drain.outcome is None else drain.outcome.progress
    blocker = drain.longest_blocker
    return DrainFacts(
        seconds=max((now - progress.started).total_seconds(), 0),  # the clock may have been set back
        pods=progress.gone,
        blocked_by="" if blocker is None else blocker.object,
        blocked_seconds=0 if blocker is None else blocker.duration.total_seconds(),
    )


def _running_claim(what: str, since: datetime, why: str) -> NewEntry:
    """Return the start of a hold. It does not continue an earlier hold by the same owner."""
    entry = Entry(
        time=since,
        object=what,
        to=RUNNING,
        reason=why,
        instance=_instance(since),
        reconstructed=why == RECONSTRUCTED_REASON,
    )
    return NewEntry(entry=entry, is_state_claim=True, created_at=since)


def _instance(since: datetime | None) -> str:
    return "" if since is None else since.isoformat()


def _since(node: Node, what: str) -> datetime | None:
    try:
        mark = cordon_of(node)
    except InvalidCordonAnnotation:
        return None
    hold = None if mark is None else mark.owners.get(what)
    return None if hold is None else hold.since
