"""A NodeMaintenance with `spec.recovery` ends when the workloads that it evicted are available again."""

from datetime import timedelta
from pathlib import Path

from haulout.budget.unavailable_nodes import RECOVERING_ANNOTATION
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.operators.nodemaintenance import (
    PLURAL,
    create_maintenance,
    delete_maintenance,
    event_reasons,
    invariants,
    is_gone,
    is_released,
    last_error,
    run_controller,
    status,
    wait_for_success,
    with_operator_rbac,
)
from support.operators.profiles import a_configuration_file, annotation, operator_with_profiles
from support.operators.profiles_controller import is_cordoned

NOT_RECOVERED = "evicted from node n1 and not fully available again: Deployment shop/cart (0 of 1)"
BUDGET = """
intervals: {requeue: 1m}
budget: [{max: 1}]
"""


def with_pinned_deployment(plan: ClusterPlan) -> ClusterPlan:
    """Add a Deployment that requires node n1."""
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    return plan.with_nodes(2).with_deployment("shop/cart", replicas=1, pods=pods)


async def set_foreign_hostname(cluster: LiveCluster, name: str = "elsewhere") -> None:
    """Change the hostname label of node n1, so that the Deployment cannot be scheduled."""
    await cluster.patch("nodes", "n1", metadata={"labels": {"kubernetes.io/hostname": name}})


async def start_recovery(cluster: LiveCluster, **recovery: str) -> None:
    """Maintain node n1, and end the maintenance while the Deployment cannot be scheduled."""
    await create_maintenance(cluster, "n1", recovery=recovery)
    await wait_for_success(cluster)
    await set_foreign_hostname(cluster)
    await delete_maintenance(cluster)


async def wait_until_waiting(cluster: LiveCluster) -> None:
    """Wait until the maintenance waits for the Deployment."""
    await cluster.eventually(lambda: last_error(cluster).startswith(NOT_RECOVERED), within=timedelta(minutes=2))


async def test_recovery_uncordons_the_node_and_ends_when_workloads_are_available(a_cluster: PlanFactory) -> None:
    async with (
        with_pinned_deployment(with_operator_rbac(a_cluster())).with_invariants(*invariants()).running() as cluster
    ):
        cluster.run(run_controller)
        await start_recovery(cluster)
        await wait_until_waiting(cluster)
        assert not is_cordoned(cluster, "n1")
        assert annotation(cluster, "n1", RECOVERING_ANNOTATION) == "patch"
        assert status(cluster)["waitingFor"] == "node n1 to recover"
        assert status(cluster)["blockers"][0]["kind"] == "Recovery"
        await set_foreign_hostname(cluster, "n1")
        await cluster.eventually(lambda: is_gone(cluster))
        assert cluster.ready_pod_count("shop/cart") == 1
        assert is_released(cluster, "n1")
        await cluster.eventually(lambda: "WorkloadsRecovered" in event_reasons(cluster))


async def test_recovery_continues_with_the_same_workloads_after_a_restart(a_cluster: PlanFactory) -> None:
    async with (
        with_pinned_deployment(with_operator_rbac(a_cluster())).with_invariants(*invariants()).running() as cluster
    ):
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1", recovery={})
        await wait_for_success(cluster)
        operator.kill()
        await set_foreign_hostname(cluster)
        await delete_maintenance(cluster)
        operator.start()
        await wait_until_waiting(cluster)
        operator.kill()
        operator.start()
        await set_foreign_hostname(cluster, "n1")
        await cluster.eventually(lambda: is_gone(cluster))
        assert cluster.ready_pod_count("shop/cart") == 1
        assert is_released(cluster, "n1")


async def test_recovery_ends_at_its_timeout(a_cluster: PlanFactory) -> None:
    async with (
        with_pinned_deployment(with_operator_rbac(a_cluster())).with_invariants(*invariants()).running() as cluster
    ):
        cluster.run(run_controller)
        await start_recovery(cluster, timeout="3s")
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_released(cluster, "n1")
        await cluster.eventually(lambda: "RecoveryTimedOut" in event_reasons(cluster))


async def test_recovery_ends_when_the_field_is_removed(a_cluster: PlanFactory) -> None:
    async with (
        with_pinned_deployment(with_operator_rbac(a_cluster())).with_invariants(*invariants()).running() as cluster
    ):
        cluster.run(run_controller)
        await start_recovery(cluster)
        await wait_until_waiting(cluster)
        await cluster.patch(PLURAL, "patch", spec={"recovery": None})
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_released(cluster, "n1")


async def test_another_maintenance_of_the_node_ends_the_recovery(a_cluster: PlanFactory) -> None:
    async with with_pinned_deployment(with_operator_rbac(a_cluster())).running() as cluster:
        cluster.run(run_controller)
        await start_recovery(cluster)
        await wait_until_waiting(cluster)
        await create_maintenance(cluster, "n1", name="next")
        await cluster.eventually(lambda: is_gone(cluster))
        await wait_for_success(cluster, "next")
        assert annotation(cluster, "n1", RECOVERING_ANNOTATION) is None


async def test_maintenance_without_recovery_ends_at_once(a_cluster: PlanFactory) -> None:
    async with (
        with_pinned_deployment(with_operator_rbac(a_cluster())).with_invariants(*invariants()).running() as cluster
    ):
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await set_foreign_hostname(cluster)
        await delete_maintenance(cluster)
        await cluster.eventually(lambda: is_gone(cluster))
        assert cluster.ready_pod_count("shop/cart") == 0
        assert not any(RECOVERING_ANNOTATION in str(write.after) for write in cluster.history)


async def test_budget_slot_is_kept_until_recovery(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_pinned_deployment(with_operator_rbac(a_cluster())).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, BUDGET)))
        await start_recovery(cluster)
        await wait_until_waiting(cluster)
        await create_maintenance(cluster, "n2", name="next")
        await cluster.eventually(lambda: "workloads to recover" in last_error(cluster, "next"))
        assert not is_cordoned(cluster, "n2")
        await set_foreign_hostname(cluster, "n1")
        await cluster.eventually(lambda: is_gone(cluster))
        await wait_for_success(cluster, "next")
