"""All there is to know about a node, for the page about it. Pure: whoever asks brings the history along."""

from collections.abc import Iterable, Iterator

from haulout.drain.keeper import Kept
from haulout.history.record import Entry as Recorded
from haulout.maintenance.resource import NodeMaintenance, Phase
from haulout.profiles import topics
from haulout.profiles.info import plain
from haulout.profiles.model import Configuration, Profile
from haulout.profiles.model import Transition as Way
from haulout.profiles.plugin import Entry, State
from haulout.profiles.remedies import said
from haulout.profiles.steps import CheckReport, ProfileReport, TransitionReport
from haulout.profiles.why import remedies_for
from haulout.web.api.commands import commands_for
from haulout.web.api.notices import told as told_notice
from haulout.web.api.shapes import (
    Blocker,
    Check,
    Drain,
    Happening,
    NodeDetail,
    NodeFact,
    Order,
    ProfileState,
    Transition,
)
from haulout.web.api.subject import Subject
from haulout.web.api.tiles import tile_of

_MOST_PODS = 500


def detail_of(
    subject: Subject,
    *,
    configuration: Configuration | None,
    kubelet: str = "",
    history: Iterable[Recorded] = (),
    history_problem: str = "",
) -> NodeDetail:
    """Return all of it; `history` has the oldest first, as records do."""
    tile, _ = tile_of(subject)
    node, info = subject.node, subject.info
    drains = drains_of(subject)
    return NodeDetail(
        tile=tile,
        uid=node.uid,
        provider_id=node.spec.provider_id,
        kubelet=kubelet,
        created=node.metadata.creation_timestamp,
        labels=node.metadata.labels,
        taints=tuple(_taint(it.key, it.value, it.effect) for it in node.spec.taints),
        conditions=tuple(
            NodeFact(
                type=it.type, status=it.status, reason=it.reason, message=it.message, since=it.last_transition_time
            )
            for it in node.status.conditions
        ),
        profiles=tuple(_profiles(subject, configuration)),
        problem=subject.data_problem or ("" if info is None else info.problem),
        next_look=None if info is None else info.next_look,
        wakes_on=() if info is None else tuple(map(topics.said, sorted(info.topics))),
        drains=drains,
        orders=tuple(_order(it, subject) for it in subject.orders),
        notices=tuple(told_notice(it, now=subject.now) for it in subject.notices),
        history=tuple(happening(it) for it in reversed(tuple(history))),
        history_problem=history_problem,
        commands=commands_for(subject, state=tile.state, drains=drains, configuration=configuration),
    )


def _taint(key: str, value: str, effect: str) -> str:
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


# Profiles


def _profiles(subject: Subject, configuration: Configuration | None) -> Iterator[ProfileState]:
    reports = {} if subject.info is None else {it.name: it for it in subject.info.reports}
    for name in dict.fromkeys((*reports, *subject.entries)):
        profile = None if configuration is None else configuration.profiles.get(name)
        yield _profile(name, subject.entries.get(name), reports.get(name), profile)


def _profile(name: str, entry: Entry | None, report: ProfileReport | None, profile: Profile | None) -> ProfileState:
    state = entry.current if entry is not None else report.state if report is not None else ""
    known = profile is not None and state in tuple(State)
    return ProfileState(
        name=name,
        state=state,
        since=None if entry is None else entry.transition,
        waits_for="" if report is None else report.waits_for,
        error=(report.error if report is not None else "")
        or ("" if profile else "the configuration has no such profile"),
        notifications=tuple(it.name for it in profile.states[State(state)].notify) if profile and known else (),
        transitions=() if profile is None else tuple(_transitions(profile, state, report)),
    )


def _transitions(profile: Profile, state: str, report: ProfileReport | None) -> Iterator[Transition]:
    """Yield all ways of the state machine; those out of the state that it is in have what was said about them."""
    for source, config in profile.states.items():
        told = report.transitions if report is not None and report.state == source == state else ()
        matching = told if len(told) == len(config.transitions) else (None,) * len(config.transitions)
        for way, heard in zip(config.transitions, matching, strict=True):
            yield _transition(source, way, heard, is_current=source == state)


def _transition(source: State, way: Way, report: TransitionReport | None, *, is_current: bool) -> Transition:
    members = {it.name: Check(name=it.name, type=it.plugin.type) for it in way.check.members}
    triggers = tuple(it.name for it in way.trigger)
    if report is None:
        return Transition(
            source=source,
            target=way.next,
            expression=way.check.text,
            triggers=triggers,
            is_current=is_current,
            checks=tuple(members.values()),
        )
    values = {name: it.verdict.passed for name, it in report.checks.items()}
    return Transition(
        source=source,
        target=way.next,
        expression=way.check.text,
        triggers=triggers,
        is_current=is_current,
        passed=report.passed,
        veto=report.veto,
        error=report.error,
        checks=tuple(_check(name, it) for name, it in report.checks.items()),
        remedies=tuple(map(said, remedies_for(report.expression, values))),
    )


def _check(name: str, report: CheckReport) -> Check:
    verdict = report.verdict
    return Check(
        name=name,
        type=report.type,
        passed=verdict.passed,
        reason=verdict.reason,
        error=verdict.error,
        changes_at=verdict.wakes_at,
        info=plain(verdict.info),
    )


# Drains


def drains_of(subject: Subject) -> tuple[Drain, ...]:
    """Return the drains of a node, on whoever's behalf."""
    return (*map(_drain_of_order, filter(_has_drain, subject.orders)), *_drains_of_profiles(subject))


def _drains_of_profiles(subject: Subject) -> Iterator[Drain]:
    reports = {} if subject.info is None else {it.name: it for it in subject.info.reports}
    for name, kept in subject.drains.items():
        report = reports.get(name)
        yield _drain_of_profile(name, kept, words="" if report is None else report.waits_for)


def _drain_of_profile(name: str, kept: Kept, *, words: str) -> Drain:
    progress, outcome = kept.progress, kept.outcome
    return Drain(
        by=f"profile/{name}",
        started=progress.started,
        deadline=progress.deadline,
        total=progress.total,
        gone=progress.gone,
        leaving=progress.leaving,
        is_done=outcome is not None and outcome.is_drained,
        words=outcome.why if outcome is not None else progress.trouble or words,
        pending=tuple(it.pod for it in progress.pods[:_MOST_PODS]),
        blockers=tuple(
            Blocker(
                kind=it.blocker.kind,
                pod=it.blocker.pod,
                object=it.blocker.object,
                workload=it.blocker.workload,
                reason=it.blocker.reason,
                advice=it.blocker.advice,
                since=it.since,
            )
            for it in progress.blockers[:_MOST_PODS]
        ),
    )


def _has_drain(order: NodeMaintenance) -> bool:
    return bool(order.status.drain or order.status.eviction_pods or order.status.pending_pods)


def _drain_of_order(order: NodeMaintenance) -> Drain:
    status, drain = order.status, order.status.drain
    total, pending = status.eviction_pods, tuple(_name(it.namespace, it.name) for it in status.pending_pods_refs)
    return Drain(
        by=f"NodeMaintenance/{order.name}",
        started=None if drain is None else drain.start_time,
        deadline=None if drain is None else drain.deadline,
        total=total,
        gone=max(total - len(pending), 0) if drain is None else drain.gone,
        leaving=0 if drain is None else drain.leaving,
        is_done=status.phase == Phase.SUCCEEDED,
        words=status.last_error or _words(order),
        pending=(pending or status.pending_pods)[:_MOST_PODS],
        blockers=tuple(
            Blocker(
                kind=it.kind,
                pod=it.pod,
                object=it.object,
                workload=it.workload,
                reason=it.reason,
                advice=it.advice,
                since=it.since,
            )
            for it in status.blockers
        ),
    )


def _words(order: NodeMaintenance) -> str:
    drained = next((it for it in order.status.conditions if it.type == "Drained"), None)
    return "" if drained is None else drained.message


def _name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _order(order: NodeMaintenance, subject: Subject) -> Order:
    return Order(
        name=order.name,
        node=order.node,
        reason=order.spec.reason,
        phase=order.status.phase,
        by=next((it.manager for it in order.metadata.managed_fields if it.manager and not it.subresource), ""),
        created=order.metadata.creation_timestamp,
        is_ending=order.is_leaving,
        error=order.status.last_error,
        place=subject.places.get(order.name, 0),
    )


# History


def happening(entry: Recorded) -> Happening:
    """Return an entry of a record."""
    return Happening(
        time=entry.time,
        what=entry.what,
        by=entry.by,
        before=entry.from_,
        after=entry.to,
        since=entry.since,
        why=entry.why,
        result=entry.result,
        seconds=None if entry.drain is None else entry.drain.seconds,
        pods=None if entry.drain is None else entry.drain.pods,
    )
