"""How pods leave a node in maintenance: what `kubectl drain` promises, and what a drain needs beyond that.

The operator has the rights that we ship and no others. The numbers in docstrings are those of the acceptance cases in
the specification.
"""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from haulout.api.resources import NODES
from haulout.controllers.nodemaintenance import decision, node_lease
from haulout.drain import blockers
from haulout.drain.dry_run import DrainDryRun, dry_run_drain
from haulout.drain.eviction_client import EvictionClient
from haulout.drain.pod_filters import PodFilters
from haulout.drain.policy import DrainPolicy
from haulout.kube.client import Client
from haulout.kube.transport import Request
from support.builders.objects import a_pdb, a_pod
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.clusters.rbac import shipped_rbac
from support.expectations.objects import is_terminating
from support.faults.injected_responses import ResponseInjector
from support.operators.admission_webhook import eviction_webhook
from support.operators.nodemaintenance import (
    NAME,
    PLURAL,
    condition_of,
    create_maintenance,
    end_maintenance,
    has_maintenance_marks,
    invariants,
    is_released,
    last_error,
    lease,
    phase,
    run_controller,
    status,
    wait_for_success,
    wait_until_blocked,
    with_blocking_pods,
    with_operator_rbac,
)
from support.servers.webhook_server import Behaviour, allows, denies

DELETING = shipped_rbac(None, pod_deletion=True)
SLOW = {"stop-seconds": "600"}  # a pod that takes all the time that it is given


@pytest.fixture
def short_durations(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten durations on real time."""
    if request.config.getoption("--backend") == "real":
        monkeypatch.setattr(blockers, "_KUBELET_NEEDS", timedelta(seconds=1))
        monkeypatch.setattr(decision, "MIN_LEASE_RENEWAL_INTERVAL", timedelta(seconds=0.5))
        monkeypatch.setattr(node_lease, "DURATION", timedelta(seconds=4))
        monkeypatch.setattr(node_lease, "RENEW_BEFORE_EXPIRY", timedelta(seconds=2))


def a_plan(a_cluster: PlanFactory, nodes: int = 2) -> ClusterPlan:
    return with_operator_rbac(a_cluster(), DELETING).with_nodes(nodes).with_invariants(*invariants())


def blocker_kinds(cluster: LiveCluster) -> dict[str, str]:
    """Return the kinds of blockers, by pod."""
    return {blocker["pod"]: blocker["kind"] for blocker in status(cluster).get("blockers", ())}


def deletions(answers: ResponseInjector) -> list[Request]:
    return [item for item in answers.requests if item.method == "DELETE" and "/pods/" in item.path]


def evictions(answers: ResponseInjector) -> list[Request]:
    return [item for item in answers.requests if item.path.endswith("/eviction")]


# Evictions and deletions


async def test_pods_are_deleted_when_the_server_has_no_eviction_api(a_cluster: PlanFactory) -> None:
    """A33, A34: only the pods of the node go."""
    pods = [a_pod("shop/cart", on="n1"), a_pod("shop/other", on="n2")]
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        answers = ResponseInjector()
        resources = {"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod"}]}
        answers.inject(200, matches=lambda deletion: deletion.path == "/api/v1", body=resources)
        cluster.run(answers.wrap_program(run_controller))
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert evictions(answers) == []
        assert [deletion.path.rpartition("/")[2] for deletion in deletions(answers)] == ["cart"]
        assert cluster.pods_on("n2") == ["shop/other"]


async def test_disable_eviction_ignores_disruption_budgets(a_cluster: PlanFactory) -> None:
    """A34. The budget allows no disruption, and is bypassed on purpose."""
    plan = with_blocking_pods(with_operator_rbac(a_cluster(), DELETING).with_nodes(2), "n1")
    async with plan.with_invariants(*invariants()[1:]).running() as cluster:
        answers = ResponseInjector()
        cluster.run(answers.wrap_program(run_controller))
        await create_maintenance(cluster, "n1", drain={"disableEviction": True})
        await wait_for_success(cluster)
        assert evictions(answers) == []
        assert len(deletions(answers)) == 1


async def test_grace_period_is_passed_to_the_eviction(a_cluster: PlanFactory) -> None:
    """A34."""
    plan = with_operator_rbac(a_cluster()).with_nodes(2).with_invariants(*invariants(may_shorten_grace=lambda *_: True))
    async with plan.with_objects(a_pod("shop/cart", on="n1", behaviour=SLOW)).running() as cluster:
        answers = ResponseInjector()
        cluster.run(answers.wrap_program(run_controller))
        await create_maintenance(cluster, "n1", drain={"gracePeriod": "2s"})
        await cluster.eventually(lambda: is_terminating(cluster.get("pods", "shop/cart")))
        assert cluster.get("pods", "shop/cart")["metadata"]["deletionGracePeriodSeconds"] == 2
        (eviction,) = evictions(answers)
        assert msgspec.json.decode(eviction.body or b"")["deleteOptions"]["gracePeriodSeconds"] == 2
        await wait_for_success(cluster)


@pytest.mark.parametrize("disable_eviction", [False, True], ids=["by eviction", "by deletion"])
async def test_dry_run_changes_nothing(a_cluster: PlanFactory, *, disable_eviction: bool) -> None:
    """A35."""
    pods = [a_pod(f"shop/cart-{number}", on="n1") for number in range(3)]
    policy = DrainPolicy(filters=PodFilters(force=True), disable_eviction=disable_eviction)
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        found: list[DrainDryRun] = []

        async def rehearsing(client: Client) -> None:
            found.append(
                await dry_run_drain(
                    client, [await client.get(NODES, "n1")], policy, eviction_client=EvictionClient(client)
                )
            )

        cluster.run(rehearsing)
        await cluster.eventually(lambda: bool(found))
        (node,) = found[0].nodes
        assert node.leaving == ("shop/cart-0", "shop/cart-1", "shop/cart-2")
        assert (node.blockers, node.refusals) == ((), ())
        assert cluster.pods_on("n1") == list(node.leaving)
        assert is_released(cluster, "n1")


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
async def test_pod_selectors_and_rules_decide_which_pods_stay(
    a_cluster: PlanFactory, drain: dict[str, object], stay: list[str]
) -> None:
    """A36."""
    pods = [a_pod(f"shop/{name}", on="n1", labels={"app": name}) for name in ("cart", "vault")]
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain=drain)
        await wait_for_success(cluster)
        assert cluster.pods_on("n1") == stay


# Termination of pods


async def test_drain_fails_at_its_timeout_and_ends_when_the_maintenance_is_deleted(
    a_cluster: PlanFactory,
) -> None:
    """A32."""
    pod = a_pod("shop/slow", on="n1", grace=60, behaviour={"stop-seconds": "8"})
    async with a_plan(a_cluster).with_objects(pod).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"timeout": "2s"})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        assert condition_of(cluster, "Failed") == ("True", "DrainTimedOut")
        assert "shop/slow" in last_error(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        await create_maintenance(cluster, "n1", name="again")
        await cluster.eventually(lambda: bool(status(cluster, "again").get("drain", {}).get("terminating")))
        await end_maintenance(cluster, "again")
        assert is_released(cluster, "n1")
        await cluster.eventually(lambda: not cluster.has("pods", "shop/slow"))


async def test_pod_on_an_unreachable_node_is_a_blocker_unless_skip_wait_for_delete_is_set(
    a_cluster: PlanFactory, short_durations: None
) -> None:
    """A32, A38, B12."""
    del short_durations
    pods = [a_pod("shop/free", on="n2"), a_pod("shop/stuck", on="n1", grace=1)]
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        cluster.run(run_controller)
        cluster.stop_kubelet("n1")
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: blocker_kinds(cluster), becomes={"shop/stuck": "Kubelet"})
        (blocker,) = status(cluster)["blockers"]
        assert (blocker["object"], phase(cluster)) == ("Node n1", "Running")
        assert "the kubelet has not confirmed that the pod has stopped" in blocker["reason"]
        await cluster.patch(PLURAL, NAME, spec={"drain": {"skipWaitForDelete": "1s"}})
        await wait_for_success(cluster)
        assert cluster.has("pods", "shop/stuck"), "nobody killed it"
        await end_maintenance(cluster)
        cluster.start_kubelet("n1")


async def test_pods_of_a_namespace_deleted_during_the_drain_leave_with_it(a_cluster: PlanFactory) -> None:
    """A37: its budget would never have let the pod go."""
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    plan = a_plan(a_cluster).with_deployment("doomed/cart", replicas=1, budget=1, pods=pods)
    async with plan.running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.delete("namespaces", "doomed")
        await wait_for_success(cluster)
        assert not {"lastError", "blockers"} & set(status(cluster))
        await cluster.eventually(lambda: not cluster.has("namespaces", "doomed"))
        await end_maintenance(cluster)


async def test_stuck_pod_in_a_terminating_namespace_blocks_until_the_timeout(
    a_cluster: PlanFactory,
) -> None:
    """A37: the finalizer of the pod is not removed."""
    held = a_pod("doomed/held", on="n1", grace=1).with_finalizers("example.com/other")
    async with a_plan(a_cluster).with_objects(held).running() as cluster:
        cluster.run(run_controller)
        await cluster.delete("namespaces", "doomed")
        await create_maintenance(cluster, "n1", drain={"timeout": "4s"})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        assert condition_of(cluster, "Failed") == ("True", "DrainTimedOut")
        assert "doomed/held" in last_error(cluster)
        await cluster.patch("pods", "doomed/held", metadata={"finalizers": None})
        await cluster.patch(PLURAL, NAME, spec={"reason": "again"})
        await wait_for_success(cluster)
        await cluster.eventually(lambda: not cluster.has("namespaces", "doomed"))


# Blockers that must not delay other pods


async def test_pod_under_two_disruption_budgets_is_a_blocker_and_the_others_leave(a_cluster: PlanFactory) -> None:
    """B02."""
    others = [a_pod(f"shop/free-{number}", on="n1") for number in range(3)]
    budgets = [a_pdb(f"shop/{name}", app="cart", minAvailable=0) for name in ("one", "two")]
    both = a_pod("shop/both", on="n1", labels={"app": "cart"})
    async with a_plan(a_cluster).with_objects(both, *others).running() as cluster:
        await cluster.create(*budgets)
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: blocker_kinds(cluster), becomes={"shop/both": "SeveralDisruptionBudgets"})
        await cluster.eventually(lambda: cluster.pods_on("n1"), becomes=["shop/both"])
        assert "more than one PodDisruptionBudget" in status(cluster)["blockers"][0]["reason"]
        await cluster.delete("poddisruptionbudgets", "shop/two")
        await wait_for_success(cluster)


async def test_failed_reads_are_retried(a_cluster: PlanFactory) -> None:
    """B03: the watch breaks off, and neither it nor a list can be had."""
    pods = [a_pod(f"shop/cart-{number}", on="n1", behaviour={"stop-seconds": "3"}) for number in range(3)]
    async with a_plan(a_cluster).with_objects(*pods).running() as cluster:
        answers = ResponseInjector()
        cluster.run(answers.wrap_program(run_controller))
        failure = answers.inject(500, matches=lambda item: item.method == "GET" and item.path == "/api/v1/pods")
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: bool(last_error(cluster)), within=timedelta(minutes=1))
        answers.remove(failure)
        await wait_for_success(cluster)
        assert "lastError" not in status(cluster)


def daemons(cluster: LiveCluster, node: str) -> list[str]:
    """Return the DaemonSets with pods on a node."""
    found = [cluster.get("pods", candidate) for candidate in cluster.pods_on(node)]
    owners = [owner for pod in found for owner in pod["metadata"].get("ownerReferences", ())]
    return sorted(candidate["name"] for candidate in owners if candidate["kind"] == "DaemonSet")


async def test_daemon_set_pods_leave_last_and_return_after_the_maintenance(a_cluster: PlanFactory) -> None:
    """Those that tolerate the taint of the maintenance stay: they would come back at once."""
    plan = a_plan(a_cluster).with_daemon_set("shop/logs")
    plan = plan.with_daemon_set("shop/network", pods={"tolerations": [{"operator": "Exists"}]})
    async with plan.with_objects(a_pod("shop/cart", on="n1", behaviour={"stop-seconds": "2"})).running() as cluster:
        await cluster.eventually(lambda: daemons(cluster, "n1"), becomes=["logs", "network"])
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"order": {"daemonSetsLast": True}})
        await cluster.eventually(lambda: "shop/cart" not in cluster.pods_on("n1"))
        await wait_for_success(cluster)
        await cluster.pass_time(seconds=3)
        assert (daemons(cluster, "n1"), daemons(cluster, "n2")) == (["network"], ["logs", "network"])
        maintenance_status = status(cluster)
        assert (maintenance_status["evictionPods"], maintenance_status["drain"]["removed"]) == (2, 2)
        assert maintenance_status["drain"]["warning"].startswith(
            "ignoring DaemonSet-managed Pods that tolerate all taints of the node and would come back: shop/network-"
        )
        gone = [write.key for write in cluster.history if write.kind.plural == "pods" and write.after is None]
        assert [write.partition("-")[0] for write in gone] == ["shop/cart", "shop/logs"]
        await end_maintenance(cluster)
        await cluster.eventually(lambda: daemons(cluster, "n1"), becomes=["logs", "network"])


async def test_failed_daemon_set_lookup_blocks_only_its_own_pod(a_cluster: PlanFactory) -> None:
    """B04: the DaemonSet of such a pod must be read."""
    plan = a_plan(a_cluster).with_daemon_set("shop/agent").with_objects(a_pod("shop/free", on="n1"))
    async with plan.running() as cluster:
        answers = ResponseInjector()
        failure = answers.inject(500, matches=lambda item: "/daemonsets/" in item.path)
        cluster.run(answers.wrap_program(run_controller))
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: not cluster.has("pods", "shop/free"))
        await cluster.eventually(lambda: sorted(blocker_kinds(cluster).values()), becomes=["ApiError"])
        answers.remove(failure)
        await wait_for_success(cluster)
        assert len(cluster.pods_on("n1")) == 1, "pods of DaemonSets stay"


async def test_drain_progress_stays_within_bounds_when_pods_are_added(a_cluster: PlanFactory) -> None:
    """B13."""
    async with with_blocking_pods(a_plan(a_cluster), "n1").running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        names = [f"shop/late-{number}" for number in range(4)]
        await cluster.create(*(a_pod(name, on="n1", grace=1).with_finalizers("example.com/other") for name in names))
        await cluster.eventually(lambda: len(status(cluster)["pendingPods"]), becomes=5)
        assert status(cluster)["evictionPods"] == 1
        await cluster.pass_time(seconds=3)
        for name in names:
            await cluster.patch("pods", name, metadata={"finalizers": None})
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await wait_for_success(cluster)
        writes = [write.after for write in cluster.history if write.key == NAME and write.after is not None]
        progress = [write.get("status", {}).get("drainProgress", 0) for write in writes]
        assert all(0 <= write <= 100 for write in progress)
        assert progress == sorted(progress), "it never goes back"


async def test_lease_is_renewed_during_the_whole_maintenance(a_cluster: PlanFactory, short_durations: None) -> None:
    """B10."""
    del short_durations
    async with a_plan(a_cluster, 1).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        for _ in range(3):
            before = lease(cluster, "n1")["spec"]
            await cluster.clock.sleep(node_lease.DURATION)
            after = lease(cluster, "n1")["spec"]
            assert after["renewTime"] > before["renewTime"]
            assert (after["holderIdentity"], after["acquireTime"]) == ("node-maintenance", before["acquireTime"])
        assert has_maintenance_marks(cluster, "n1")


# Eviction webhooks


def denies_with_429(message: str) -> Behaviour:
    return denies(message, code=429, reason="TooManyRequests")


async def test_virtual_machine_is_waited_for_while_it_migrates_and_is_a_blocker_if_it_cannot(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """B16."""
    machine = a_pod("shop/virt-launcher", on="n1")
    plan = a_plan(a_cluster).with_objects(machine, a_pod("shop/free", on="n1"))
    async with (
        plan.running() as cluster,
        eviction_webhook(cluster, tmp_path, pod_name="virt-launcher") as set_webhook_behaviour,
    ):
        set_webhook_behaviour(denies_with_429('Eviction triggered evacuation of VMI "shop/vm"'))
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: blocker_kinds(cluster), becomes={"shop/virt-launcher": "Migration"})
        assert condition_of(cluster, "Drained") == ("False", "DrainInProgress"), "that is progress"
        await cluster.eventually(lambda: not cluster.has("pods", "shop/free"))
        set_webhook_behaviour(
            denies_with_429("VMI vm is configured with an eviction strategy but is not live-migratable")
        )
        await cluster.eventually(lambda: blocker_kinds(cluster), becomes={"shop/virt-launcher": "AdmissionWebhook"})
        assert "is not live-migratable" in status(cluster)["blockers"][0]["reason"]
        await wait_until_blocked(cluster)
        set_webhook_behaviour(allows)
        await wait_for_success(cluster)
