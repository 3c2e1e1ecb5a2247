"""`haulout notice list` and `haulout notice show`: prints what there is."""

from typing import NoReturn

import click

from haulout.cli import documents
from haulout.cli.lines import Line
from haulout.cli.noticing import text
from haulout.cli.noticing.finding import Found, Wanted, find, look
from haulout.cli.noticing.following import follow
from haulout.cli.noticing.sights import sight
from haulout.cli.tables import aligned, widths_of
from haulout.errors import KubeError
from haulout.kube.client import Client


async def show_one(client: Client, name: str, *, output: str) -> None:
    """Print one notice."""
    seen = sight(await find(client, name), now=client.clock.now())
    match output:
        case "json":
            click.echo(documents.as_json(text.notice_json(seen)))
        case "yaml":
            click.echo(documents.as_yaml(text.notice_json(seen)), nl=False)
        case _:
            for line in text.details(seen):
                click.echo(line)


async def show_all(client: Client, wanted: Wanted, *, output: str) -> Found:
    """Print those that are asked for."""
    found = await look(client, wanted)
    match output:
        case "json":
            click.echo(documents.as_json(text.document(found)))
        case "yaml":
            click.echo(documents.as_yaml(text.document(found)), nl=False)
        case "name":
            for it in found.sights:
                Line(f"maintenancenotice.haulout.dev/{it.notice.name}", is_result=True).print()
        case _:
            for line in text.table(found, is_wide=output == "wide"):
                click.echo(line)
            _print_notes(found, wanted)
    for problem in found.unknown:
        Line(f"haulout: {problem}").print()
    return found


async def watch(client: Client, wanted: Wanted, *, output: str) -> NoReturn:
    """Print those that are asked for, and go on, until cancelled."""
    found = await look(client, wanted)
    if found.unknown:
        raise KubeError(found.unknown[0])
    is_wide = output == "wide"
    header = text.WIDE_HEADER if is_wide else text.HEADER
    rows = [text.row(it, is_wide=is_wide) for it in found.sights]
    widths = widths_of([header, text.WIDEST[: len(header)], *rows])
    for row in (header, *rows):
        click.echo(aligned(row, widths))
    _print_notes(found, wanted)
    await follow(
        client,
        wanted,
        found.sights,
        show=lambda seen: click.echo(aligned(text.row(seen, is_wide=is_wide), widths)),
    )


def _print_notes(found: Found, wanted: Wanted) -> None:
    if not found.sights and not found.unknown:
        Line(text.nothing(found, nodes=wanted.nodes)).print()
    for note in found.notes:
        Line(note).print()
