"""Beyond the Node Maintenance Operator: cordon owners, concurrent changes, and restarts.

The numbers in docstrings are those of the acceptance cases in the specification.
"""

import asyncio
from datetime import timedelta

from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.errors import Conflict
from haulout.kube.patches import merge_patch
from haulout_sandbox.nodes import Delays
from support.builders.objects import a_pod
from support.clusters.cluster_plan import PlanFactory
from support.expectations.objects import condition_status, is_terminating
from support.operators.nodemaintenance import (
    EXCLUDE_LABEL,
    NAME,
    PLURAL,
    condition_of,
    create_maintenance,
    delete_maintenance,
    end_maintenance,
    event_reasons,
    has_lease,
    has_maintenance_marks,
    invariants,
    is_gone,
    is_released,
    last_error,
    phase,
    phases,
    run_controller,
    started_by_nmo,
    status,
    taints_of,
    wait_for_success,
    wait_until_blocked,
    with_blocking_pods,
    with_operator_rbac,
)

DRAIN_TAINT = {"key": "medik8s.io/drain", "effect": "NoSchedule"}


# The drain


async def test_replacement_of_the_same_name_on_another_node_is_kept(a_cluster: PlanFactory) -> None:
    """B01."""
    plan = with_operator_rbac(a_cluster()).with_nodes(2).with_stateful_set("shop/db", replicas=1, budget=1)
    async with plan.with_invariants(*invariants()).running() as cluster:
        node = cluster.get("pods", "shop/db-0")["spec"]["nodeName"]
        cluster.run(run_controller)
        await create_maintenance(cluster, node)
        await wait_until_blocked(cluster)
        await cluster.delete("pods", "shop/db-0")
        await wait_for_success(cluster)
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/db"), becomes=1)
        replacement = cluster.get("pods", "shop/db-0")
        assert replacement["spec"]["nodeName"] != node
        await cluster.pass_time(seconds=2)
        now = cluster.get("pods", "shop/db-0")
        assert now["metadata"]["uid"] == replacement["metadata"]["uid"]
        assert not is_terminating(now)


async def test_blocker_has_its_owner_and_advice(a_cluster: PlanFactory) -> None:
    async with with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(1), "n1").running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        (blocker,) = status(cluster)["blockers"]
        assert blocker["object"] == "PodDisruptionBudget shop/on-n1"
        assert blocker["workload"]
        assert blocker["remedy"]
        assert blocker["since"]
        assert status(cluster)["nextReconcile"]


async def test_deleted_blocked_maintenance_ends_within_seconds_beside_ten_others(
    a_cluster: PlanFactory,
) -> None:
    """B05."""
    names = [f"n{number}" for number in range(1, 12)]
    plan = with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(len(names)), *names).with_invariants(
        *invariants()
    )
    async with plan.running() as cluster:
        cluster.run(run_controller)
        for name in names:
            await create_maintenance(cluster, name, name=f"patch-{name}")
        for name in names:
            await wait_until_blocked(cluster, f"patch-{name}")
        await delete_maintenance(cluster, "patch-n7")
        await cluster.eventually(lambda: is_gone(cluster, "patch-n7"), within=cluster.settle_time)
        assert is_released(cluster, "n7")
        assert cluster.ready_pod_count("shop/on-n7") == 1
        others = [name for name in names if name != "n7"]
        assert all(has_maintenance_marks(cluster, name) for name in others)


async def test_pod_created_after_success_is_evicted(a_cluster: PlanFactory) -> None:
    """B09."""
    async with with_operator_rbac(a_cluster()).with_nodes(2).with_invariants(*invariants()).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.create(a_pod("shop/late", on="n1", behaviour={"stop-seconds": "1"}))
        await cluster.eventually(lambda: phases(cluster), becomes=["Running", "Succeeded"] * 2)
        assert not cluster.has("pods", "shop/late")
        assert 0 <= status(cluster)["drainProgress"] <= 100


async def test_changed_drain_policy_takes_effect_at_once(a_cluster: PlanFactory) -> None:
    plan = with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(2), "n1")
    async with plan.running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        rules = [{"name": "stay", "behavior": "Skip", "podSelector": {"matchLabels": {"app": "on-n1"}}}]
        await cluster.patch(PLURAL, NAME, spec={"drain": {"rules": rules}})
        await wait_for_success(cluster)
        assert cluster.ready_pod_count("shop/on-n1") == 1


async def test_timed_out_drain_fails_and_is_retried_after_an_edit(a_cluster: PlanFactory) -> None:
    """Failed is left by an edit of the object, and the node is held meanwhile."""
    plan = with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(2), "n1").with_invariants(*invariants())
    plan = plan.with_delays(Delays.zero())  # or the pod may take longer to end than the drain has time
    async with plan.running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"timeout": "2s"})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        assert condition_of(cluster, "Failed") == ("True", "DrainTimedOut")
        assert "was not drained within 2s" in last_error(cluster)
        assert has_maintenance_marks(cluster, "n1")
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await cluster.pass_time(seconds=2)
        assert phase(cluster) == "Failed"
        await cluster.patch(PLURAL, NAME, spec={"reason": "again"})
        await wait_for_success(cluster)
        assert condition_of(cluster, "Failed") == ("False", "Resumed")
        assert "lastError" not in status(cluster)


# Ownership of the node


async def test_user_cordon_is_kept(a_cluster: PlanFactory) -> None:
    """B06."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        await cluster.cordon("n1")
        await cluster.eventually(lambda: "node.kubernetes.io/unschedulable:NoSchedule" in taints_of(cluster, "n1"))
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        await cluster.pass_time(seconds=2)
        assert cluster.get("nodes", "n1")["spec"]["unschedulable"]
        assert taints_of(cluster, "n1") == {"node.kubernetes.io/unschedulable:NoSchedule"}
        await cluster.eventually(lambda: "CordonKept" in event_reasons(cluster, "n1", kind="Node"))


async def test_label_and_taint_that_existed_before_are_kept(a_cluster: PlanFactory) -> None:
    """B07."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        await cluster.patch("nodes", "n1", spec={"taints": [DRAIN_TAINT]}, metadata={"labels": {EXCLUDE_LABEL: "true"}})
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert has_maintenance_marks(cluster, "n1")
        await end_maintenance(cluster)
        assert taints_of(cluster, "n1") == {"medik8s.io/drain:NoSchedule"}
        assert cluster.get("nodes", "n1")["metadata"]["labels"][EXCLUDE_LABEL] == "true"
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")


async def test_uncordon_during_the_maintenance_is_reverted_with_an_event(a_cluster: PlanFactory) -> None:
    """B08."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.uncordon("n1")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"), within=timedelta(seconds=30))
        await cluster.eventually(lambda: "CordonRestored" in event_reasons(cluster))
        await end_maintenance(cluster)
        await cluster.eventually(lambda: is_released(cluster, "n1"))


async def test_two_maintenances_of_one_node_share_it_until_the_last_is_deleted(a_cluster: PlanFactory) -> None:
    """B11: with no webhook to refuse the second."""
    plan = (
        with_operator_rbac(a_cluster())
        .with_nodes(2)
        .with_objects(a_pod("shop/cart", on="n1"))
        .with_invariants(*invariants())
    )
    async with plan.running() as cluster:
        cluster.run(run_controller)
        await asyncio.gather(create_maintenance(cluster, "n1", name="a"), create_maintenance(cluster, "n1", name="b"))
        await wait_for_success(cluster, "a")
        await cluster.eventually(lambda: "already in maintenance by NodeMaintenance a" in last_error(cluster, "b"))
        await cluster.eventually(lambda: condition_of(cluster, "Cordoned", "b")[0], becomes="True")
        assert phases(cluster, "b") == ["Running"]
        await end_maintenance(cluster, "a")
        await wait_for_success(cluster, "b")
        assert has_maintenance_marks(cluster, "n1")
        assert has_lease(cluster, "n1")
        node = [write for write in cluster.history if write.kind.plural == "nodes" and write.key == "n1"]
        held = [bool(item.after and item.after["spec"].get("unschedulable")) for item in node]
        assert held[held.index(True) :] == [True] * (len(held) - held.index(True)), "it was never given back"
        await end_maintenance(cluster, "b")
        assert is_released(cluster, "n1")


async def test_taints_changed_concurrently_by_others_are_kept(a_cluster: PlanFactory) -> None:
    """B15."""
    wanted = {f"example.com/t{number}:PreferNoSchedule" for number in range(8)}
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:

        async def taint(number: int) -> bool:
            node = await cluster.admin.get(NODES.with_model(RawObject), "n1")
            more = {"key": f"example.com/t{number}", "effect": "PreferNoSchedule"}
            change = {
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                "spec": {"taints": [*node["spec"].get("taints", []), more]},
            }
            try:
                await cluster.admin.patch(NODES, "n1", merge_patch(change))
            except Conflict:
                return False
            return True

        async def interfere(first: int, last: int) -> None:
            for number in range(first, last):
                while not await taint(number):
                    pass

        cluster.run(run_controller)
        await asyncio.gather(create_maintenance(cluster, "n1"), interfere(0, 4))
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await wait_for_success(cluster)
        await asyncio.gather(end_maintenance(cluster), interfere(4, 8))
        await cluster.eventually(lambda: taints_of(cluster, "n1"), becomes=wanted)


# Migration and restarts


async def test_maintenance_started_by_the_node_maintenance_operator_is_adopted(a_cluster: PlanFactory) -> None:
    """Nothing happens to the node, and when the object is deleted all that the other operator did is undone."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await started_by_nmo(cluster, "n1", phase="Succeeded", drainProgress=100, totalpods=1, evictionPods=1)
        cluster.run(run_controller)
        await cluster.eventually(lambda: condition_of(cluster, "Cordoned")[0], becomes="True")
        await wait_for_success(cluster)
        assert phases(cluster) == ["Succeeded"]
        assert status(cluster)["totalpods"] == 1
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def test_restarted_operator_continues_the_drain(a_cluster: PlanFactory) -> None:
    plan = with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(2), "n1").with_objects(
        a_pod("shop/free", on="n1")
    )
    async with plan.with_invariants(*invariants()).running() as cluster:
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: status(cluster)["drainProgress"], becomes=50)
        await wait_until_blocked(cluster)
        began = status(cluster)["drain"]["startTime"]
        operator.kill()
        operator.start()
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await wait_for_success(cluster)
        maintenance_status = status(cluster)
        assert (
            maintenance_status["evictionPods"],
            maintenance_status["totalpods"],
            maintenance_status["drain"]["removed"],
        ) == (2, 2, 2)
        assert maintenance_status["drain"]["startTime"] == began


async def test_restart_does_not_change_a_succeeded_maintenance(a_cluster: PlanFactory) -> None:
    plan = with_operator_rbac(a_cluster()).with_nodes(2).with_objects(a_pod("shop/free", on="n1"))
    async with plan.running() as cluster:
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"timeout": "1m"})
        await wait_for_success(cluster)
        before = cluster.get(PLURAL, NAME)
        operator.kill()
        operator.start()
        await cluster.pass_time(seconds=2)
        assert cluster.get(PLURAL, NAME)["status"] == before["status"]
        assert condition_status(cluster.get("nodes", "n1"), "Drained")[0] == "True"
