"""Run `haulout top`: connect to an operator, and print once or show a live view."""

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

from haulout.cli.connect import authorization_header, connect, cookie_header
from haulout.cli.top.api_client import ApiClient, UrlApiClient, find_operator
from haulout.cli.top.fleet_cache import FleetCache, decode, to_document
from haulout.cli.top.screen import render_screen
from haulout.cli.top.view_state import ViewState
from haulout.core.clock import RealClock
from haulout.dashboard.api.types import Mode, Summary
from haulout.errors import HauloutError

_NON_TERMINAL_WIDTH = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOptions:
    """The flags of the command."""

    url: str | None = None
    is_once: bool = False
    as_json: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


async def run_top(options: TopOptions) -> None:
    """Run the command; raise `HauloutError`."""
    async with _open_client(options) as client:
        is_live = sys.stdout.isatty() and sys.stdin.isatty() and not (options.is_once or options.as_json)
        with suppress(*((HauloutError,) if is_live else ())):  # a live view starts without a connection and retries
            summary = decode(Summary, await client.get("summary"))
            if summary.mode is Mode.MANAGEMENT:
                await _print_clusters(options, client, summary)
                return
        fleet = FleetCache(RealClock())
        if is_live:
            from haulout.cli.top.live_view import LiveView  # its modules do not exist on Windows

            await LiveView(fleet, client, Console(no_color=_is_colour_disabled(), highlight=False)).run()
            return
        await fleet.load(client)
        fleet.problem = ""
        if options.as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(to_document(fleet)), indent=2).decode())
            return
        width = None if sys.stdout.isatty() else _NON_TERMINAL_WIDTH
        console = Console(no_color=_is_colour_disabled(), highlight=False, width=width)
        console.print(render_screen(fleet, ViewState(), width=console.width))


async def _print_clusters(options: TopOptions, client: ApiClient, summary: Summary) -> None:
    """Print the clusters of a hub, once: they are few, and the dashboard is live."""
    from haulout.cli.top.screen import fetch_clusters, table_lines

    cluster_list = await fetch_clusters(client)
    if options.as_json:
        document = {"summary": summary, "clusters": cluster_list.clusters}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table_lines(summary, cluster_list, now=summary.time or RealClock().now(), width=width):
        click.echo(line)


def _is_colour_disabled() -> bool:
    return bool(os.environ.get("NO_COLOR"))


@asynccontextmanager
async def _open_client(options: TopOptions) -> AsyncIterator[ApiClient]:
    if options.url is not None:
        async with aiohttp.ClientSession(headers=authorization_header(os.environ)) as session:
            yield UrlApiClient(options.url, session)
        return
    async with connect(kubeconfig=options.kubeconfig, context=options.context) as session:
        yield await find_operator(session.client, options.namespace, cookie_header(os.environ))
