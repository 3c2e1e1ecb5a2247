"""The acceptance cases of the runtime-extension-maintenance-controller, by their numbers in its specification.

Where the hub does better than that, both are tried: as it is by default, and with the setting by which it is as before.
"""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.hub.settings import OldApprovals
from haulout.hub.standing import Reach
from haulout.kinds.clusterapi import APPROVE_DELETION, APPROVE_MAINTENANCE, HOOK
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from support.hubs import Side, World

AS_BEFORE = OldApprovals.HONOUR


@pytest.fixture
async def world(clock: Clock) -> World:
    return await World(clock).begin()


@pytest.fixture
async def prod(world: World) -> Side:
    return await world.add_cluster("team-a", "prod")


async def test_1_and_2_a_node_that_nobody_manages_is_left_alone(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1", managed=False)
        await world.stays(lambda: world.hook(machine) is None, seconds=5)
        await world.delete(machine)
        await world.stays(lambda: not world.is_deleted(prod, machine), seconds=5)


async def test_3_4_and_5_a_deletion_is_held_until_it_is_approved(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1", managed=False)
        await world.mark(prod, machine, managed="operational")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete(machine)
        await world.eventually(lambda: world.is_deleted(prod, machine))
        assert world.has_hook(machine)
        await world.mark(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook(machine) is None)
        await world.mark(prod, machine, approve_deletion=None)
        await world.stays(lambda: world.hook(machine) is None)
    assert world.told() == ["DeletionRequested", "DeletionApproved"]
    assert world.told(prod.api) == ["DeletionRequested"]


async def test_5_and_11_as_before_the_hook_goes_with_an_approval_and_comes_back_without(
    world: World, prod: Side
) -> None:
    async with world.hub(old_approvals=AS_BEFORE):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.change(machine, metadata={"annotations": {HOOK: "runtime-extension-maintenance-controller"}})
        await world.stays(lambda: world.has_hook(machine), seconds=5)
        await world.mark(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook(machine) is None)
        await world.mark(prod, machine, approve_deletion=None)
        await world.eventually(lambda: world.has_hook(machine))
    assert not set(world.node(prod, machine)["metadata"].get("annotations", {}))


async def test_6_and_12_who_opts_out_is_let_go(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        other = await world.add_machine(prod, "m2")
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.has_hook(machine) and world.is_maintained(prod, machine))
        await world.label(machine, enabled=None)
        await world.eventually(lambda: world.hook(machine) is None)
        assert not world.is_maintained(prod, machine)
        assert world.has_hook(other)
        await world.change(other, metadata={"labels": None})
        await world.eventually(lambda: world.hook(other) is None)
    assert prod.open == 0


async def test_7_8_and_9_maintenance_is_asked_for_approved_and_ended(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintained(prod, machine))
        await world.mark(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.wish(machine), becomes="approved")
        assert world.is_maintained(prod, machine)
        await world.label(machine, maintenance=None)
        await world.eventually(lambda: not world.is_maintained(prod, machine))
        assert world.labels(prod, machine)[APPROVE_MAINTENANCE] == "true"
        await world.eventually(lambda: set(world.annotations(machine)), becomes={HOOK})
        assert not world.node(prod, machine)["metadata"].get("annotations")
    assert world.told() == ["MaintenanceRequested", "MaintenanceApproved"]


async def test_10_any_value_says_that_a_node_is_managed(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1", managed=False)
        await world.mark(prod, machine, managed="whatever")
        await world.eventually(lambda: world.has_hook(machine))


async def test_13_and_25_another_token_is_taken_up_within_seconds(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        for number in range(5):
            await world.clock.sleep(timedelta(minutes=10))
            await world.give_key(prod, f"token-{number}")
            await world.mark(prod, machine, managed=None)
            await world.eventually(lambda: world.hook(machine) is None, seconds=5)
            await world.mark(prod, machine, managed="operational")
            await world.eventually(lambda: world.has_hook(machine), seconds=5)
        reads = len(world.line.asked(method="GET", path="/secrets/")) if world.line else 0
        assert reads < 40  # every five minutes, and a few when the token had changed
        assert prod.open == 1


async def test_a_new_kubeconfig_is_used_before_the_old_one_fails(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        old = prod.lines[0]
        await world.give_key(prod, "second", keeps=True)
        await world.clock.sleep(timedelta(minutes=6))
        assert prod.open == 1
        assert prod.lines != [old]


async def test_17_only_the_exact_value_enables(world: World, prod: Side) -> None:
    async with world.hub():
        for number, value in enumerate(("True", "1", "yes", "")):
            machine = await world.add_machine(prod, f"m{number}", enabled=value)
            await world.stays(lambda machine=machine: world.hook(machine) is None, seconds=2)  # type: ignore[misc]  # a default


async def test_18_without_the_maintenance_controller_all_is_taken_off(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.label(machine, maintenance="requested")
        await world.delete(machine)
        await world.eventually(lambda: world.is_deleted(prod, machine) and world.is_maintained(prod, machine))
        await world.mark(prod, machine, managed=None)
        await world.eventually(lambda: world.hook(machine) is None)
        assert not world.is_deleted(prod, machine)
        assert not world.is_maintained(prod, machine)


async def test_19_foreign_hooks_are_never_touched(world: World, prod: Side) -> None:
    other = "pre-drain.delete.hook.machine.cluster.x-k8s.io/other"
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.change(machine, metadata={"annotations": {other: "me"}})
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete(machine)
        await world.eventually(lambda: world.is_deleted(prod, machine))
        await world.mark(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook(machine) is None)
        assert world.annotations(machine)[other] == "me"


async def test_20_what_a_kubelet_writes_meanwhile_stays(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete(machine)
        for number in range(20):
            await world.mark(prod, machine, **{f"example.org/l{number}": "x"})
        await world.eventually(lambda: world.is_deleted(prod, machine))
        labels = world.labels(prod, machine)
        assert all(labels[f"example.org/l{number}"] == "x" for number in range(20))


async def test_21_a_machine_without_a_node_is_not_patched(world: World, prod: Side) -> None:
    async with world.hub():
        await world.add_machine(prod, "m1", joined=False)
        await world.clock.sleep(timedelta(minutes=2))
    assert world.patches(world.api, "machines") == 0


async def test_22_a_node_that_cannot_be_patched_keeps_its_machine_held(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.has_hook(machine) and world.is_maintained(prod, machine))
        refusal = prod.lines[0].faults.before(method="PATCH", path="/nodes/", answer=500, times=None)
        await world.label(machine, enabled=None)
        await world.stays(lambda: world.has_hook(machine))
        prod.lines[0].faults.lift(refusal)
        await world.eventually(lambda: world.hook(machine) is None, seconds=600)
        assert not world.is_maintained(prod, machine)


async def test_23_as_before_a_second_request_is_approved_by_the_same_label(world: World, prod: Side) -> None:
    async with world.hub(old_approvals=AS_BEFORE):
        machine = await world.add_machine(prod, "m1")
        await world.label(machine, maintenance="requested")
        await world.mark(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.wish(machine), becomes="approved")
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.wish(machine), becomes="approved")


async def test_23_a_second_request_needs_a_second_approval(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintained(prod, machine))
        await world.mark(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.wish(machine), becomes="approved")
        await world.clock.sleep(timedelta(seconds=1))
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: not world.is_maintained(prod, machine))
        await world.stays(lambda: world.wish(machine) == "requested")
        await world.mark(prod, machine, approve_maintenance=None)  # as the profile does when it is not asked any more
        await world.eventually(lambda: world.is_maintained(prod, machine))
        await world.stays(lambda: world.wish(machine) == "requested")
        await world.mark(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.wish(machine), becomes="approved")


@pytest.mark.parametrize("way", ["silent", "away"])
async def test_24_one_of_twenty_clusters_delays_no_other(world: World, way: str) -> None:
    sides = [await world.add_cluster("fleet", f"c{number:02}") for number in range(20)]
    held = sides[7]
    if way == "silent":
        held.fall_silent()
    else:
        held.go_away()
    async with world.hub():
        began = world.clock.monotonic()
        machines = {side.key.name: await world.add_machine(side, f"m-{side.key.name}") for side in sides}
        others = [machines[it.key.name] for it in sides if it is not held]
        await world.eventually(lambda: all(map(world.has_hook, others)), seconds=3)
        for side in sides:
            await world.delete(machines[side.key.name])
        reachable = [it for it in sides if it is not held]
        await world.eventually(lambda: all(world.is_deleted(it, machines[it.key.name]) for it in reachable), seconds=3)
        assert world.clock.monotonic() - began < 5
        await world.eventually(lambda: _reach(world, held), becomes=Reach.UNREACHABLE)
        held.come_back()
        await world.eventually(lambda: world.is_deleted(held, machines[held.key.name]), seconds=120)
        assert _reach(world, held) is Reach.CONNECTED


async def test_24_a_cluster_that_is_slow_is_seen_to_and_delays_no_other(world: World) -> None:
    sides = [await world.add_cluster("fleet", f"c{number}") for number in range(5)]
    slow, others = sides[2], [it for it in sides if it is not sides[2]]
    slow.takes = timedelta(seconds=8)
    async with world.hub():
        machines = {it.key: await world.add_machine(it, f"m-{it.key.name}") for it in sides}
        await world.eventually(lambda: all(world.has_hook(machines[it.key]) for it in others), seconds=3)
        await world.eventually(lambda: world.has_hook(machines[slow.key]), seconds=60)
        for machine in machines.values():
            await world.delete(machine)
        await world.eventually(lambda: all(world.is_deleted(it, machines[it.key]) for it in others), seconds=3)
        assert not world.is_deleted(slow, machines[slow.key])
        await world.eventually(lambda: world.is_deleted(slow, machines[slow.key]), seconds=60)
        assert _reach(world, slow) is Reach.CONNECTED


def _reach(world: World, side: Side) -> Reach | None:
    standing = world.standing(side)
    return None if standing is None else standing.reach


async def test_26_a_secret_that_is_missing_for_a_while_is_waited_for(world: World, prod: Side) -> None:
    world.api.remove("secrets", "prod-kubeconfig", "team-a")
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: _reach(world, prod), becomes=Reach.UNREACHABLE)
        standing = world.standing(prod)
        assert standing is not None
        assert standing.reason == "there is no Secret team-a/prod-kubeconfig with its kubeconfig"
        await world.clock.sleep(timedelta(minutes=10))
        await world.give_key(prod, "new")
        await world.eventually(lambda: world.has_hook(machine), seconds=90)
        assert _reach(world, prod) is Reach.CONNECTED


async def test_27_clusters_of_the_same_name_work_side_by_side(world: World) -> None:
    sides = [await world.add_cluster(namespace, "prod") for namespace in ("a", "b")]
    async with world.hub():
        machines = [await world.add_machine(side, "m1") for side in sides]
        await world.eventually(lambda: all(map(world.has_hook, machines)))
        await world.label(machines[0], enabled=None)
        await world.eventually(lambda: world.hook(machines[0]) is None)
        await world.eventually(lambda: [it.open for it in sides], becomes=[0, 1])
        await world.delete(machines[1])
        await world.eventually(lambda: world.is_deleted(sides[1], machines[1]))
        assert not world.is_deleted(sides[0], machines[0])


async def test_28_a_hundred_clusters_that_come_and_go_leave_nothing_behind(world: World) -> None:
    async with world.hub() as hub:
        for number in range(100):
            side = await world.add_cluster("fleet", f"c{number}")
            machine = await world.add_machine(side, "m1")
            await world.eventually(lambda machine=machine: world.has_hook(machine))  # type: ignore[misc]  # a default
            await world.delete(machine)
            await world.end_machine(machine)
            await world.eventually(lambda side=side: side.open, becomes=0)  # type: ignore[misc]  # a default
        assert hub.standings() == ()
        assert not vars(hub)["_workloads"]
        assert not vars(hub)["_running"]
        assert not vars(hub)["_wanted"]


async def test_30_a_management_cluster_may_serve_v1beta1_only(clock: Clock) -> None:
    world = await World(clock, versions=("v1beta1",)).begin()
    prod = await world.add_cluster("team-a", "prod")
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete(machine)
        await world.eventually(lambda: world.is_deleted(prod, machine))
        await world.mark(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook(machine) is None)


async def test_31_an_approval_that_is_older_than_the_deletion_does_not_count(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.mark(prod, machine, approve_deletion="true")
        await world.stays(lambda: world.has_hook(machine))
        await world.delete(machine)
        await world.stays(lambda: world.has_hook(machine) and not world.is_deleted(prod, machine))
        assert "OldApproval" in world.told()
        assert "OldApproval" in world.told(prod.api)
        await world.mark(prod, machine, approve_deletion=None)
        await world.eventually(lambda: world.is_deleted(prod, machine))
        await world.mark(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook(machine) is None)


async def test_31_an_old_approval_can_be_cleared_by_the_hub(world: World, prod: Side) -> None:
    async with world.hub(old_approvals=OldApprovals.CLEAR):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.mark(prod, machine, approve_deletion="true")
        await world.delete(machine)
        await world.eventually(lambda: world.is_deleted(prod, machine))
        assert APPROVE_DELETION not in world.labels(prod, machine)
        await world.stays(lambda: world.has_hook(machine))
        await world.mark(prod, machine, approve_deletion="true")
        await world.eventually(lambda: world.hook(machine) is None)


async def test_32_a_deletion_is_not_held_longer_than_the_limit(world: World, prod: Side) -> None:
    async with world.hub(approval_timeout=timedelta(hours=2)):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete(machine)
        await world.clock.sleep(timedelta(minutes=90))
        assert world.has_hook(machine)
        assert world.told()[-1] == "ApprovalOverdue"
        await world.clock.sleep(timedelta(minutes=31))
        assert world.hook(machine) is None
        await world.clock.sleep(timedelta(seconds=5))
    assert world.told() == ["DeletionRequested", "ApprovalOverdue", "ApprovalTimedOut"]
    noted = world.events()[-1]
    assert noted["type"] == "Warning"
    assert noted["message"] == "nobody approved the deletion of node n-m1 within 2h: it is not held any longer"


# What was wrong there


async def test_a_cluster_that_is_deleted_holds_no_machine(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.delete(machine)
        await world.eventually(lambda: world.is_deleted(prod, machine))
        prod.go_away()
        await world.me.delete(world.clusters, "prod", namespace="team-a")
        await world.eventually(lambda: world.hook(machine) is None)
    assert world.told()[-1] == "ClusterDeleted"


async def test_a_cluster_that_stays_away_holds_no_machine_beyond_the_limit(world: World, prod: Side) -> None:
    async with world.hub(unreachable_after=timedelta(minutes=30)):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        prod.go_away()
        await world.delete(machine)
        await world.stays(lambda: world.has_hook(machine), seconds=1700)
        await world.eventually(lambda: world.hook(machine) is None, seconds=300)
        prod.come_back()
        await world.stays(lambda: world.hook(machine) is None, seconds=300)
    assert "ClusterUnreachable" in world.told()


async def test_without_a_limit_a_cluster_that_stays_away_holds_its_machines(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        prod.go_away()
        await world.delete(machine)
        await world.stays(lambda: world.has_hook(machine), seconds=86_400)
        prod.come_back()
        await world.eventually(lambda: world.is_deleted(prod, machine), seconds=90)


async def test_a_machine_whose_node_never_joined_may_go(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1", joined=False)
        await world.change(machine, metadata={"annotations": {HOOK: "runtime-extension-maintenance-controller"}})
        await world.stays(lambda: world.has_hook(machine), seconds=5)
        await world.delete(machine)
        await world.eventually(lambda: world.hook(machine) is None)


async def test_a_machine_whose_node_is_gone_may_go(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await prod.client.delete(NODES, "n-m1")
        await world.stays(lambda: world.has_hook(machine), seconds=5)
        await world.delete(machine)
        await world.eventually(lambda: world.hook(machine) is None)


async def test_who_opts_out_of_a_cluster_that_is_away_is_let_go_and_cleaned_up_later(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintained(prod, machine))
        prod.go_away()
        await world.clock.sleep(timedelta(seconds=30))
        await world.label(machine, enabled=None)
        await world.eventually(lambda: world.hook(machine) is None)
        prod.come_back()
        await world.eventually(lambda: not world.is_maintained(prod, machine), seconds=120)
        await world.eventually(lambda: prod.open, becomes=0)


async def test_who_opted_out_while_no_hub_ran_is_cleaned_up(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintained(prod, machine))
    await world.label(machine, enabled=None)
    async with world.hub():
        await world.eventually(lambda: world.hook(machine) is None)
        assert not world.is_maintained(prod, machine)
        await world.eventually(lambda: prod.open, becomes=0)


async def test_nothing_is_written_and_hardly_anything_asked_where_nothing_changes(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        bystander = await world.add_machine(prod, "m2", enabled=None)
        await world.eventually(lambda: world.has_hook(machine))
        await world.clock.sleep(timedelta(minutes=1))
        before = world.api.revision, prod.api.revision
        for _ in range(10):
            await world.change(bystander, metadata={"annotations": {"x": str(world.clock.now())}})
            await world.mark(prod, machine, **{"example.org/beat": None})
            await world.clock.sleep(timedelta(hours=1))
        assert (world.api.revision - before[0], prod.api.revision - before[1]) == (10, 0)


async def test_a_node_that_no_machine_became_is_nobodys_business(
    world: World, prod: Side, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.hub():
        await world.add_machine(prod, "m1")
        await prod.client.create(NODES, {"metadata": {"name": "stray", "labels": {"cloud.sap/maintenance-state": "x"}}})
        await world.clock.sleep(timedelta(minutes=5))
        await prod.client.patch(NODES, "stray", merge_patch({"metadata": {"labels": {APPROVE_DELETION: "true"}}}))
        await world.clock.sleep(timedelta(minutes=5))
    assert not [it for it in caplog.records if it.levelname in ("WARNING", "ERROR")]
    assert len(prod.api.get("nodes", "stray")["metadata"]["labels"]) == 2


async def test_a_cluster_restored_under_the_same_name_is_connected_to(world: World, prod: Side) -> None:
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        prod.go_away()
        world.api.remove("clusters.cluster.x-k8s.io", "prod", "team-a")
        again = await world.add_cluster("team-a", "prod")
        await world.give_key(again, "another")
        await again.client.create(NODES, {"metadata": {"name": "n-m1"}})
        await world.eventually(lambda: world.hook(machine) is None, seconds=120)
        await again.client.patch(
            NODES, "n-m1", merge_patch({"metadata": {"labels": {"cloud.sap/maintenance-state": "x"}}})
        )
        await world.eventually(lambda: world.has_hook(machine))
        assert (prod.open, again.open) == (0, 1)


async def test_what_a_kubeconfig_lacks_is_said(world: World, prod: Side) -> None:
    await world.me.patch(world.clusters, "prod", merge_patch({"metadata": {"labels": {"x": "y"}}}), namespace="team-a")
    secret = world.api.get("secrets", "prod-kubeconfig", "team-a")
    world.api.put({**secret, "data": {"other": "eA=="}})
    async with world.hub():
        await world.add_machine(prod, "m1")
        await world.eventually(lambda: _reach(world, prod), becomes=Reach.UNREACHABLE)
        standing = world.standing(prod)
        assert standing is not None
        assert standing.reason == "Secret team-a/prod-kubeconfig: value: expected a kubeconfig, found nothing"


async def test_a_request_that_was_made_by_the_controller_before_us_goes_on(world: World, prod: Side) -> None:
    machine = await world.add_machine(prod, "m1")
    await world.change(machine, metadata={"annotations": {HOOK: "runtime-extension-maintenance-controller"}})
    await world.delete(machine)
    await world.mark(
        prod,
        machine,
        approve_deletion="true",
        **{"runtime-extension-maintenance-controller.cloud.sap/machine-deleted": "true"},
    )
    async with world.hub():
        await world.eventually(lambda: world.hook(machine) is None)
