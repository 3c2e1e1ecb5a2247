"""The history of who holds a node for a while by our mark on it, and has no object of its own to tell of that.

    Running → Ended

Since when a node is held is in the mark, and tells this hold from others. So whoever looks says the same, and it is the
same entry, whatever its clock says. Of a node that is seen for the first time it is said where it stands, and what a
predecessor could not write down any more is completed. What is done between, such as a drain, is noted when it is done.
"""

from datetime import datetime

from haulout.core.clock import Clock
from haulout.drain.cordon import BadMark, cordon_of
from haulout.drain.keeper import Kept
from haulout.history.interface import History
from haulout.history.record import COMPLETED, ENDED, DrainFacts, Entry, Note
from haulout.kube.objects import Node

RUNNING = "Running"


class Holding:
    """Notes what `what` does, which is its name in marks, too."""

    def __init__(self, what: str, history: History, clock: Clock) -> None:
        self._what = what
        self._history = history
        self._clock = clock
        self._seen: dict[str, str] = {}  # uids by node: of those whose history is complete, or being completed
        self._drained: dict[str, datetime] = {}  # by node: the beginning of the drain that was noted last
        history.subscribe(self._seen.clear)

    def sees(self, node: Node) -> None:
        """Have the history of a node completed, unless it is."""
        if self._seen.get(node.name) != node.uid:
            self._seen[node.name] = node.uid
            self._history.stands(node, stands(node, self._what, now=self._clock.now()))

    def begins(self, node: Node, why: str) -> None:
        """Note that a node is held, which has our mark by now."""
        since = _since(node, self._what)
        if since is not None:
            self._history.note(node, _running(self._what, since, why))

    def does(self, node: Node, result: str, why: str) -> None:
        """Note what is done to it."""
        entry = Entry(time=self._clock.now(), what=self._what, why=why, result=result)
        self._history.note(node, Note(entry=entry))

    def drains(self, node: Node, kept: Kept | None) -> None:
        """Note what a drain took, once it is over."""
        if kept is None or kept.outcome is None or not kept.outcome.progress.total:  # there was nothing to do
            return
        if self._drained.get(node.name) == kept.progress.started:
            return
        self._drained[node.name] = kept.progress.started
        now = self._clock.now()
        entry = Entry(
            time=now, what=self._what, why=kept.outcome.why, result=kept.outcome.ending, drain=facts(kept, now)
        )
        self._history.note(node, Note(entry=entry))

    def ends(self, before: Node, why: str) -> None:
        """Note that a node is held no more; `before` is the node as it was before that."""
        since = _since(before, self._what)
        entry = Entry(
            time=self._clock.now(), what=self._what, from_=RUNNING, to=ENDED, why=why, instance=_instance(since)
        )
        begins_in = RUNNING if since is None else ""  # without a mark nobody knows when it began
        self._history.note(before, Note(entry=entry, begins_in=begins_in, is_claim=True, born=since))

    def forget(self, name: str) -> None:
        """Forget a node."""
        self._seen.pop(name, None)
        self._drained.pop(name, None)


def stands(node: Node, what: str, *, now: datetime) -> Note:
    """Return what a node says about whether it is held."""
    since = _since(node, what)
    if since is not None:
        return _running(what, since, COMPLETED)
    entry = Entry(time=now, what=what, to=ENDED, why=COMPLETED, reconstructed=True)
    return Note(entry=entry, begins_in=ENDED, is_claim=True)


def facts(kept: Kept, now: datetime) -> DrainFacts:
    """Return what a drain took until now."""
    progress = kept.progress if kept.outcome is None else kept.outcome.progress
    hindrance = kept.hindrance
    return DrainFacts(
        seconds=max((now - progress.started).total_seconds(), 0),  # the clock may have been set back
        pods=progress.gone,
        blocked_by="" if hindrance is None else hindrance.what,
        blocked_seconds=0 if hindrance is None else hindrance.lasted.total_seconds(),
    )


def _running(what: str, since: datetime, why: str) -> Note:
    """Return that it began, and not where one of this name had ended before."""
    entry = Entry(time=since, what=what, to=RUNNING, why=why, instance=_instance(since), reconstructed=why == COMPLETED)
    return Note(entry=entry, is_claim=True, born=since)


def _instance(since: datetime | None) -> str:
    return "" if since is None else since.isoformat()


def _since(node: Node, what: str) -> datetime | None:
    try:
        mark = cordon_of(node)
    except BadMark:
        return None
    held = None if mark is None else mark.owners.get(what)
    return None if held is None else held.since
