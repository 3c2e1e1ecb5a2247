"""The one place that wires everything: what runs together in one process, and how it ends.

Today that is the sandbox and what happens in its scenario. What joins it (the operator, the dashboard) gets its clock
and its client from the site's cluster, and is one more task of the group below.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from haulout.sandbox.scenarios.timeline import Timeline
from haulout.sandbox.site import Plan, Site, opened


async def run_sandbox(
    plan: Plan,
    *,
    default_kubeconfig: Path,
    ready: Callable[[Site], object],
    tell: Callable[[timedelta, str], object],
) -> None:
    """Run a sandbox until cancelled; `ready` hears when it can be used, `tell` what happens in it, and when."""
    async with opened(plan, default_kubeconfig=default_kubeconfig) as site:
        ready(site)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(Timeline(site.stage, tell=tell).run())
            parts.create_task(_until_cancelled())


async def _until_cancelled() -> None:
    await asyncio.Event().wait()
