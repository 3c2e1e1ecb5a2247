"""One budget for profiles and NodeMaintenances; nodes that are down count, too."""

from functools import partial
from pathlib import Path

from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.operators.nodemaintenance import (
    condition_of,
    create_maintenance,
    delete_maintenance,
    end_maintenance,
    event_reasons,
    has_lease,
    has_maintenance_marks,
    is_gone,
    is_released,
    last_error,
    phase,
    status,
    wait_for_success,
    with_operator_rbac,
)
from support.operators.profiles import (
    ANNOTATION_CONFIGURATION,
    a_configuration_file,
    annotate,
    operator_with_profiles,
    set_profiles,
    state,
)

IN_MAINTENANCE, REQUIRED = "in-maintenance", "maintenance-required"
ONE = "budget: [{max: 1}]\n"


def with_nodes(plan: ClusterPlan, count: int) -> ClusterPlan:
    return with_operator_rbac(plan.with_nodes(count, zones=2))


def maintenance_marks(cluster: LiveCluster, node: str) -> tuple[object, ...]:
    """Return what a maintenance would change of a node."""
    found = cluster.get("nodes", node)
    return found["spec"], found["metadata"].get("annotations"), found["metadata"].get("labels")


async def wait_until_waiting(cluster: LiveCluster, name: str) -> None:
    """Wait until a NodeMaintenance waits for the budget."""
    await cluster.eventually(lambda: condition_of(cluster, "WithinBudget", name), becomes=("False", "BudgetExhausted"))


async def test_maintenance_beyond_the_budget_waits_without_changing_its_node_and_names_the_holders(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ONE)))
        await create_maintenance(cluster, "n1", name="first")
        await wait_for_success(cluster, "first")
        assert condition_of(cluster, "WithinBudget", "first") == ("True", "Admitted")
        before = maintenance_marks(cluster, "n2")
        await create_maintenance(cluster, "n2", name="second")
        await wait_until_waiting(cluster, "second")
        assert phase(cluster, "second") == "Running"
        used = "1 of at most 1 node in the whole cluster out of service: n1 (NodeMaintenance first)"
        reason = f"the budget is used up: {used}"
        assert last_error(cluster, "second") == reason
        (blocker,) = status(cluster, "second")["blockers"]
        assert (blocker["kind"], blocker["object"], blocker["reason"]) == ("Budget", "budget: n1", reason)
        assert maintenance_marks(cluster, "n2") == before
        assert not has_lease(cluster, "n2")
        await cluster.eventually(
            lambda: event_reasons(cluster, "second"), becomes=["BeginMaintenance", "BudgetExhausted"]
        )
        await end_maintenance(cluster, "first")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n2"), within=cluster.settle_time)
        await wait_for_success(cluster, "second")
        assert "blockers" not in status(cluster, "second")
        assert not last_error(cluster, "second")
        assert condition_of(cluster, "WithinBudget", "second") == ("True", "Admitted")


async def test_waiting_maintenances_start_in_creation_order_and_a_deleted_one_is_skipped(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 4).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ONE)))
        for number, name in enumerate("dcba", 1):
            await create_maintenance(cluster, f"n{number}", name=name)
            await cluster.eventually(partial(phase, cluster, name))
            await cluster.pass_time(seconds=1.1)  # creation is known to the second
        await wait_for_success(cluster, "d")
        await delete_maintenance(cluster, "c")
        await cluster.eventually(lambda: is_gone(cluster, "c"))
        assert is_released(cluster, "n2")
        await end_maintenance(cluster, "d")
        await wait_for_success(cluster, "b")
        assert not has_maintenance_marks(cluster, "n4")
        await end_maintenance(cluster, "b")
        await wait_for_success(cluster, "a")


async def test_profiles_and_maintenances_share_the_budget_and_maintenances_go_first(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 3).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION + ONE)))
        for node in ("n1", "n2"):
            await set_profiles(cluster, node, "os")
        await annotate(cluster, "n1", "wanted", "")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        await annotate(cluster, "n2", "wanted", "")
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=REQUIRED)
        await create_maintenance(cluster, "n3")
        await wait_until_waiting(cluster, "patch")
        assert "n1 (in maintenance by a profile)" in last_error(cluster)
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n3"))
        assert state(cluster, "n2") == REQUIRED
        await end_maintenance(cluster)
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=IN_MAINTENANCE, within=cluster.settle_time)


async def test_node_that_is_down_counts_as_unavailable_and_may_be_maintained(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 3).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ONE)))
        cluster.stop_kubelet("n1")
        await cluster.eventually(lambda: not cluster.node_is_ready("n1"))
        await cluster.pass_time(seconds=65)
        await create_maintenance(cluster, "n2", name="healthy")
        await wait_until_waiting(cluster, "healthy")
        assert "n1 (down since" in last_error(cluster, "healthy")
        await create_maintenance(cluster, "n1", name="repair")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        cluster.start_kubelet("n1")
        await cluster.eventually(lambda: "(NodeMaintenance repair)" in last_error(cluster, "healthy"))
        await end_maintenance(cluster, "repair")
        await wait_for_success(cluster, "healthy")


async def test_limit_per_zone_does_not_delay_nodes_of_other_zones(a_cluster: PlanFactory, tmp_path: Path) -> None:
    text = "budget:\n- max: 2\n- {max: 1, groupBy: [topology.kubernetes.io/zone]}\n"
    async with with_nodes(a_cluster(), 4).running() as cluster:
        zones = {
            name: node["metadata"]["labels"]["topology.kubernetes.io/zone"]
            for name, node in cluster.by_key("nodes").items()
        }
        first, same = (name for name in sorted(zones) if zones[name] == zones["n1"])
        other = next(name for name in sorted(zones) if zones[name] != zones["n1"])
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, text)))
        await create_maintenance(cluster, first, name="first")
        await wait_for_success(cluster, "first")
        await create_maintenance(cluster, same, name="same")
        await wait_until_waiting(cluster, "same")
        assert f"in topology.kubernetes.io/zone={zones['n1']} out of service" in last_error(cluster, "same")
        await create_maintenance(cluster, other, name="other")
        await wait_for_success(cluster, "other")
        assert not has_maintenance_marks(cluster, same)


async def test_budget_edit_takes_effect_without_releasing_held_nodes(a_cluster: PlanFactory, tmp_path: Path) -> None:
    file = a_configuration_file(tmp_path, "budget: [{max: 2}]\n")
    async with with_nodes(a_cluster(), 3).running() as cluster:
        cluster.run(operator_with_profiles(file))
        for node in ("n1", "n2"):
            await create_maintenance(cluster, node, name=f"on-{node}")
            await wait_for_success(cluster, f"on-{node}")
        await create_maintenance(cluster, "n3", name="on-n3")
        await wait_until_waiting(cluster, "on-n3")
        file.write_text(ONE)
        await cluster.eventually(lambda: "2 of at most 1 node" in last_error(cluster, "on-n3"))
        assert has_maintenance_marks(cluster, "n1")
        assert has_maintenance_marks(cluster, "n2")
        file.write_text("budget: [{max: 3}]\n")
        await wait_for_success(cluster, "on-n3")


async def test_file_with_only_a_budget_does_not_label_nodes(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 1).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ONE)))
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert not state(cluster, "n1")
        await end_maintenance(cluster)
        await cluster.eventually(lambda: is_released(cluster, "n1"))
