"""Puts `haulout top` together: the way to an operator, and one picture or a view that moves."""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp
import click
import msgspec
from rich.console import Console

from haulout.cli.connect import connect
from haulout.cli.token import kept, shown
from haulout.cli.topping.choice import Choice
from haulout.cli.topping.picture import Picture, as_json, read
from haulout.cli.topping.screen import screen
from haulout.cli.topping.ways import ByAddress, Way, find
from haulout.core.clock import RealClock
from haulout.errors import HauloutError
from haulout.web.api.shapes import Mode, Summary

_PIPE_WIDTH = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was typed."""

    url: str | None = None
    is_once: bool = False
    as_json: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


async def show(wishes: Wishes) -> None:
    """Show what was asked for; raises `HauloutError`."""
    async with _way(wishes) as way:
        is_live = sys.stdout.isatty() and sys.stdin.isatty() and not (wishes.is_once or wishes.as_json)
        with suppress(*((HauloutError,) if is_live else ())):  # who is away now may come back while somebody looks
            summary = read(Summary, await way.get("summary"))
            if summary.mode is Mode.MANAGEMENT:
                await _show_clusters(wishes, way, summary)
                return
        picture = Picture(RealClock())
        if is_live:
            from haulout.cli.topping.live import Top  # there are no such terminals on Windows

            await Top(picture, way, Console(no_color=_is_plain(), highlight=False)).run()
            return
        await picture.load(way)
        picture.problem = ""
        if wishes.as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(as_json(picture)), indent=2).decode())
            return
        width = None if sys.stdout.isatty() else _PIPE_WIDTH
        console = Console(no_color=_is_plain(), highlight=False, width=width)
        console.print(screen(picture, Choice(), width=console.width))


async def _show_clusters(wishes: Wishes, way: Way, summary: Summary) -> None:
    """Print the clusters of a hub, once: they are few, and its dashboard moves."""
    from haulout.cli.topping.clusters import clusters_of, table

    found = await clusters_of(way)
    if wishes.as_json:
        told = {"summary": summary, "clusters": found.clusters}
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table(summary, found, now=summary.time or RealClock().now(), width=width):
        click.echo(line)


def _is_plain() -> bool:
    return bool(os.environ.get("NO_COLOR"))


@asynccontextmanager
async def _way(wishes: Wishes) -> AsyncIterator[Way]:
    if wishes.url is not None:
        async with aiohttp.ClientSession(headers=shown(os.environ)) as session:
            yield ByAddress(wishes.url, session)
        return
    async with connect(kubeconfig=wishes.kubeconfig, context=wishes.context) as session:
        yield await find(session.client, wishes.namespace, kept(os.environ))
