"""Finding notices: one by its name, or those that are asked for."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.resources import NODES
from haulout.cli.node_lookup import suggest_node
from haulout.cli.notice.notice_view import NoticeView, list_views, missing_kind_error
from haulout.core.suggestions import closest_match
from haulout.core.text import format_list
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeQuery:
    """What was asked for; nothing: whatever there is."""

    nodes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    everything: bool = False  # also those that are over

    def matches(self, view: NoticeView) -> bool:
        """Tell whether a notice is asked for."""
        if self.nodes and view.node not in self.nodes:
            return False
        if self.sources and view.notice.spec.source not in self.sources:
            return False
        return view.phase in self.phases if self.phases else self.everything or not view.phase.is_over


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeList:
    """What there is."""

    views: tuple[NoticeView, ...]
    now: datetime
    over: int = 0  # that would be shown if those that are over were asked for
    notes: tuple[str, ...] = ()
    unknown_nodes: tuple[str, ...] = ()  # what is wrong with the nodes that were named


async def list_notices(client: Client, query: NoticeQuery) -> NoticeList:
    """Return what is asked for, by its start; raises `HauloutError`."""
    try:
        views, notes = await list_views(client)
    except NotFound as error:
        raise await missing_kind_error(client, error) from error
    chosen = tuple(filter(query.matches, views))
    query_with_over = NoticeQuery(nodes=query.nodes, sources=query.sources, everything=True)
    over = sum(map(query_with_over.matches, views)) - len(chosen) if not query.phases else 0
    if any(not view.is_observed and not view.phase.is_over for view in chosen):
        names = format_list(view.notice.name for view in chosen if not view.is_observed and not view.phase.is_over)
        notes.append(f"The operator has not looked at {names} yet. Does it run?")
    unknown = await _unknown_node_problems(client, query.nodes, {view.node for view in views})
    return NoticeList(views=chosen, now=client.clock.now(), over=over, notes=tuple(notes), unknown_nodes=tuple(unknown))


async def get_notice(client: Client, name: str) -> MaintenanceNotice:
    """Return the notice of that name, or that its source calls so; raises `HauloutError` that names those like it."""
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
                f'notice "{name}" may be {format_list(candidate.name for candidate in several)}: say which'
            ) from not_found


def _suggest_notice(name: str, views: Collection[NoticeView]) -> str:
    notices_of_node = [view.notice.name for view in views if view.node == name]
    if notices_of_node:
        return f"; for the node of that name there is {format_list(notices_of_node)}"
    known = [candidate for view in views for candidate in (view.notice.name, view.notice.spec.notice_id)]
    suggestion = closest_match(name, known)
    return f'; did you mean "{suggestion}"?' if suggestion else ""


async def _unknown_node_problems(client: Client, nodes: Collection[str], known: Collection[str]) -> list[str]:
    """Return what is wrong with names of nodes: a mistyped one must not look as if nothing were announced."""
    problems = []
    for name in nodes:
        if name in known:
            continue
        try:
            await client.get(NODES, name)
        except NotFound:
            problems.append(f'node "{name}" not found{await suggest_node(client, name)}')
        except KubeError:
            continue  # we may not see nodes: nobody knows
    return problems
