"""A person keeps new maintenance off a node: nothing begins on it, what has begun goes on, and it ends on time."""

from datetime import timedelta
from pathlib import Path

from haulout.kinds import hold
from support.clusters import ClusterPlan, Plans
from support.live import LiveCluster
from support.maintaining import (
    entitled,
    events,
    has_lease,
    is_given_back,
    is_taken,
    last_error,
    order,
    over,
    phase,
    says,
    status,
    succeeded,
)
from support.profiled import BY_ANNOTATIONS, a_file, annotate, annotation, attach, operating, state

IN_MAINTENANCE, REQUIRED = "in-maintenance", "maintenance-required"
ONE = "budget: [{max: 1}]\n"


def with_nodes(plan: ClusterPlan, count: int) -> ClusterPlan:
    return entitled(plan.with_nodes(count))


async def held(cluster: LiveCluster, node: str, *, ends_in: timedelta | None = None) -> None:
    """Hold a node, as a person does."""
    until = None if ends_in is None else cluster.clock.now() + ends_in
    await annotate(cluster, node, hold.ANNOTATION, hold.written(reason="migration", by="alice", until=until))


async def test_an_order_for_a_held_node_waits_without_touching_it_and_lets_others_go_first(
    a_cluster: Plans, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operating(a_file(tmp_path, ONE)))
        await held(cluster, "n1")
        await order(cluster, "n1", name="first")
        await cluster.eventually(lambda: says(cluster, "Drained", "first"), becomes=("False", "Held"))
        assert phase(cluster, "first") == "Running"
        assert last_error(cluster, "first") == "node n1 is held by alice: migration"
        (blocker,) = status(cluster, "first")["blockers"]
        assert (blocker["kind"], blocker["object"]) == ("Held", "hold of alice")
        assert blocker["reason"] == "held by alice: migration"
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")
        await cluster.eventually(lambda: events(cluster, "first"), becomes=["BeginMaintenance", "Held"])
        await order(cluster, "n2", name="second")  # the budget is not spent on what waits
        await succeeded(cluster, "second")
        await over(cluster, "second")
        await annotate(cluster, "n1", hold.ANNOTATION, None)
        await cluster.eventually(lambda: is_taken(cluster, "n1"), within=cluster.moment)
        await succeeded(cluster, "first")
        assert "blockers" not in status(cluster, "first")


async def test_what_has_begun_goes_on_and_is_given_back(a_cluster: Plans, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operating(a_file(tmp_path, BY_ANNOTATIONS)))
        await order(cluster, "n1")
        await cluster.eventually(lambda: is_taken(cluster, "n1"))
        await held(cluster, "n1")
        await succeeded(cluster)
        await over(cluster)
        assert is_given_back(cluster, "n1")
        assert annotation(cluster, "n1", hold.ANNOTATION) == "by=alice; migration"  # people's, and theirs to take off


async def test_a_profile_stays_where_it_is_until_the_hold_is_over_to_the_second(
    a_cluster: Plans, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operating(a_file(tmp_path, BY_ANNOTATIONS)))
        await attach(cluster, "n1", "os")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")  # somebody leads now
        await held(cluster, "n1", ends_in=timedelta(seconds=6))
        await annotate(cluster, "n1", "wanted", "")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        ends = hold.parse(annotation(cluster, "n1", hold.ANNOTATION) or "").until
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        assert ends is not None
        assert timedelta() <= cluster.clock.now() - ends < cluster.moment
        await held(cluster, "n1")
        await annotate(cluster, "n1", "done", "")
        await annotate(cluster, "n1", "wanted", None)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")


async def test_a_hold_that_nobody_understands_holds(a_cluster: Plans, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operating(a_file(tmp_path, BY_ANNOTATIONS)))
        await annotate(cluster, "n1", hold.ANNOTATION, "until=tomorrow; tests")
        await order(cluster, "n1")
        await cluster.eventually(lambda: says(cluster, "Drained"), becomes=("False", "Held"))
        assert "expected a time such as 2026-12-01T03:00:00Z, found 'tomorrow'" in last_error(cluster)
