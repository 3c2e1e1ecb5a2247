"""A node goes into maintenance and comes back, as users of the Node Maintenance Operator know it.

The numbers in docstrings are those of the acceptance cases in the specification.
"""

import logging
from datetime import timedelta

import pytest

from haulout.api.nodemaintenance import FINALIZER
from haulout.api.objects import RawObject
from haulout.controllers.nodemaintenance import decision, reconciler
from support.builders.objects import a_pod
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.expectations.objects import condition_status, is_ready
from support.operators.nodemaintenance import (
    EXCLUDE_LABEL,
    NAME,
    PLURAL,
    a_lease,
    condition_of,
    create_maintenance,
    delete_maintenance,
    end_maintenance,
    event_reasons,
    has_lease,
    has_maintenance_marks,
    invariants,
    is_gone,
    is_released,
    last_error,
    lease,
    phase,
    phases,
    run_controller,
    status,
    taints_of,
    wait_for_success,
    wait_until_blocked,
    with_blocking_pods,
    with_operator_rbac,
)

MANY = timedelta(minutes=2)
REMEDIATION = "NodeHealthCheck-workers"
FOREIGN = {"key": "dummy-key", "effect": "PreferNoSchedule"}


@pytest.fixture
def short_durations(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten durations on real time."""
    if request.config.getoption("--backend") == "real":
        monkeypatch.setattr(decision, "LEASE_LOST_TIMEOUT", timedelta(seconds=3))
        monkeypatch.setattr(decision, "LEASE_CHECK_INTERVAL", timedelta(seconds=0.5))
        monkeypatch.setattr(reconciler, "BLOCKED_AFTER", timedelta(seconds=1))


async def wait_for_success_event(cluster: LiveCluster) -> None:
    await wait_for_success(cluster)
    await cluster.eventually(lambda: "SucceedMaintenance" in event_reasons(cluster))


async def steal_lease(cluster: LiveCluster, node: str) -> None:
    taken = a_lease(node, holder=REMEDIATION, now=cluster.clock.now())
    await cluster.patch("leases", f"medik8s-leases/node-{node}", spec=taken["spec"])


# Into maintenance


async def test_first_status_lists_all_pods_before_any_is_evicted(a_cluster: PlanFactory) -> None:
    """A01, A02: the counters are not touched again."""
    pods = [a_pod(f"shop/cart-{number}", on="n1") for number in range(2)]
    async with (
        with_operator_rbac(a_cluster())
        .with_nodes(2)
        .with_objects(*pods)
        .with_invariants(*invariants())
        .running() as cluster
    ):
        began = cluster.clock.now().replace(microsecond=0)
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success_event(cluster)
        first = written_statuses(cluster)[0]
        assert first["phase"] == "Running"
        assert sorted(first["pendingPods"]) == ["cart-0", "cart-1"]
        assert first["pendingPodsRefs"] == [{"namespace": "shop", "name": name} for name in first["pendingPods"]]
        assert (first["evictionPods"], first["totalpods"], first.get("drainProgress", 0)) == (2, 2, 0)
        assert first["lastUpdate"] >= began.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert {(status["evictionPods"], status["totalpods"]) for status in written_statuses(cluster)} == {(2, 2)}


def written_statuses(cluster: LiveCluster) -> list[RawObject]:
    """Return the statuses that the operator wrote; an unprocessed object has only the default of its definition."""
    writes = (write.after for write in cluster.history if write.kind.plural == PLURAL)
    return [
        candidate["status"] for candidate in writes if candidate is not None and "phase" in candidate.get("status", {})
    ]


async def test_maintenance_cordons_and_drains_the_node(a_cluster: PlanFactory) -> None:
    """A06, A28, A30."""
    plan = (
        with_operator_rbac(a_cluster())
        .with_nodes(3)
        .with_deployment("shop/cart", replicas=4)
        .with_invariants(*invariants())
    )
    async with plan.running() as cluster:
        pod_count = len(cluster.pods_on("n1"))
        assert pod_count
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", reason="new kernel")
        await wait_for_success_event(cluster)
        maintenance_status = status(cluster)
        assert (
            maintenance_status["drainProgress"],
            maintenance_status["evictionPods"],
            maintenance_status["totalpods"],
        ) == (100, pod_count, pod_count)
        assert not {"pendingPods", "pendingPodsRefs", "lastError", "errorOnLeaseCount"} & set(maintenance_status)
        assert has_maintenance_marks(cluster, "n1")
        assert cluster.pods_on("n1") == []
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=4)
        assert event_reasons(cluster) == ["BeginMaintenance", "SucceedMaintenance"]
        assert condition_of(cluster, "Drained") == ("True", "DrainCompleted")
        node = cluster.get("nodes", "n1")
        assert condition_status(node, "Drained") == ("True", "DrainCompleted")
        assert condition_status(node, "MaintenanceInProgress")[0] == "True"
        assert condition_status(node, "DrainInProgress")[0] == "False"


async def test_maintenance_holds_the_lease_of_the_node(a_cluster: PlanFactory) -> None:
    """A29, A03: the lease is the node's, and goes with it."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        began = cluster.clock.now()
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        held = lease(cluster, "n1")
        assert (held["spec"]["holderIdentity"], held["spec"]["leaseDurationSeconds"]) == ("node-maintenance", 3600)
        stamps = [held["spec"][name] for name in ("acquireTime", "renewTime")]
        ends = [stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ") for stamp in (began, cluster.clock.now())]
        assert all(ends[0] <= stamp <= ends[1] for stamp in stamps)
        uid = cluster.get("nodes", "n1")["metadata"]["uid"]
        assert held["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}]


async def test_ended_maintenance_restores_the_node(a_cluster: PlanFactory) -> None:
    """A04, A05, A07, A31."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        await cluster.patch("nodes", "n1", spec={"taints": [FOREIGN]}, metadata={"labels": {"rack": "7"}})
        await cluster.eventually(lambda: taints_of(cluster, "n1"), becomes={"dummy-key:PreferNoSchedule"})
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert has_maintenance_marks(cluster, "n1")
        drain_taints = [
            taint for taint in cluster.get("nodes", "n1")["spec"]["taints"] if taint["key"] == "medik8s.io/drain"
        ]
        assert drain_taints == [{"key": "medik8s.io/drain", "effect": "NoSchedule"}]
        assert "dummy-key:PreferNoSchedule" in taints_of(cluster, "n1")
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        assert taints_of(cluster, "n1") == {"dummy-key:PreferNoSchedule"}
        assert cluster.get("nodes", "n1")["metadata"]["labels"]["rack"] == "7"
        await cluster.eventually(lambda: event_reasons(cluster)[-1], becomes="RemovedMaintenance")
        await cluster.eventually(lambda: "UncordonNode" in event_reasons(cluster, "n1", kind="Node"))
        await cluster.eventually(lambda: not has_lease(cluster, "n1"))


async def test_maintenance_of_a_missing_node_fails(a_cluster: PlanFactory) -> None:
    """A08."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "non-existing")
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        await cluster.eventually(lambda: event_reasons(cluster), becomes=["BeginMaintenance", "FailedMaintenance"])
        maintenance_status = status(cluster)
        assert maintenance_status["lastError"] == 'nodes "non-existing" not found'
        assert not {"evictionPods", "totalpods", "pendingPods", "drainProgress", "errorOnLeaseCount"} & set(
            maintenance_status
        )
        assert condition_of(cluster, "Failed") == ("True", "NodeMissing")
        assert phases(cluster) == ["Running", "Failed"]
        await end_maintenance(cluster)


async def test_long_drain_logs_the_line_that_scripts_search_for(
    a_cluster: PlanFactory, caplog: pytest.LogCaptureFixture, short_durations: None
) -> None:
    """A26: Haulout drains in one pass, and logs the line once."""
    del short_durations
    caplog.set_level(logging.INFO, logger="haulout.NodeMaintenance")
    is_real = a_cluster().control_plane is not None
    slow = a_pod("shop/slow", on="n1", grace=80, behaviour={"stop-seconds": "3" if is_real else "70"})
    async with (
        with_operator_rbac(a_cluster())
        .with_nodes(2)
        .with_objects(slow)
        .with_invariants(*invariants())
        .running() as cluster
    ):
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success_event(cluster)
        assert event_reasons(cluster) == ["BeginMaintenance", "SucceedMaintenance"]
        assert sum("Reconciling with fixed duration" in record.getMessage() for record in caplog.records) == 1


# The lease


async def test_lease_of_another_system_delays_the_maintenance(a_cluster: PlanFactory) -> None:
    """A09, A10."""
    pods = [a_pod(f"shop/cart-{number}", on="n1") for number in range(2)]
    async with (
        with_operator_rbac(a_cluster())
        .with_nodes(2)
        .with_objects(*pods)
        .with_invariants(*invariants())
        .running() as cluster
    ):
        await cluster.create(a_lease("n1", holder=REMEDIATION, now=cluster.clock.now()))
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        wanted = "failed to obtain a lease that is not owned by us : can't update or invalidate the lease"
        await cluster.eventually(lambda: last_error(cluster).startswith(wanted))
        assert phase(cluster) == "Running"
        assert not {"drainProgress", "errorOnLeaseCount"} & set(status(cluster))
        assert condition_of(cluster, "Leased") == ("False", "HeldByOther")
        assert REMEDIATION in status(cluster)["conditions"][2]["message"]
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")
        await cluster.delete("leases", "medik8s-leases/node-n1")
        await wait_for_success(cluster)
        assert has_maintenance_marks(cluster, "n1")
        assert status(cluster)["drainProgress"] == 100
        assert "errorOnLeaseCount" not in status(cluster)
        assert "Failed" not in phases(cluster)


async def drain_half(cluster: LiveCluster) -> None:
    """Run a maintenance until one of two pods has left and the other one is blocked."""
    cluster.run(run_controller)
    await create_maintenance(cluster, "n1")
    await cluster.eventually(lambda: status(cluster)["drainProgress"], becomes=50)
    await wait_until_blocked(cluster)


def with_half_blocked_node(a_cluster: PlanFactory) -> ClusterPlan:
    plan = with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(2), "n1")
    return plan.with_objects(a_pod("shop/free", on="n1")).with_invariants(*invariants())


async def test_lease_lost_for_a_short_time_interrupts_the_drain(a_cluster: PlanFactory) -> None:
    """A11, B14: the error is removed from the status when it is over."""
    async with with_half_blocked_node(a_cluster).running() as cluster:
        await drain_half(cluster)
        await steal_lease(cluster, "n1")
        wanted = "failed to extend a lease that used to be owned by us"
        await cluster.eventually(lambda: last_error(cluster).startswith(wanted))
        assert status(cluster)["errorOnLeaseCount"] >= 1
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await cluster.pass_time(seconds=1)
        assert phase(cluster) == "Running", "nobody leaves while the lease is another's"
        await cluster.delete("leases", "medik8s-leases/node-n1")
        await wait_for_success(cluster)
        assert not {"lastError", "errorOnLeaseCount"} & set(status(cluster))
        assert status(cluster)["drainProgress"] == 100
        assert "FailedMaintenance" not in event_reasons(cluster)


async def test_lease_lost_for_good_fails_the_maintenance(a_cluster: PlanFactory, short_durations: None) -> None:
    """A12, except that ours gives up after a minute and not after four attempts, which could be within a second."""
    del short_durations
    async with with_half_blocked_node(a_cluster).running() as cluster:
        await drain_half(cluster)
        await steal_lease(cluster, "n1")
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        maintenance_status = status(cluster)
        assert "maintenance failed: lease could not be extended" in maintenance_status["lastError"]
        assert maintenance_status["drainProgress"] > 0
        assert maintenance_status["errorOnLeaseCount"] > 3
        await cluster.eventually(lambda: "FailedMaintenance" in event_reasons(cluster))
        await cluster.eventually(lambda: is_released(cluster, "n1"))
        assert lease(cluster, "n1")["spec"]["holderIdentity"] == REMEDIATION
        await cluster.pass_time(seconds=5)
        assert phase(cluster) == "Failed"
        await end_maintenance(cluster)
        assert lease(cluster, "n1")["spec"]["holderIdentity"] == REMEDIATION


# Out of maintenance


async def test_deleted_maintenance_with_a_foreign_finalizer_releases_its_node(a_cluster: PlanFactory) -> None:
    """A13."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).with_invariants(*invariants()).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", meta={"finalizers": ["example.com/other"]})
        await wait_for_success(cluster)
        await delete_maintenance(cluster)
        await cluster.eventually(lambda: cluster.get(PLURAL, NAME)["metadata"]["finalizers"] == ["example.com/other"])
        assert is_released(cluster, "n1")
        await cluster.patch(PLURAL, NAME, metadata={"annotations": {"touched": "yes"}})
        await cluster.pass_time(seconds=2)
        assert is_released(cluster, "n1")
        assert FINALIZER not in cluster.get(PLURAL, NAME)["metadata"]["finalizers"]
        await cluster.patch(PLURAL, NAME, metadata={"finalizers": None})
        await cluster.eventually(lambda: is_gone(cluster))


async def test_pods_are_scheduled_on_the_node_again(a_cluster: PlanFactory) -> None:
    """A31: the node takes pods again."""
    async with (
        with_operator_rbac(a_cluster()).with_nodes(1).with_deployment("shop/cart", replicas=1).running() as cluster
    ):
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert not any(map(is_ready, cluster.pods_of("shop/cart")))
        await end_maintenance(cluster)
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=1, within=MANY)
        assert EXCLUDE_LABEL not in cluster.get("nodes", "n1")["metadata"]["labels"]
