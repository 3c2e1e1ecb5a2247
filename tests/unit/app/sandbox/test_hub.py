"""The sandbox with workload clusters, as people start it: the hub, and an operator in each of them."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from msgspec.structs import replace

from haulout.api.clusterapi import PRE_DRAIN_HOOK, PRE_DRAIN_HOOK_OWNER, ClusterKey
from haulout.api.objects import RawObject
from haulout.app.hub_status import HubStatus
from haulout.app.operator_status import OperatorStatus
from haulout.app.profiles import ProfilesComponent
from haulout.app.profiles_file import ProfilesFile
from haulout.app.sandbox.operators import install, run_hub_and_operators, workload_profiles
from haulout.controllers.clusterapi.status import ConnectionState
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
class Life:
    """A sandbox that lives, and what was told of it."""

    stage: ScenarioCluster
    hub: HubStatus
    told: list[str] = field(default_factory=list)

    def machines(self, key: ClusterKey) -> dict[str, RawObject]:
        """Return the Machines of a workload cluster, by name."""
        found = self.stage.cluster.api.objects("machines", namespace=key.namespace)
        return {it["metadata"]["name"]: it for it in found if it["spec"]["clusterName"] == key.name}

    def unwell(self) -> list[str]:
        """Return the nodes of workload clusters that are not in service."""
        nodes = (
            node for it in self.stage.workload_cluster_manager.clusters.values() for node in it.api.objects("nodes")
        )
        return [it["metadata"]["name"] for it in nodes if not _is_well(it)]


def _is_well(node: RawObject) -> bool:
    is_ready = any(it["type"] == "Ready" and it["status"] == "True" for it in node["status"]["conditions"])
    return is_ready and not node["spec"].get("unschedulable") and not node["spec"].get("taints")


@asynccontextmanager
async def living(clock: Clock) -> AsyncIterator[Life]:
    """Have the scenario `hub`, and all that runs in it without any configuration."""
    loaded = load("hub")
    loaded = loaded.with_scenario(replace(loaded.scenario, heartbeat=RARELY))
    stage = ScenarioCluster(Cluster(clock, heartbeat=RARELY, latency=timedelta()), loaded)
    async with stage.running():
        await stage.deploy()
        await install(stage)
        await clock.sleep(loaded.scenario.age)
        life = Life(stage, HubStatus())
        with workload_profiles() as file:
            operators = {
                key: OperatorStatus(
                    profiles=ProfilesComponent(ProfilesFile(file, environ={}, clock=clock), FakeExternalClient())
                )
                for key in stage.workload_cluster_manager.clusters
            }
        async with asyncio.TaskGroup() as tasks:
            told = Timeline(stage, on_event=lambda _, what: life.told.append(what))
            running = [
                tasks.create_task(told.run()),
                tasks.create_task(run_hub_and_operators(stage.cluster.client(OPERATOR), stage, life.hub, operators)),
            ]
            yield life
            for task in running:
                task.cancel()


async def test_machines_are_replaced_when_their_nodes_have_let_go_and_no_cluster_waits_for_another(
    clock: Clock,
) -> None:
    async with living(clock) as life:
        before = {key: set(life.machines(key)) for key in (A, B, METAL)}
        assert [len(it) for it in before.values()] == [4, 3, 3]
        await clock.sleep(4.5 * MINUTE)
        away = {it.key: it.connection_state for it in life.hub.cluster_statuses()}
        await clock.sleep(4.5 * MINUTE)
        after = {key: life.machines(key) for key in (A, B, METAL)}
        standings, unwell = {it.key: it for it in life.hub.cluster_statuses()}, life.unwell()
        histories = {key: it.api.history for key, it in life.stage.workload_cluster_manager.clusters.items()}

    assert away[A] is away[METAL] is ConnectionState.CONNECTED
    assert away[B] is not ConnectionState.CONNECTED
    assert {it.connection_state for it in standings.values()} == {ConnectionState.CONNECTED}
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
    told = [_without_names(it) for it in life.told]
    assert [it for it in told if B.namespace in it] == [
        "cluster team-b/prod does not answer its management cluster for 4m",
        "deleted of team-b/prod: MACHINE",
        "Machine MACHINE of team-b/prod waits for a hook before it is drained: maintenance-controller",
        "Machine MACHINE of team-b/prod is new, made by MachineSet SET",
        "cluster team-b/prod can be reached again",
        "Machine MACHINE of team-b/prod is a node",
        "Machine MACHINE of team-b/prod is empty, and is ended",
        "Machine MACHINE of team-b/prod is gone",
    ]
    assert [it for it in told if METAL.namespace in it] == [
        "maintenance requested of datacentre/metal: MACHINE",
        "maintenance of Machine MACHINE of datacentre/metal is approved: its node is ready for it",
        "host datacentre/HOST is off",
        "Machine MACHINE of datacentre/metal was maintained for 2m: the request is withdrawn",
        "host datacentre/HOST is on",
    ]
    assert told.count("Machine MACHINE of team-a/prod is gone") == 4


def _without_names(told: str) -> str:
    """Return what was told, without names that are left to chance."""
    told = re.sub(r"\b(workers|rack)-\w{10}-\w{5}\b", "MACHINE", told)
    return re.sub(r"\b(workers|rack)-\w{10}\b", "SET", re.sub(r"\brack-\d\d\b", "HOST", told))
