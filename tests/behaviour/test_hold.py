"""A hold: no maintenance starts on the node, one in progress continues, and the hold expires on time."""

from datetime import timedelta
from pathlib import Path

from haulout.api import hold
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.operators.nodemaintenance import (
    condition_of,
    create_maintenance,
    end_maintenance,
    event_reasons,
    has_lease,
    has_maintenance_marks,
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
    annotation,
    operator_with_profiles,
    set_profiles,
    state,
)

IN_MAINTENANCE, REQUIRED = "in-maintenance", "maintenance-required"
ONE = "budget: [{max: 1}]\n"


def with_nodes(plan: ClusterPlan, count: int) -> ClusterPlan:
    return with_operator_rbac(plan.with_nodes(count))


async def hold_node(cluster: LiveCluster, node: str, *, ends_in: timedelta | None = None) -> None:
    """Hold a node, as a person does."""
    until = None if ends_in is None else cluster.clock.now() + ends_in
    await annotate(cluster, node, hold.ANNOTATION, hold.format_annotation(reason="migration", by="alice", until=until))


async def test_maintenance_of_a_held_node_waits_without_changing_it_or_using_the_budget(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ONE)))
        await hold_node(cluster, "n1")
        await create_maintenance(cluster, "n1", name="first")
        await cluster.eventually(lambda: condition_of(cluster, "Drained", "first"), becomes=("False", "Held"))
        assert phase(cluster, "first") == "Running"
        assert last_error(cluster, "first") == "node n1 is held by alice: migration"
        (blocker,) = status(cluster, "first")["blockers"]
        assert (blocker["kind"], blocker["object"]) == ("Held", "hold of alice")
        assert blocker["reason"] == "held by alice: migration"
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")
        await cluster.eventually(lambda: event_reasons(cluster, "first"), becomes=["BeginMaintenance", "Held"])
        await create_maintenance(cluster, "n2", name="second")  # the budget is not spent on what waits
        await wait_for_success(cluster, "second")
        await end_maintenance(cluster, "second")
        await annotate(cluster, "n1", hold.ANNOTATION, None)
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"), within=cluster.settle_time)
        await wait_for_success(cluster, "first")
        assert "blockers" not in status(cluster, "first")


async def test_maintenance_in_progress_continues_and_keeps_the_hold(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await hold_node(cluster, "n1")
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        assert annotation(cluster, "n1", hold.ANNOTATION) == "by=alice; migration"  # people's, and theirs to take off


async def test_profile_waits_until_the_hold_expires(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")  # somebody leads now
        await hold_node(cluster, "n1", ends_in=timedelta(seconds=6))
        await annotate(cluster, "n1", "wanted", "")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        ends = hold.parse(annotation(cluster, "n1", hold.ANNOTATION) or "").until
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        assert ends is not None
        assert timedelta() <= cluster.clock.now() - ends < cluster.settle_time
        await hold_node(cluster, "n1")
        await annotate(cluster, "n1", "done", "")
        await annotate(cluster, "n1", "wanted", None)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")


async def test_invalid_hold_annotation_holds_the_node(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await annotate(cluster, "n1", hold.ANNOTATION, "until=tomorrow; tests")
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: condition_of(cluster, "Drained"), becomes=("False", "Held"))
        assert "expected a time such as 2026-12-01T03:00:00Z, found 'tomorrow'" in last_error(cluster)
