"""What profiles leave in the history of a node: each of their transitions, and what their drains took.

A transition is noted after its write. Who dies in between leaves it to the next, who finds in the node's own data where
each profile stands and since when: of a node that it sees for the first time, or whose last write may have taken effect
though nobody heard of it, it says so, and what is missing is completed (`haulout.history.record`). A transition that
follows another before that is written down carries it (`haulout.profiles.passed`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout.drain.keeper import Kept
from haulout.history.holding import facts
from haulout.history.interface import History
from haulout.history.keeper import GATHERED_FOR
from haulout.history.record import COMPLETED, Entry, Note
from haulout.kube.objects import Node
from haulout.profiles import begun, passed
from haulout.profiles.passed import Passed
from haulout.profiles.plugin import NodeSight, State
from haulout.profiles.steps import ProfileReport, Result, TransitionReport

_PREFIX = "profile/"
_SOON_WRITTEN = 2 * GATHERED_FOR
_IN_TROUBLE = timedelta(minutes=1)  # the history cannot be written for now


class Recorder:
    """Notes what happens to profiles."""

    def __init__(self, history: History, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        self._seen: dict[str, str] = {}  # uids by node: of those whose history is complete, or being completed
        self._told: dict[tuple[str, str], datetime] = {}  # by node and profile: the beginning of the drain told last
        self._unwritten: dict[str, dict[str, list[Passed]]] = {}  # by node and profile: what was noted, maybe in vain
        history.subscribe(self._seen.clear)

    def sees(self, sight: NodeSight) -> None:
        """Have the history of a node completed, unless it is."""
        name = sight.node.name
        if self._seen.get(name) == sight.node.uid:
            return
        self._seen[name] = sight.node.uid
        stands = tuple(claims(sight))
        self._history.stands(sight.node, *stands)
        self._carry(name, stands)

    def carried(self, sight: NodeSight, result: Result) -> Result:
        """Return a step whose write, if it is a transition, carries those that may not be written down yet.

        The annotation of an operational node is removed as soon as all is written down. On other nodes, the next
        transition removes it with its own write.
        """
        is_moving = any(it.next != it.state for it in result.reports)
        waits = self._history.waits(sight.node.name)
        if not is_moving and (waits or not _is_over(sight, result)):
            return result
        if not waits:
            self._unwritten.pop(sight.node.name, None)
        carried = passed.write(self._unwritten.get(sight.node.name, {}))
        return replace(result, draft=result.draft.annotated({passed.ANNOTATION: carried}))

    def clears_at(self, sight: NodeSight, result: Result) -> datetime | None:
        """Return when to look whether the annotation of an operational node can be removed; None if it has none."""
        if not _is_over(sight, result):
            return None
        return self._clock.now() + (_IN_TROUBLE if any(self._history.troubles()) else _SOON_WRITTEN)

    def waits(self, node: str) -> bool:
        """Tell whether something that happened to a node is not written down yet."""
        return self._history.waits(node)

    def doubts(self, node: str) -> None:
        """Take note that something may have happened to a node of which nobody heard."""
        self._seen.pop(node, None)

    def records(self, sight: NodeSight, result: Result, drains: Mapping[str, Kept]) -> None:
        """Note what a step has done, and which drains are over."""
        moves = tuple(transitions(sight, result))
        notes = (*self._drained(sight.node, drains), *moves)
        if notes:
            self._history.note(sight.node, *notes)
            self._carry(sight.node.name, moves)

    def forget(self, node: str) -> None:
        """Forget a node."""
        self._seen.pop(node, None)
        self._unwritten.pop(node, None)
        for key in [it for it in self._told if it[0] == node]:
            del self._told[key]

    def _carry(self, node: str, notes: tuple[Note, ...]) -> None:
        """Remember what was noted for as long as it may not be written down."""
        if not self._history.waits(node):
            return
        unwritten = self._unwritten.setdefault(node, {})
        for it in (note.entry for note in notes):
            states = unwritten.setdefault(it.what.removeprefix(_PREFIX), [])
            if not states or (states[-1].to, states[-1].at) != (it.to, it.time):
                states.append(Passed(to=it.to, at=it.time))
                del states[: -passed.MOST]

    def _drained(self, node: Node, drains: Mapping[str, Kept]) -> Iterator[Note]:
        for profile, kept in drains.items():
            started = kept.progress.started
            if self._told.get((node.name, profile)) == started:
                continue
            self._told[node.name, profile] = started
            if kept.outcome is not None and kept.outcome.progress.total:  # there was nothing to do on an empty node
                yield drained(profile, kept, now=self._clock.now())


def _is_over(sight: NodeSight, result: Result) -> bool:
    """Tell whether a node carries states that its profiles passed, and all of them are operational again."""
    is_operational = result.state is State.OPERATIONAL and not result.pending
    return is_operational and passed.ANNOTATION in sight.node.metadata.annotations


def claims(sight: NodeSight) -> Iterator[Note]:
    """Yield what a node says about where its profiles stand, and which states they passed on their way."""
    before = passed.read(sight.node)
    for name, data in sight.entries.items():
        there = [] if data.transition is None else [Passed(to=data.current, at=data.transition)]
        for it in (*before.get(name, ()), *there):
            if it.to in tuple(State):
                entry = Entry(time=it.at, what=what(name), to=it.to, why=COMPLETED, reconstructed=True)
                yield Note(entry=entry, begins_in=State.OPERATIONAL, is_claim=True)


def transitions(sight: NodeSight, result: Result) -> Iterator[Note]:
    """Yield the transitions that a step made."""
    pending = begun.read(sight.node)
    for report in result.reports:
        before, after = sight.entries.get(report.name), result.entries.get(report.name)
        if report.next == report.state or after is None or after.transition is None:
            continue
        entry = Entry(
            time=after.transition,
            what=what(report.name),
            from_=report.state,
            to=report.next,
            since=None if before is None else before.transition,
            why=why(report, has_begun=report.name in pending),
        )
        yield Note(entry=entry, begins_in=State.OPERATIONAL)


def drained(profile: str, kept: Kept, *, now: datetime) -> Note:
    """Return what a drain took, and how it ended."""
    ending = "" if kept.outcome is None else str(kept.outcome.ending)
    words = "" if kept.outcome is None else kept.outcome.why
    return Note(entry=Entry(time=now, what=what(profile), why=words, result=ending, drain=facts(kept, now)))


def why(report: ProfileReport, *, has_begun: bool) -> str:
    """Return which check chain let a profile through, and what its checks said."""
    ways = [it for it in report.transitions if it.target == report.next]
    way = next((it for it in ways if it.passed), ways[0] if ways else None)
    if way is None:
        return ""
    if has_begun:  # what its checks say by now is another matter
        return f"it began when {_expression(way)} passed; its triggers are done now"
    said = {name: it.verdict.reason for name, it in way.checks.items() if it.verdict.reason}
    if tuple(said) == (_expression(way),):
        return f"{_expression(way)} passed: {said[_expression(way)]}"
    words = "; ".join(f"{name}: {reason}" for name, reason in said.items())
    return f"{_expression(way)} passed" + (f": {words}" if words else "")


def what(profile: str) -> str:
    """Return the name of a profile in histories: the same under which it keeps nodes cordoned."""
    return f"{_PREFIX}{profile}"


def _expression(way: TransitionReport) -> str:
    return " ".join(way.expression.split())
