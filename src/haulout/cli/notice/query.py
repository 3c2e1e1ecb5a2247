"""Find one notice by name, or all selected notices."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.resources import NODES
from haulout.cli.node_lookup import suggest_node
from haulout.cli.notice.notice_view import NoticeView, list_views, missing_kind_error
from haulout.core.text import closest_match, format_list
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeQuery:
    """The filters of the command; empty: all notices."""

    nodes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    everything: bool = False  # including past ones

    def matches(self, view: NoticeView) -> bool:
        """Return whether a notice is selected."""
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
