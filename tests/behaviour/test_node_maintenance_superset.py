"""What the Node Maintenance Operator leaves to luck: who holds a node, what others do to it meanwhile, and restarts.

The numbers in docstrings are those of the acceptance cases in the specification.
"""

import asyncio
from datetime import timedelta

from haulout.errors import Conflict
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout_sandbox.nodes import Delays
from support.builders import a_pod
from support.clusters import Plans
from support.looking import condition, is_leaving
from support.maintaining import (
    EXCLUDE_LABEL,
    NAME,
    PLURAL,
    begun_by_nmo,
    blocked_on,
    countermand,
    entitled,
    events,
    has_lease,
    invariants,
    is_blocked,
    is_given_back,
    is_gone,
    is_taken,
    last_error,
    operate,
    order,
    over,
    phase,
    phases,
    says,
    status,
    succeeded,
    taints,
)

DRAIN_TAINT = {"key": "medik8s.io/drain", "effect": "NoSchedule"}


# The drain


async def test_a_replacement_under_the_same_name_on_another_node_is_left_alone(a_cluster: Plans) -> None:
    """B01."""
    plan = entitled(a_cluster()).with_nodes(2).with_stateful_set("shop/db", replicas=1, budget=1)
    async with plan.upholding(*invariants()).running() as cluster:
        node = cluster.get("pods", "shop/db-0")["spec"]["nodeName"]
        cluster.run(operate)
        await order(cluster, node)
        await is_blocked(cluster)
        await cluster.delete("pods", "shop/db-0")
        await succeeded(cluster)
        await cluster.eventually(lambda: cluster.ready("shop/db"), becomes=1)
        replacement = cluster.get("pods", "shop/db-0")
        assert replacement["spec"]["nodeName"] != node
        await cluster.pass_time(seconds=2)
        now = cluster.get("pods", "shop/db-0")
        assert now["metadata"]["uid"] == replacement["metadata"]["uid"]
        assert not is_leaving(now)


async def test_what_blocks_is_told_with_its_owner_and_what_to_do(a_cluster: Plans) -> None:
    async with blocked_on(entitled(a_cluster()).with_nodes(1), "n1").running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        (blocker,) = status(cluster)["blockers"]
        assert blocker["object"] == "PodDisruptionBudget shop/on-n1"
        assert blocker["workload"]
        assert blocker["advice"]
        assert blocker["since"]
        assert status(cluster)["nextLook"]


async def test_a_maintenance_deleted_while_it_is_blocked_ends_within_seconds_beside_ten_others(
    a_cluster: Plans,
) -> None:
    """B05."""
    names = [f"n{number}" for number in range(1, 12)]
    plan = blocked_on(entitled(a_cluster()).with_nodes(len(names)), *names).upholding(*invariants())
    async with plan.running() as cluster:
        cluster.run(operate)
        for name in names:
            await order(cluster, name, name=f"patch-{name}")
        for name in names:
            await is_blocked(cluster, f"patch-{name}")
        await countermand(cluster, "patch-n7")
        await cluster.eventually(lambda: is_gone(cluster, "patch-n7"), within=cluster.moment)
        assert is_given_back(cluster, "n7")
        assert cluster.ready("shop/on-n7") == 1
        others = [name for name in names if name != "n7"]
        assert all(is_taken(cluster, name) for name in others)


async def test_a_pod_that_comes_after_success_is_made_to_leave_too(a_cluster: Plans) -> None:
    """B09."""
    async with entitled(a_cluster()).with_nodes(2).upholding(*invariants()).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        await cluster.create(a_pod("shop/late", on="n1", act={"stop-seconds": "1"}))
        await cluster.eventually(lambda: phases(cluster), becomes=["Running", "Succeeded"] * 2)
        assert not cluster.has("pods", "shop/late")
        assert 0 <= status(cluster)["drainProgress"] <= 100


async def test_another_policy_counts_from_the_moment_it_is_written(a_cluster: Plans) -> None:
    plan = blocked_on(entitled(a_cluster()).with_nodes(2), "n1")
    async with plan.running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        rules = [{"name": "stay", "behavior": "Skip", "podSelector": {"matchLabels": {"app": "on-n1"}}}]
        await cluster.change(PLURAL, NAME, spec={"drain": {"rules": rules}})
        await succeeded(cluster)
        assert cluster.ready("shop/on-n1") == 1


async def test_a_drain_that_runs_out_of_time_fails_and_is_tried_again_when_it_is_edited(a_cluster: Plans) -> None:
    """Failed is left by an edit of the object, and the node is held meanwhile."""
    plan = blocked_on(entitled(a_cluster()).with_nodes(2), "n1").upholding(*invariants())
    plan = plan.with_delays(Delays.none())  # or the pod may take longer to end than the drain has time
    async with plan.running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1", drain={"timeout": "2s"})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        assert says(cluster, "Failed") == ("True", "DrainTimedOut")
        assert "was not drained within 2s" in last_error(cluster)
        assert is_taken(cluster, "n1")
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await cluster.pass_time(seconds=2)
        assert phase(cluster) == "Failed"
        await cluster.change(PLURAL, NAME, spec={"reason": "again"})
        await succeeded(cluster)
        assert says(cluster, "Failed") == ("False", "Resumed")
        assert "lastError" not in status(cluster)


# Whose the node is


async def test_a_node_cordoned_by_a_person_before_stays_cordoned(a_cluster: Plans) -> None:
    """B06."""
    async with entitled(a_cluster()).with_nodes(1).upholding(*invariants()).running() as cluster:
        await cluster.cordon("n1")
        await cluster.eventually(lambda: "node.kubernetes.io/unschedulable:NoSchedule" in taints(cluster, "n1"))
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        await over(cluster)
        await cluster.pass_time(seconds=2)
        assert cluster.get("nodes", "n1")["spec"]["unschedulable"]
        assert taints(cluster, "n1") == {"node.kubernetes.io/unschedulable:NoSchedule"}
        await cluster.eventually(lambda: "CordonKept" in events(cluster, "n1", kind="Node"))


async def test_a_label_and_a_taint_that_were_there_before_are_kept(a_cluster: Plans) -> None:
    """B07."""
    async with entitled(a_cluster()).with_nodes(1).upholding(*invariants()).running() as cluster:
        await cluster.change(
            "nodes", "n1", spec={"taints": [DRAIN_TAINT]}, metadata={"labels": {EXCLUDE_LABEL: "true"}}
        )
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        assert is_taken(cluster, "n1")
        await over(cluster)
        assert taints(cluster, "n1") == {"medik8s.io/drain:NoSchedule"}
        assert cluster.get("nodes", "n1")["metadata"]["labels"][EXCLUDE_LABEL] == "true"
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")


async def test_what_somebody_undoes_during_a_maintenance_is_restored_and_told(a_cluster: Plans) -> None:
    """B08."""
    async with entitled(a_cluster()).with_nodes(1).upholding(*invariants()).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        await cluster.uncordon("n1")
        await cluster.eventually(lambda: is_taken(cluster, "n1"), within=timedelta(seconds=30))
        await cluster.eventually(lambda: "CordonRestored" in events(cluster))
        await over(cluster)
        await cluster.eventually(lambda: is_given_back(cluster, "n1"))


async def test_two_maintenances_of_one_node_share_it_until_the_last_is_deleted(a_cluster: Plans) -> None:
    """B11: with no webhook to refuse the second."""
    plan = entitled(a_cluster()).with_nodes(2).with_objects(a_pod("shop/cart", on="n1")).upholding(*invariants())
    async with plan.running() as cluster:
        cluster.run(operate)
        await asyncio.gather(order(cluster, "n1", name="a"), order(cluster, "n1", name="b"))
        await succeeded(cluster, "a")
        await cluster.eventually(lambda: "already in maintenance by NodeMaintenance a" in last_error(cluster, "b"))
        await cluster.eventually(lambda: says(cluster, "Cordoned", "b")[0], becomes="True")
        assert phases(cluster, "b") == ["Running"]
        await over(cluster, "a")
        await succeeded(cluster, "b")
        assert is_taken(cluster, "n1")
        assert has_lease(cluster, "n1")
        node = [write for write in cluster.history if write.kind.plural == "nodes" and write.key == "n1"]
        held = [bool(it.after and it.after["spec"].get("unschedulable")) for it in node]
        assert held[held.index(True) :] == [True] * (len(held) - held.index(True)), "it was never given back"
        await over(cluster, "b")
        assert is_given_back(cluster, "n1")


async def test_taints_that_others_change_at_the_same_time_are_not_lost(a_cluster: Plans) -> None:
    """B15."""
    wanted = {f"example.com/t{number}:PreferNoSchedule" for number in range(8)}
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:

        async def taint(number: int) -> bool:
            node = await cluster.me.get(NODES.of(RawObject), "n1")
            more = {"key": f"example.com/t{number}", "effect": "PreferNoSchedule"}
            change = {
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                "spec": {"taints": [*node["spec"].get("taints", []), more]},
            }
            try:
                await cluster.me.patch(NODES, "n1", merge_patch(change))
            except Conflict:
                return False
            return True

        async def interfere(first: int, last: int) -> None:
            for number in range(first, last):
                while not await taint(number):
                    pass

        cluster.run(operate)
        await asyncio.gather(order(cluster, "n1"), interfere(0, 4))
        await cluster.eventually(lambda: is_taken(cluster, "n1"))
        await succeeded(cluster)
        await asyncio.gather(over(cluster), interfere(4, 8))
        await cluster.eventually(lambda: taints(cluster, "n1"), becomes=wanted)


# What was before us, and after


async def test_what_the_node_maintenance_operator_has_begun_is_taken_over(a_cluster: Plans) -> None:
    """Nothing happens to the node, and when the object is deleted all that the other operator did is undone."""
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        await begun_by_nmo(cluster, "n1", phase="Succeeded", drainProgress=100, totalpods=1, evictionPods=1)
        cluster.run(operate)
        await cluster.eventually(lambda: says(cluster, "Cordoned")[0], becomes="True")
        await succeeded(cluster)
        assert phases(cluster) == ["Succeeded"]
        assert status(cluster)["totalpods"] == 1
        await over(cluster)
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def test_a_successor_goes_on_where_an_operator_was_killed(a_cluster: Plans) -> None:
    plan = blocked_on(entitled(a_cluster()).with_nodes(2), "n1").with_objects(a_pod("shop/free", on="n1"))
    async with plan.upholding(*invariants()).running() as cluster:
        operator = cluster.run(operate)
        await order(cluster, "n1")
        await cluster.eventually(lambda: status(cluster)["drainProgress"], becomes=50)
        await is_blocked(cluster)
        began = status(cluster)["drain"]["startTime"]
        operator.kill()
        operator.start()
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await succeeded(cluster)
        said = status(cluster)
        assert (said["evictionPods"], said["totalpods"], said["drain"]["gone"]) == (2, 2, 2)
        assert said["drain"]["startTime"] == began


async def test_a_restart_changes_nothing_about_a_maintenance_that_has_succeeded(a_cluster: Plans) -> None:
    plan = entitled(a_cluster()).with_nodes(2).with_objects(a_pod("shop/free", on="n1"))
    async with plan.running() as cluster:
        operator = cluster.run(operate)
        await order(cluster, "n1", drain={"timeout": "1m"})
        await succeeded(cluster)
        before = cluster.get(PLURAL, NAME)
        operator.kill()
        operator.start()
        await cluster.pass_time(seconds=2)
        assert cluster.get(PLURAL, NAME)["status"] == before["status"]
        assert condition(cluster.get("nodes", "n1"), "Drained")[0] == "True"
