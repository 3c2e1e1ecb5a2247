"""The operator as a whole: leader election, failover and handover."""

import asyncio
from datetime import timedelta
from pathlib import Path

from haulout.api.nodemaintenance import custom_resource_definition
from haulout.api.resources import NODES
from haulout.app.operator import OperatorSettings, run_operator
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from support.clusters.drain_cluster import SHOP, a_drain_cluster, a_workload
from support.operators.replicas import (
    NAMESPACE,
    a_replica_cluster,
    all_leases_held_by,
    create_maintenance,
    is_done,
    leader,
    lease_holders,
    maintenance,
    node_state,
    start_replica,
    start_replica_with_profiles,
    writing_users,
)

SECOND = timedelta(seconds=1)


async def test_standby_takes_over_when_the_leader_is_killed(clock: Clock) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 4, on="n1", stop=20)
        one, _ = start_replica(town, "one"), start_replica(town, "two")
        await town.wait_until(lambda: leader(town) == "one")
        create_maintenance(town, "n1")
        await town.wait_until(lambda: any(write.verb == "evict" for write in town.api.history))
        one.kill()
        assert await town.wait_until(lambda: leader(town) == "two") < 30
        await town.wait_until(lambda: is_done(town))
        assert town.pods(on="n1") == []


async def test_standby_leads_within_seconds_after_the_leader_is_stopped(clock: Clock) -> None:
    async with a_replica_cluster(clock, "n1") as town, asyncio.TaskGroup() as group:
        settings = OperatorSettings(namespace=NAMESPACE, identity="one")
        ending = group.create_task(run_operator(town.cluster.client("one"), settings))
        await town.wait_until(lambda: leader(town) == "one")
        start_replica(town, "two")
        ending.cancel()
        assert await town.wait_until(lambda: leader(town) == "two") < 6


async def test_leader_hands_over_before_its_own_node_is_drained(clock: Clock) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n1", stop=1)
        start_replica(town, "one", node="n1")
        start_replica(town, "two", node="n2")
        await town.wait_until(lambda: leader(town) == "one")
        create_maintenance(town, "n1")
        await town.wait_until(lambda: is_done(town))
        assert leader(town) == "two"
        evicted = [write.username for write in town.api.history if write.verb == "evict"]
        assert set(evicted) == {"two"}
        assert "one" in writing_users(
            town, "/nodes/n1"
        )  # cordoned by the first, so that the second is not placed there


async def test_leader_without_a_standby_drains_its_own_node(clock: Clock) -> None:
    async with a_replica_cluster(clock, "n1") as town:
        await town.run_pods("web", 3, on="n1", stop=1)
        start_replica(town, "one", node="n1")
        await town.wait_until(lambda: leader(town) == "one")
        create_maintenance(town, "n1")
        assert await town.wait_until(lambda: is_done(town)) < 60
        assert leader(town) == "one"


async def test_node_maintenance_crd_may_be_installed_after_the_operator(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await town.run_pods("web", 1, on="n1")
        process = start_replica(town, "one")
        await clock.sleep(600 * SECOND)
        assert len(process.transport.requests) < 600
        town.put(custom_resource_definition())
        create_maintenance(town, "n1")
        assert await town.wait_until(lambda: is_done(town)) < 60


async def test_ten_nodes_drain_at_once_while_one_is_stuck(clock: Clock) -> None:
    names = [f"n{number:02}" for number in range(10)]
    async with a_replica_cluster(clock, *names) as town:
        town.put(a_workload("Deployment", "spare", replicas=0))
        for name in names:
            await town.run_pods(name, 5, on=name, stop=3)
        budget = {"selector": {"matchLabels": {"app": "n00"}}, "maxUnavailable": 0}
        meta = {"name": "stuck", "namespace": SHOP}
        town.put({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": budget})
        start_replica(town, "one")
        await town.wait_until(lambda: leader(town) == "one")
        for name in names:
            create_maintenance(town, name, name)
        assert await town.wait_until(lambda: all(is_done(town, name) for name in names[1:])) < 6
        blockers = maintenance(town, "n00")["status"]["blockers"]
        assert {it["object"] for it in blockers} == {f"PodDisruptionBudget {SHOP}/stuck"}


# Profiles


CONFIGURATION = """
intervals: {requeue: 30s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
profiles:
- name: default
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
"""


async def test_leader_holds_both_leases_and_a_successor_takes_both(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    async with a_replica_cluster(clock, "n1", "n2") as town:
        one, leader_profiles, _ = start_replica_with_profiles(town, "one", file)
        _, standby_profiles, _ = start_replica_with_profiles(town, "two", file)
        await town.wait_until(
            lambda: lease_holders(town) == all_leases_held_by("one") and node_state(town, "n1") == "operational"
        )
        assert standby_profiles.infos() is None
        assert [it["node"] for it in leader_profiles.infos() or ()] == ["n1", "n2"]
        one.kill()
        await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("two"))
        await town.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"patch": "yes"}}}))
        await town.wait_until(lambda: node_state(town, "n1") == "maintenance-required")
        assert standby_profiles.infos() is not None


async def test_handover_releases_both_leases(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    async with a_replica_cluster(clock, "n1", "n2") as town:
        start_replica_with_profiles(town, "one", file, node="n1")
        await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("one"))
        start_replica_with_profiles(town, "two", file, node="n2")
        create_maintenance(town, "n1")
        await town.wait_until(lambda: is_done(town) and lease_holders(town) == all_leases_held_by("two"))


async def test_operator_components_share_one_watch_of_nodes(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    async with a_replica_cluster(clock, "n1", "n2") as town:
        one = start_replica_with_profiles(town, "one", file)
        await town.wait_until(lambda: node_state(town, "n1") == "operational")
        create_maintenance(town, "n2")
        await town.wait_until(lambda: is_done(town))
        requests = [it.request for it in one.process.transport.requests if it.request.path == "/api/v1/nodes"]
        assert len(requests) == 1
