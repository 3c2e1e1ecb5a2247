"""The history of who holds a node for a while by our mark on it, and has no object of its own to tell of that.

    Running → Ended

Since when a node is held is in the mark, and tells this hold from others. So whoever looks says the same, and it is the
same entry, whatever its clock says. Of a node that is seen for the first time it is said where it stands, and what a
predecessor could not write down any more is completed. What is done between, such as a drain, is noted when it is done.
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
    """Notes what `what` does, which is its name in marks, too."""

    def __init__(self, what: str, history: History, clock: Clock) -> None:
        self._what = what
        self._history = history
        self._clock = clock
        self._completed: dict[str, str] = {}  # uids by node: of those whose history is complete, or being completed
        self._drained: dict[str, datetime] = {}  # by node: the beginning of the drain that was noted last
        history.subscribe(self._completed.clear)

    def observe(self, node: Node) -> None:
        """Have the history of a node completed, unless it is."""
        if self._completed.get(node.name) != node.uid:
            self._completed[node.name] = node.uid
            self._history.ensure_state(node, state_claim(node, self._what, now=self._clock.now()))

    def record_start(self, node: Node, why: str) -> None:
        """Note that a node is held, which has our mark by now."""
        since = _since(node, self._what)
        if since is not None:
            self._history.add(node, _running_claim(self._what, since, why))

    def record_action(self, node: Node, result: str, why: str) -> None:
        """Note what is done to it."""
        entry = Entry(time=self._clock.now(), what=self._what, why=why, result=result)
        self._history.add(node, NewEntry(entry=entry))

    def record_drain(self, node: Node, drain: DrainSnapshot | None) -> None:
        """Note what a drain took, once it is over."""
        if drain is None or drain.outcome is None or not drain.outcome.progress.total:  # there was nothing to do
            return
        if self._drained.get(node.name) == drain.progress.started:
            return
        self._drained[node.name] = drain.progress.started
        now = self._clock.now()
        entry = Entry(
            time=now,
            what=self._what,
            why=drain.outcome.message,
            result=drain.outcome.result,
            drain=drain_facts(drain, now),
        )
        self._history.add(node, NewEntry(entry=entry))

    def record_end(self, before: Node, why: str) -> None:
        """Note that a node is held no more; `before` is the node as it was before that."""
        since = _since(before, self._what)
        entry = Entry(
            time=self._clock.now(), what=self._what, from_=RUNNING, to=ENDED, why=why, instance=_instance(since)
        )
        begins_in = RUNNING if since is None else ""  # without a mark nobody knows when it began
        self._history.add(before, NewEntry(entry=entry, initial_state=begins_in, is_state_claim=True, created_at=since))

    def forget(self, name: str) -> None:
        """Forget a node."""
        self._completed.pop(name, None)
        self._drained.pop(name, None)


def state_claim(node: Node, what: str, *, now: datetime) -> NewEntry:
    """Return what a node says about whether it is held."""
    since = _since(node, what)
    if since is not None:
        return _running_claim(what, since, RECONSTRUCTED_REASON)
    entry = Entry(time=now, what=what, to=ENDED, why=RECONSTRUCTED_REASON, reconstructed=True)
    return NewEntry(entry=entry, initial_state=ENDED, is_state_claim=True)


def drain_facts(drain: DrainSnapshot, now: datetime) -> DrainFacts:
    """Return what a drain took until now."""
    progress = drain.progress if drain.outcome is None else drain.outcome.progress
    blocker = drain.longest_blocker
    return DrainFacts(
        seconds=max((now - progress.started).total_seconds(), 0),  # the clock may have been set back
        pods=progress.gone,
        blocked_by="" if blocker is None else blocker.object,
        blocked_seconds=0 if blocker is None else blocker.duration.total_seconds(),
    )


def _running_claim(what: str, since: datetime, why: str) -> NewEntry:
    """Return that it began, and not where one of this name had ended before."""
    entry = Entry(
        time=since, what=what, to=RUNNING, why=why, instance=_instance(since), reconstructed=why == RECONSTRUCTED_REASON
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
