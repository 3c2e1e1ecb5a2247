"""`haulout notice list` and `haulout notice show`: print notices."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NoReturn

import click

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.cli import structured_output
from haulout.cli.notice import notice_text
from haulout.cli.notice.notice_view import NoticeView, view_of
from haulout.cli.notice.query import NoticeList, NoticeQuery, get_notice, list_notices
from haulout.cli.output_lines import OutputLine
from haulout.cli.tables import column_widths, format_row
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch


async def watch_notices(
    client: Client, query: NoticeQuery, initial: Sequence[NoticeView], *, show: Callable[[NoticeView], None]
) -> NoReturn:
    """Call `show` for each selected notice whenever its visible state changes, until cancelled."""
    last = {view.notice.name: _visible_state(view) for view in initial}
    events: asyncio.Queue[MaintenanceNotice] = asyncio.Queue()
    cache: Informer[MaintenanceNotice] = Informer(client, ListWatch(MAINTENANCE_NOTICES), transform=as_is)
    cache.subscribe(lambda _, new: None if new is None else events.put_nowait(new))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            while True:
                changed = view_of(await events.get(), now=client.clock.now())
                name = changed.notice.name
                is_selected = name in last or query.matches(changed)  # a notice that was shown once stays selected
                if is_selected and last.get(name) != _visible_state(changed):
                    last[name] = _visible_state(changed)
                    show(changed)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _visible_state(view: NoticeView) -> tuple[object, ...]:
    return view.node, view.phase, view.drain_at, view.is_on_time, view.notice.spec


async def print_notice(client: Client, name: str, *, output: str) -> None:
    view = view_of(await get_notice(client, name), now=client.clock.now())
    match output:
        case "json":
            click.echo(structured_output.to_json(notice_text.notice_json(view)))
        case "yaml":
            click.echo(structured_output.to_yaml(notice_text.notice_json(view)), nl=False)
        case _:
            for line in notice_text.detail_lines(view):
                click.echo(line)


async def print_notices(client: Client, query: NoticeQuery, *, output: str) -> NoticeList:
    """Print the selected notices."""
    result = await list_notices(client, query)
    match output:
        case "json":
            click.echo(structured_output.to_json(notice_text.to_document(result)))
        case "yaml":
            click.echo(structured_output.to_yaml(notice_text.to_document(result)), nl=False)
        case "name":
            for view in result.views:
                OutputLine(f"maintenancenotice.haulout.dev/{view.notice.name}", is_result=True).print()
        case _:
            for line in notice_text.table_lines(result, is_wide=output == "wide"):
                click.echo(line)
            _print_notes(result, query)
    for problem in result.unknown_nodes:
        OutputLine(f"haulout: {problem}").print()
    return result


async def watch_and_print(client: Client, query: NoticeQuery, *, output: str) -> NoReturn:
    """Print the selected notices and their changes, until cancelled."""
    result = await list_notices(client, query)
    if result.unknown_nodes:
        raise KubeError(result.unknown_nodes[0])
    is_wide = output == "wide"
    header = notice_text.WIDE_HEADER if is_wide else notice_text.HEADER
    rows = [notice_text.table_row(view, is_wide=is_wide) for view in result.views]
    widths = column_widths([header, notice_text.WIDEST_CELLS[: len(header)], *rows])
    for row in (header, *rows):
        click.echo(format_row(row, widths))
    _print_notes(result, query)
    await watch_notices(
        client,
        query,
        result.views,
        show=lambda changed: click.echo(format_row(notice_text.table_row(changed, is_wide=is_wide), widths)),
    )


def _print_notes(result: NoticeList, query: NoticeQuery) -> None:
    if not result.views and not result.unknown_nodes:
        OutputLine(notice_text.empty_message(result, nodes=query.nodes)).print()
    for note in result.notes:
        OutputLine(note).print()
