"""The interface to Haulout, which finds this module by the entry point `sandbox` of the group `haulout.sandbox`."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from haulout.errors import UsageError
from haulout_sandbox.event_loops.accelerated_loop import AcceleratedLoop
from haulout_sandbox.kubeconfig import default_path as default_kubeconfig
from haulout_sandbox.running_sandbox import SandboxPlan
from haulout_sandbox.scenarios.expansion import resize
from haulout_sandbox.scenarios.loader import builtin_names, load
from haulout_sandbox.scenarios.model import MAX_NODES, MAX_PODS_PER_NODE, MAX_SPEED, MAX_ZONES

__all__ = ["builtin_names", "default_kubeconfig", "event_loop", "limits", "read_plan"]

limits: Mapping[str, int] = {
    "nodes": MAX_NODES,
    "zones": MAX_ZONES,
    "pods_per_node": MAX_PODS_PER_NODE,
    "speed": MAX_SPEED,
}


def event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a sandbox, which controls the speed of its time."""
    return AcceleratedLoop()


def read_plan(  # noqa: PLR0913 - one for each thing that a person may say
    scenario: str,
    *,
    nodes: int | None = None,
    zones: int | None = None,
    pods_per_node: int | None = None,
    seed: int = 0,
    speed: float = 1.0,
    port: int = 0,
    clouds_port: int | None = None,
    kubeconfig: Path | None = None,
) -> SandboxPlan:
    """Read a scenario by its name or file; raise `UsageError` or `ConfigErrors`."""
    loaded = load(scenario)
    if clouds_port is not None and not any(pool.cloud for pool in loaded.scenario.pools):
        raise UsageError(f"--clouds-port: no pool of the scenario {loaded.name} says of which cloud it is")
    shaped = resize(loaded.scenario, nodes=nodes, zones=zones, pods_per_node=pods_per_node)
    return SandboxPlan(
        loaded=loaded.with_scenario(shaped),
        seed=seed,
        speed=speed,
        port=port,
        clouds_port=clouds_port,
        kubeconfig=kubeconfig,
    )
