"""How pods leave a node in maintenance: what `kubectl drain` promises, and what a drain needs beyond that.

The operator has the rights that we ship and no others. The numbers in docstrings are those of the acceptance cases in
the specification.
"""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from haulout.drain import blockers
from haulout.drain.policy import Policy
from haulout.drain.rehearsal import Rehearsal, rehearse
from haulout.drain.requests import Lane
from haulout.drain.selection import Filters
from haulout.kube.client import Client
from haulout.kube.resources import NODES
from haulout.kube.transport import Request
from haulout.maintenance import decision
from haulout.maintenance import lease as node_lease
from support.admitting import interceding
from support.builders import a_budget, a_pod
from support.clusters import ClusterPlan, Plans
from support.interposed import Interposed
from support.live import LiveCluster
from support.looking import is_leaving
from support.maintaining import (
    NAME,
    PLURAL,
    blocked_on,
    entitled,
    invariants,
    is_blocked,
    is_given_back,
    is_taken,
    last_error,
    lease,
    operate,
    order,
    over,
    phase,
    says,
    status,
    succeeded,
)
from support.permitting import rights
from support.webhooks import Behaviour, allows, denies

DELETING = rights(None, pod_deletion=True)
SLOW = {"stop-seconds": "600"}  # a pod that takes all the time that it is given


@pytest.fixture
def hasty(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have seconds stand for longer times where a test cannot skip them."""
    if request.config.getoption("--backend") == "real":
        monkeypatch.setattr(blockers, "_KUBELET_NEEDS", timedelta(seconds=1))
        monkeypatch.setattr(decision, "LEASE_TAKEN_AT_MOST_EVERY", timedelta(seconds=0.5))
        monkeypatch.setattr(node_lease, "DURATION", timedelta(seconds=4))
        monkeypatch.setattr(node_lease, "RENEWED_BEFORE_END", timedelta(seconds=2))


def a_plan(a_cluster: Plans, nodes: int = 2) -> ClusterPlan:
    return entitled(a_cluster(), DELETING).with_nodes(nodes).upholding(*invariants())


def kinds(cluster: LiveCluster) -> dict[str, str]:
    """Return what stands in the way, by pod."""
    return {it["pod"]: it["kind"] for it in status(cluster).get("blockers", ())}


def deletions(answers: Interposed) -> list[Request]:
    return [it for it in answers.asked if it.method == "DELETE" and "/pods/" in it.path]


def evictions(answers: Interposed) -> list[Request]:
    return [it for it in answers.asked if it.path.endswith("/eviction")]


# How pods are asked


async def test_a_server_that_has_no_evictions_is_asked_to_delete(a_cluster: Plans) -> None:
    """A33, A34: only the pods of the node go."""
    pods = [a_pod("shop/cart", on="n1"), a_pod("shop/other", on="n2")]
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        answers = Interposed()
        resources = {"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod"}]}
        answers.give(200, when=lambda it: it.path == "/api/v1", body=resources)
        cluster.run(answers.before(operate))
        await order(cluster, "n1")
        await succeeded(cluster)
        assert evictions(answers) == []
        assert [it.path.rpartition("/")[2] for it in deletions(answers)] == ["cart"]
        assert cluster.pods_on("n2") == ["shop/other"]


async def test_where_evictions_are_not_wanted_no_budget_is_asked(a_cluster: Plans) -> None:
    """A34. The budget lets nobody go, and is broken with open eyes."""
    plan = blocked_on(entitled(a_cluster(), DELETING).with_nodes(2), "n1")
    async with plan.upholding(*invariants()[1:]).running() as cluster:
        answers = Interposed()
        cluster.run(answers.before(operate))
        await order(cluster, "n1", drain={"disableEviction": True})
        await succeeded(cluster)
        assert evictions(answers) == []
        assert len(deletions(answers)) == 1


async def test_the_grace_that_is_asked_for_is_passed_on(a_cluster: Plans) -> None:
    """A34."""
    plan = entitled(a_cluster()).with_nodes(2).upholding(*invariants(hurries=lambda *_: True))
    async with plan.with_objects(a_pod("shop/cart", on="n1", act=SLOW)).running() as cluster:
        answers = Interposed()
        cluster.run(answers.before(operate))
        await order(cluster, "n1", drain={"gracePeriod": "2s"})
        await cluster.eventually(lambda: is_leaving(cluster.get("pods", "shop/cart")))
        assert cluster.get("pods", "shop/cart")["metadata"]["deletionGracePeriodSeconds"] == 2
        (asked,) = evictions(answers)
        assert msgspec.json.decode(asked.body or b"")["deleteOptions"]["gracePeriodSeconds"] == 2
        await succeeded(cluster)


@pytest.mark.parametrize("disable_eviction", [False, True], ids=["by eviction", "by deletion"])
async def test_a_dry_run_changes_nothing_and_returns_at_once(a_cluster: Plans, *, disable_eviction: bool) -> None:
    """A35."""
    pods = [a_pod(f"shop/cart-{number}", on="n1") for number in range(3)]
    policy = Policy(filters=Filters(force=True), disable_eviction=disable_eviction)
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        found: list[Rehearsal] = []

        async def rehearsing(client: Client) -> None:
            found.append(await rehearse(client, [await client.get(NODES, "n1")], policy, lane=Lane(client)))

        cluster.run(rehearsing)
        await cluster.eventually(lambda: bool(found))
        (node,) = found[0].nodes
        assert node.leaving == ("shop/cart-0", "shop/cart-1", "shop/cart-2")
        assert (node.blockers, node.refusals) == ((), ())
        assert cluster.pods_on("n1") == list(node.leaving)
        assert is_given_back(cluster, "n1")


@pytest.mark.parametrize(
    ("drain", "stay"),
    [
        ({"podSelector": {"matchLabels": {"app": "nobody"}}}, ["shop/cart", "shop/vault"]),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, []),
        (
            {"rules": [{"name": "keep", "behavior": "Skip", "podSelector": {"matchLabels": {"app": "vault"}}}]},
            ["shop/vault"],
        ),
        ({}, []),
    ],
    ids=["skip all", "okay all", "skip after okay", "none"],
)
async def test_further_filters_say_who_stays(a_cluster: Plans, drain: dict[str, object], stay: list[str]) -> None:
    """A36."""
    pods = [a_pod(f"shop/{name}", on="n1", labels={"app": name}) for name in ("cart", "vault")]
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1", drain=drain)
        await succeeded(cluster)
        assert cluster.pods_on("n1") == stay


# How they are waited for


async def test_a_drain_without_an_end_runs_into_its_deadline_and_one_that_is_withdrawn_ends(a_cluster: Plans) -> None:
    """A32."""
    pod = a_pod("shop/slow", on="n1", grace=60, act={"stop-seconds": "8"})
    async with a_plan(a_cluster).with_objects(pod).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1", drain={"timeout": "2s"})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        assert says(cluster, "Failed") == ("True", "DrainTimedOut")
        assert "shop/slow" in last_error(cluster)
        await over(cluster)
        assert is_given_back(cluster, "n1")
        await order(cluster, "n1", name="again")
        await cluster.eventually(lambda: bool(status(cluster, "again").get("drain", {}).get("leaving")))
        await over(cluster, "again")
        assert is_given_back(cluster, "n1")
        await cluster.eventually(lambda: not cluster.has("pods", "shop/slow"))


async def test_a_pod_on_a_node_that_cannot_be_reached_is_told_of_and_skipped_if_so_wished(
    a_cluster: Plans, hasty: None
) -> None:
    """A32, A38, B12."""
    del hasty
    pods = [a_pod("shop/free", on="n2"), a_pod("shop/stuck", on="n1", grace=1)]
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        cluster.run(operate)
        cluster.kill("n1")
        await order(cluster, "n1")
        await cluster.eventually(lambda: kinds(cluster), becomes={"shop/stuck": "Kubelet"})
        (blocker,) = status(cluster)["blockers"]
        assert (blocker["object"], phase(cluster)) == ("Node n1", "Running")
        assert "its kubelet does not confirm that it ended" in blocker["reason"]
        await cluster.change(PLURAL, NAME, spec={"drain": {"skipWaitForDelete": "1s"}})
        await succeeded(cluster)
        assert cluster.has("pods", "shop/stuck"), "nobody killed it"
        await over(cluster)
        cluster.revive("n1")


async def test_pods_of_a_namespace_that_is_deleted_in_the_middle_go_with_it(a_cluster: Plans) -> None:
    """A37: its budget would never have let the pod go."""
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    plan = a_plan(a_cluster).with_deployment("doomed/cart", replicas=1, budget=1, pods=pods)
    async with plan.running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        await cluster.delete("namespaces", "doomed")
        await succeeded(cluster)
        assert not {"lastError", "blockers"} & set(status(cluster))
        await cluster.eventually(lambda: not cluster.has("namespaces", "doomed"))
        await over(cluster)


async def test_a_pod_in_a_terminating_namespace_that_does_not_go_is_told_until_the_deadline(a_cluster: Plans) -> None:
    """A37: nobody takes off the finalizer that holds it."""
    held = a_pod("doomed/held", on="n1", grace=1).held_by("example.com/other")
    async with a_plan(a_cluster).with_objects(held).running() as cluster:
        cluster.run(operate)
        await cluster.delete("namespaces", "doomed")
        await order(cluster, "n1", drain={"timeout": "4s"})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        assert says(cluster, "Failed") == ("True", "DrainTimedOut")
        assert "doomed/held" in last_error(cluster)
        await cluster.change("pods", "doomed/held", metadata={"finalizers": None})
        await cluster.change(PLURAL, NAME, spec={"reason": "again"})
        await succeeded(cluster)
        await cluster.eventually(lambda: not cluster.has("namespaces", "doomed"))


# What must not hold up the others


async def test_a_pod_that_two_budgets_select_is_told_of_and_all_others_leave(a_cluster: Plans) -> None:
    """B02."""
    others = [a_pod(f"shop/free-{number}", on="n1") for number in range(3)]
    budgets = [a_budget(f"shop/{name}", app="cart", minAvailable=0) for name in ("one", "two")]
    both = a_pod("shop/both", on="n1", labels={"app": "cart"})
    async with a_plan(a_cluster).with_objects(both, *others).running() as cluster:
        await cluster.create(*budgets)
        cluster.run(operate)
        await order(cluster, "n1")
        await cluster.eventually(lambda: kinds(cluster), becomes={"shop/both": "SeveralDisruptionBudgets"})
        await cluster.eventually(lambda: cluster.pods_on("n1"), becomes=["shop/both"])
        assert "more than one PodDisruptionBudget" in status(cluster)["blockers"][0]["reason"]
        await cluster.delete("poddisruptionbudgets", "shop/two")
        await succeeded(cluster)


async def test_reads_that_fail_for_a_while_are_tried_again(a_cluster: Plans) -> None:
    """B03: the watch breaks off, and neither it nor a list can be had."""
    pods = [a_pod(f"shop/cart-{number}", on="n1", act={"stop-seconds": "3"}) for number in range(3)]
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        answers = Interposed()
        cluster.run(answers.before(operate))
        strange = answers.give(500, when=lambda it: it.method == "GET" and it.path == "/api/v1/pods")
        await order(cluster, "n1")
        await cluster.eventually(lambda: bool(last_error(cluster)), within=timedelta(minutes=1))
        answers.stop(strange)
        await succeeded(cluster)
        assert "lastError" not in status(cluster)


def daemons(cluster: LiveCluster, node: str) -> list[str]:
    """Return whose pods of DaemonSets are on a node."""
    found = [cluster.get("pods", it) for it in cluster.pods_on(node)]
    owners = [owner for pod in found for owner in pod["metadata"].get("ownerReferences", ())]
    return sorted(it["name"] for it in owners if it["kind"] == "DaemonSet")


async def test_pods_of_daemon_sets_leave_last_and_come_back_after_the_maintenance(a_cluster: Plans) -> None:
    """Those that tolerate the taint of the maintenance stay: they would come back at once."""
    plan = a_plan(a_cluster).with_daemon_set("shop/logs")
    plan = plan.with_daemon_set("shop/network", pods={"tolerations": [{"operator": "Exists"}]})
    async with plan.with_objects(a_pod("shop/cart", on="n1", act={"stop-seconds": "2"})).running() as cluster:
        await cluster.eventually(lambda: daemons(cluster, "n1"), becomes=["logs", "network"])
        cluster.run(operate)
        await order(cluster, "n1", drain={"order": {"daemonSetsLast": True}})
        await cluster.eventually(lambda: "shop/cart" not in cluster.pods_on("n1"))
        await succeeded(cluster)
        await cluster.pass_time(seconds=3)
        assert (daemons(cluster, "n1"), daemons(cluster, "n2")) == (["network"], ["logs", "network"])
        said = status(cluster)
        assert (said["evictionPods"], said["drain"]["gone"]) == (2, 2)
        assert said["drain"]["warning"].startswith(
            "ignoring DaemonSet-managed Pods that tolerate all taints of the node and would come back: shop/network-"
        )
        gone = [it.key for it in cluster.history if it.kind.plural == "pods" and it.after is None]
        assert [it.partition("-")[0] for it in gone] == ["shop/cart", "shop/logs"]
        await over(cluster)
        await cluster.eventually(lambda: daemons(cluster, "n1"), becomes=["logs", "network"])


async def test_a_daemon_set_that_cannot_be_looked_up_holds_up_its_own_pod_only(a_cluster: Plans) -> None:
    """B04: for such a pod must be asked whether its DaemonSet is there."""
    plan = a_plan(a_cluster).with_daemon_set("shop/agent").with_objects(a_pod("shop/free", on="n1"))
    async with plan.running() as cluster:
        answers = Interposed()
        strange = answers.give(500, when=lambda it: "/daemonsets/" in it.path)
        cluster.run(answers.before(operate))
        await order(cluster, "n1")
        await cluster.eventually(lambda: not cluster.has("pods", "shop/free"))
        await cluster.eventually(lambda: sorted(kinds(cluster).values()), becomes=["ApiError"])
        answers.stop(strange)
        await succeeded(cluster)
        assert len(cluster.pods_on("n1")) == 1, "pods of DaemonSets stay"


async def test_pods_that_come_while_others_leave_keep_the_progress_within_its_bounds(a_cluster: Plans) -> None:
    """B13."""
    async with blocked_on(a_plan(a_cluster), "n1").running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        names = [f"shop/late-{number}" for number in range(4)]
        await cluster.create(*(a_pod(name, on="n1", grace=1).held_by("example.com/other") for name in names))
        await cluster.eventually(lambda: len(status(cluster)["pendingPods"]), becomes=5)
        assert status(cluster)["evictionPods"] == 1
        await cluster.pass_time(seconds=3)
        for name in names:
            await cluster.change("pods", name, metadata={"finalizers": None})
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await succeeded(cluster)
        writes = [it.after for it in cluster.history if it.key == NAME and it.after is not None]
        told = [it.get("status", {}).get("drainProgress", 0) for it in writes]
        assert all(0 <= it <= 100 for it in told)
        assert told == sorted(told), "it never goes back"


async def test_the_lease_is_kept_as_long_as_the_maintenance_lasts(a_cluster: Plans, hasty: None) -> None:
    """B10."""
    del hasty
    async with a_plan(a_cluster, 1).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await succeeded(cluster)
        for _ in range(3):
            before = lease(cluster, "n1")["spec"]
            await cluster.clock.sleep(node_lease.DURATION)
            after = lease(cluster, "n1")["spec"]
            assert after["renewTime"] > before["renewTime"]
            assert (after["holderIdentity"], after["acquireTime"]) == ("node-maintenance", before["acquireTime"])
        assert is_taken(cluster, "n1")


# Those who intercede


def evacuating(said: str) -> Behaviour:
    return denies(said, code=429, reason="TooManyRequests")


async def test_a_virtual_machine_is_waited_for_while_it_moves_and_told_of_if_it_cannot(
    a_cluster: Plans, tmp_path: Path
) -> None:
    """B16."""
    machine = a_pod("shop/virt-launcher", on="n1")
    plan = a_plan(a_cluster).with_objects(machine, a_pod("shop/free", on="n1"))
    async with plan.running() as cluster, interceding(cluster, tmp_path, about="virt-launcher") as says_so:
        says_so(evacuating('Eviction triggered evacuation of VMI "shop/vm"'))
        cluster.run(operate)
        await order(cluster, "n1")
        await cluster.eventually(lambda: kinds(cluster), becomes={"shop/virt-launcher": "Migration"})
        assert says(cluster, "Drained") == ("False", "DrainInProgress"), "that is progress"
        await cluster.eventually(lambda: not cluster.has("pods", "shop/free"))
        says_so(evacuating("VMI vm is configured with an eviction strategy but is not live-migratable"))
        await cluster.eventually(lambda: kinds(cluster), becomes={"shop/virt-launcher": "AdmissionWebhook"})
        assert "is not live-migratable" in status(cluster)["blockers"][0]["reason"]
        await is_blocked(cluster)
        says_so(allows)
        await succeeded(cluster)
