"""Writes to the history of nodes: each transition of a profile, and the results of its drains.

A transition is recorded after its write. After a crash in between, the next leader reconstructs it from the data
annotation, which has the state of each profile and its time. For a node that it sees for the first time, or whose last
write may have succeeded without a response, it passes this state to the history, which adds what is missing
(`haulout.api.maintenancerecord`). A transition that follows before the previous one is written carries it in an
annotation (`haulout.controllers.profiles.machine.transitions`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from haulout.api.maintenancerecord import RECONSTRUCTED_REASON, Entry, NewEntry
from haulout.api.objects import Node
from haulout.controllers.profiles.machine.transitions import (
    MAX_STATES,
    UNRECORDED_ANNOTATION,
    UnrecordedState,
    encode_unrecorded,
    read_pending,
    read_unrecorded,
)
from haulout.controllers.profiles.observation import Decision, ProfileReport, TransitionReport
from haulout.controllers.profiles.plugin import ObservedNode, State
from haulout.core.clock import Clock
from haulout.drain.manager import DrainSnapshot
from haulout.history.cordon_history import drain_facts
from haulout.history.interface import History
from haulout.history.writer import BATCH_DELAY

_PREFIX = "profile/"
_WRITTEN_WITHIN = 2 * BATCH_DELAY
_RETRY_AFTER = timedelta(minutes=1)  # while the history cannot be written


class HistoryRecorder:
    """Records what happens to profiles. It waits for no write of the history: a decision must not depend on it."""

    def __init__(self, history: History, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        self._completed: dict[str, str] = {}  # by node: uids of nodes whose history is complete or being completed
        self._recorded_drains: dict[
            tuple[str, str], datetime
        ] = {}  # by node and profile: start of the drain recorded last
        self._unwritten: dict[
            str, dict[str, list[UnrecordedState]]
        ] = {}  # by node and profile: recorded, but maybe not written yet
        history.subscribe(self._completed.clear)

    def complete(self, observed: ObservedNode) -> None:
        """Have the history of a node completed, unless that has been done."""
        name = observed.node.name
        if self._completed.get(name) == observed.node.uid:
            return
        self._completed[name] = observed.node.uid
        notes = tuple(known_states(observed))
        self._history.ensure_state(observed.node, *notes)
        self._remember_unwritten(name, notes)

    def with_unwritten(self, observed: ObservedNode, decision: Decision) -> Decision:
        """Return a decision with the annotation of unwritten transitions added, if it makes a transition itself.

        The annotation of an operational node is removed as soon as the history is written. On other nodes, the write of
        the next transition removes it.
        """
        is_moving = any(report.next != report.state for report in decision.reports)
        is_unwritten = self._history.has_pending(observed.node.name)
        if not is_moving and (is_unwritten or not _is_operational_again(observed, decision)):
            return decision
        if not is_unwritten:
            self._unwritten.pop(observed.node.name, None)
        annotation = encode_unrecorded(self._unwritten.get(observed.node.name, {}))
        return replace(decision, draft=decision.draft.with_annotations({UNRECORDED_ANNOTATION: annotation}))

    def recheck_at(self, observed: ObservedNode, decision: Decision) -> datetime | None:
        """Return when to check whether the annotation of an operational node can be removed; None if it has none."""
        if not _is_operational_again(observed, decision):
            return None
        return self._clock.now() + (_RETRY_AFTER if any(self._history.problems()) else _WRITTEN_WITHIN)

    def has_unwritten(self, node: str) -> bool:
        """Return whether the history of a node has unwritten entries."""
        return self._history.has_pending(node)

    def invalidate(self, node: str) -> None:
        """Have the history of a node completed again: a write may have succeeded without a response."""
        self._completed.pop(node, None)

    def record(self, observed: ObservedNode, decision: Decision, drains: Mapping[str, DrainSnapshot]) -> None:
        """Record the transitions of a decision, and drains that have ended."""
        transition_notes = tuple(transitions(observed, decision))
        notes = (*self._ended_drains(observed.node, drains), *transition_notes)
        if notes:
            self._history.add(observed.node, *notes)
            self._remember_unwritten(observed.node.name, transition_notes)

    def forget(self, node: str) -> None:
        self._completed.pop(node, None)
        self._unwritten.pop(node, None)
        for key in [drain_key for drain_key in self._recorded_drains if drain_key[0] == node]:
            del self._recorded_drains[key]

    def _remember_unwritten(self, node: str, notes: tuple[NewEntry, ...]) -> None:
        """Remember recorded transitions while the history may not have written them."""
        if not self._history.has_pending(node):
            return
        unwritten = self._unwritten.setdefault(node, {})
        for entry in (note.entry for note in notes):
            states = unwritten.setdefault(entry.object.removeprefix(_PREFIX), [])
            if not states or (states[-1].to, states[-1].at) != (entry.to, entry.time):
                states.append(UnrecordedState(to=entry.to, at=entry.time))
                del states[:-MAX_STATES]

    def _ended_drains(self, node: Node, drains: Mapping[str, DrainSnapshot]) -> Iterator[NewEntry]:
        for profile, drain in drains.items():
            started_at = drain.progress.started
            if self._recorded_drains.get((node.name, profile)) == started_at:
                continue
            self._recorded_drains[node.name, profile] = started_at
            if drain.outcome is not None and drain.outcome.progress.total:  # nothing to record for an empty node
                yield drain_note(profile, drain, now=self._clock.now())


def _is_operational_again(observed: ObservedNode, decision: Decision) -> bool:
    """Return whether a node has the annotation although all its profiles are operational again."""
    is_operational = decision.state is State.OPERATIONAL and not decision.pending
    return is_operational and UNRECORDED_ANNOTATION in observed.node.metadata.annotations


def known_states(observed: ObservedNode) -> Iterator[NewEntry]:
    """Yield the states in the annotations of a node: the current ones of its profiles, and unrecorded ones before."""
    before = read_unrecorded(observed.node)
    for name, data in observed.statuses.items():
        current = [] if data.transition is None else [UnrecordedState(to=data.current, at=data.transition)]
        for state in (*before.get(name, ()), *current):
            if state.to in tuple(State):
                entry = Entry(
                    time=state.at,
                    object=history_name(name),
                    to=state.to,
                    reason=RECONSTRUCTED_REASON,
                    reconstructed=True,
                )
                yield NewEntry(entry=entry, initial_state=State.OPERATIONAL, is_state_claim=True)


def transitions(observed: ObservedNode, decision: Decision) -> Iterator[NewEntry]:
    pending = read_pending(observed.node)
    for report in decision.reports:
        before, after = observed.statuses.get(report.name), decision.statuses.get(report.name)
        if report.next == report.state or after is None or after.transition is None:
            continue
        entry = Entry(
            time=after.transition,
            object=history_name(report.name),
            from_=report.state,
            to=report.next,
            since=None if before is None else before.transition,
            reason=transition_reason(report, was_pending=report.name in pending),
        )
        yield NewEntry(entry=entry, initial_state=State.OPERATIONAL)


def drain_note(profile: str, drain: DrainSnapshot, *, now: datetime) -> NewEntry:
    """Return the entry for a drain: its duration, result and pods."""
    ending = "" if drain.outcome is None else str(drain.outcome.result)
    message = "" if drain.outcome is None else drain.outcome.message
    return NewEntry(
        entry=Entry(
            time=now, object=history_name(profile), reason=message, result=ending, drain=drain_facts(drain, now)
        )
    )


def transition_reason(report: ProfileReport, *, was_pending: bool) -> str:
    """Return which check chain passed, and the reasons of its checks."""
    candidates = [
        report_of_transition
        for report_of_transition in report.transitions
        if report_of_transition.target == report.next
    ]
    transition = next(
        (report_of_transition for report_of_transition in candidates if report_of_transition.passed),
        candidates[0] if candidates else None,
    )
    if transition is None:
        return ""
    if was_pending:  # current check results say nothing about when it started
        return f"started when {_expression(transition)} passed; its triggers are done now"
    reasons = {
        name: report_of_transition.result.reason
        for name, report_of_transition in transition.checks.items()
        if report_of_transition.result.reason
    }
    if tuple(reasons) == (_expression(transition),):
        return f"{_expression(transition)} passed: {reasons[_expression(transition)]}"
    text = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return f"{_expression(transition)} passed" + (f": {text}" if text else "")


def history_name(profile: str) -> str:
    """Return the name of a profile in histories, which is also its name as cordon owner."""
    return f"{_PREFIX}{profile}"


def _expression(transition: TransitionReport) -> str:
    return " ".join(transition.expression.split())
