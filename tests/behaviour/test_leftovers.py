"""Leftovers of deleted owners are found and repaired, and nothing that has an owner is changed."""

import json
from contextlib import suppress

from haulout.api.resources import NODES
from haulout.budget.cordon_copies import CONFIG_MAP
from haulout.budget.slots import LEDGER, SLOT_WITHDRAWN_ANNOTATION
from haulout.budget.unavailable_nodes import RECOVERING_ANNOTATION
from haulout.cli.doctor import leftovers
from haulout.cli.doctor.leftovers import Examination
from haulout.controllers.nodemaintenance.node_lease import HOLDER
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION
from haulout.errors import AlreadyExists, NotFound
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.rbac import Permission
from haulout.kube.slot_ledger import Slot, SlotLedger, ledger_name
from support.clusters.cluster_plan import SERVICE_ACCOUNT, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.expectations.cordon_copies import cordon_copies
from support.operators.nodemaintenance import (
    NAME,
    PLURAL,
    a_lease,
    create_maintenance,
    delete_maintenance,
    has_lease,
    has_maintenance_marks,
    is_released,
    run_controller,
    started_by_nmo,
    taints_of,
    wait_for_success,
    with_nodemaintenance_crd,
    with_operator_rbac,
)

NAMESPACE = "haulout"
ORPHANED_CORDON = json.dumps({"owners": {"NodeMaintenance/torn-away": {"since": "2026-01-05T09:00:00Z"}}})
UNREADABLE = '{"owners": 7}'


async def remove_foreign_slots(cluster: LiveCluster) -> None:
    """Remove the slots that other tests left on the same control plane: they remove nodes that an operator holds."""
    with suppress(NotFound):
        await cluster.delete("configmaps", f"{NAMESPACE}/{ledger_name(LEDGER)}")
    with suppress(NotFound):
        await cluster.delete("configmaps", f"{NAMESPACE}/{CONFIG_MAP}")


async def add_slots(cluster: LiveCluster, *slots: tuple[str, str, str]) -> SlotLedger:
    """Add slots of NodeMaintenances: uid and name of a node, and its resourceVersion."""
    with suppress(AlreadyExists):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    ledger = SlotLedger(cluster.admin, namespace=NAMESPACE)

    async def is_held(_: Slot) -> bool:
        return True

    for uid, name, version in slots:
        slot = Slot(uid=uid, name=name, since=cluster.clock.now(), version=version, by=f"NodeMaintenance/{version}")
        await ledger.acquire(LEDGER, slot, limits=(), is_held=is_held)
    return ledger


async def examine(cluster: LiveCluster) -> Examination:
    return await leftovers.examine(cluster.admin, namespace=NAMESPACE)


async def repair(cluster: LiveCluster) -> None:
    for finding in (await examine(cluster)).findings:
        await leftovers.repair(cluster.admin, finding, namespace=NAMESPACE)


async def problems(cluster: LiveCluster) -> list[tuple[str, str]]:
    found = await examine(cluster)
    assert found.notes == ()
    return [(finding.object_name, finding.problem) for finding in found.findings]


async def create_orphaned_node(cluster: LiveCluster) -> None:
    """Create a node that is held for a deleted NodeMaintenance, without a running operator."""
    operator = cluster.run(run_controller)
    await create_maintenance(cluster, "n1")
    await wait_for_success(cluster)
    operator.kill()
    await cluster.patch(PLURAL, NAME, metadata={"finalizers": None})
    await delete_maintenance(cluster)


async def test_consistent_cluster_has_no_findings(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(2).running() as cluster:
        await remove_foreign_slots(cluster)
        assert await problems(cluster) == []
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert await problems(cluster) == [], "it is held"
        await repair(cluster)
        assert has_maintenance_marks(cluster, "n1")


async def test_leftovers_of_a_deleted_maintenance_are_repaired(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await remove_foreign_slots(cluster)
        await create_orphaned_node(cluster)
        assert await problems(cluster) == [
            ("node n1", f"held for NodeMaintenance {NAME}, which no longer exists"),
            ("lease medik8s-leases/node-n1", f"held by {HOLDER} without a NodeMaintenance for the node"),
        ]
        await repair(cluster)
        assert await problems(cluster) == []
        found = cluster.get("nodes", "n1")
        assert not found["spec"].get("unschedulable")
        assert not {CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION} & found["metadata"].get("annotations", {}).keys()
        assert "medik8s.io/drain:NoSchedule" not in taints_of(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def test_repair_keeps_a_user_cordon(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await cluster.cordon("n1")
        await create_orphaned_node(cluster)
        await repair(cluster)
        assert await problems(cluster) == []
        assert cluster.get("nodes", "n1")["spec"]["unschedulable"]
        assert "medik8s.io/drain:NoSchedule" not in taints_of(cluster, "n1")


async def test_node_without_a_cordon_annotation_is_repaired_by_its_taint(a_cluster: PlanFactory) -> None:
    """The Node Maintenance Operator writes no cordon annotation."""
    async with with_nodemaintenance_crd(a_cluster()).with_nodes(1).running() as cluster:
        await started_by_nmo(cluster, "n1", phase="Succeeded")
        assert await problems(cluster) == [], "the order is there"
        await cluster.patch(PLURAL, NAME, metadata={"finalizers": None})
        await delete_maintenance(cluster)
        assert [problem[0] for problem in await problems(cluster)] == ["node n1", "lease medik8s-leases/node-n1"]
        await repair(cluster)
        assert await problems(cluster) == []
        assert is_released(cluster, "n1")


async def test_annotations_without_an_owner_are_removed_and_the_cordon_is_kept(a_cluster: PlanFactory) -> None:
    async with with_nodemaintenance_crd(a_cluster()).with_nodes(2).running() as cluster:
        await cluster.cordon("n1")
        await cluster.patch("nodes", "n1", metadata={"annotations": {CORDON_ANNOTATION: '{"owners": 7}'}})
        await cluster.patch(
            "nodes", "n2", metadata={"annotations": {CORDON_ANNOTATION: "{}", CORDON_BACKUP_ANNOTATION: "{}"}}
        )
        assert await problems(cluster) == [
            ("node n1", f"annotation {CORDON_ANNOTATION} cannot be read, and there is no backup"),
            ("node n2", f"{CORDON_ANNOTATION} and {CORDON_BACKUP_ANNOTATION} without an owner"),
        ]
        await repair(cluster)
        assert await problems(cluster) == []
        assert cluster.get("nodes", "n1")["spec"]["unschedulable"]


async def test_taints_missing_in_the_cordon_annotation_are_removed(a_cluster: PlanFactory) -> None:
    async with with_nodemaintenance_crd(a_cluster()).with_nodes(1).running() as cluster:
        await remove_foreign_slots(cluster)
        await cluster.patch(
            "nodes",
            "n1",
            metadata={"annotations": {CORDON_ANNOTATION: ORPHANED_CORDON}},
            spec={"unschedulable": True, "taints": [{"key": "medik8s.io/drain", "effect": "NoSchedule"}]},
        )
        await repair(cluster)
        assert await problems(cluster) == []
        assert is_released(cluster, "n1")


async def test_unreadable_cordon_annotation_is_not_repaired_while_a_maintenance_exists(
    a_cluster: PlanFactory,
) -> None:
    async with with_nodemaintenance_crd(a_cluster()).with_nodes(1).running() as cluster:
        await remove_foreign_slots(cluster)
        await create_maintenance(cluster, "n1")
        await cluster.patch("nodes", "n1", metadata={"annotations": {CORDON_ANNOTATION: UNREADABLE}})
        assert await problems(cluster) == []


async def test_annotation_of_a_withdrawn_slot_is_removed(a_cluster: PlanFactory) -> None:
    async with with_nodemaintenance_crd(a_cluster()).with_nodes(1).running() as cluster:
        await remove_foreign_slots(cluster)
        await cluster.patch("nodes", "n1", metadata={"annotations": {SLOT_WITHDRAWN_ANNOTATION: "now"}})
        assert await problems(cluster) == [("node n1", f"annotation {SLOT_WITHDRAWN_ANNOTATION} is a leftover")]
        await repair(cluster)
        assert await problems(cluster) == []


async def test_recovering_annotation_of_a_deleted_maintenance_is_removed(
    a_cluster: PlanFactory,
) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await remove_foreign_slots(cluster)
        await create_maintenance(cluster, "n1")
        await cluster.patch("nodes", "n1", metadata={"annotations": {RECOVERING_ANNOTATION: f"{NAME},gone"}})
        named = f"annotation {RECOVERING_ANNOTATION} names NodeMaintenance gone, which no longer exists"
        assert await problems(cluster) == [("node n1", named)]
        await repair(cluster)
        assert await problems(cluster) == []
        assert cluster.get("nodes", "n1")["metadata"]["annotations"][RECOVERING_ANNOTATION] == NAME


async def test_node_taken_after_the_examination_is_not_repaired(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await remove_foreign_slots(cluster)
        await cluster.patch("nodes", "n1", metadata={"annotations": {CORDON_ANNOTATION: "{}"}})
        (finding,) = (await examine(cluster)).findings
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        held = cluster.get("nodes", "n1")["metadata"]["annotations"]
        await leftovers.repair(cluster.admin, finding, namespace=NAMESPACE)
        node = await cluster.admin.get(NODES, "n1")
        assert node.metadata.annotations[CORDON_ANNOTATION] == held[CORDON_ANNOTATION]
        assert has_maintenance_marks(cluster, "n1")


async def test_forbidden_resources_are_noted_and_cause_no_findings(a_cluster: PlanFactory) -> None:
    """Without access to NodeMaintenances it is unknown which annotations, taints and leases they own."""
    subject = {"kind": "ServiceAccount", "namespace": SERVICE_ACCOUNT[0], "name": SERVICE_ACCOUNT[1]}
    permitted = [Permission(("list",), *note, None, "") for note in (("", "nodes"), ("coordination.k8s.io", "leases"))]
    rights = rbac.roles("sees-nodes-and-leases", permitted, subject)
    async with with_operator_rbac(a_cluster(), rights).with_nodes(1).running() as cluster:
        await create_maintenance(cluster, "n1")
        await cluster.patch(
            "nodes",
            "n1",
            metadata={"annotations": {CORDON_ANNOTATION: ORPHANED_CORDON}},
            spec={"unschedulable": True, "taints": [{"key": "medik8s.io/drain", "effect": "NoSchedule"}]},
        )
        await cluster.create(a_lease("n1", holder=HOLDER, now=cluster.clock.now()))
        examinations: list[Examination] = []

        async def run_examination(client: Client) -> None:
            examinations.append(await leftovers.examine(client, namespace=NAMESPACE))

        cluster.run(run_examination)
        await cluster.eventually(lambda: examinations)
        (found,) = examinations
        assert found.findings == ()
        unchecked = [note.partition(" were not checked: ")[0] for note in found.notes]
        assert unchecked == [
            "NodeMaintenances and their leftovers",
            f"budget slots in namespace {NAMESPACE}",
            f"copies of cordon marks in namespace {NAMESPACE}",
        ]


async def test_several_deleted_owners_are_repaired_one_after_the_other(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1", name="a")
        await wait_for_success(cluster, "a")
        await create_maintenance(cluster, "n1", name="b")
        await cluster.eventually(
            lambda: "NodeMaintenance/b" in cluster.get("nodes", "n1")["metadata"]["annotations"][CORDON_ANNOTATION]
        )
        operator.kill()
        for name in ("a", "b"):
            await cluster.patch(PLURAL, name, metadata={"finalizers": None})
            await delete_maintenance(cluster, name)
        await repair(cluster)
        assert await problems(cluster) == []
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")


async def test_slots_of_deleted_or_returned_nodes_are_released(a_cluster: PlanFactory) -> None:
    async with with_nodemaintenance_crd(a_cluster()).with_nodes(1).running() as cluster:
        node = await cluster.admin.get(NODES, "n1")
        slots = (("gone", "n0", "1"), (node.uid, "n1", "1"), (node.uid, "n1", "99999999"), (node.uid, "n1", "?"))
        ledger = await add_slots(cluster, *slots)
        place = f"in ConfigMap {NAMESPACE}/{ledger_name(LEDGER)}"
        assert await problems(cluster) == [
            (f"slot of node n0 {place}", "held by NodeMaintenance, but the node was deleted"),
            (f"slot of node n1 {place}", "held by NodeMaintenance, but the node is back in service"),
        ]
        await repair(cluster)
        assert [slot.version for slot in await ledger.slots(LEDGER)] == ["99999999", "?"], (
            "they may be about to be used"
        )


async def test_slot_is_released_only_for_a_replaced_or_released_node(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(2).running() as cluster:
        await remove_foreign_slots(cluster)
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        held = await cluster.admin.get(NODES, "n1")
        await add_slots(cluster, (held.uid, "n1", "1"), ("of-an-earlier-n2", "n2", "99999999"))
        place = f"in ConfigMap {NAMESPACE}/{ledger_name(LEDGER)}"
        wanted = [(f"slot of node n2 {place}", "held by NodeMaintenance, but the node was deleted")]
        assert await problems(cluster) == wanted
        found = (await leftovers.examine(cluster.admin)).findings
        assert [(item.object_name, item.problem) for item in found] == wanted, "the namespace is found"


async def test_unreadable_ledger_is_noted_and_the_rest_is_examined(a_cluster: PlanFactory) -> None:
    async with with_nodemaintenance_crd(a_cluster()).with_nodes(1).running() as cluster:
        await remove_foreign_slots(cluster)
        await add_slots(cluster, ("gone", "n0", "1"))
        await cluster.patch("configmaps", f"{NAMESPACE}/{ledger_name(LEDGER)}", data={"slots": "?"})
        await cluster.create(a_lease("n1", holder=HOLDER, now=cluster.clock.now()))
        found = await examine(cluster)
        await remove_foreign_slots(cluster)
        assert [finding.object_name for finding in found.findings] == ["lease medik8s-leases/node-n1"]
        (note,) = found.notes
        assert note.startswith(f"slots of ConfigMap {NAMESPACE}/{ledger_name(LEDGER)} cannot be decoded")


async def test_lease_of_another_holder_is_kept(a_cluster: PlanFactory) -> None:
    async with with_nodemaintenance_crd(a_cluster()).with_nodes(1).running() as cluster:
        await remove_foreign_slots(cluster)
        await cluster.create(a_lease("n1", holder="NodeHealthCheck", now=cluster.clock.now()))
        assert await problems(cluster) == []


async def test_copy_of_a_cordon_without_an_owner_is_removed(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(2).running() as cluster:
        await remove_foreign_slots(cluster)
        held, free = (cluster.get("nodes", name)["metadata"]["uid"] for name in ("n1", "n2"))
        await cluster.cordon("n1")
        data = {f"{uid}.profiles": '{"node":"any"}' for uid in (held, free, "gone")}
        metadata = {"name": CONFIG_MAP, "namespace": NAMESPACE}
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        assert len(await problems(cluster)) == 2
        await repair(cluster)
        assert list(await cordon_copies(cluster, NAMESPACE)) == [f"{held}.profiles"]
        assert await problems(cluster) == []
