"""Why a node is where it is: each profile, each way on, each check with its reason, and what would have to change.

    judged = await judge(client, configuration, "n1", outside=…)      # looks by itself, and changes nothing
    judged = heard(body, "n1")                                        # what an operator's /api/v1/info says

`judge` takes the very step that the operator takes, and performs nothing of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from haulout.budget.room import View
from haulout.core import booleans, duration, shaped
from haulout.core.booleans import BooleanError
from haulout.drain.pods import on_node
from haulout.drain.selection import belongs_to_daemon_set, is_static
from haulout.errors import KubeError
from haulout.kinds import clusterapi, hold
from haulout.kinds.notice import MaintenanceNotice
from haulout.kinds.standing import standing
from haulout.kube.client import Client
from haulout.kube.objects import Base, Object
from haulout.kube.resources import EVENTS, PODS
from haulout.profiles import barred, begun, data, glimpse
from haulout.profiles.glimpse import Glimpse
from haulout.profiles.machine import step
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import DATA_ANNOTATION, Entry, NodeSight, Outside
from haulout.profiles.remedies import Remedy, remedies
from haulout.profiles.steps import CheckReport, DrainSeen, ProfileReport, Result, Subject, TransitionReport
from haulout.profiles.telling import GOES_IN_CIRCLES
from haulout.profiles.words import some

_NEVER = datetime.min.replace(tzinfo=UTC)
_OF_LATE = timedelta(minutes=10)
_MOST_ROUNDS = 3  # of questions: an answer may lead to another question


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class CheckWhy(_Value, frozen=True):
    """A check, and what it says."""

    name: str
    type: str
    passed: bool | None  # None: it cannot be told
    reason: str
    error: str = ""
    wakes_at: datetime | None = None  # when it may be another verdict though nothing happens


class TransitionWhy(_Value, frozen=True):
    """A way on, and what stands in it."""

    target: str
    expression: str
    passed: bool
    chain_passed: bool
    veto: str = ""
    error: str = ""
    checks: tuple[CheckWhy, ...] = ()
    remedies: tuple[Remedy, ...] = ()  # each of them would be enough for the chain


class ProfileWhy(_Value, frozen=True):
    """A profile of a node."""

    name: str
    configured: bool
    state: str = ""
    since: datetime | None = None
    next: str = ""  # another state: it goes there as soon as the operator looks
    waits_for: str = ""
    error: str = ""
    transitions: tuple[TransitionWhy, ...] = ()


class Announced(_Value, frozen=True):
    """A maintenance that is announced for a node."""

    notice: str
    kind: str
    reason: str
    phase: str
    says: str  # how it stands, in words
    start: datetime | None = None
    end: datetime | None = None


class Ordered(_Value, frozen=True):
    """A maintenance that somebody ordered for a node, whatever its profiles say."""

    maintenance: str
    phase: str
    reason: str = ""
    says: str = ""  # how it stands, in words


class HeldBy(_Value, frozen=True):
    """Who keeps a node cordoned though no object says so: `ESX`, or `Kubernikus/delete-node`."""

    by: str
    since: datetime
    says: str = ""  # what for, in words


class Why(_Value, frozen=True):
    """A node, and why it is where it is."""

    node: str
    at: datetime | None  # the moment of which this is true
    profiles: tuple[ProfileWhy, ...] = ()
    problem: str = ""  # why nothing at all is done about it
    next_look: datetime | msgspec.UnsetType | None = None  # whatever happens; unset: it is not told
    wakes_on: tuple[str, ...] = ()  # topics, beside changes of the node itself
    asks_every: str | None = None  # how often the operator asks the outside for this node; None: it does not
    notes: tuple[str, ...] = ()
    announced: tuple[Announced, ...] = ()  # as far as the configuration looks at that
    ordered: tuple[Ordered, ...] = ()  # as far as somebody looked
    asked: tuple[str, ...] = ()  # on behalf of its Machine of Cluster API, in words
    held: tuple[HeldBy, ...] = ()  # the same
    hold: str = ""  # who keeps maintenance off it, in words; also one that is over


async def judge(client: Client, configuration: Configuration, name: str, *, outside: Outside | None) -> Why:
    """Look at a cluster, and return why a node is where it is; raises `KubeError`.

    Without `outside` nothing outside of the cluster is asked.
    """
    try:
        look = await looked_at(client, configuration, name, outside=outside)
    except LeftAlone as error:
        return Why(node=name, at=client.clock.now(), problem=str(error))
    seen, node, now = look.seen, look.sight.node, look.at
    notes = *seen.notes, *await _said_of_permissions(client), *await _said_of_circles(client, name)
    found = explained(look.sight, look.result, at=now, notes=notes)
    notices = [it for it in seen.notices(name) if it.fits(node)]
    found = msgspec.structs.replace(
        found,
        announced=tuple(_announced(notices, now=now)),
        asked=tuple(clusterapi.told_asks(node)),
        hold=hold.told(node, now=now),
    )
    every = min((it.every or configuration.requeue for it in seen.asked), default=None)
    return found if every is None else msgspec.structs.replace(found, asks_every=duration.format(every))


class LeftAlone(KubeError):
    """Nothing is done about a node at all."""


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a node: what was seen, and the step that the operator takes."""

    seen: Glimpse
    sight: NodeSight
    result: Result
    at: datetime


async def looked_at(client: Client, configuration: Configuration, name: str, *, outside: Outside | None) -> Look:
    """Look at a node, and take the step that the operator takes, without performing it; raises `KubeError`."""
    seen = await glimpse.take(client, configuration)
    sight = seen.get(name)
    if sight is None:
        raise KubeError(f'nodes "{name}" not found{shaped.meant(name, seen.raw)}')
    if sight.problem:
        raise LeftAlone(f"the operator leaves it alone: {sight.problem}")
    drains = await _drains(client, sight, seen)
    for _ in range(_MOST_ROUNDS):
        subject = subject_of(sight, configuration, seen, drains=drains, now=client.clock.now())
        result = step(subject, configuration.profiles)
        if outside is None or not await seen.ask(outside, client):
            break
    return Look(seen, sight, result, subject.now)


def subject_of(
    sight: NodeSight, configuration: Configuration, seen: Glimpse, *, drains: Mapping[str, DrainSeen], now: datetime
) -> Subject:
    """Return what a step must know about a node."""
    node = sight.node
    return Subject(
        node=node,
        entries=sight.entries,
        notified=data.notified_of(node.metadata.annotations.get(DATA_ANNOTATION)),
        pending=begun.read(node),
        drains=drains,
        sights=seen,
        requeue=configuration.requeue,
        now=now,
        budget=View(budget=configuration.budget, nodes=seen.found, now=now) if configuration.budget else None,
    )


async def _drains(client: Client, sight: NodeSight, seen: Glimpse) -> dict[str, DrainSeen]:
    """Return how drains stand that the operator may have begun: by what is left on the node."""
    node = sight.node
    if not node.spec.unschedulable:
        return {}
    try:
        pods = (await client.list(PODS, fields=on_node(node.name))).items
    except KubeError as error:
        seen.notes.append(f"how far a drain is cannot be told: {error}")
        return {}
    left = sorted(pod.key for pod in pods if not (is_static(pod) or belongs_to_daemon_set(pod)))
    still = "1 pod has" if len(left) == 1 else f"{len(left)} pods have"
    words = f"{still} still to leave the node: {some(left)}"
    return dict.fromkeys(sight.entries, DrainSeen(is_done=not left, words=words))


async def _said_of_permissions(client: Client) -> list[str]:
    """Return what the operator last said that it lacks: this look is made with the permissions of somebody else."""
    last = max(await _events(client, barred.EVENT), key=_last_seen, default=None)
    return [] if last is None else [f"the operator has said: {last.note}"]


async def _said_of_circles(client: Client, node: str) -> list[str]:
    """Return what the operator said of late about profiles that go in circles, which a single look does not show."""
    since = client.clock.now() - _OF_LATE
    found = await _events(client, GOES_IN_CIRCLES)
    notes = [it.note for it in found if it.regarding.name == node and _last_seen(it) >= since]
    return [f"the operator has said: {note}" for note in dict.fromkeys(notes)]


async def _events(client: Client, reason: str) -> Sequence["_Event"]:
    try:
        return (await client.list(EVENTS.of(_Event), namespace="default", fields=f"reason={reason}")).items
    except KubeError:
        return []


def _last_seen(event: "_Event") -> datetime:
    return event.series.last_observed_time or event.event_time or _NEVER


class _Series(Base, frozen=True):
    last_observed_time: datetime | None = None


class _Regarding(Base, frozen=True):
    name: str = ""


class _Event(Object, frozen=True):
    note: str = ""
    regarding: _Regarding = _Regarding()
    event_time: datetime | None = None
    series: _Series = _Series()


def explained(sight: NodeSight, result: Result, *, at: datetime, notes: Sequence[str]) -> Why:
    """Return what a step says about a node."""
    reports = {report.name: report for report in result.reports}
    return Why(
        node=sight.node.name,
        at=at,
        profiles=tuple(_profile(name, reports.get(name), sight.entries.get(name)) for name in result.attached),
        next_look=result.wakes_at,
        wakes_on=tuple(sorted(result.topics)),
        notes=tuple(notes),
    )


def _announced(notices: Iterable[MaintenanceNotice], *, now: datetime) -> Iterator[Announced]:
    for it in sorted(notices, key=lambda it: it.name):
        found = standing(it.spec, now=now)
        yield Announced(
            notice=it.name,
            kind=it.spec.kind,
            reason=it.spec.reason,
            phase=found.phase,
            says=found.why,
            start=it.spec.start,
            end=it.spec.end,
        )


def _profile(name: str, report: ProfileReport | None, entry: Entry | None) -> ProfileWhy:
    if report is None:
        return ProfileWhy(name=name, configured=False)
    return ProfileWhy(
        name=name,
        configured=True,
        state=report.state,
        since=entry.transition if entry else None,
        next=report.next,
        waits_for=report.waits_for,
        error=report.error,
        transitions=tuple(map(_transition, report.transitions)),
    )


def _transition(report: TransitionReport) -> TransitionWhy:
    values = {name: it.verdict.passed for name, it in report.checks.items()}
    return TransitionWhy(
        target=report.target,
        expression=report.expression,
        passed=report.passed,
        chain_passed=report.chain_passed,
        veto=report.veto,
        error=report.error,
        checks=tuple(_check(name, it) for name, it in report.checks.items()),
        remedies=remedies_for(report.expression, values),
    )


def _check(name: str, report: CheckReport) -> CheckWhy:
    verdict = report.verdict
    return CheckWhy(
        name=name,
        type=report.type,
        passed=verdict.passed,
        reason=verdict.reason,
        error=verdict.error,
        wakes_at=verdict.wakes_at,
    )


def remedies_for(expression: str, values: Mapping[str, bool | None]) -> tuple[Remedy, ...]:
    """Return the smallest changes of verdicts that make an expression pass; none if nobody can tell."""
    try:
        return remedies(booleans.parse(expression).evaluate, values)
    except (BooleanError, KeyError):
        return ()


# What an operator says


class _Plugin(msgspec.Struct, frozen=True):
    id: str = ""
    passed: bool = False
    info: dict[str, msgspec.Raw] | None = None


class _Chain(msgspec.Struct, frozen=True):
    passed: bool = False
    info: dict[str, _Plugin] | None = None
    expression: str = ""


class _Transition(msgspec.Struct, frozen=True):
    passed: bool = False
    target: str = ""
    chain: _Chain = _Chain()
    error: str = ""
    veto: str = ""


class _Applied(msgspec.Struct, frozen=True):
    next: str = ""
    transitions: tuple[_Transition, ...] | None = None
    error: str = ""


class _Profile(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    state: str = ""
    waits_for: str = ""
    applied: _Applied = _Applied()


class _Node(msgspec.Struct, frozen=True, rename="camel"):
    node: str
    profiles: tuple[_Profile, ...] | None = None
    updated: datetime | None = None
    next_look: datetime | msgspec.UnsetType | None = msgspec.UNSET  # the Go controller does not tell
    wakes_on: tuple[str, ...] = ()
    asks_every: str | None = None
    problem: str = ""


def heard(body: bytes, name: str) -> Why | None:
    """Return what `/api/v1/info` says about a node, None if nothing; raises `ValueError` if that makes no sense."""
    nodes = msgspec.json.decode(body, type=tuple[_Node, ...] | None) or ()
    node = next((it for it in nodes if it.node == name), None)
    if node is None:
        return None
    profiles = tuple(
        ProfileWhy(
            name=it.name,
            configured=True,
            state=it.state,
            next=it.applied.next,
            waits_for=it.waits_for,
            error=it.applied.error,
            transitions=tuple(map(_heard_transition, it.applied.transitions or ())),
        )
        for it in node.profiles or ()
    )
    return Why(
        node=name,
        at=node.updated,
        profiles=profiles,
        problem=node.problem,
        next_look=node.next_look,
        wakes_on=node.wakes_on,
        asks_every=node.asks_every,
    )


def _heard_transition(it: _Transition) -> TransitionWhy:
    plugins = it.chain.info or {}
    is_vetoed = it.chain.passed and not it.passed
    return TransitionWhy(
        target=it.target,
        expression=it.chain.expression,
        passed=it.passed,
        chain_passed=it.chain.passed,
        veto=it.veto or ("probably another profile has the node in maintenance" if is_vetoed else ""),
        error=it.error,
        checks=tuple(_heard_check(name, plugin) for name, plugin in plugins.items()),
        remedies=remedies_for(it.chain.expression, {name: plugin.passed for name, plugin in plugins.items()}),
    )


def _heard_check(name: str, plugin: _Plugin) -> CheckWhy:
    info = {key: msgspec.json.decode(value) for key, value in (plugin.info or {}).items()}
    error = str(info.pop("error", ""))
    reason = info.pop("reason", None) or ", ".join(f"{key}: {value}" for key, value in info.items())
    return CheckWhy(name=name, type=plugin.id, passed=plugin.passed, reason=str(reason), error=error)
