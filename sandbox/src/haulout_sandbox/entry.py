"""What Haulout calls: it finds this module by the entry point `sandbox` of the group `haulout.sandbox`."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from haulout.errors import UsageError
from haulout_sandbox.event_loops.paced import PacedLoop
from haulout_sandbox.kubeconfig import default_path as default_kubeconfig
from haulout_sandbox.limits import NODES, PODS_PER_NODE, SPEED, ZONES
from haulout_sandbox.scenarios.loading import load
from haulout_sandbox.scenarios.plan import reshaped
from haulout_sandbox.site import Plan

__all__ = ["default_kubeconfig", "event_loop", "limits", "read_plan"]

limits: Mapping[str, int] = {"nodes": NODES, "zones": ZONES, "pods_per_node": PODS_PER_NODE, "speed": SPEED}


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop on which the time of a sandbox passes."""
    return PacedLoop()


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
) -> Plan:
    """Read a scenario by its name or file; raises `UsageError` and `ConfigErrors`."""
    loaded = load(scenario)
    if clouds_port is not None and not any(pool.cloud for pool in loaded.scenario.pools):
        raise UsageError(f"--clouds-port: no pool of the scenario {loaded.name} says of which cloud it is")
    shaped = reshaped(loaded.scenario, nodes=nodes, zones=zones, pods_per_node=pods_per_node)
    return Plan(
        loaded=loaded.of(shaped), seed=seed, speed=speed, port=port, clouds_port=clouds_port, kubeconfig=kubeconfig
    )
