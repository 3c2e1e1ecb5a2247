"""`haulout run --sandbox`: a cluster in this process, with operators."""

import asyncio
import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path

import click

from haulout.app.sandbox.interface import RunningSandbox, Sandbox, SandboxPlan
from haulout.app.sandbox.operators import LOOPBACK, SandboxAddresses, run_sandbox, workload_profiles
from haulout.cli import connect
from haulout.cli.output import printable
from haulout.cli.run.cluster_mode import load_profiles_file, open_profiles
from haulout.core.clock import RealClock
from haulout.dashboard import server
from haulout.dashboard.auth.settings import AccessSettings
from haulout.httpserver.listener import ListenAddress

_MINUTE = 60
_HOUR = 60 * _MINUTE
_LOGGERS = ("haulout", "haulout_sandbox", "aiohttp")


def run_sandbox_process(
    sandbox: Sandbox,
    plan: SandboxPlan,
    *,
    config: Path | None,
    with_operator: bool,
    metrics_port: int | None,
    access: AccessSettings,
) -> None:
    """Run the sandbox until it is stopped."""
    for name in _LOGGERS:  # show their messages only with -v: simulated faults are expected
        logging.getLogger(name).addHandler(logging.NullHandler())
    with _profiles_path(plan, config, with_operator=with_operator) as file:
        _run(sandbox, plan, config=file, with_operator=with_operator, metrics_port=metrics_port, access=access)


def _profiles_path(
    plan: SandboxPlan, config: Path | None, *, with_operator: bool
) -> AbstractContextManager[Path | None]:
    """Return the given configuration; operators in workload clusters have a default one."""
    if config is not None or not with_operator or not plan.has_workload_clusters:
        return nullcontext(config)
    return workload_profiles()


def _run(
    sandbox: Sandbox,
    plan: SandboxPlan,
    *,
    config: Path | None,
    with_operator: bool,
    metrics_port: int | None,
    access: AccessSettings,
) -> None:
    started = RealClock().monotonic()
    profiles_file = load_profiles_file(config) if with_operator else None
    has_profiles = profiles_file is not None and profiles_file.is_loaded
    ports = () if not with_operator else (server.PORT, 0) if metrics_port is None else (metrics_port,)

    def on_ready(site: RunningSandbox, addresses: SandboxAddresses) -> None:
        described = site.describe(
            seconds=RealClock().monotonic() - started,
            with_operator=with_operator,
            with_profiles=has_profiles,
            url=addresses.url,
            token=addresses.token,
            operators=addresses.operators,
        )
        _clear_progress()
        click.echo(described)

    async def main() -> None:
        try:
            await run_sandbox(
                plan.open(default_kubeconfig=sandbox.default_kubeconfig(os.environ), progress=show_progress),
                on_ready=on_ready,
                on_event=print_event,
                with_operator=with_operator,
                # One instance per operator: each watches the file itself, and workload clusters have several operators.
                with_profiles=lambda client: open_profiles(
                    load_profiles_file(config) if with_operator else None, client
                ),
                metrics=tuple(ListenAddress(port, LOOPBACK) for port in ports),
                access=access,
            )
        except asyncio.CancelledError:  # Ctrl-C and SIGTERM end the sandbox
            _print_end()

    _print_start(plan)
    connect.run(main(), loop_factory=sandbox.event_loop)


def _print_start(plan: SandboxPlan) -> None:
    """Print that starting takes a moment, but only to a terminal."""
    if sys.stderr.isatty():
        click.echo(f"Starting {plan.size} …", err=True)


def show_progress(text: str) -> None:
    """Show the progress of the start in one line that is overwritten, but only on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text} …", err=True, nl=False)


def _clear_progress() -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)


def print_event(at: timedelta, text: str) -> None:
    """Print an event; the cluster continues if the output is closed."""
    with suppress(OSError):
        click.echo(f"{click.style(format_offset(at), dim=True)}  {printable(text)}")


def format_offset(at: timedelta) -> str:
    """Return the time since the start, aligned for the first hundred hours."""
    hours, rest = divmod(round(at.total_seconds()), _HOUR)
    minutes, seconds = divmod(rest, _MINUTE)
    return f"+{hours:02}:{minutes:02}:{seconds:02}"


def _print_end() -> None:
    with suppress(OSError):
        click.echo("\nEnded." if sys.stdout.isatty() else "Ended.")
