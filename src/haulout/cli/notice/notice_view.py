"""The current state of notices, with or without a running operator.

The status of a notice is as old as the operator's last reconcile. The view is computed from the spec, with the lead
time in the status. An object that cannot be decoded becomes a note and does not hide others.

Find one notice by name, or all selected notices.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import (
    DEFAULT_LEAD,
    MAINTENANCE_NOTICES,
    MaintenanceKind,
    MaintenanceNotice,
    NoticeCondition,
    NoticePhase,
    PhaseStatus,
    drain_at,
    phase_at,
)
from haulout.api.objects import UndecodableObject
from haulout.api.resources import NODES
from haulout.cli.node_lookup import suggest_node
from haulout.controllers.notices.cancellation import is_from_event_source
from haulout.core.text import closest_match, format_list
from haulout.errors import HauloutError, KubeError, NotFound
from haulout.kube import discovery
from haulout.kube.client import Client

PRESSING_WITHIN = timedelta(days=1)
_PREFIXES = ("maintenancenotice.haulout.dev/", "maintenancenotices.haulout.dev/", "maintenancenotice/", "mn/")


@dataclass(frozen=True, slots=True)
class NoticeView:
    """A notice with its current phase."""

    notice: MaintenanceNotice
    phase_status: PhaseStatus
    now: datetime

    @property
    def phase(self) -> NoticePhase:
        return self.phase_status.phase

    @property
    def node(self) -> str:
        """The node of the notice; empty while unknown."""
        return self.notice.node

    @property
    def needs_drain(self) -> bool:
        """Whether the node has to be drained, unless a profile decides otherwise."""
        return not self.phase.is_over and self.notice.spec.kind != MaintenanceKind.FREEZE

    @property
    def drains_at_once(self) -> bool:
        """Whether the node has to be drained and the start is unknown."""
        return self.needs_drain and self.notice.spec.start is None

    @property
    def drain_at(self) -> datetime | None:
        """When the node has to be drained; None: at once, or never."""
        return drain_at(self.notice.spec, lead=lead_time_of(self.notice)) if self.needs_drain else None

    @property
    def is_on_time(self) -> bool | None:
        """Whether the node will be empty at the start; None if unknown."""
        condition = self.notice.status.condition(NoticeCondition.ON_TIME)
        if condition is None or self.phase.is_over:
            return None
        return {"True": True, "False": False}.get(condition.status)

    @property
    def is_observed(self) -> bool:
        """Whether the operator has observed the current generation."""
        status = self.notice.status
        return bool(status.phase) and status.observed_generation >= self.notice.metadata.generation

    @property
    def is_imminent(self) -> bool:
        """Whether something happens within a day."""
        if self.phase is not NoticePhase.PLANNED:
            return not self.phase.is_over
        start = self.notice.spec.start
        return start is not None and start - self.now <= PRESSING_WITHIN

    @property
    def is_by_a_source(self) -> bool:
        """Whether an event source of a cloud maintains the notice, not a user."""
        return is_from_event_source(self.notice.spec)

    @property
    def sort_key(self) -> tuple[bool, float, str]:
        """Order by start; an unknown start comes first."""
        start = self.notice.spec.start
        return start is not None, 0.0 if start is None else start.timestamp(), self.notice.name


def view_of(notice: MaintenanceNotice, *, now: datetime) -> NoticeView:
    return NoticeView(notice, phase_at(notice.spec, now=now, lead=lead_time_of(notice)), now)


def lead_time_of(notice: MaintenanceNotice) -> timedelta:
    """Return how long before its start a notice is due, from its status if that is about the same start."""
    start, due = notice.spec.start, notice.status.drain_at
    if start is None or due is None or notice.status.start != start or start < due:
        return DEFAULT_LEAD
    return start - due


async def list_views(client: Client) -> tuple[list[NoticeView], list[str]]:
    """Return all notices, by their start, and a note per object that cannot be decoded; raise `KubeError`."""
    now = client.clock.now()
    views: list[NoticeView] = []
    notes: list[str] = []
    async for page in client.pages(MAINTENANCE_NOTICES):
        for item in page.items:
            if isinstance(item, UndecodableObject):
                notes.append(f"MaintenanceNotice {item.name} cannot be read: {item.problem}")
            else:
                views.append(view_of(item, now=now))
    return sorted(views, key=lambda view: view.sort_key), notes


def strip_notice_prefix(name: str) -> str:
    """Return the name of a notice from the output of `-o name`."""
    return next((name.removeprefix(candidate) for candidate in _PREFIXES if name.startswith(candidate)), name)


async def missing_kind_error(client: Client, error: NotFound) -> HauloutError:
    """Return the error for a missing object: how to install the CRD, or the server's error."""
    if await discovery.serves(client, MAINTENANCE_NOTICES):
        return error
    install = "haulout manifests --crds-only | kubectl apply -f -"
    return HauloutError(
        f"notices are not available in this cluster: {MAINTENANCE_NOTICES} is not installed; to install it: {install}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeQuery:
    """The filters of the command; empty: all notices."""

    nodes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    everything: bool = False  # including past ones

    def matches(self, view: NoticeView) -> bool:
        if self.nodes and view.node not in self.nodes:
            return False
        if self.sources and view.notice.spec.source not in self.sources:
            return False
        return view.phase in self.phases if self.phases else self.everything or not view.phase.is_over


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeList:
    """The result of a query."""

    views: tuple[NoticeView, ...]
    now: datetime
    over: int = 0  # how many more past notices match
    notes: tuple[str, ...] = ()
    unknown_nodes: tuple[str, ...] = ()  # errors about nodes in the query


async def list_notices(client: Client, query: NoticeQuery) -> NoticeList:
    """Return the selected notices, by their start; raise `HauloutError`."""
    try:
        views, notes = await list_views(client)
    except NotFound as error:
        raise await missing_kind_error(client, error) from error
    chosen = tuple(filter(query.matches, views))
    query_with_over = NoticeQuery(nodes=query.nodes, sources=query.sources, everything=True)
    over = sum(map(query_with_over.matches, views)) - len(chosen) if not query.phases else 0
    if any(not view.is_observed and not view.phase.is_over for view in chosen):
        names = format_list(view.notice.name for view in chosen if not view.is_observed and not view.phase.is_over)
        notes.append(f"The operator has not processed {names} yet. Is it running?")
    unknown = await _unknown_node_problems(client, query.nodes, {view.node for view in views})
    return NoticeList(views=chosen, now=client.clock.now(), over=over, notes=tuple(notes), unknown_nodes=tuple(unknown))


async def get_notice(client: Client, name: str) -> MaintenanceNotice:
    """Return the notice with this name or id; raise `HauloutError` that suggests similar ones."""
    try:
        return await client.get(MAINTENANCE_NOTICES, name)
    except NotFound as error:
        not_found = error
    try:
        views, _ = await list_views(client)
    except NotFound as error:
        raise await missing_kind_error(client, error) from error
    match [candidate.notice for candidate in views if candidate.notice.spec.notice_id == name]:
        case [notice]:
            return notice
        case []:
            raise KubeError(f'notice "{name}" not found{_suggest_notice(name, views)}') from not_found
        case several:
            raise KubeError(
                f'notice "{name}" may be {format_list(candidate.name for candidate in several)}: give the full name'
            ) from not_found


def _suggest_notice(name: str, views: Collection[NoticeView]) -> str:
    notices_of_node = [view.notice.name for view in views if view.node == name]
    if notices_of_node:
        return f"; for the node of that name there is {format_list(notices_of_node)}"
    known = [candidate for view in views for candidate in (view.notice.name, view.notice.spec.notice_id)]
    suggestion = closest_match(name, known)
    return f'; did you mean "{suggestion}"?' if suggestion else ""


async def _unknown_node_problems(client: Client, nodes: Collection[str], known: Collection[str]) -> list[str]:
    """Return errors about unknown nodes: a mistyped name must not look like a node without notices."""
    problems = []
    for name in nodes:
        if name in known:
            continue
        try:
            await client.get(NODES, name)
        except NotFound:
            problems.append(f'node "{name}" not found{await suggest_node(client, name)}')
        except KubeError:
            continue  # nodes are forbidden to read: unknown
    return problems
