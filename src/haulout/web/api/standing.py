"""Which state a node has on the map, and why, in a line. Pure.

    stand = stand_of(subject)
    stand.state, stand.why, stand.since, stand.at

Several things may have to do with a node: orders of people, profiles, notices, and what somebody left on it. Each of
them says where the node stands for it, and what matters most counts: that something is stuck, that pods are leaving,
that it is in maintenance, that it comes back, that something is planned.

A pod that may not leave for a moment is nothing that people need to look at: other pods start, and it may. So a drain
is blocked only when something has stood in its way for `BLOCKED_AFTER`, as NodeMaintenances tell it, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from haulout.budget.away import ORDER_PREFIX, orders_of
from haulout.core import booleans
from haulout.core.booleans import BooleanError
from haulout.drain.blockers import Kind
from haulout.drain.cordon import BadMark, Cordon, cordon_of
from haulout.drain.keeper import Kept
from haulout.drain.lasting import BLOCKED_AFTER
from haulout.drain.words import some
from haulout.history.record import cut
from haulout.kinds.hold import holding
from haulout.kinds.notice import MaintenanceNotice
from haulout.kinds.standing import standing
from haulout.kube.objects import Node
from haulout.maintenance.resource import ConditionType, NodeMaintenance, Phase, StatusBlocker
from haulout.profiles import begun
from haulout.profiles.begun import Begun
from haulout.profiles.plugin import Entry, State
from haulout.profiles.plugins.checks.recovered import Recovered
from haulout.profiles.steps import ProfileReport, TransitionReport
from haulout.profiles.why import remedies_for
from haulout.web.api.shapes import NodeState
from haulout.web.api.subject import Subject

PROFILE_PREFIX = "profile/"

_LONGEST = 300
_MATTERS = {
    state: rank
    for rank, state in enumerate(
        (
            NodeState.IDLE,
            NodeState.PLANNED,
            NodeState.RECOVERING,
            NodeState.IN_MAINTENANCE,
            NodeState.DRAINING,
            NodeState.BLOCKED,
        )
    )
}
_PROGRESS = frozenset({Kind.MIGRATION, Kind.THROTTLING, Kind.COMPLETION, Kind.RESPONDER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where a node stands."""

    state: NodeState
    why: str = ""
    since: datetime | None = None
    at: datetime | None = None  # the next instant that matters
    progress: int | None = None  # of a drain, in percent
    changes_at: datetime | None = None  # it may be another one then, though nothing happens


def stand_of(subject: Subject) -> Stand:
    """Return where a node stands."""
    stands = [
        *_by_data(subject),
        *(_by_order(it, subject) for it in subject.orders),
        *_by_profiles(subject),
        *_by_leftovers(subject),
        *(_by_notice(it, subject) for it in subject.notices),
        *_by_hold(subject),
    ]
    most = max(stands, key=lambda it: _MATTERS[it.state], default=None)
    most = most if most is not None and most.state is not NodeState.IDLE else _idle(subject, most)
    wakes = [it.changes_at for it in stands if it.changes_at is not None and it.changes_at > subject.now]
    if not wakes and not most.why and most.changes_at is None:
        return most  # as most nodes are
    return replace(most, why=cut(most.why, _LONGEST), changes_at=min(wakes, default=None))


# What cannot be read


def _by_data(subject: Subject) -> Iterator[Stand]:
    if subject.data_problem:
        yield Stand(state=NodeState.BLOCKED, why=f"the operator leaves it alone: {subject.data_problem}")


# Orders


def _by_order(order: NodeMaintenance, subject: Subject) -> Stand:
    who, status, created = f"NodeMaintenance {order.name}", order.status, order.metadata.creation_timestamp
    if order.is_leaving:
        return Stand(
            state=NodeState.RECOVERING,
            why=f"{who} was deleted, and gives the node back",
            since=order.metadata.deletion_timestamp,
        )
    if status.phase == Phase.FAILED:
        failed = status.condition(ConditionType.FAILED)
        since = status.last_update if failed is None else failed.last_transition_time
        return Stand(state=NodeState.BLOCKED, why=f"{who} failed: {status.last_error}", since=since)
    if status.phase == Phase.SUCCEEDED:
        drained = status.condition(ConditionType.DRAINED)
        since = created if drained is None else drained.last_transition_time
        reason = f": {order.spec.reason}" if order.spec.reason else ""
        return Stand(state=NodeState.IN_MAINTENANCE, why=f"{who}{reason}", since=since, progress=100)
    if not _has_begun(order, subject.node):
        return Stand(state=NodeState.PLANNED, why=f"{who} {_waits(order, subject)}", since=created, at=status.next_look)
    return _draining(order, subject, who)


def _has_begun(order: NodeMaintenance, node: Node) -> bool:
    """Tell whether an order has its node, which its status tells a little later than the node itself.

    What the Node Maintenance Operator wrote has no conditions.
    """
    if order.name in orders_of(node):
        return True
    cordoned = order.status.condition(ConditionType.CORDONED)
    if cordoned is None:
        return order.status.phase == Phase.RUNNING
    return cordoned.status == "True"


def _waits(order: NodeMaintenance, subject: Subject) -> str:
    crowded = order.status.condition(ConditionType.WITHIN_BUDGET)
    if crowded is not None and crowded.status == "False":
        place = subject.places.get(order.name, 0)
        first = f", and {place - 1} before it" if place > 1 else ""
        return f"waits for room{first}: {crowded.message}"
    return f"waits: {order.status.last_error}" if order.status.last_error else "waits for the operator"


def _draining(order: NodeMaintenance, subject: Subject, who: str) -> Stand:
    status, drain = order.status, order.status.drain
    in_the_way = [it for it in status.blockers if it.kind not in _PROGRESS and it.since is not None]
    first = min(in_the_way, key=lambda it: it.since or subject.now, default=None)
    stand = Stand(
        state=NodeState.DRAINING,
        why=f"{who}: {len(status.pending_pods)} of {status.eviction_pods} pods are still to leave",
        since=drain.start_time if drain is not None else order.metadata.creation_timestamp,
        at=(drain.deadline if drain is not None else None) or status.next_look,
        progress=status.drain_progress,
    )
    if first is not None and first.since is not None:
        lasting = first.since + BLOCKED_AFTER <= subject.now
        state = NodeState.BLOCKED if lasting else NodeState.DRAINING
        since = first.since if lasting else stand.since
        wakes = first.since + BLOCKED_AFTER
        return replace(stand, state=state, why=_blocked(first), since=since, changes_at=wakes)
    if status.last_error:
        return replace(stand, state=NodeState.BLOCKED, why=f"{who}: {status.last_error}", since=status.last_update)
    return stand


def _blocked(blocker: StatusBlocker) -> str:
    whose = f"{blocker.pod}: " if blocker.pod else ""
    return whose + blocker.reason + (f"; {blocker.advice}" if blocker.advice else "")


# Profiles


def _by_profiles(subject: Subject) -> Iterator[Stand]:
    pending = begun.read(subject.node) if begun.ANNOTATION in subject.node.metadata.annotations else {}
    reports = {} if subject.info is None else {it.name: it for it in subject.info.reports}
    for name, entry in subject.entries.items():
        going = pending.get(name)
        report = reports.get(name) or ProfileReport(name=name, state=entry.current, next=entry.current)
        is_going = going is not None and going.is_of(entry)
        yield _by_profile(_Seen(name, entry, report, going if is_going else None, name in reports), subject)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A profile of a node."""

    name: str
    entry: Entry
    report: ProfileReport
    going: Begun | None
    is_decided: bool  # somebody has looked at it, and the report says what came of that


def _by_profile(seen: _Seen, subject: Subject) -> Stand:
    drain = subject.drains.get(seen.name)
    if drain is not None and not (drain.outcome is not None and drain.outcome.is_drained):
        return _by_drain(seen, drain, subject)
    stand = _by_state(seen)
    if seen.report.error and stand.state is not NodeState.IDLE:
        is_begun = stand.state is not NodeState.PLANNED or seen.going is not None
        state = NodeState.BLOCKED if is_begun else NodeState.PLANNED
        return replace(stand, state=state, why=f"{seen.name}: {seen.report.error}")
    return stand


def _by_drain(seen: _Seen, drain: Kept, subject: Subject) -> Stand:
    progress, outcome = drain.progress, drain.outcome
    stand = Stand(
        state=NodeState.DRAINING,
        why=f"{seen.name}: {seen.report.waits_for or f'{progress.gone} of {progress.total} pods have left'}",
        since=progress.started,
        at=progress.deadline,
        progress=progress.percent,
    )
    if outcome is not None:
        return replace(stand, state=NodeState.BLOCKED, why=f"{seen.name}: {outcome.why}")
    in_the_way = [it for it in progress.blockers if not it.blocker.is_progress]
    first = min(in_the_way, key=lambda it: it.since, default=None)
    if first is None:
        return replace(stand, state=NodeState.BLOCKED, why=progress.trouble) if progress.trouble else stand
    wakes = first.since + BLOCKED_AFTER
    if wakes <= subject.now:
        return replace(stand, state=NodeState.BLOCKED, why=str(first.blocker), since=first.since)
    return replace(stand, why=str(first.blocker), changes_at=wakes)


def _by_state(seen: _Seen) -> Stand:
    entry, since = seen.entry, seen.entry.transition
    if entry.current not in _IN_STATE:
        why = (
            f"{seen.name}: its data says that it is in the state {entry.current!r}, expected one of {', '.join(State)}"
        )
        return Stand(state=NodeState.BLOCKED, why=why, since=since)
    if seen.going is not None and seen.going.next != entry.current:
        return Stand(
            state=_TOWARDS.get((entry.current, seen.going.next), NodeState.PLANNED), why=_on_its_way(seen), since=since
        )
    if entry.current != State.OPERATIONAL:
        is_recovering = entry.current == State.IN_MAINTENANCE and _only_recovers(seen.report.transitions)
        state = NodeState.RECOVERING if is_recovering else _IN_STATE[State(entry.current)]
        return Stand(state=state, why=_waiting_for(seen), since=since, at=_next(seen.report))
    if entry.previous == State.IN_MAINTENANCE and seen.report.waits_for:
        return Stand(state=NodeState.RECOVERING, why=_on_its_way(seen), since=since)
    if refused := next((it.veto for it in seen.report.transitions if it.chain_passed and it.veto), ""):
        return Stand(state=NodeState.PLANNED, why=f"{seen.name}: {refused}", since=since)
    return Stand(state=NodeState.IDLE, why=f"{seen.name}: {seen.report.error}" if seen.report.error else "")


_IN_STATE = {
    State.OPERATIONAL: NodeState.IDLE,
    State.REQUIRED: NodeState.PLANNED,
    State.IN_MAINTENANCE: NodeState.IN_MAINTENANCE,
}
_TOWARDS: Mapping[tuple[str, str], NodeState] = {
    (State.OPERATIONAL, State.IN_MAINTENANCE): NodeState.DRAINING,
    (State.REQUIRED, State.IN_MAINTENANCE): NodeState.DRAINING,
    (State.IN_MAINTENANCE, State.OPERATIONAL): NodeState.RECOVERING,
    (State.IN_MAINTENANCE, State.REQUIRED): NodeState.RECOVERING,
}


def _on_its_way(seen: _Seen) -> str:
    return f"{seen.name}: {seen.report.waits_for or 'it is on its way'}"


def _waiting_for(seen: _Seen) -> str:
    """Return what a profile waits for: of the way that is nearest to be open, whatever keeps it shut."""
    if seen.report.waits_for:
        return f"{seen.name}: {seen.report.waits_for}"
    shut = [reasons for it in seen.report.transitions if (reasons := _shut(it))]
    reasons = min(shut, key=len, default=[])
    if not reasons and seen.is_decided and not seen.report.transitions:
        return f"{seen.name}: no transition leads out of {seen.entry.current}"
    return f"{seen.name}: {some(reasons, most=2) or seen.entry.current}"


def _shut(report: TransitionReport) -> list[str]:
    """Return what keeps a way shut: the fewest checks that would have to say something else, in their own words."""
    if report.veto:
        return [report.veto]
    verdicts = {name: it.verdict for name, it in report.checks.items()}
    fewest = next(iter(remedies_for(report.expression, {name: it.passed for name, it in verdicts.items()})), ())
    said = (verdicts[it.name].error or verdicts[it.name].reason or f"{it.name} is waited for" for it in fewest)
    return list(dict.fromkeys(said))


def _next(report: ProfileReport) -> datetime | None:
    """Return when a check that does not pass may say something else by itself."""
    verdicts = (it.verdict for way in report.transitions for it in way.checks.values())
    return min((it.wakes_at for it in verdicts if it.wakes_at is not None and it.passed is not True), default=None)


def _only_recovers(ways: Iterable[TransitionReport]) -> bool:
    """Tell whether a way out of maintenance waits for nothing but the node to be well again."""
    for way in ways:
        values = {name: it.verdict.passed for name, it in way.checks.items()}
        well = {name: True for name, it in way.checks.items() if it.type == Recovered.type}
        is_ill = not way.passed and any(values[name] is not True for name in well)
        if is_ill and _evaluated(way.expression, {**values, **well}) is True:
            return True
    return False


def _evaluated(expression: str, values: Mapping[str, bool | None]) -> bool | None:
    try:
        return _parsed(expression).evaluate(values)
    except (BooleanError, KeyError):
        return None


_parsed = lru_cache(maxsize=256)(booleans.parse)


# What was left behind


def _by_leftovers(subject: Subject) -> Iterator[Stand]:
    try:
        mark = cordon_of(subject.node)
    except BadMark as error:
        yield Stand(state=NodeState.BLOCKED, why=str(error))
        return
    if mark is None:
        return
    for owner in orphans(mark, subject):
        why = f"it is kept cordoned for {owner.replace('/', ' ', 1)}, which is no more"
        yield Stand(state=NodeState.BLOCKED, why=why, since=mark.owners[owner].since)


def orphans(mark: Cordon, subject: Subject) -> list[str]:
    """Return the owners of a cordon who are gone."""
    orders = {it.name for it in subject.orders}
    return [owner for owner in mark.owners if _is_gone(owner, orders, subject)]


def _is_gone(owner: str, orders: set[str], subject: Subject) -> bool:
    if owner.startswith(ORDER_PREFIX):
        return subject.knows_orders and owner.removeprefix(ORDER_PREFIX) not in orders
    if owner.startswith(PROFILE_PREFIX):
        return not subject.data_problem and owner.removeprefix(PROFILE_PREFIX) not in subject.entries
    return False


# Notices


def _by_notice(notice: MaintenanceNotice, subject: Subject) -> Stand:
    spec, found = notice.spec, standing(notice.spec, now=subject.now)
    about = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
    said_by = f" by {spec.source}" if spec.source else ""
    return Stand(
        state=NodeState.PLANNED,
        why=f"{about} announced{said_by}: {found.why}",
        since=notice.metadata.creation_timestamp,
        at=notice.status.drain_at if (notice.status.drain_at or subject.now) > subject.now else spec.start,
        changes_at=found.until,
    )


# Nothing


def _by_hold(subject: Subject) -> Iterator[Stand]:
    """Yield when a hold is over; until then the node stands where it stands."""
    held = holding(subject.node, now=subject.now)
    if held is not None:
        yield Stand(state=NodeState.IDLE, changes_at=held.until)


def _idle(subject: Subject, known: Stand | None) -> Stand:
    if known is not None and known.why:
        return known
    if subject.info is not None and subject.info.problem:
        return Stand(state=NodeState.IDLE, why=subject.info.problem)
    ready = subject.ready
    if ready is not None and not subject.is_ready:
        said = ready.message or ready.reason
        return Stand(
            state=NodeState.IDLE, why=f"not ready: {said}" if said else "not ready", since=ready.last_transition_time
        )
    if subject.node.spec.unschedulable:
        return Stand(state=NodeState.IDLE, why="cordoned by hand, not by Haulout")
    return Stand(state=NodeState.IDLE)
