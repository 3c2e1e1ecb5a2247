"""The sandbox behind `haulout run --sandbox`: a cluster in this process, and operators in it."""

import asyncio
import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path

import click

from haulout.app.sandbox.interface import Plan, Sandbox, Site
from haulout.app.sandbox.operators import LOCAL, Answering, run_sandbox, workload_profiles
from haulout.cli import connect
from haulout.cli.operate import configured, with_profiles
from haulout.cli.terminal import printable
from haulout.core.clock import RealClock
from haulout.web import info
from haulout.web.auth.settings import AccessSettings
from haulout.web.listening import Address

_MINUTE = 60
_HOUR = 60 * _MINUTE
_LOGGERS = ("haulout", "haulout_sandbox", "aiohttp")


def play(
    sandbox: Sandbox,
    plan: Plan,
    *,
    config: Path | None,
    with_operator: bool,
    metrics_port: int | None,
    access: AccessSettings,
) -> None:
    """Play it until it is told to end."""
    for name in _LOGGERS:  # what the cluster's components have to say of faults is for those who ask with -v
        logging.getLogger(name).addHandler(logging.NullHandler())
    with _file_of_profiles(plan, config, with_operator=with_operator) as file:
        _play(sandbox, plan, config=file, with_operator=with_operator, metrics_port=metrics_port, access=access)


def _file_of_profiles(plan: Plan, config: Path | None, *, with_operator: bool) -> AbstractContextManager[Path | None]:
    """Return the configuration that was named; operators in workload clusters have one if none was."""
    if config is not None or not with_operator or not plan.has_workload_clusters:
        return nullcontext(config)
    return workload_profiles()


def _play(
    sandbox: Sandbox,
    plan: Plan,
    *,
    config: Path | None,
    with_operator: bool,
    metrics_port: int | None,
    access: AccessSettings,
) -> None:
    began = RealClock().monotonic()
    configuration = configured(config) if with_operator else None
    has_profiles = configuration is not None and configuration.is_there
    ports = () if not with_operator else (info.PORT, 0) if metrics_port is None else (metrics_port,)

    def ready(site: Site, found: Answering) -> None:
        described = site.describe(
            seconds=RealClock().monotonic() - began,
            with_operator=with_operator,
            with_profiles=has_profiles,
            url=found.url,
            token=found.token,
            operators=found.operators,
        )
        _clear_progress()
        click.echo(described)

    async def main() -> None:
        try:
            await run_sandbox(
                plan.opened(default_kubeconfig=sandbox.default_kubeconfig(os.environ), progress=show_progress),
                ready=ready,
                say=say,
                with_operator=with_operator,
                # Each operator follows the file by itself: there are several where there are workload clusters.
                with_profiles=lambda client: with_profiles(configured(config) if with_operator else None, client),
                metrics=tuple(Address(port, LOCAL) for port in ports),
                access=access,
            )
        except asyncio.CancelledError:  # Ctrl-C and SIGTERM are how it is told to end
            _say_goodbye()

    _say_hello(plan)
    connect.run(main(), loop_factory=sandbox.event_loop)


def _say_hello(plan: Plan) -> None:
    """Say that it takes a moment, to those who watch."""
    if sys.stderr.isatty():
        click.echo(f"Starting {plan.size} …", err=True)


def show_progress(text: str) -> None:
    """Show how the start goes, in one line that is written again and again; only to those who watch."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text} …", err=True, nl=False)


def _clear_progress() -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)


def say(at: timedelta, what: str) -> None:
    """Say what happens; when nobody listens any more, the cluster goes on without a word."""
    with suppress(OSError):
        click.echo(f"{click.style(elapsed(at), dim=True)}  {printable(what)}")


def elapsed(at: timedelta) -> str:
    """Return how long after the beginning, aligned for the first hundred hours."""
    hours, rest = divmod(round(at.total_seconds()), _HOUR)
    minutes, seconds = divmod(rest, _MINUTE)
    return f"+{hours:02}:{minutes:02}:{seconds:02}"


def _say_goodbye() -> None:
    with suppress(OSError):
        click.echo("\nEnded." if sys.stdout.isatty() else "Ended.")
