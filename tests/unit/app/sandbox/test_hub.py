"""The sandbox with workload clusters: the hub, and an operator in each workload cluster."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from msgspec.structs import replace

from haulout.api.clusterapi import PRE_DRAIN_HOOK, PRE_DRAIN_HOOK_OWNER, ClusterKey
from haulout.api.objects import RawObject
from haulout.app.operator_status import OperatorStatus
from haulout.app.replica import ReplicaStatus
from haulout.app.sandbox.operators import install, run_hub_and_operators, workload_profiles
from haulout.controllers.clusterapi.component import ClusterApi
from haulout.controllers.clusterapi.status import ConnectionState, WorkloadClusterStatus
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
RARELY = timedelta(seconds=40)
OPERATOR = "haulout"
A, B, METAL = ClusterKey("team-a", "prod"), ClusterKey("team-b", "prod"), ClusterKey("datacentre", "metal")


@dataclass
class RunningSandbox:
    """A running sandbox and its events."""

    scenario_cluster: ScenarioCluster
    hub: ReplicaStatus
    events: list[str] = field(default_factory=list)

    def machines(self, key: ClusterKey) -> dict[str, RawObject]:
        """Return the Machines of a workload cluster, by name."""
        found = self.scenario_cluster.cluster.api.objects("machines", namespace=key.namespace)
        return {it["metadata"]["name"]: it for it in found if it["spec"]["clusterName"] == key.name}

    def cluster_statuses(self) -> tuple[WorkloadClusterStatus, ...]:
        """Return what the hub knows of the workload clusters."""
        [controller] = [it.controller for it in self.hub.components if isinstance(it, ClusterApi)]
        assert controller is not None
        return controller.cluster_statuses()

    def unwell(self) -> list[str]:
        """Return the nodes of workload clusters that are not in service."""
        nodes = (
            node
            for it in self.scenario_cluster.workload_cluster_manager.clusters.values()
            for node in it.api.objects("nodes")
        )
        return [it["metadata"]["name"] for it in nodes if not _is_well(it)]


def _is_well(node: RawObject) -> bool:
    is_ready = any(it["type"] == "Ready" and it["status"] == "True" for it in node["status"]["conditions"])
    return is_ready and not node["spec"].get("unschedulable") and not node["spec"].get("taints")


@asynccontextmanager
async def running_sandbox_scenario(clock: Clock) -> AsyncIterator[RunningSandbox]:
    """Run the scenario `hub` with its components, without any configuration."""
    loaded = load("hub")
    loaded = loaded.with_scenario(replace(loaded.scenario, heartbeat=RARELY))
    scenario_cluster = ScenarioCluster(Cluster(clock, heartbeat=RARELY, latency=timedelta()), loaded)
    async with scenario_cluster.running():
        await scenario_cluster.deploy()
        await install(scenario_cluster)
        await clock.sleep(loaded.scenario.age)
        life = RunningSandbox(scenario_cluster, ReplicaStatus())
        with workload_profiles() as file:
            operators = {
                key: OperatorStatus(
                    profiles=ProfilesComponent(ProfilesFile(file, environ={}, clock=clock), FakeExternalClient())
                )
                for key in scenario_cluster.workload_cluster_manager.clusters
            }
        async with asyncio.TaskGroup() as tasks:
            timeline = Timeline(scenario_cluster, on_event=lambda _, what: life.events.append(what))
            running = [
                tasks.create_task(timeline.run()),
                tasks.create_task(
                    run_hub_and_operators(
                        scenario_cluster.cluster.client(OPERATOR), scenario_cluster, life.hub, operators
                    )
                ),
            ]
            yield life
            for task in running:
                task.cancel()


async def test_hub_scenario_replaces_machines_after_their_drain_independently_per_cluster(
    clock: Clock,
) -> None:
    async with running_sandbox_scenario(clock) as life:
        before = {key: set(life.machines(key)) for key in (A, B, METAL)}
        assert [len(it) for it in before.values()] == [4, 3, 3]
        await clock.sleep(4.5 * MINUTE)
        states_in_between = {it.key: it.connection_state for it in life.cluster_statuses()}
        await clock.sleep(4.5 * MINUTE)
        after = {key: life.machines(key) for key in (A, B, METAL)}
        statuses, unwell = {it.key: it for it in life.cluster_statuses()}, life.unwell()
        histories = {key: it.api.history for key, it in life.scenario_cluster.workload_cluster_manager.clusters.items()}

    assert states_in_between[A] is states_in_between[METAL] is ConnectionState.CONNECTED
    assert states_in_between[B] is not ConnectionState.CONNECTED
    assert {it.connection_state for it in statuses.values()} == {ConnectionState.CONNECTED}
    assert [len(it) for it in after.values()] == [4, 3, 3]
    assert [len(set(after[key]) & before[key]) for key in after] == [0, 2, 3]
    assert {it["status"]["phase"] for all_of in after.values() for it in all_of.values()} == {"Running"}
    hooks = [it["metadata"]["annotations"].get(PRE_DRAIN_HOOK) for all_of in after.values() for it in all_of.values()]
    assert hooks == [PRE_DRAIN_HOOK_OWNER] * 10
    assert unwell == []
    for history in histories.values():
        evicted = {it.username for it in history if it.kind.plural == "pods" and it.verb == "evict"}
        assert evicted == {OPERATOR}
        assert_invariants(
            history,
            PodDisruptionBudgetsRespected(),
            GracePeriodRespected(operator={OPERATOR}),
            OnlyOwnCordonsRemoved(operator={OPERATOR}),
            until=clock.now(),
        )
    events = [_without_names(it) for it in life.events]
    assert [it for it in events if B.namespace in it] == [
        "cluster team-b/prod does not answer its management cluster for 4m",
        "deleted of team-b/prod: MACHINE",
        "Machine MACHINE of team-b/prod waits for a hook before it is drained: maintenance-controller",
        "Machine MACHINE of team-b/prod is new, made by MachineSet SET",
        "cluster team-b/prod can be reached again",
        "Machine MACHINE of team-b/prod is a node",
        "Machine MACHINE of team-b/prod is empty, and is ended",
        "Machine MACHINE of team-b/prod is gone",
    ]
    assert [it for it in events if METAL.namespace in it] == [
        "maintenance requested of datacentre/metal: MACHINE",
        "maintenance of Machine MACHINE of datacentre/metal is approved: its node is ready for it",
        "host datacentre/HOST is off",
        "Machine MACHINE of datacentre/metal was maintained for 2m: the request is withdrawn",
        "host datacentre/HOST is on",
    ]
    assert events.count("Machine MACHINE of team-a/prod is gone") == 4


def _without_names(event: str) -> str:
    """Return an event without random names."""
    event = re.sub(r"\b(workers|rack)-\w{10}-\w{5}\b", "MACHINE", event)
    return re.sub(r"\b(workers|rack)-\w{10}\b", "SET", re.sub(r"\brack-\d\d\b", "HOST", event))
