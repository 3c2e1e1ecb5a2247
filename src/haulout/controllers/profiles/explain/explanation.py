"""Why a node is in its state: each profile, transition and check with its reason, and what would have to change.

    explanation = await explain(client, configuration, "n1", external=…)  # evaluates locally, and changes nothing
    explanation = parse_node_info(body, "n1")                             # from an operator's /api/v1/info

`explain` makes the same decision as the operator, without executing it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from haulout.api import clusterapi, hold
from haulout.api.hold import Hold
from haulout.api.maintenancenotice import MaintenanceNotice, phase_at
from haulout.api.objects import Base, Node, Object
from haulout.api.resources import EVENTS, PODS
from haulout.budget.budget_check import BudgetCheck
from haulout.compat import booleans
from haulout.compat.booleans import BooleanError
from haulout.controllers.profiles.config import forbidden_plugins
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.decision import decide
from haulout.controllers.profiles.events import LOOP_REASON
from haulout.controllers.profiles.explain.remedies import Remedy, remedies
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.machine.transitions import read_pending
from haulout.controllers.profiles.observation import (
    CheckReport,
    Decision,
    DrainStatus,
    Observation,
    ProfileReport,
    TransitionReport,
)
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, ExternalClient, ObservedNode, ProfileStatus
from haulout.controllers.profiles.view import snapshot
from haulout.controllers.profiles.view.snapshot import Snapshot
from haulout.core import duration, yaml_decoder
from haulout.core.text import format_list
from haulout.drain.pod_filters import belongs_to_daemon_set, is_static
from haulout.drain.pod_informers import node_field_selector
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.runtime.freezes import Freezes, read_freezes

_NEVER = datetime.min.replace(tzinfo=UTC)
_RECENT = timedelta(minutes=10)
_MAX_QUERY_ROUNDS = 3  # the result of a query may lead to another query


class _ApiStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class CheckExplanation(_ApiStruct, frozen=True):
    """A check of a transition, and why it passes or not."""

    name: str
    type: str
    passed: bool | None  # None: unknown
    reason: str
    error: str = ""
    changes_at: datetime | None = None  # when the result may change without an event


class TransitionExplanation(_ApiStruct, frozen=True):
    """A transition, what blocks it, and the smallest sets of changes that would open it."""

    target: str
    expression: str
    passed: bool
    chain_passed: bool
    veto: str = ""
    error: str = ""
    checks: tuple[CheckExplanation, ...] = ()
    remedies: tuple[Remedy, ...] = ()  # each is sufficient for the chain


class ProfileExplanation(_ApiStruct, frozen=True):
    """A profile of a node, with all transitions out of its state."""

    name: str
    configured: bool
    state: str = ""
    since: datetime | None = None
    next: str = ""  # if it differs from `state`: the operator makes this transition at its next reconcile
    waiting_for: str = ""
    error: str = ""
    transitions: tuple[TransitionExplanation, ...] = ()


class AnnouncedMaintenance(_ApiStruct, frozen=True):
    """A maintenance that is announced for a node."""

    notice: str
    kind: str
    reason: str
    phase: str
    message: str  # its phase, for people
    start: datetime | None = None
    end: datetime | None = None


class OrderedMaintenance(_ApiStruct, frozen=True):
    """A NodeMaintenance for a node, independent of its profiles."""

    maintenance: str
    phase: str
    reason: str = ""
    message: str = ""  # its phase, for people


class OtherCordonOwner(_ApiStruct, frozen=True):
    """An owner that keeps a node cordoned without an object of its own."""

    owner: str
    since: datetime
    message: str = ""  # for what, for people


class NodeExplanation(_ApiStruct, frozen=True):
    """A node, and why it is in its state."""

    node: str
    time: datetime | None  # the time of the evaluation
    profiles: tuple[ProfileExplanation, ...] = ()
    problem: str = ""  # why the node is not managed at all
    next_reconcile: datetime | msgspec.UnsetType | None = None  # at the latest; unset: not reported
    requeue_on: tuple[str, ...] = ()  # topics beside changes of the node itself
    query_interval: str | None = (
        None  # how often the operator sends external queries for this node; None: it sends none
    )
    notes: tuple[str, ...] = ()
    notices: tuple[AnnouncedMaintenance, ...] = ()  # as far as the configuration reads notices
    maintenances: tuple[OrderedMaintenance, ...] = ()  # as far as they were read
    machine_requests: tuple[str, ...] = ()  # requests on behalf of its Cluster API Machine, for people
    cordon_owners: tuple[OtherCordonOwner, ...] = ()  # owners of its cordon on behalf of its Cluster API Machine
    hold: str = ""  # who keeps maintenance off the node, for people; also if the hold has expired
    release_command: str = ""  # which ends it


async def explain(
    client: Client, configuration: Configuration, name: str, *, external: ExternalClient | None
) -> NodeExplanation:
    """Read the cluster and return why a node is in its state. Raise `KubeError`.

    Without `external` no external queries are sent.
    """
    try:
        evaluation = await evaluate(client, configuration, name, external=external)
    except NodeSkipped as error:
        return NodeExplanation(node=name, time=client.clock.now(), problem=str(error))
    cluster, node, now = evaluation.cluster, evaluation.observed.node, evaluation.time
    notes = *cluster.notes, *await _permission_notes(client), *await _loop_notes(client, name)
    explanation = explanation_of(evaluation.observed, evaluation.decision, at=now, notes=notes)
    notices = [item for item in cluster.notices(name) if item.matches_node(node)]
    held = evaluation.freezes.hold_on(node, now=now)
    explanation = msgspec.structs.replace(
        explanation,
        notices=tuple(_announced_maintenances(notices, now=now)),
        machine_requests=tuple(clusterapi.describe_requests(node)),
        hold=_describe_hold(node, held, now=now),
        release_command=f"haulout release {name}" if held is None else held.release_command(name),
    )
    query_interval = min((item.max_age or configuration.requeue for item in cluster.queries), default=None)
    return (
        explanation
        if query_interval is None
        else msgspec.structs.replace(explanation, query_interval=duration.format(query_interval))
    )


class NodeSkipped(KubeError):
    """Raised if the operator does not manage a node at all."""


@dataclass(frozen=True, slots=True)
class NodeEvaluation:
    """The observed state of a node, and the decision that the operator would make."""

    cluster: Snapshot
    observed: ObservedNode
    decision: Decision
    time: datetime
    freezes: Freezes = field(default_factory=Freezes)


async def evaluate(
    client: Client, configuration: Configuration, name: str, *, external: ExternalClient | None
) -> NodeEvaluation:
    """Read the cluster and decide about a node as the operator does, without executing it. Raise `KubeError`."""
    cluster = await snapshot.take_snapshot(client, configuration)
    observed = cluster.get(name)
    if observed is None:
        raise KubeError(f'nodes "{name}" not found{yaml_decoder.did_you_mean(name, cluster.raw)}')
    if observed.problem:
        raise NodeSkipped(f"Haulout does not manage this node: {observed.problem}")
    drains = await _drain_statuses(client, observed, cluster)
    try:
        freezes = await read_freezes(client)
    except KubeError as error:
        freezes = Freezes()
        cluster.notes.append(f"whether the node is frozen is unknown: {error}")
    for _ in range(_MAX_QUERY_ROUNDS):
        now = client.clock.now()
        observation = observation_of(observed, configuration, cluster, drains=drains, now=now, freezes=freezes)
        decision = decide(observation, configuration.profiles)
        if external is None or not await cluster.run_queries(external, client):
            break
    return NodeEvaluation(cluster, observed, decision, observation.now, freezes)


def observation_of(
    observed: ObservedNode,
    configuration: Configuration,
    cluster: Snapshot,
    *,
    drains: Mapping[str, DrainStatus],
    now: datetime,
    freezes: Freezes,
) -> Observation:
    """Return the observation from which the operator decides about a node."""
    node = observed.node
    return Observation(
        node=node,
        statuses=observed.statuses,
        last_sent=data_annotation.last_sent_of(node.metadata.annotations.get(DATA_ANNOTATION)),
        pending=read_pending(node),
        drains=drains,
        cluster=cluster,
        requeue=configuration.requeue,
        now=now,
        freezes=freezes,
        budget=BudgetCheck(budget=configuration.budget, nodes=cluster.nodes_by_name, now=now)
        if configuration.budget
        else None,
    )


def _describe_hold(node: Node, held: Hold | None, *, now: datetime) -> str:
    return hold.describe_hold(node, now=now) if held is None else str(held)


async def _drain_statuses(client: Client, observed: ObservedNode, cluster: Snapshot) -> dict[str, DrainStatus]:
    """Return the status of drains that the operator may have started, judged by the pods left on the node."""
    node = observed.node
    if not node.spec.unschedulable:
        return {}
    try:
        pods = (await client.list(PODS, fields=node_field_selector(node.name))).items
    except KubeError as error:
        cluster.notes.append(f"the progress of a drain is unknown: {error}")
        return {}
    remaining_pods = sorted(pod.key for pod in pods if not (is_static(pod) or belongs_to_daemon_set(pod)))
    subject_and_verb = "1 pod has" if len(remaining_pods) == 1 else f"{len(remaining_pods)} pods have"
    message = f"{subject_and_verb} still to leave the node: {format_list(remaining_pods)}"
    return dict.fromkeys(observed.statuses, DrainStatus(is_done=not remaining_pods, message=message))


async def _permission_notes(client: Client) -> list[str]:
    """Return the operator's last event about missing permissions: this evaluation uses the permissions of the user."""
    latest = max(await _events(client, forbidden_plugins.PERMISSIONS_MISSING), key=_last_observed_at, default=None)
    return [] if latest is None else [f"event of the operator: {latest.note}"]


async def _loop_notes(client: Client, node: str) -> list[str]:
    """Return recent events about profiles that loop, which a single evaluation does not show."""
    since = client.clock.now() - _RECENT
    found = await _events(client, LOOP_REASON)
    notes = [event.note for event in found if event.regarding.name == node and _last_observed_at(event) >= since]
    return [f"event of the operator: {note}" for note in dict.fromkeys(notes)]


async def _events(client: Client, reason: str) -> Sequence["_Event"]:
    try:
        # Events about objects without a namespace, such as nodes, are in the namespace default.
        return (await client.list(EVENTS.with_model(_Event), namespace="default", fields=f"reason={reason}")).items
    except KubeError:
        return []


def _last_observed_at(event: "_Event") -> datetime:
    return event.series.last_observed_time or event.event_time or _NEVER


# Only the fields that are needed of an events.k8s.io/v1 Event.
class _Series(Base, frozen=True):
    last_observed_time: datetime | None = None


class _Regarding(Base, frozen=True):
    name: str = ""


class _Event(Object, frozen=True):
    note: str = ""
    regarding: _Regarding = _Regarding()
    event_time: datetime | None = None
    series: _Series = _Series()


def explanation_of(
    observed: ObservedNode, decision: Decision, *, at: datetime, notes: Sequence[str]
) -> NodeExplanation:
    """Return the explanation of a decision about a node."""
    reports = {report.name: report for report in decision.reports}
    return NodeExplanation(
        node=observed.node.name,
        time=at,
        profiles=tuple(
            _profile_explanation(name, reports.get(name), observed.statuses.get(name))
            for name in decision.attached_profiles
        ),
        next_reconcile=decision.requeue_at,
        requeue_on=tuple(sorted(decision.topics)),
        notes=tuple(notes),
    )


def _announced_maintenances(notices: Iterable[MaintenanceNotice], *, now: datetime) -> Iterator[AnnouncedMaintenance]:
    for notice in sorted(notices, key=lambda notice: notice.name):
        found = phase_at(notice.spec, now=now)
        yield AnnouncedMaintenance(
            notice=notice.name,
            kind=notice.spec.kind,
            reason=notice.spec.reason,
            phase=found.phase,
            message=found.message,
            start=notice.spec.start,
            end=notice.spec.end,
        )


def _profile_explanation(name: str, report: ProfileReport | None, status: ProfileStatus | None) -> ProfileExplanation:
    if report is None:
        return ProfileExplanation(name=name, configured=False)
    return ProfileExplanation(
        name=name,
        configured=True,
        state=report.state,
        since=status.transition if status else None,
        next=report.next,
        waiting_for=report.waits_for,
        error=report.error,
        transitions=tuple(map(_transition_explanation, report.transitions)),
    )


def _transition_explanation(report: TransitionReport) -> TransitionExplanation:
    values = {name: check.result.passed for name, check in report.checks.items()}
    return TransitionExplanation(
        target=report.target,
        expression=report.expression,
        passed=report.passed,
        chain_passed=report.chain_passed,
        veto=report.veto,
        error=report.error,
        checks=tuple(_check_explanation(name, check) for name, check in report.checks.items()),
        remedies=remedies_for(report.expression, values),
    )


def _check_explanation(name: str, report: CheckReport) -> CheckExplanation:
    result = report.result
    return CheckExplanation(
        name=name,
        type=report.type,
        passed=result.passed,
        reason=result.reason,
        error=result.error,
        changes_at=result.requeue_at,
    )


def remedies_for(expression: str, values: Mapping[str, bool | None]) -> tuple[Remedy, ...]:
    """Return the smallest changes of results that make an expression pass; none if it cannot be evaluated."""
    try:
        return remedies(booleans.parse(expression).evaluate, values)
    except (BooleanError, KeyError):
        return ()


# Parse the API of an operator


class _PluginInfo(msgspec.Struct, frozen=True):
    id: str = ""
    passed: bool = False
    info: dict[str, msgspec.Raw] | None = None


class _ChainInfo(msgspec.Struct, frozen=True):
    passed: bool = False
    info: dict[str, _PluginInfo] | None = None
    expression: str = ""


class _TransitionInfo(msgspec.Struct, frozen=True):
    passed: bool = False
    target: str = ""
    chain: _ChainInfo = _ChainInfo()
    error: str = ""
    veto: str = ""


class _AppliedInfo(msgspec.Struct, frozen=True):
    next: str = ""
    transitions: tuple[_TransitionInfo, ...] | None = None
    error: str = ""


class _ProfileInfo(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    state: str = ""
    waiting_for: str = ""
    applied: _AppliedInfo = _AppliedInfo()


class _NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    node: str
    profiles: tuple[_ProfileInfo, ...] | None = None
    updated: datetime | None = None
    next_reconcile: datetime | msgspec.UnsetType | None = msgspec.UNSET  # the Go controller does not report it
    requeue_on: tuple[str, ...] = ()
    query_interval: str | None = None
    problem: str = ""


def parse_node_info(body: bytes, name: str) -> NodeExplanation | None:
    """Return what `/api/v1/info` contains about a node, None if nothing. Raise `ValueError` if it cannot be parsed."""
    nodes = msgspec.json.decode(body, type=tuple[_NodeInfo, ...] | None) or ()
    node = next((info for info in nodes if info.node == name), None)
    if node is None:
        return None
    profiles = tuple(
        ProfileExplanation(
            name=info.name,
            configured=True,
            state=info.state,
            next=info.applied.next,
            waiting_for=info.waiting_for,
            error=info.applied.error,
            transitions=tuple(map(_parse_transition_info, info.applied.transitions or ())),
        )
        for info in node.profiles or ()
    )
    return NodeExplanation(
        node=name,
        time=node.updated,
        profiles=profiles,
        problem=node.problem,
        next_reconcile=node.next_reconcile,
        requeue_on=node.requeue_on,
        query_interval=node.query_interval,
    )


def _parse_transition_info(transition: _TransitionInfo) -> TransitionExplanation:
    plugins = transition.chain.info or {}
    is_vetoed = transition.chain.passed and not transition.passed
    return TransitionExplanation(
        target=transition.target,
        expression=transition.chain.expression,
        passed=transition.passed,
        chain_passed=transition.chain.passed,
        veto=transition.veto or ("probably another profile has the node in maintenance" if is_vetoed else ""),
        error=transition.error,
        checks=tuple(_parse_check_info(name, plugin) for name, plugin in plugins.items()),
        remedies=remedies_for(transition.chain.expression, {name: plugin.passed for name, plugin in plugins.items()}),
    )


def _parse_check_info(name: str, plugin: _PluginInfo) -> CheckExplanation:
    info = {key: msgspec.json.decode(value) for key, value in (plugin.info or {}).items()}
    error = str(info.pop("error", ""))
    reason = info.pop("reason", None) or ", ".join(f"{key}: {value}" for key, value in info.items())
    return CheckExplanation(name=name, type=plugin.id, passed=plugin.passed, reason=str(reason), error=error)
