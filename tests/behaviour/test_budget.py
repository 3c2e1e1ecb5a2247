"""One budget for all who take nodes out of service: profiles and people; nodes that are down count, too."""

from functools import partial
from pathlib import Path

from support.clusters import ClusterPlan, Plans
from support.live import LiveCluster
from support.maintaining import (
    countermand,
    entitled,
    events,
    has_lease,
    is_given_back,
    is_gone,
    is_taken,
    last_error,
    order,
    over,
    phase,
    says,
    status,
    succeeded,
)
from support.profiled import BY_ANNOTATIONS, a_file, annotate, attach, operating, state

IN_MAINTENANCE, REQUIRED = "in-maintenance", "maintenance-required"
ONE = "budget: [{max: 1}]\n"


def with_nodes(plan: ClusterPlan, count: int) -> ClusterPlan:
    return entitled(plan.with_nodes(count, zones=2))


def marks(cluster: LiveCluster, node: str) -> tuple[object, ...]:
    """Return what a maintenance would change of a node."""
    found = cluster.get("nodes", node)
    return found["spec"], found["metadata"].get("annotations"), found["metadata"].get("labels")


async def waits(cluster: LiveCluster, name: str) -> None:
    """Wait until an order says that it waits for the budget."""
    await cluster.eventually(lambda: says(cluster, "WithinBudget", name), becomes=("False", "BudgetUsedUp"))


async def test_an_order_beyond_the_budget_waits_without_touching_its_node_and_says_for_whom(
    a_cluster: Plans, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 2).running() as cluster:
        cluster.run(operating(a_file(tmp_path, ONE)))
        await order(cluster, "n1", name="first")
        await succeeded(cluster, "first")
        assert says(cluster, "WithinBudget", "first") == ("True", "Admitted")
        before = marks(cluster, "n2")
        await order(cluster, "n2", name="second")
        await waits(cluster, "second")
        assert phase(cluster, "second") == "Running"
        used = "1 of at most 1 node in the whole cluster out of service: n1 (NodeMaintenance first)"
        why = f"the budget is used up: {used}"
        assert last_error(cluster, "second") == why
        (blocker,) = status(cluster, "second")["blockers"]
        assert (blocker["kind"], blocker["object"], blocker["reason"]) == ("Budget", "budget: n1", why)
        assert marks(cluster, "n2") == before
        assert not has_lease(cluster, "n2")
        await cluster.eventually(lambda: events(cluster, "second"), becomes=["BeginMaintenance", "BudgetUsedUp"])
        await over(cluster, "first")
        await cluster.eventually(lambda: is_taken(cluster, "n2"), within=cluster.moment)
        await succeeded(cluster, "second")
        assert "blockers" not in status(cluster, "second")
        assert not last_error(cluster, "second")
        assert says(cluster, "WithinBudget", "second") == ("True", "Admitted")


async def test_orders_go_in_the_order_of_their_coming_and_one_that_is_withdrawn_just_ends(
    a_cluster: Plans, tmp_path: Path
) -> None:
    async with with_nodes(a_cluster(), 4).running() as cluster:
        cluster.run(operating(a_file(tmp_path, ONE)))
        for number, name in enumerate("dcba", 1):
            await order(cluster, f"n{number}", name=name)
            await cluster.eventually(partial(phase, cluster, name))
            await cluster.pass_time(seconds=1.1)  # creation is known to the second
        await succeeded(cluster, "d")
        await countermand(cluster, "c")
        await cluster.eventually(lambda: is_gone(cluster, "c"))
        assert is_given_back(cluster, "n2")
        await over(cluster, "d")
        await succeeded(cluster, "b")
        assert not is_taken(cluster, "n4")
        await over(cluster, "b")
        await succeeded(cluster, "a")


async def test_profiles_and_orders_share_it_and_orders_go_first(a_cluster: Plans, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 3).running() as cluster:
        cluster.run(operating(a_file(tmp_path, BY_ANNOTATIONS + ONE)))
        for node in ("n1", "n2"):
            await attach(cluster, node, "os")
        await annotate(cluster, "n1", "wanted", "")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        await annotate(cluster, "n2", "wanted", "")
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=REQUIRED)
        await order(cluster, "n3")
        await waits(cluster, "patch")
        assert "n1 (in maintenance by a profile)" in last_error(cluster)
        await annotate(cluster, "n1", "wanted", None)
        await annotate(cluster, "n1", "done", "")
        await cluster.eventually(lambda: is_taken(cluster, "n3"))
        assert state(cluster, "n2") == REQUIRED
        await over(cluster)
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=IN_MAINTENANCE, within=cluster.moment)


async def test_a_node_that_is_down_counts_and_may_be_taken_itself(a_cluster: Plans, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 3).running() as cluster:
        cluster.run(operating(a_file(tmp_path, ONE)))
        cluster.kill("n1")
        await cluster.eventually(lambda: not cluster.node_is_ready("n1"))
        await cluster.pass_time(seconds=65)
        await order(cluster, "n2", name="healthy")
        await waits(cluster, "healthy")
        assert "n1 (down since" in last_error(cluster, "healthy")
        await order(cluster, "n1", name="repair")
        await cluster.eventually(lambda: is_taken(cluster, "n1"))
        cluster.revive("n1")
        await cluster.eventually(lambda: "(NodeMaintenance repair)" in last_error(cluster, "healthy"))
        await over(cluster, "repair")
        await succeeded(cluster, "healthy")


async def test_a_limit_for_each_zone_keeps_nobody_waiting_in_another(a_cluster: Plans, tmp_path: Path) -> None:
    text = "budget:\n- max: 2\n- {max: 1, groupBy: [topology.kubernetes.io/zone]}\n"
    async with with_nodes(a_cluster(), 4).running() as cluster:
        zones = {
            name: it["metadata"]["labels"]["topology.kubernetes.io/zone"] for name, it in cluster.all("nodes").items()
        }
        first, same = (name for name in sorted(zones) if zones[name] == zones["n1"])
        other = next(name for name in sorted(zones) if zones[name] != zones["n1"])
        cluster.run(operating(a_file(tmp_path, text)))
        await order(cluster, first, name="first")
        await succeeded(cluster, "first")
        await order(cluster, same, name="same")
        await waits(cluster, "same")
        assert f"in topology.kubernetes.io/zone={zones['n1']} out of service" in last_error(cluster, "same")
        await order(cluster, other, name="other")
        await succeeded(cluster, "other")
        assert not is_taken(cluster, same)


async def test_an_edit_takes_effect_and_who_holds_a_node_goes_on(a_cluster: Plans, tmp_path: Path) -> None:
    file = a_file(tmp_path, "budget: [{max: 2}]\n")
    async with with_nodes(a_cluster(), 3).running() as cluster:
        cluster.run(operating(file))
        for node in ("n1", "n2"):
            await order(cluster, node, name=f"on-{node}")
            await succeeded(cluster, f"on-{node}")
        await order(cluster, "n3", name="on-n3")
        await waits(cluster, "on-n3")
        file.write_text(ONE)
        await cluster.eventually(lambda: "2 of at most 1 node" in last_error(cluster, "on-n3"))
        assert is_taken(cluster, "n1")
        assert is_taken(cluster, "n2")
        file.write_text("budget: [{max: 3}]\n")
        await succeeded(cluster, "on-n3")


async def test_a_file_with_a_budget_alone_leaves_the_labels_of_nodes_alone(a_cluster: Plans, tmp_path: Path) -> None:
    async with with_nodes(a_cluster(), 1).running() as cluster:
        cluster.run(operating(a_file(tmp_path, ONE)))
        await order(cluster, "n1")
        await succeeded(cluster)
        assert not state(cluster, "n1")
        await over(cluster)
        await cluster.eventually(lambda: is_given_back(cluster, "n1"))
