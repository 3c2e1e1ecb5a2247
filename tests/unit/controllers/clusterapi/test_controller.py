"""The acceptance cases of the runtime-extension-maintenance-controller, by their numbers in its specification.

Where the default differs, both are tested: the default, and the setting that keeps the old behaviour.
"""

from datetime import timedelta

import pytest

from haulout.api.clusterapi import APPROVE_DELETION, APPROVE_MAINTENANCE, PRE_DRAIN_HOOK
from haulout.api.resources import NODES
from haulout.controllers.clusterapi.settings import OldApprovals
from haulout.controllers.clusterapi.status import ConnectionState
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from support.platforms.hub import HubClusters, WorkloadCluster

LIKE_PREDECESSOR = OldApprovals.HONOUR


@pytest.fixture
async def world(clock: Clock) -> HubClusters:
    return await HubClusters(clock).install_crds()


@pytest.fixture
async def prod(world: HubClusters) -> WorkloadCluster:
    return await world.add_cluster("team-a", "prod")


async def test_1_and_2_unmanaged_node_is_left_alone(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1", managed=False)
        await world.assert_stays(lambda: world.hook_annotation(machine) is None, seconds=5)
        await world.delete_machine(machine)
        await world.assert_stays(lambda: not world.is_marked_deleted(prod, machine), seconds=5)


async def test_3_4_and_5_deletion_is_held_until_it_is_approved(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1", managed=False)
        await world.label_node(prod, machine, managed="operational")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete_machine(machine)
        await world.eventually(lambda: world.is_marked_deleted(prod, machine))
        assert world.has_hook(machine)
        await world.label_node(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook_annotation(machine) is None)
        await world.label_node(prod, machine, approve_deletion=None)
        await world.assert_stays(lambda: world.hook_annotation(machine) is None)
    assert world.event_reasons() == ["DeletionRequested", "DeletionApproved"]
    assert world.event_reasons(prod.api) == ["DeletionRequested"]


async def test_5_and_11_with_honour_the_hook_is_removed_by_an_approval_and_restored_without(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    async with world.running_hub(old_approvals=LIKE_PREDECESSOR):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.patch_machine(
            machine, metadata={"annotations": {PRE_DRAIN_HOOK: "runtime-extension-maintenance-controller"}}
        )
        await world.assert_stays(lambda: world.has_hook(machine), seconds=5)
        await world.label_node(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook_annotation(machine) is None)
        await world.label_node(prod, machine, approve_deletion=None)
        await world.eventually(lambda: world.has_hook(machine))
    assert not set(world.node_of(prod, machine)["metadata"].get("annotations", {}))


async def test_6_and_12_opting_out_releases_the_machine(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        other = await world.add_machine(prod, "m2")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.has_hook(machine) and world.is_maintenance_requested(prod, machine))
        await world.label_machine(machine, enabled=None)
        await world.eventually(lambda: world.hook_annotation(machine) is None)
        assert not world.is_maintenance_requested(prod, machine)
        assert world.has_hook(other)
        await world.patch_machine(other, metadata={"labels": None})
        await world.eventually(lambda: world.hook_annotation(other) is None)
    assert prod.open_connections == 0


async def test_7_8_and_9_maintenance_is_requested_approved_and_ended(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        await world.label_node(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.maintenance_label(machine), becomes="approved")
        assert world.is_maintenance_requested(prod, machine)
        await world.label_machine(machine, maintenance=None)
        await world.eventually(lambda: not world.is_maintenance_requested(prod, machine))
        assert world.node_labels(prod, machine)[APPROVE_MAINTENANCE] == "true"
        await world.eventually(lambda: set(world.annotations(machine)), becomes={PRE_DRAIN_HOOK})
        assert not world.node_of(prod, machine)["metadata"].get("annotations")
    assert world.event_reasons() == ["MaintenanceRequested", "MaintenanceApproved"]


async def test_10_any_label_value_marks_a_node_as_managed(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1", managed=False)
        await world.label_node(prod, machine, managed="whatever")
        await world.eventually(lambda: world.has_hook(machine))


async def test_13_and_25_rotated_token_is_used_within_seconds(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        for number in range(5):
            await world.clock.sleep(timedelta(minutes=10))
            await world.rotate_token(prod, f"token-{number}")
            await world.label_node(prod, machine, managed=None)
            await world.eventually(lambda: world.hook_annotation(machine) is None, seconds=5)
            await world.label_node(prod, machine, managed="operational")
            await world.eventually(lambda: world.has_hook(machine), seconds=5)
        reads = len(world.hub_transport.sent_requests(method="GET", path="/secrets/")) if world.hub_transport else 0
        assert reads < 40  # every five minutes, and a few when the token had changed
        assert prod.open_connections == 1


async def test_a_new_kubeconfig_is_used_before_the_old_one_fails(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        old = prod.hub_transports[0]
        await world.rotate_token(prod, "second", keep_old=True)
        await world.clock.sleep(timedelta(minutes=6))
        assert prod.open_connections == 1
        assert prod.hub_transports != [old]


async def test_17_only_the_value_true_enables_a_machine(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        for number, value in enumerate(("True", "1", "yes", "")):
            machine = await world.add_machine(prod, f"m{number}", enabled=value)
            await world.assert_stays(lambda machine=machine: world.hook_annotation(machine) is None, seconds=2)  # type: ignore[misc]  # a default


async def test_18_unmanaged_node_loses_hook_and_requests(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.delete_machine(machine)
        await world.eventually(
            lambda: world.is_marked_deleted(prod, machine) and world.is_maintenance_requested(prod, machine)
        )
        await world.label_node(prod, machine, managed=None)
        await world.eventually(lambda: world.hook_annotation(machine) is None)
        assert not world.is_marked_deleted(prod, machine)
        assert not world.is_maintenance_requested(prod, machine)


async def test_19_hooks_of_others_are_kept(world: HubClusters, prod: WorkloadCluster) -> None:
    other = "pre-drain.delete.hook.machine.cluster.x-k8s.io/other"
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.patch_machine(machine, metadata={"annotations": {other: "me"}})
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete_machine(machine)
        await world.eventually(lambda: world.is_marked_deleted(prod, machine))
        await world.label_node(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook_annotation(machine) is None)
        assert world.annotations(machine)[other] == "me"


async def test_20_concurrent_kubelet_labels_are_kept(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete_machine(machine)
        for number in range(20):
            await world.label_node(prod, machine, **{f"example.org/l{number}": "x"})
        await world.eventually(lambda: world.is_marked_deleted(prod, machine))
        labels = world.node_labels(prod, machine)
        assert all(labels[f"example.org/l{number}"] == "x" for number in range(20))


async def test_21_a_machine_without_a_node_is_not_patched(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        await world.add_machine(prod, "m1", has_node=False)
        await world.clock.sleep(timedelta(minutes=2))
    assert world.hub_write_count(world.api, "machines") == 0


async def test_22_machine_is_held_while_its_node_cannot_be_patched(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.has_hook(machine) and world.is_maintenance_requested(prod, machine))
        refusal = prod.hub_transports[0].faults.fail_before_effect(
            method="PATCH", path="/nodes/", response=500, times=None
        )
        await world.label_machine(machine, enabled=None)
        await world.assert_stays(lambda: world.has_hook(machine))
        prod.hub_transports[0].faults.remove(refusal)
        await world.eventually(lambda: world.hook_annotation(machine) is None, seconds=600)
        assert not world.is_maintenance_requested(prod, machine)


async def test_23_with_honour_a_second_request_is_approved_by_the_same_label(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    async with world.running_hub(old_approvals=LIKE_PREDECESSOR):
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.label_node(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.maintenance_label(machine), becomes="approved")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.maintenance_label(machine), becomes="approved")


async def test_23_a_second_request_needs_a_second_approval(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        await world.label_node(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.maintenance_label(machine), becomes="approved")
        await world.clock.sleep(timedelta(seconds=1))
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: not world.is_maintenance_requested(prod, machine))
        await world.assert_stays(lambda: world.maintenance_label(machine) == "requested")
        await world.label_node(
            prod, machine, approve_maintenance=None
        )  # as the profile does when it is not asked any more
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        await world.assert_stays(lambda: world.maintenance_label(machine) == "requested")
        await world.label_node(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.maintenance_label(machine), becomes="approved")


@pytest.mark.parametrize("way", ["silent", "away"])
async def test_24_one_unreachable_cluster_of_twenty_delays_no_other(world: HubClusters, way: str) -> None:
    sides = [await world.add_cluster("fleet", f"c{number:02}") for number in range(20)]
    held = sides[7]
    if way == "silent":
        held.stop_answering()
    else:
        held.become_unreachable()
    async with world.running_hub():
        began = world.clock.monotonic()
        machines = {side.key.name: await world.add_machine(side, f"m-{side.key.name}") for side in sides}
        others = [machines[candidate.key.name] for candidate in sides if candidate is not held]
        await world.eventually(lambda: all(map(world.has_hook, others)), seconds=3)
        for side in sides:
            await world.delete_machine(machines[side.key.name])
        reachable = [candidate for candidate in sides if candidate is not held]
        await world.eventually(
            lambda: all(world.is_marked_deleted(candidate, machines[candidate.key.name]) for candidate in reachable),
            seconds=3,
        )
        assert world.clock.monotonic() - began < 5
        await world.eventually(lambda: _connection_state(world, held), becomes=ConnectionState.UNREACHABLE)
        held.recover()
        await world.eventually(lambda: world.is_marked_deleted(held, machines[held.key.name]), seconds=120)
        assert _connection_state(world, held) is ConnectionState.CONNECTED


async def test_24_slow_cluster_is_reconciled_and_delays_no_other(world: HubClusters) -> None:
    sides = [await world.add_cluster("fleet", f"c{number}") for number in range(5)]
    slow, others = sides[2], [side for side in sides if side is not sides[2]]
    slow.latency = timedelta(seconds=8)
    async with world.running_hub():
        machines = {side.key: await world.add_machine(side, f"m-{side.key.name}") for side in sides}
        await world.eventually(lambda: all(world.has_hook(machines[side.key]) for side in others), seconds=3)
        await world.eventually(lambda: world.has_hook(machines[slow.key]), seconds=60)
        for machine in machines.values():
            await world.delete_machine(machine)
        await world.eventually(
            lambda: all(world.is_marked_deleted(side, machines[side.key]) for side in others), seconds=3
        )
        assert not world.is_marked_deleted(slow, machines[slow.key])
        await world.eventually(lambda: world.is_marked_deleted(slow, machines[slow.key]), seconds=60)
        assert _connection_state(world, slow) is ConnectionState.CONNECTED


def _connection_state(world: HubClusters, side: WorkloadCluster) -> ConnectionState | None:
    status = world.hub_status(side)
    return None if status is None else status.connection_state


async def test_26_missing_kubeconfig_secret_is_awaited(world: HubClusters, prod: WorkloadCluster) -> None:
    world.api.remove("secrets", "prod-kubeconfig", "team-a")
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: _connection_state(world, prod), becomes=ConnectionState.UNREACHABLE)
        status = world.hub_status(prod)
        assert status is not None
        assert status.reason == "there is no Secret team-a/prod-kubeconfig with its kubeconfig"
        await world.clock.sleep(timedelta(minutes=10))
        await world.rotate_token(prod, "new")
        await world.eventually(lambda: world.has_hook(machine), seconds=90)
        assert _connection_state(world, prod) is ConnectionState.CONNECTED


async def test_27_clusters_of_the_same_name_are_independent(world: HubClusters) -> None:
    sides = [await world.add_cluster(namespace, "prod") for namespace in ("a", "b")]
    async with world.running_hub():
        machines = [await world.add_machine(side, "m1") for side in sides]
        await world.eventually(lambda: all(map(world.has_hook, machines)))
        await world.label_machine(machines[0], enabled=None)
        await world.eventually(lambda: world.hook_annotation(machines[0]) is None)
        await world.eventually(lambda: [candidate.open_connections for candidate in sides], becomes=[0, 1])
        await world.delete_machine(machines[1])
        await world.eventually(lambda: world.is_marked_deleted(sides[1], machines[1]))
        assert not world.is_marked_deleted(sides[0], machines[0])


async def test_28_a_hundred_deleted_clusters_leave_no_state_behind(world: HubClusters) -> None:
    async with world.running_hub() as hub:
        for number in range(100):
            side = await world.add_cluster("fleet", f"c{number}")
            machine = await world.add_machine(side, "m1")
            await world.eventually(lambda machine=machine: world.has_hook(machine))  # type: ignore[misc]  # a default
            await world.delete_machine(machine)
            await world.finish_deletion(machine)
            await world.eventually(lambda side=side: side.open_connections, becomes=0)  # type: ignore[misc]  # a default
        assert hub.cluster_statuses() == ()
        assert not vars(hub)["_workloads"]
        assert not vars(hub)["_tasks"]
        assert not vars(hub)["_machines_to_manage"]


async def test_30_management_cluster_may_serve_v1beta1_only(clock: Clock) -> None:
    world = await HubClusters(clock, versions=("v1beta1",)).install_crds()
    prod = await world.add_cluster("team-a", "prod")
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete_machine(machine)
        await world.eventually(lambda: world.is_marked_deleted(prod, machine))
        await world.label_node(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook_annotation(machine) is None)


async def test_31_approval_older_than_the_deletion_does_not_count(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.label_node(prod, machine, approve_deletion="true")
        await world.assert_stays(lambda: world.has_hook(machine))
        await world.delete_machine(machine)
        await world.assert_stays(lambda: world.has_hook(machine) and not world.is_marked_deleted(prod, machine))
        assert "StaleApproval" in world.event_reasons()
        assert "StaleApproval" in world.event_reasons(prod.api)
        await world.label_node(prod, machine, approve_deletion=None)
        await world.eventually(lambda: world.is_marked_deleted(prod, machine))
        await world.label_node(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook_annotation(machine) is None)


async def test_31_with_clear_the_hub_removes_an_old_approval(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub(old_approvals=OldApprovals.CLEAR):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.label_node(prod, machine, approve_deletion="true")
        await world.delete_machine(machine)
        await world.eventually(lambda: world.is_marked_deleted(prod, machine))
        assert APPROVE_DELETION not in world.node_labels(prod, machine)
        await world.assert_stays(lambda: world.has_hook(machine))
        await world.label_node(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook_annotation(machine) is None)


async def test_32_deletion_is_held_no_longer_than_the_approval_timeout(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    async with world.running_hub(approval_timeout=timedelta(hours=2)):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete_machine(machine)
        await world.clock.sleep(timedelta(minutes=90))
        assert world.has_hook(machine)
        assert world.event_reasons()[-1] == "ApprovalOverdue"
        await world.clock.sleep(timedelta(minutes=31))
        assert world.hook_annotation(machine) is None
        await world.clock.sleep(timedelta(seconds=5))
    assert world.event_reasons() == ["DeletionRequested", "ApprovalOverdue", "ApprovalTimedOut"]
    noted = world.events()[-1]
    assert noted["type"] == "Warning"
    assert noted["message"] == "the deletion of node n-m1 was not approved within 2h: it is no longer held"


# Fixed defects of the predecessor


async def test_deleted_cluster_holds_no_machine(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete_machine(machine)
        await world.eventually(lambda: world.is_marked_deleted(prod, machine))
        prod.become_unreachable()
        await world.admin.delete(world.clusters, "prod", namespace="team-a")
        await world.eventually(lambda: world.hook_annotation(machine) is None)
    assert world.event_reasons()[-1] == "ClusterDeleted"


async def test_unreachable_cluster_holds_no_machine_beyond_the_limit(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub(unreachable_after=timedelta(minutes=30)):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        prod.become_unreachable()
        await world.delete_machine(machine)
        await world.assert_stays(lambda: world.has_hook(machine), seconds=1700)
        await world.eventually(lambda: world.hook_annotation(machine) is None, seconds=300)
        prod.recover()
        await world.assert_stays(lambda: world.hook_annotation(machine) is None, seconds=300)
    assert "ClusterUnreachable" in world.event_reasons()


async def test_unreachable_cluster_holds_its_machines_without_a_limit(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        prod.become_unreachable()
        await world.delete_machine(machine)
        await world.assert_stays(lambda: world.has_hook(machine), seconds=86_400)
        prod.recover()
        await world.eventually(lambda: world.is_marked_deleted(prod, machine), seconds=90)


async def test_machine_whose_node_never_joined_is_released(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1", has_node=False)
        await world.patch_machine(
            machine, metadata={"annotations": {PRE_DRAIN_HOOK: "runtime-extension-maintenance-controller"}}
        )
        await world.assert_stays(lambda: world.has_hook(machine), seconds=5)
        await world.delete_machine(machine)
        await world.eventually(lambda: world.hook_annotation(machine) is None)


async def test_machine_whose_node_was_deleted_is_released(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await prod.client.delete(NODES, "n-m1")
        await world.assert_stays(lambda: world.has_hook(machine), seconds=5)
        await world.delete_machine(machine)
        await world.eventually(lambda: world.hook_annotation(machine) is None)


async def test_opting_out_of_an_unreachable_cluster_releases_the_machine_and_cleans_up_later(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        prod.become_unreachable()
        await world.clock.sleep(timedelta(seconds=30))
        await world.label_machine(machine, enabled=None)
        await world.eventually(lambda: world.hook_annotation(machine) is None)
        prod.recover()
        await world.eventually(lambda: not world.is_maintenance_requested(prod, machine), seconds=120)
        await world.eventually(lambda: prod.open_connections, becomes=0)


async def test_machine_that_opted_out_while_no_hub_ran_is_cleaned_up(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
    await world.label_machine(machine, enabled=None)
    async with world.running_hub():
        await world.eventually(lambda: world.hook_annotation(machine) is None)
        assert not world.is_maintenance_requested(prod, machine)
        await world.eventually(lambda: prod.open_connections, becomes=0)


async def test_idle_hub_writes_nothing(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        bystander = await world.add_machine(prod, "m2", enabled=None)
        await world.eventually(lambda: world.has_hook(machine))
        await world.clock.sleep(timedelta(minutes=1))
        before = world.api.revision, prod.api.revision
        for _ in range(10):
            await world.patch_machine(bystander, metadata={"annotations": {"x": str(world.clock.now())}})
            await world.label_node(prod, machine, **{"example.org/beat": None})
            await world.clock.sleep(timedelta(hours=1))
        assert (world.api.revision - before[0], prod.api.revision - before[1]) == (10, 0)


async def test_node_without_a_machine_is_ignored(
    world: HubClusters, prod: WorkloadCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.running_hub():
        await world.add_machine(prod, "m1")
        await prod.client.create(NODES, {"metadata": {"name": "stray", "labels": {"cloud.sap/maintenance-state": "x"}}})
        await world.clock.sleep(timedelta(minutes=5))
        await prod.client.patch(NODES, "stray", merge_patch({"metadata": {"labels": {APPROVE_DELETION: "true"}}}))
        await world.clock.sleep(timedelta(minutes=5))
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert len(prod.api.get("nodes", "stray")["metadata"]["labels"]) == 2


async def test_cluster_restored_under_the_same_name_is_connected(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        prod.become_unreachable()
        world.api.remove("clusters.cluster.x-k8s.io", "prod", "team-a")
        again = await world.add_cluster("team-a", "prod")
        await world.rotate_token(again, "another")
        await again.client.create(NODES, {"metadata": {"name": "n-m1"}})
        await world.eventually(lambda: world.hook_annotation(machine) is None, seconds=120)
        await again.client.patch(
            NODES, "n-m1", merge_patch({"metadata": {"labels": {"cloud.sap/maintenance-state": "x"}}})
        )
        await world.eventually(lambda: world.has_hook(machine))
        assert (prod.open_connections, again.open_connections) == (0, 1)


async def test_kubeconfig_problem_is_reported_in_the_cluster_status(world: HubClusters, prod: WorkloadCluster) -> None:
    await world.admin.patch(
        world.clusters, "prod", merge_patch({"metadata": {"labels": {"x": "y"}}}), namespace="team-a"
    )
    secret = world.api.get("secrets", "prod-kubeconfig", "team-a")
    world.api.put({**secret, "data": {"other": "eA=="}})
    async with world.running_hub():
        await world.add_machine(prod, "m1")
        await world.eventually(lambda: _connection_state(world, prod), becomes=ConnectionState.UNREACHABLE)
        status = world.hub_status(prod)
        assert status is not None
        assert status.reason == "Secret team-a/prod-kubeconfig: value: expected a kubeconfig, found nothing"


async def test_request_of_the_previous_controller_is_continued(world: HubClusters, prod: WorkloadCluster) -> None:
    machine = await world.add_machine(prod, "m1")
    await world.patch_machine(
        machine, metadata={"annotations": {PRE_DRAIN_HOOK: "runtime-extension-maintenance-controller"}}
    )
    await world.delete_machine(machine)
    await world.label_node(
        prod,
        machine,
        approve_deletion="true",
        **{"runtime-extension-maintenance-controller.cloud.sap/machine-deleted": "true"},
    )
    async with world.running_hub():
        await world.eventually(lambda: world.hook_annotation(machine) is None)
