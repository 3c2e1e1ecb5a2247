"""A freeze: nothing new begins anywhere, what has begun is brought to its end, and what waited begins when it ends."""

from datetime import timedelta
from pathlib import Path

from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.operators.freezes import SHORTLY, freeze, freeze_status, unfreeze, with_freezes
from support.operators.nodemaintenance import (
    condition_of,
    create_maintenance,
    end_maintenance,
    event_reasons,
    has_lease,
    has_maintenance_marks,
    is_released,
    last_error,
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
FROZEN = "frozen by alice: Black Friday"


def with_nodes(plan: ClusterPlan, count: int) -> ClusterPlan:
    return with_freezes(with_operator_rbac(plan.with_nodes(count)))


async def test_maintenance_waits_for_the_end_of_a_freeze_without_a_change_of_its_node(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ONE)))
        await freeze(cluster)
        await cluster.eventually(lambda: freeze_status(cluster).get("phase"), becomes="Active")
        await create_maintenance(cluster, "n1", name="first")
        await cluster.eventually(lambda: condition_of(cluster, "Drained", "first"), becomes=("False", "Held"))
        assert last_error(cluster, "first") == f"node n1 is {FROZEN}"
        (blocker,) = status(cluster, "first")["blockers"]
        assert (blocker["object"], blocker["reason"]) == ("MaintenanceFreeze black-friday", FROZEN)
        assert blocker["remedy"].endswith("haulout unfreeze black-friday")
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")
        await cluster.eventually(lambda: event_reasons(cluster, "first"), becomes=["BeginMaintenance", "Held"])
        await unfreeze(cluster)
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"), within=SHORTLY)
        await wait_for_success(cluster, "first")
        assert "blockers" not in status(cluster, "first")


async def test_maintenance_in_progress_is_brought_to_its_end_and_its_node_uncordoned(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await set_profiles(cluster, "n2", "os")
        await annotate(cluster, "n2", "wanted", "")
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=IN_MAINTENANCE)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await freeze(cluster)
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        await annotate(cluster, "n2", "wanted", None)
        await annotate(cluster, "n2", "done", "")
        await cluster.eventually(lambda: state(cluster, "n2"), becomes="operational")
        assert is_released(cluster, "n2")


async def test_profile_enters_maintenance_when_the_freeze_expires(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")  # somebody leads now
        ends = await freeze(cluster, ends_in=timedelta(seconds=8))
        await cluster.eventually(lambda: freeze_status(cluster).get("phase"), becomes="Active")
        await annotate(cluster, "n1", "wanted", "")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        assert ends is not None
        assert timedelta() <= cluster.clock.now() - ends < cluster.settle_time
        await cluster.eventually(lambda: freeze_status(cluster).get("phase"), becomes="Ended")


async def test_freeze_begins_at_its_start(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await freeze(cluster, begins_in=timedelta(seconds=6))
        await cluster.eventually(lambda: freeze_status(cluster).get("phase"), becomes="Pending")
        await create_maintenance(cluster, "n1", name="before")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await cluster.eventually(lambda: freeze_status(cluster).get("phase"), becomes="Active")
        await create_maintenance(cluster, "n2", name="after")
        await cluster.eventually(lambda: condition_of(cluster, "Drained", "after"), becomes=("False", "Held"))
        await wait_for_success(cluster, "before")


async def test_two_freezes_must_both_end(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 1).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ONE)))
        await freeze(cluster, "first")
        await freeze(cluster, "second", reason="stocktaking")
        await cluster.eventually(lambda: freeze_status(cluster, "second").get("phase"), becomes="Active")
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: condition_of(cluster, "Drained"), becomes=("False", "Held"))
        await unfreeze(cluster, "first")
        await cluster.eventually(lambda: last_error(cluster), becomes="node n1 is frozen by alice: stocktaking")
        assert is_released(cluster, "n1")
        await unfreeze(cluster, "second")
        await wait_for_success(cluster)


async def test_freeze_selects_nodes_by_their_labels_also_those_that_join_later(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ONE)))
        await freeze(cluster, selector={"matchLabels": {"pool": "shop"}})
        await cluster.eventually(lambda: freeze_status(cluster).get("nodes"), becomes=0)
        await cluster.patch("nodes", "n1", metadata={"labels": {"pool": "shop"}})
        await cluster.eventually(lambda: freeze_status(cluster).get("nodes"), becomes=1)
        await create_maintenance(cluster, "n1", name="first")
        await cluster.eventually(lambda: condition_of(cluster, "Drained", "first"), becomes=("False", "Held"))
        await create_maintenance(cluster, "n2", name="second")
        await wait_for_success(cluster, "second")
        await end_maintenance(cluster, "second")
        await cluster.patch("nodes", "n1", metadata={"labels": {"pool": None}})
        await wait_for_success(cluster, "first")
        await cluster.eventually(lambda: freeze_status(cluster).get("nodes"), becomes=0)
