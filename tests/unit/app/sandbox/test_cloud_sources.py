"""The default sandbox: the maintenance that its clouds announce, and the operator, for an hour."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.objects import NodeConditionType, RawObject, machine_key
from haulout.app.operator_status import OperatorStatus
from haulout.app.sandbox.operators import install, run_scenario_operator
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.clock import Clock
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios.expansion import resize
from haulout_sandbox.scenarios.loader import load
from haulout_sandbox.scenarios.scenario_cluster import ScenarioCluster
from haulout_sandbox.scenarios.timeline import Timeline
from support.expectations.invariant_checks import assert_invariants
from support.fakes.external_client import FakeExternalClient
from support.invariants import (
    DisruptionsWithinBudget,
    ForeignMetadataUntouched,
    GracePeriodRespected,
    NodeBudget,
    OnlyOwnCordonsRemoved,
    PodDisruptionBudgetsRespected,
)

MINUTE = timedelta(minutes=1)
OPERATOR = "haulout"
OURS = (
    "haulout.dev/*",
    "*.haulout.dev/*",
    "cloud.sap/maintenance-*",
    "node.kubernetes.io/unschedulable:*",
    *NodeConditionType,
)


@dataclass
class RunningSandbox:
    """A running sandbox and its events."""

    scenario_cluster: ScenarioCluster
    started_at: datetime
    events: list[str] = field(default_factory=list)

    async def notices(self) -> list[MaintenanceNotice]:
        """Return all notices."""
        return list((await self.scenario_cluster.cluster.client("me").list(MAINTENANCE_NOTICES)).items)

    def machines(self) -> dict[str, RawObject]:
        """Return the Machines of OpenShift, by name."""
        return {it["metadata"]["name"]: it for it in self.scenario_cluster.cluster.api.objects("machines")}

    def unwell(self) -> list[str]:
        """Return the nodes that are not in service."""
        return [it["metadata"]["name"] for it in self.scenario_cluster.cluster.api.objects("nodes") if not _is_well(it)]


def _is_well(node: dict[str, object]) -> bool:
    spec, status = node["spec"], node["status"]
    assert isinstance(spec, dict)
    assert isinstance(status, dict)
    is_ready = any(it["type"] == "Ready" and it["status"] == "True" for it in status["conditions"])
    taints = [it for it in spec.get("taints", ()) if it["key"] != "node-role.kubernetes.io/master"]
    return is_ready and not spec.get("unschedulable") and not taints


@asynccontextmanager
async def running_sandbox_scenario(
    clock: Clock, folder: Path, *, seed: int, scenario: str = "default", nodes: int = 10
) -> AsyncIterator[RunningSandbox]:
    """Run a small sandbox of a scenario, and the operator in it without any configuration."""
    loaded = load(scenario)
    cluster = Cluster(clock, seed=seed, heartbeat=timedelta(seconds=40), latency=timedelta())
    scenario_cluster = ScenarioCluster(
        cluster, loaded.with_scenario(resize(loaded.scenario, nodes=nodes, pods_per_node=4))
    )
    async with cluster.running():
        await scenario_cluster.deploy()
        await install(scenario_cluster)
        await clock.sleep(3 * MINUTE)
        life = RunningSandbox(scenario_cluster, clock.now())
        configured = ProfilesFile(folder / "none.yaml", environ={}, clock=clock, is_optional=True)
        vitals = OperatorStatus(profiles=ProfilesComponent(configured, FakeExternalClient()))
        async with asyncio.TaskGroup() as tasks:
            timeline = Timeline(scenario_cluster, on_event=lambda _, what: life.events.append(what))
            running = [
                tasks.create_task(timeline.run()),
                tasks.create_task(run_scenario_operator(cluster.client(OPERATOR), scenario_cluster, vitals)),
            ]
            yield life
            for task in running:
                task.cancel()


async def test_default_scenario_drains_each_announced_node_in_time_for_an_hour(clock: Clock, tmp_path: Path) -> None:
    async with running_sandbox_scenario(clock, tmp_path, seed=1) as life:
        await clock.sleep(58 * MINUTE)
        notices, unwell, history = await life.notices(), life.unwell(), life.scenario_cluster.cluster.api.history

    assert [re.sub(r"\b(general|large|spot)-\d+", r"\1", it) for it in life.events] == [
        "OCI will reboot general in 25m",
        "AWS will reboot large in 2m",
        "OCI will reboot general in 30m",
        "AWS will stop large in 40m",
        "OCI moves the reboot of general to 50m from now",
        "AWS will take spot back in 2m",
        "AWS cancels the stop of large",
        "AWS reboots large, which is empty",
        "AWS is done with large",
        "AWS takes back spot, which is empty",
        "spot joins in place of spot",
        "AWS scales spot in, and waits for its hook to be completed",
        "AWS terminates spot, which is empty",
        "machine added: spot",
        "OCI reboots general, which is empty",
        "OCI is done with general",
        "OCI reboots general, which is empty",
        "OCI is done with general",
    ]
    assert sorted((it.spec.source, it.spec.kind, it.status.phase) for it in notices) == [
        ("aws", "Reboot", "Completed"),
        ("aws", "Stop", "Cancelled"),
        ("aws", "Terminate", "Completed"),
        ("aws", "Terminate", "Completed"),
        ("oci", "Reboot", "Completed"),
        ("oci", "Reboot", "Completed"),
    ]
    assert [it.name for it in notices if it.status.empty_since is None and it.status.phase == "Completed"] == []
    assert unwell == []
    assert_invariants(
        history,
        PodDisruptionBudgetsRespected(),
        GracePeriodRespected(operator={OPERATOR}),
        DisruptionsWithinBudget(operator={OPERATOR}, budgets=(NodeBudget(name="what the page says", at_most=2),)),
        OnlyOwnCordonsRemoved(operator={OPERATOR}),
        ForeignMetadataUntouched(operator={OPERATOR}, ours=OURS),
        until=clock.now(),
    )


async def test_cloud_events_become_notices_within_seconds(clock: Clock, tmp_path: Path) -> None:
    async with running_sandbox_scenario(clock, tmp_path, seed=1) as life:
        delays: dict[str, timedelta] = {}
        for _ in range(100):
            await clock.sleep(timedelta(seconds=1))
            for it in await life.notices():
                delays.setdefault(
                    f"{it.spec.source} {it.spec.kind}", clock.now() - (it.spec.reported_at or life.started_at)
                )
    assert set(delays) == {"oci Reboot", "aws Reboot", "aws Stop", "aws Terminate"}
    assert max(delays.values()) <= timedelta(seconds=10)


async def test_openshift_scenario_replaces_machines_before_their_aws_events(clock: Clock, tmp_path: Path) -> None:
    async with running_sandbox_scenario(clock, tmp_path, seed=0, scenario="openshift", nodes=12) as life:
        cloud, before = life.scenario_cluster.fleet.aws.cloud, set(life.machines())
        assert all(it["status"]["phase"] == "Running" for it in life.machines().values())
        assert all(
            machine_key(it["spec"]["providerID"]) in cloud.ec2_instances.by_id for it in life.machines().values()
        )

        await clock.sleep(20 * MINUTE)
        notices, after, unwell = await life.notices(), life.machines(), life.unwell()
        records = life.scenario_cluster.cluster.api.objects("machinemaintenances")
        history = life.scenario_cluster.cluster.api.history

    assert Counter(_without_names(it) for it in life.events) == {
        "AWS will stop NODE, NODE in 24h": 1,
        "AWS will terminate NODE in 24h": 1,
        "AWS will reboot NODE in 5m": 1,
        "AWS will stop NODE in 24h": 1,
        "MaintenanceNotice EVENT: Stop of NODE": 3,
        "MaintenanceNotice EVENT: Terminate of NODE": 1,
        "MaintenanceNotice EVENT: Reboot of NODE": 1,
        "MachineMaintenance: Machine SET-1 is to be replaced (instance-stop)": 3,
        "MachineMaintenance: Machine SET-1 is to be replaced (instance-retirement)": 1,
        "MachineMaintenance of SET-1 is Waiting: Machine SET-1 of SET is replaced first: one at a time": 1,
        "MachineMaintenance of SET-1 is Waiting: SET-1 of SET has no Ready node yet": 1,
        "Machine SET-1 is deleted: NODE is emptied, and its instance ended": 4,
        "MachineSet SET makes Machine SET-1": 3,
        "ControlPlaneMachineSet cluster makes Machine SET-1": 1,
        "Machine SET-1 is gone, and NODE with it": 4,
        "Machine SET-1 is running: NODE joins": 4,
        "MachineMaintenance of SET-1 is Completed": 4,
        "AWS drops the stop of NODE, which is gone": 3,
        "AWS drops the end of NODE, which is gone": 1,
        "AWS reboots NODE, which is empty": 1,
        "AWS is done with NODE": 1,
        "MaintenanceNotice EVENT is Completed": 5,
    }
    (retired,) = (it for it in records if it["spec"]["eventcode"] == "instance-retirement")
    machine, node = retired["spec"]["machinelink"], retired["status"]["nodeName"]
    assert [it for it in life.events if machine in it or node in it.split()] == [
        f"AWS will terminate {node} in 24h",
        f"MaintenanceNotice aws-{retired['spec']['eventid']}: Terminate of {node}",
        f"MachineMaintenance: Machine {machine} is to be replaced (instance-retirement)",
        f"Machine {machine} is deleted: {node} is emptied, and its instance ended",
        f"Machine {machine} is gone, and {node} with it",
        f"MachineMaintenance of {machine} is Completed",
    ]
    assert len(after) == len(before) == 12
    assert len(set(after) & before) == 8
    assert {it["status"]["phase"] for it in after.values()} == {"Running"}
    assert [it["status"]["phase"] for it in records] == ["Completed"] * 4
    assert sorted((it.spec.kind, it.status.phase) for it in notices) == [
        ("Reboot", "Completed"),
        ("Stop", "Completed"),
        ("Stop", "Completed"),
        ("Stop", "Completed"),
        ("Terminate", "Completed"),
    ]
    assert unwell == []
    assert_invariants(
        history,
        PodDisruptionBudgetsRespected(),
        GracePeriodRespected(operator={OPERATOR}),
        OnlyOwnCordonsRemoved(operator={OPERATOR}),
        ForeignMetadataUntouched(operator={OPERATOR}, ours=OURS),
        until=clock.now(),
    )


def _without_names(event: str) -> str:
    """Return an event without random names."""
    event = re.sub(r"aws-instance-event-\w+", "EVENT", event)
    event = re.sub(r"\b(worker-zone-[abc]|cluster)-\w{5}\b", "SET-1", event)
    return re.sub(r"\b(worker|master)-\d+", "NODE", re.sub(r"\bworker-zone-[abc]\b", "SET", event))


GOOGLE = """
pools:
  - {name: gke, count: 3, zones: [europe-west1-b], cloud: gcp}
workloads:
  - {kind: Deployment, name: web, namespace: shop, replicas: 4, start: 1s, stop: 1s}
timeline:
  - {at: 10s, announce: {name: soon, nodes: gke-01, in: 20m, for: 3m}}
  - {at: 20s, announce: {name: never, nodes: gke-02, kind: Migrate, in: 3h}}
  - {at: 5m, cancelMaintenance: {name: never}}
"""


async def test_google_scenario_drains_nodes_before_reboots_and_returns_them(clock: Clock, tmp_path: Path) -> None:
    scenario = tmp_path / "google.yaml"
    scenario.write_text(GOOGLE)
    async with running_sandbox_scenario(clock, tmp_path, seed=0, scenario=str(scenario), nodes=3) as life:
        await clock.sleep(2 * MINUTE)
        assert sorted((it.spec.kind, it.status.phase) for it in await life.notices()) == [
            ("Migrate", "Planned"),
            ("Reboot", "Planned"),
        ]
        await clock.sleep(28 * MINUTE)
        assert life.events == [
            "Google Cloud will reboot gke-01 in 20m",
            "Google Cloud will migrate gke-02 in 3h",
            "Google Cloud cancels the migration of gke-02",
            "Google Cloud reboots gke-01, which is empty",
            "Google Cloud is done with gke-01",
        ]
        assert sorted((it.spec.kind, it.status.phase) for it in await life.notices()) == [
            ("Migrate", "Cancelled"),
            ("Reboot", "Completed"),
        ]
        assert life.scenario_cluster.fleet.gcp.cloud.operations.performed == ["gke-01"], (
            "early start was requested once the node was empty"
        )
        assert life.unwell() == []
