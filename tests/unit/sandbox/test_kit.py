"""The fixture family itself: clusters in one line, and waiting that explains itself."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.sandbox.invariants import OnlyOurCordonsLifted
from support.builders import a_config_map, a_deployment, a_node, a_pod
from support.clusters import a_cluster
from support.eventually import eventually


async def test_a_cluster_with_pools_and_workloads_takes_one_line(clock: Clock) -> None:
    shop = a_cluster(clock).with_nodes(6, zones=3).with_deployment("shop/cart", replicas=4, budget="75%")
    async with shop.running() as cluster:
        assert cluster.ready("shop/cart") == 4
        assert {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in cluster.objects("nodes")} == {
            "z1",
            "z2",
            "z3",
        }
        assert cluster.get("poddisruptionbudgets", "shop/cart")["status"]["disruptionsAllowed"] == 1


async def test_every_kind_of_workload_comes_up(clock: Clock) -> None:
    plan = a_cluster(clock).with_control_plane(3).with_nodes(3).with_stateful_set("shop/db", replicas=2, budget=1)
    plan = plan.with_daemon_set("shop/logs").with_objects(a_pod("shop/alone"), a_config_map("shop/settings"))
    async with plan.running() as cluster:
        assert sorted(cluster.kubelets.names) == ["cp1", "cp2", "cp3", "n1", "n2", "n3"]
        assert len(cluster.pods_of("shop/logs")) == 3
        assert cluster.pods_on("cp1") == []
        assert cluster.has("configmaps", "shop/settings")


async def test_waiting_in_vain_tells_what_was_seen_and_what_happened_last(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).with_deployment("shop/cart", replicas=2).running() as cluster:
        await cluster.cordon("n1")
        with pytest.raises(AssertionError) as caught:
            await cluster.eventually(lambda: cluster.ready("shop/cart"), becomes=3, within=timedelta(minutes=1))
    said = str(caught.value)
    assert said.startswith("not within 0:01:00: await cluster.eventually(lambda: cluster.ready")
    assert "it was 2, and not 3" in said
    assert "me patch nodes n1: spec.unschedulable = True" in said


async def test_waiting_outlasts_what_is_not_there_yet(clock: Clock) -> None:
    things: dict[str, int] = {}
    clock.call_at(clock.now() + timedelta(seconds=5), lambda: things.update(one=1))
    assert await eventually(clock, lambda: things["one"]) == 1
    with pytest.raises(AssertionError, match="it was KeyError\\('two'\\)"):
        await eventually(clock, lambda: things["two"], within=timedelta(seconds=1))


async def test_what_is_to_be_upheld_is_checked_on_the_whole_history(clock: Clock) -> None:
    plan = a_cluster(clock).with_nodes(1).upholding(OnlyOurCordonsLifted(operator={"me"}))
    async with plan.running() as cluster:
        await cluster.cordon("n1")
        await cluster.uncordon("n1")

    async def lift_anothers_cordon() -> None:
        async with plan.on_the_sandbox() as sandbox:
            node = sandbox.api.get("nodes", "n1")
            sandbox.api.put(node | {"spec": node["spec"] | {"unschedulable": True}})
            await sandbox.uncordon("n1")

    with pytest.raises(AssertionError, match="n1 was uncordoned, which test had cordoned"):
        await lift_anothers_cordon()


def test_sentences_about_objects_add_up_and_change_nothing_that_was_said_before() -> None:
    deployment = a_deployment("shop/cart")
    plain = a_pod("shop/cart-0")
    pod = plain.on("n1").owned_by(deployment).labelled({"app": "cart"}).acting({"hang": "true"}).running()
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"] == {
        "name": "cart-0",
        "namespace": "shop",
        "labels": {"app": "cart"},
        "annotations": {"sandbox.haulout.dev/hang": "true"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart", "uid": "uid-of-cart", "controller": True}
        ],
    }
    assert plain == a_pod("shop/cart-0")
    node = a_node().cordoned().tainted("dedicated").tainted("gone", "NoExecute", "yes")
    assert node["spec"] == {
        "unschedulable": True,
        "taints": [
            {"key": "dedicated", "effect": "NoSchedule"},
            {"key": "gone", "effect": "NoExecute", "value": "yes"},
        ],
    }
