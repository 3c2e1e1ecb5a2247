"""What was left behind for an owner that is no more is found and repaired, and nothing that somebody holds is."""

from contextlib import suppress

from haulout.budget.slots import LEDGER
from haulout.cli import leftovers
from haulout.cli.leftovers import Examination
from haulout.drain.cordon import BACKUP, MARK
from haulout.errors import NotFound
from haulout.kube.ledger import Ledger, Slot, ledger_name
from haulout.kube.resources import NODES
from haulout.maintenance.lease import HOLDER
from support.clusters import Plans
from support.live import LiveCluster
from support.maintaining import (
    NAME,
    PLURAL,
    a_lease,
    begun_by_nmo,
    countermand,
    entitled,
    has_lease,
    is_given_back,
    is_taken,
    maintained,
    operate,
    order,
    succeeded,
    taints,
)

HOME = "haulout"


async def forget_slots(cluster: LiveCluster) -> None:
    """Remove the slots that other tests left on the same control plane: they remove nodes that an operator holds."""
    with suppress(NotFound):
        await cluster.delete("configmaps", f"{HOME}/{ledger_name(LEDGER)}")


async def examine(cluster: LiveCluster) -> Examination:
    return await leftovers.examine(cluster.me, namespace=HOME)


async def repair(cluster: LiveCluster) -> None:
    for finding in (await examine(cluster)).findings:
        await leftovers.repair(cluster.me, finding, namespace=HOME)


async def problems(cluster: LiveCluster) -> list[tuple[str, str]]:
    found = await examine(cluster)
    assert found.notes == ()
    return [(it.about, it.problem) for it in found.findings]


async def torn_away(cluster: LiveCluster) -> None:
    """Have a node held for a NodeMaintenance that is gone, with nobody to see to it."""
    operator = cluster.run(operate)
    await order(cluster, "n1")
    await succeeded(cluster)
    operator.kill()
    await cluster.change(PLURAL, NAME, metadata={"finalizers": None})
    await countermand(cluster)


async def test_a_cluster_in_order_has_no_findings(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(2).running() as cluster:
        await forget_slots(cluster)
        assert await problems(cluster) == []
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        assert await problems(cluster) == [], "it is held"
        await repair(cluster)
        assert is_taken(cluster, "n1")


async def test_what_a_maintenance_left_that_is_gone_is_repaired(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        await forget_slots(cluster)
        await torn_away(cluster)
        assert await problems(cluster) == [
            ("node n1", f"held for NodeMaintenance {NAME}, which is no more"),
            ("lease medik8s-leases/node-n1", f"held by {HOLDER} without a NodeMaintenance for the node"),
        ]
        await repair(cluster)
        assert await problems(cluster) == []
        found = cluster.get("nodes", "n1")
        assert not found["spec"].get("unschedulable")
        assert not {MARK, BACKUP} & found["metadata"].get("annotations", {}).keys()
        assert "medik8s.io/drain:NoSchedule" not in taints(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def test_a_node_that_a_person_had_cordoned_stays_cordoned_after_a_repair(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        await cluster.cordon("n1")
        await torn_away(cluster)
        await repair(cluster)
        assert await problems(cluster) == []
        assert cluster.get("nodes", "n1")["spec"]["unschedulable"]
        assert "medik8s.io/drain:NoSchedule" not in taints(cluster, "n1")


async def test_a_node_without_any_mark_is_repaired_by_its_taint(a_cluster: Plans) -> None:
    """The Node Maintenance Operator leaves no mark."""
    async with maintained(a_cluster()).with_nodes(1).running() as cluster:
        await begun_by_nmo(cluster, "n1", phase="Succeeded")
        assert await problems(cluster) == [], "the order is there"
        await cluster.change(PLURAL, NAME, metadata={"finalizers": None})
        await countermand(cluster)
        assert [it[0] for it in await problems(cluster)] == ["node n1", "lease medik8s-leases/node-n1"]
        await repair(cluster)
        assert await problems(cluster) == []
        assert is_given_back(cluster, "n1")


async def test_annotations_without_a_holder_are_removed_and_a_cordon_stays(a_cluster: Plans) -> None:
    async with maintained(a_cluster()).with_nodes(2).running() as cluster:
        await cluster.cordon("n1")
        await cluster.change("nodes", "n1", metadata={"annotations": {MARK: '{"owners": 7}'}})
        await cluster.change("nodes", "n2", metadata={"annotations": {MARK: "{}", BACKUP: "{}"}})
        assert await problems(cluster) == [
            ("node n1", f"annotation {MARK} cannot be read, and no backup is there"),
            ("node n2", f"{MARK} and {BACKUP} without a holder"),
        ]
        await repair(cluster)
        assert await problems(cluster) == []
        assert cluster.get("nodes", "n1")["spec"]["unschedulable"]


async def test_several_owners_that_are_gone_are_let_go_one_after_the_other(a_cluster: Plans) -> None:
    async with entitled(a_cluster()).with_nodes(1).running() as cluster:
        operator = cluster.run(operate)
        await order(cluster, "n1", name="a")
        await succeeded(cluster, "a")
        await order(cluster, "n1", name="b")
        await cluster.eventually(
            lambda: "NodeMaintenance/b" in cluster.get("nodes", "n1")["metadata"]["annotations"][MARK]
        )
        operator.kill()
        for name in ("a", "b"):
            await cluster.change(PLURAL, name, metadata={"finalizers": None})
            await countermand(cluster, name)
        await repair(cluster)
        assert await problems(cluster) == []
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")


async def test_slots_of_nodes_that_are_gone_or_back_in_service_are_given_back(a_cluster: Plans) -> None:
    async with maintained(a_cluster()).with_nodes(1).running() as cluster:
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "any", "namespace": HOME}})
        node = await cluster.me.get(NODES, "n1")
        ledger = Ledger(cluster.me, namespace=HOME)
        now = cluster.clock.now()

        async def is_held(_: Slot) -> bool:
            return True

        slots = (("gone", "n0", "1"), (node.uid, "n1", "1"), (node.uid, "n1", "99999999"), (node.uid, "n1", "?"))
        for uid, name, version in slots:
            slot = Slot(uid=uid, name=name, since=now, version=version, by=f"NodeMaintenance/{version}")
            await ledger.take(LEDGER, slot, limits=(), is_held=is_held)
        place = f"in ConfigMap {HOME}/{ledger_name(LEDGER)}"
        assert await problems(cluster) == [
            (f"slot of node n0 {place}", "held by NodeMaintenance, but the node is gone"),
            (f"slot of node n1 {place}", "held by NodeMaintenance, but the node is back in service"),
        ]
        await repair(cluster)
        assert [it.version for it in await ledger.slots(LEDGER)] == ["99999999", "?"], "they may be about to be used"


async def test_a_lease_of_somebody_else_is_left_alone(a_cluster: Plans) -> None:
    async with maintained(a_cluster()).with_nodes(1).running() as cluster:
        await forget_slots(cluster)
        await cluster.create(a_lease("n1", holder="NodeHealthCheck", now=cluster.clock.now()))
        assert await problems(cluster) == []
