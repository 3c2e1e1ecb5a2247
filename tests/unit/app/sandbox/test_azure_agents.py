"""Azure in the default sandbox: scheduled events of its machines, and the operator that handles them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeCondition, NoticePhase
from haulout.app.operator_status import OperatorStatus
from haulout.app.sandbox.operators import install, run_scenario_operator
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.clock import Clock
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios.loader import load
from haulout_sandbox.scenarios.scenario_cluster import ScenarioCluster
from haulout_sandbox.scenarios.timeline import Timeline
from support.expectations.invariant_checks import assert_invariants
from support.fakes.external_client import FakeExternalClient
from support.invariants import GracePeriodRespected, OnlyOwnCordonsRemoved, PodDisruptionBudgetsRespected

MINUTE = timedelta(minutes=1)
OPERATOR = "haulout"
SCENARIO = """
pools:
- {name: np1, count: 3, cloud: azure}
workloads:
- {kind: Deployment, name: web, namespace: shop, replicas: 4, budget: {minAvailable: 3}}
timeline:
- {at: 1m, announce: {nodes: [np1-01], kind: Reboot, in: 20m, for: 2m}}
- {at: 30m, announce: {nodes: [np1-02], kind: Freeze, in: 15m, for: 5s}}
- {at: 50m, announce: {nodes: [np1-03], kind: Terminate, in: 10m, for: 1m}}
"""


@asynccontextmanager
async def running_sandbox_scenario(clock: Clock, folder: Path) -> AsyncIterator[tuple[ScenarioCluster, list[str]]]:
    """Run the scenario, and the operator in it without any configuration."""
    file = folder / "azure.yaml"
    file.write_text(SCENARIO)
    cluster = Cluster(clock, seed=1, heartbeat=timedelta(seconds=40), latency=timedelta())
    scenario_cluster = ScenarioCluster(cluster, load(str(file)))
    events: list[str] = []
    async with cluster.running():
        await scenario_cluster.deploy()
        await install(scenario_cluster)
        await clock.sleep(MINUTE)
        configured = ProfilesFile(folder / "none.yaml", environ={}, clock=clock, is_optional=True)
        vitals = OperatorStatus(profiles=ProfilesComponent(configured, FakeExternalClient()))
        async with asyncio.TaskGroup() as tasks:
            timeline = Timeline(scenario_cluster, on_event=lambda at, what: events.append(f"{at} {what}"))
            running = [
                tasks.create_task(timeline.run()),
                tasks.create_task(run_scenario_operator(cluster.client(OPERATOR), scenario_cluster, vitals)),
            ]
            yield scenario_cluster, events
            for task in running:
                task.cancel()


async def test_azure_events_are_approved_after_the_drain_and_nodes_return(clock: Clock, tmp_path: Path) -> None:
    async with running_sandbox_scenario(clock, tmp_path) as (scenario_cluster, events):
        await clock.sleep(85 * MINUTE)
        found = list((await scenario_cluster.cluster.client("me").list(MAINTENANCE_NOTICES)).items)
        nodes = {it["metadata"]["name"]: it for it in scenario_cluster.cluster.api.objects("nodes")}
        cloud = scenario_cluster.fleet.azure.cloud
        history = scenario_cluster.cluster.api.history
    assert {it.spec.kind: it.status.phase for it in found} == {
        "Reboot": NoticePhase.COMPLETED,
        "Freeze": NoticePhase.COMPLETED,
        "Terminate": NoticePhase.COMPLETED,
    }
    by_reason = {it.spec.kind: it for it in found}
    assert _started_early(by_reason["Reboot"])
    assert _started_early(by_reason["Terminate"])
    assert not _started_early(by_reason["Freeze"])  # a node is not drained for a freeze of some seconds
    assert [machine[-1] for machine, _ in cloud.approvals] == ["0", "2"]
    assert [it.split(maxsplit=1)[1] for it in events] == [
        "Azure will reboot np1-01 in 20m",
        "Azure reboots np1-01, which is empty",
        "Azure is done with np1-01",
        "Azure will freeze np1-02 in 15m",
        events[4].split(maxsplit=1)[1],
        "Azure is done with np1-02",
        "Azure will terminate np1-03 in 10m",
        "Azure terminates np1-03, which is empty",
        "np1-04 joins in place of np1-03",
    ]
    assert not any(it["spec"].get("unschedulable") for it in nodes.values())
    assert_invariants(
        history,
        PodDisruptionBudgetsRespected(),
        GracePeriodRespected(operator={OPERATOR}),
        OnlyOwnCordonsRemoved(operator={OPERATOR}),
        until=clock.now(),
    )


def _started_early(notice: MaintenanceNotice) -> bool:
    condition = notice.status.condition(NoticeCondition.EARLY_START)
    return condition is not None and condition.status == "True"
