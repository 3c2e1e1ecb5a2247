"""MachineDrainRules and the drain label of pods, for drains by NodeMaintenances and by profiles."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from haulout.api.clusterapi import DRAIN, DRAIN_RULES
from haulout.api.objects import RawObject
from support.builders.objects import a_pod
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.operators.nodemaintenance import (
    create_maintenance,
    invariants,
    phase,
    run_controller,
    status,
    wait_for_success,
    with_operator_rbac,
)
from support.operators.profiles import operator_with_profiles, set_profiles, state

PROFILE = """
intervals:
  requeue: 60s
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  trigger:
  - {type: eviction, name: cordon, config: {action: cordon}}
  - {type: eviction, name: drain, config: {action: drain}}
profiles:
- name: os
  operational:
    transitions:
    - {check: wanted, next: maintenance-required}
  maintenance-required:
    transitions:
    - {check: wanted, trigger: cordon && drain, next: in-maintenance}
"""
SHOP_LABELS = {"kubernetes.io/metadata.name": "shop"}


def pod_selectors(app: str) -> list[RawObject]:
    return [{"selector": {"matchLabels": {"app": app}}, "namespaceSelector": {"matchLabels": SHOP_LABELS}}]


async def annotate_drain_rules(cluster: LiveCluster, *rules: RawObject) -> None:
    """Have node n1 carry these rules, as the hub would write them."""
    text = msgspec.json.encode({"rules": rules}).decode() if rules else None
    await cluster.patch("nodes", "n1", metadata={"annotations": {DRAIN_RULES: text}})


def blocker_reasons(cluster: LiveCluster) -> dict[str, str]:
    return {blocker["pod"]: blocker["reason"] for blocker in status(cluster).get("blockers", ())}


def pods_on_n1(*names: str, **labels: str) -> list[Any]:
    return [a_pod(f"shop/{name}", on="n1", labels={"app": name} | labels) for name in names]


def a_plan(a_cluster: PlanFactory) -> ClusterPlan:
    return with_operator_rbac(a_cluster()).with_nodes(2).with_invariants(*invariants())


async def test_pods_leave_in_rule_order_and_skipped_pods_stay(a_cluster: PlanFactory) -> None:
    pods = pods_on_n1("web", "db", "cache", "vault") + pods_on_n1("pinned", **{DRAIN: "skip"})
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        await annotate_drain_rules(
            cluster,
            {"name": "10-web", "behavior": "Drain", "order": -1, "pods": pod_selectors("web")},
            {"name": "20-db", "behavior": "Drain", "order": 5, "pods": pod_selectors("db")},
            {"name": "30-vault", "behavior": "Skip", "pods": pod_selectors("vault")},
        )
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert cluster.pods_on("n1") == ["shop/pinned", "shop/vault"]
        in_order = ["shop/web", "shop/cache", "shop/db"]
        # A watch of a real server may deliver the end of the last pod after the status that relies on it.
        await cluster.eventually(lambda: _deleted_pods(cluster), becomes=in_order)
        evicted = [
            write.key
            for write in cluster.history
            if write.key.startswith("shop/") and _is_eviction(write.before, write.after)
        ]
        assert evicted == in_order


async def test_wait_completed_rule_delays_the_pod_until_the_rule_is_removed(a_cluster: PlanFactory) -> None:
    async with a_plan(a_cluster).with_objects(*pods_on_n1("batch", "web")).running() as cluster:
        await annotate_drain_rules(
            cluster, {"name": "jobs", "behavior": "WaitCompleted", "pods": pod_selectors("batch")}
        )
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: cluster.pods_on("n1"), becomes=["shop/batch"])
        await cluster.eventually(
            lambda: blocker_reasons(cluster),
            becomes={"shop/batch": "MachineDrainRule jobs waits until the pod has completed"},
        )
        assert phase(cluster) == "Running"
        await annotate_drain_rules(cluster)
        await wait_for_success(cluster)
        assert cluster.pods_on("n1") == []


async def test_pod_that_does_not_complete_in_time_is_evicted_and_the_status_has_the_deadline(
    a_cluster: PlanFactory,
) -> None:
    async with a_plan(a_cluster).with_objects(*pods_on_n1("batch", "web")).running() as cluster:
        await annotate_drain_rules(
            cluster, {"name": "jobs", "behavior": "WaitCompleted", "pods": pod_selectors("batch")}
        )
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"waitCompletedTimeout": "3s"})
        await cluster.eventually(lambda: status(cluster).get("drain", {}).get("startTime"))
        reason, started = (
            blocker_reasons(cluster)["shop/batch"],
            datetime.fromisoformat(status(cluster)["drain"]["startTime"]),
        )
        assert reason.startswith("MachineDrainRule jobs waits until the pod has completed; it is evicted at ")
        until = datetime.fromisoformat(
            reason.removesuffix(" UTC if it has not").rpartition(" evicted at ")[2] + "+00:00"
        )
        assert timedelta(seconds=3) <= until - started <= timedelta(seconds=4)
        await wait_for_success(cluster)
        assert cluster.pods_on("n1") == []
        (evicted_at,) = [
            write.written_at
            for write in cluster.history
            if write.key == "shop/batch" and _is_eviction(write.before, write.after)
        ]
        assert evicted_at >= until


async def test_invalid_rule_blocks_its_pods_until_it_is_corrected(a_cluster: PlanFactory) -> None:
    async with a_plan(a_cluster).with_objects(*pods_on_n1("web", "odd")).running() as cluster:
        await annotate_drain_rules(cluster, {"name": "odd", "behavior": "Explode", "pods": pod_selectors("odd")})
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: cluster.pods_on("n1"), becomes=["shop/odd"])
        await cluster.eventually(
            lambda: blocker_reasons(cluster),
            becomes={
                "shop/odd": "MachineDrainRule odd is invalid: "
                "behavior: found 'Explode', expected one of Drain, Skip, WaitCompleted"
            },
        )
        await annotate_drain_rules(cluster, {"name": "odd", "behavior": "Skip", "pods": pod_selectors("odd")})
        await wait_for_success(cluster)
        assert cluster.pods_on("n1") == ["shop/odd"]


async def test_profiles_apply_machine_drain_rules(a_cluster: PlanFactory, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(PROFILE)
    async with (
        with_operator_rbac(a_cluster())
        .with_nodes(2)
        .with_objects(*pods_on_n1("batch", "vault", "web"))
        .running() as cluster
    ):
        keeps_vault = {"name": "vault", "behavior": "Skip", "pods": pod_selectors("vault")}
        await annotate_drain_rules(
            cluster, keeps_vault, {"name": "jobs", "behavior": "WaitCompleted", "pods": pod_selectors("batch")}
        )
        cluster.run(operator_with_profiles(file))
        await set_profiles(cluster, "n1", "os")
        await cluster.patch("nodes", "n1", metadata={"labels": {"patch": "yes"}})
        await cluster.eventually(lambda: cluster.pods_on("n1"), becomes=["shop/batch", "shop/vault"])
        await cluster.pass_time(seconds=2)
        assert state(cluster, "n1") != "in-maintenance"
        await annotate_drain_rules(cluster, keeps_vault)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        assert cluster.pods_on("n1") == ["shop/vault"]


def _deleted_pods(cluster: LiveCluster) -> list[str]:
    return [write.key for write in cluster.history if write.kind.plural == "pods" and write.after is None]


def _is_eviction(before: RawObject | None, after: RawObject | None) -> bool:
    """Return whether a write starts the termination of a pod."""
    if before is None or after is None or after["kind"] != "Pod":
        return False
    return "deletionTimestamp" in after["metadata"] and "deletionTimestamp" not in before["metadata"]
