"""The fixture family itself: clusters in one line, and waiting that explains itself."""

from datetime import timedelta
from random import Random

import pytest

from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_config_map, a_deployment, a_lease, a_node, a_pod
from support.builders.write_history import WriteHistory
from support.clusters.cluster_plan import a_cluster
from support.expectations.eventually import eventually
from support.expectations.history_text import recent_writes
from support.expectations.invariant_checks import InvariantChecks
from support.invariants import OnlyOwnCordonsRemoved


async def test_a_cluster_with_pools_and_workloads_takes_one_line(clock: Clock) -> None:
    shop = a_cluster(clock).with_nodes(6, zones=3).with_deployment("shop/cart", replicas=4, budget="75%")
    async with shop.running() as cluster:
        assert cluster.ready_pod_count("shop/cart") == 4
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


async def test_a_timeout_reports_the_last_value_and_the_last_writes(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).with_deployment("shop/cart", replicas=2).running() as cluster:
        await cluster.cordon("n1")
        with pytest.raises(AssertionError) as caught:
            await cluster.eventually(
                lambda: cluster.ready_pod_count("shop/cart"), becomes=3, within=timedelta(minutes=1)
            )
    said = str(caught.value)
    assert said.startswith("not within 0:01:00: lambda: cluster.ready_pod_count")
    assert "it was 2, and not 3" in said
    assert "me patch nodes n1: spec.unschedulable = True" in said


async def test_waiting_outlasts_what_is_not_there_yet(clock: Clock) -> None:
    things: dict[str, int] = {}
    clock.call_at(clock.now() + timedelta(seconds=5), lambda: things.update(one=1))
    assert await eventually(clock, lambda: things["one"]) == 1
    with pytest.raises(AssertionError, match="it was KeyError\\('two'\\)"):
        await eventually(clock, lambda: things["two"], within=timedelta(seconds=1))


async def test_what_is_to_be_upheld_is_checked_on_the_whole_history(clock: Clock) -> None:
    plan = a_cluster(clock).with_nodes(1).with_invariants(OnlyOwnCordonsRemoved(operator={"me"}))
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


async def test_a_bare_server_has_its_invariants_upheld_too(clock: Clock, check_invariants: InvariantChecks) -> None:
    server, wrong = ApiServer(clock), InvariantChecks()
    ours, theirs = OnlyOwnCordonsRemoved(operator={"nobody"}), OnlyOwnCordonsRemoved(operator={"test"})
    check_invariants(lambda: server.history, ours)
    wrong(lambda: server.history, ours, theirs)
    server.put(a_node().ready())
    wrong.check()
    people = Client(server.transport("people"), clock=clock, random=Random(1))
    await people.patch(NODES, "n1", merge_patch({"spec": {"unschedulable": True}}))
    server.put(a_node().ready())
    with pytest.raises(AssertionError, match="what must hold did not:\n  OnlyOwnCordonsRemoved: n1 was uncordoned"):
        wrong.check()


def test_a_write_is_described_in_one_line() -> None:
    pod = a_pod("shop/cart-0").on("n1")
    history = WriteHistory().put(pod, by="me", verb="create").advance(seconds=1.5)
    history.put(pod.running(), by="kubelets").delete("pods", "shop/cart-0", by="kubelets").put(a_lease("shop/lock"))
    assert recent_writes(history) == [
        "09:00:00.000 #1 me create pods shop/cart-0: new",
        "09:00:01.500 #2 kubelets patch pods shop/cart-0: status.phase Pending -> Running, status.conditions",
        "09:00:01.500 #3 kubelets delete pods shop/cart-0: gone",
    ]
    assert len(recent_writes(history, noise=True)) == 4
    assert recent_writes(history, 1)[0].endswith("gone")


def test_many_changes_are_summarized() -> None:
    names = [f"label-{number}" for number in range(9)]
    history = WriteHistory().put(a_node()).put(a_node().labelled(dict.fromkeys(names, "x")))
    history.put(a_node().labelled({"a": "x"} | dict.fromkeys(names, "y" * 50)))
    assert recent_writes(history)[1].endswith("metadata.labels")
    assert recent_writes(history)[2].endswith("metadata.labels.label-4, and 4 more")


def test_builders_add_fields_and_do_not_change_earlier_objects() -> None:
    deployment = a_deployment("shop/cart")
    plain = a_pod("shop/cart-0")
    pod = (
        plain.on("n1").owned_by(deployment).labelled({"app": "cart"}).with_kubelet_behaviour({"hang": "true"}).running()
    )
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
