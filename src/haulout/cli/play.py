"""The sandbox behind `haulout run --sandbox`: a cluster in this process, and operators in it."""

import asyncio
import logging
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from haulout.app.sandbox import LOCAL, run_sandbox, workload_profiles
from haulout.cli import connect, sandbox_text
from haulout.cli.operate import configured, with_profiles
from haulout.core.clock import RealClock
from haulout.web import info
from haulout.web.auth.settings import AccessSettings
from haulout.web.listening import Address
from haulout_sandbox.event_loops.paced import PacedLoop
from haulout_sandbox.kubeconfig import default_path
from haulout_sandbox.site import Plan


def play(
    plan: Plan, *, config: Path | None, with_operator: bool, metrics_port: int | None, access: AccessSettings
) -> None:
    """Play it until it is told to end."""
    # What the cluster's components have to say of faults is for those who ask with -v.
    logging.getLogger("haulout").addHandler(logging.NullHandler())
    logging.getLogger("aiohttp").addHandler(logging.NullHandler())
    with _file_of_profiles(plan, config, with_operator=with_operator) as file:
        _play(plan, config=file, with_operator=with_operator, metrics_port=metrics_port, access=access)


def _file_of_profiles(plan: Plan, config: Path | None, *, with_operator: bool) -> AbstractContextManager[Path | None]:
    """Return the configuration that was named; operators in workload clusters have one if none was."""
    if config is not None or not with_operator or not plan.loaded.scenario.clusters:
        return nullcontext(config)
    return workload_profiles()


def _play(
    plan: Plan, *, config: Path | None, with_operator: bool, metrics_port: int | None, access: AccessSettings
) -> None:
    began = RealClock().monotonic()
    configuration = configured(config) if with_operator else None
    has_profiles = configuration is not None and configuration.is_there
    ports = () if not with_operator else (info.PORT, 0) if metrics_port is None else (metrics_port,)

    async def main() -> None:
        try:
            await run_sandbox(
                plan,
                default_kubeconfig=default_path(os.environ),
                ready=lambda site, found: sandbox_text.show(
                    site,
                    plan,
                    seconds=RealClock().monotonic() - began,
                    with_operator=with_operator,
                    with_profiles=has_profiles,
                    found=found,
                ),
                tell=sandbox_text.tell,
                with_operator=with_operator,
                # Each operator follows the file by itself: there are several where there are workload clusters.
                with_profiles=lambda client: with_profiles(configured(config) if with_operator else None, client),
                metrics=tuple(Address(port, LOCAL) for port in ports),
                access=access,
            )
        except asyncio.CancelledError:  # Ctrl-C and SIGTERM are how it is told to end
            sandbox_text.say_goodbye()

    sandbox_text.say_hello(plan)
    connect.run(main(), loop_factory=PacedLoop)
