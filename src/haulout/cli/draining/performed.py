"""`haulout drain` for real: checks that it may, drains, shows how it goes, and says how it ended."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

import click

from haulout.cli import program
from haulout.cli.draining import document
from haulout.cli.draining.conduct import Conductor, Show
from haulout.cli.draining.left import left
from haulout.cli.draining.plain import PlainShow, summary
from haulout.cli.draining.records import Record, is_success
from haulout.cli.lines import Line
from haulout.cli.terminal import printable
from haulout.drain.policy import Policy
from haulout.errors import KubeError
from haulout.kube import access
from haulout.kube.access import Permission
from haulout.kube.client import Client
from haulout.kube.objects import Node

# Without these a drain would stand still. What is asked for each pod by itself is told when a pod is refused.
_NEEDED = (
    Permission(("patch",), "", "nodes", None, "cordon nodes"),
    Permission(("list", "watch"), "", "pods", None, "see pods leave"),
)


async def run(
    client: Client,
    nodes: Sequence[Node],
    policy: Policy,
    *,
    at_once: int,
    plain: bool,
    as_json: bool,
    cluster: Mapping[str, str | None],
) -> bool:
    """Drain nodes; return whether all are drained."""
    await _check_permissions(client)
    records: list[Record] = []
    show = _show(records, policy, client, plain=plain, as_json=as_json)
    conductor = Conductor(client, nodes, policy, parallel=at_once, show=show)
    records += conductor.records
    try:
        await conductor.run()
    except asyncio.CancelledError:
        undo = program.command("uncordon", options=cluster)
        for line in left(records, again=program.again(), undo=undo):
            click.echo(printable(line), err=True)
        _tell(records, as_json=as_json, interrupted=True)
        raise
    _tell(records, as_json=as_json, interrupted=False)
    return is_success(records)


def _tell(records: list[Record], *, as_json: bool, interrupted: bool) -> None:
    if not interrupted:
        for line in summary(records):
            line.print()
    if as_json:
        click.echo(document.report(records, interrupted=interrupted))


def _show(records: list[Record], policy: Policy, client: Client, *, plain: bool, as_json: bool) -> Show:
    """Return a live view where somebody looks at it, else lines."""
    if not plain and _is_watched(sys.stderr if as_json else sys.stdout):
        from rich.console import Console

        from haulout.cli.draining.live import LiveShow

        console = Console(stderr=as_json, highlight=False, no_color=True if os.environ.get("NO_COLOR") else None)
        return LiveShow(lambda: records, console=console, clock=client.clock)
    tell = Line.print_unless_result if as_json else Line.print
    return PlainShow(policy, clock=client.clock, tell=tell)


def _is_watched(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


async def _check_permissions(client: Client) -> None:
    """Raise `KubeError` if it cannot be done at all, before anything is changed."""
    lacking = await access.missing(client, _NEEDED)
    if lacking:
        what = ", ".join(f"{refusal.verb} {refusal.permission}" for refusal in lacking)
        reason = next((f": {it.reason}" for it in lacking if it.reason), "")
        advice = "`haulout cluster-info --grant` prints what would allow it"
        raise KubeError(f"you are not allowed to {what}{reason}; nothing was changed; {advice}")
