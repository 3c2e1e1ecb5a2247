"""Runs a scenario on simulated time, and records its messages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from haulout.core.clock import Clock
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios.loader import parse
from haulout_sandbox.scenarios.scenario_cluster import ScenarioCluster
from haulout_sandbox.scenarios.timeline import Timeline

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
THREE_NODES = """
pools: [{name: general, count: 3, zones: [a, b, c]}]
workloads:
  - {kind: Deployment, name: web, namespace: shop, replicas: 3, start: 1s, stop: 1s}
  - {kind: StatefulSet, name: ledger, namespace: bank, replicas: 2, start: 1s, stop: 1s, budget: {minAvailable: 2}}
"""


class ScenarioRun:
    """A running scenario and its messages."""

    def __init__(self, scenario_cluster: ScenarioCluster) -> None:
        self.scenario_cluster = scenario_cluster
        self.cluster = scenario_cluster.cluster
        self.api = self.cluster.api
        self.log: list[tuple[float, str]] = []

    def log_event(self, at: timedelta, text: str) -> None:
        """Record an event and its second."""
        self.log.append((int(at.total_seconds()), text))

    def node(self, name: str) -> Any:
        """Return a node."""
        return self.api.get("nodes", name)

    def node_ready(self, name: str) -> str:
        """Return whether a node is ready."""
        conditions = {condition["type"]: condition["status"] for condition in self.node(name)["status"]["conditions"]}
        return str(conditions["Ready"])

    def pods(self, namespace: str) -> list[str]:
        """Return the names of pods."""
        return [pod["metadata"]["name"] for pod in self.api.objects("pods", namespace=namespace)]

    async def wait_until(self, condition: Callable[[], bool], *, within: timedelta = 10 * MINUTE) -> None:
        """Let time pass until a condition holds."""
        ends = self.cluster.clock.now() + within
        while not condition():
            assert self.cluster.clock.now() < ends, "it did not come to that"
            await self.cluster.clock.sleep(SECOND)

    async def wait_until_second(self, seconds: float) -> None:
        """Let time pass until so many seconds after the beginning of the timeline."""
        await self.cluster.clock.sleep(timedelta(seconds=seconds))


@asynccontextmanager
async def running_scenario(clock: Clock, timeline: str, *, base: str = THREE_NODES) -> AsyncIterator[ScenarioRun]:
    """Play a scenario with this timeline, from when its cluster has come up."""
    loaded = parse(f"{base}timeline:\n{timeline}".encode(), file="s.yaml", name="s")
    cluster = Cluster(clock, seed=5)
    scenario_cluster = ScenarioCluster(cluster, loaded)
    run = ScenarioRun(scenario_cluster)
    async with scenario_cluster.running():
        await scenario_cluster.deploy()
        await clock.sleep(2 * MINUTE)
        async with asyncio.TaskGroup() as tasks:
            timeline_task = tasks.create_task(Timeline(scenario_cluster, on_event=run.log_event).run())
            yield run
            timeline_task.cancel()
