"""The controller over time: for days, and with few requests."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

from haulout.api.clusterapi import DRAIN_RULES
from haulout.api.objects import RawObject
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.expectations.objects import is_terminating
from support.operators.nodemaintenance import (
    CRD,
    LEASE_NAMESPACE,
    NAME,
    PLURAL,
    a_lease,
    a_maintenance,
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
    run_controller,
    status,
    wait_for_success,
    wait_until_blocked,
    with_blocking_pods,
    with_nodemaintenance_crd,
)

OTHER = "NodeHealthCheck-workers"
BARE_NODE: RawObject = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


@asynccontextmanager
async def a_still_cluster(clock: Clock) -> AsyncIterator[SandboxCluster]:
    """Run a cluster of one node without a kubelet: days pass in it without a heartbeat."""
    async with with_nodemaintenance_crd(a_cluster(clock)).with_invariants(*invariants()).on_the_sandbox() as cluster:
        cluster.api.put(BARE_NODE)
        cluster.run(run_controller)
        yield cluster


def writes(cluster: SandboxCluster, plural: str, *, since: int = 0) -> list[datetime]:
    """Return when the operator wrote to objects of a kind."""
    ours = [it for it in cluster.history if it.username == "operator" and it.revision > since]
    return [it.written_at for it in ours if it.kind.plural == plural]


def requests(cluster: SandboxCluster) -> int:
    return len(cluster.cluster.transport("operator").requests)


async def test_lease_is_renewed_during_a_maintenance_that_takes_days(clock: Clock, rng: Random) -> None:
    """B10."""
    api = ApiServer(clock)
    for obj in (CRD, BARE_NODE, a_maintenance("n1")):
        api.put(obj)
    async with asyncio.TaskGroup() as group:
        operator = group.create_task(run_controller(Client(api.transport("operator"), clock=clock, random=rng)))
        await clock.sleep(timedelta(minutes=1))
        began = api.revision
        for _ in range(2 * 24 * 3):
            await clock.sleep(timedelta(minutes=20))
            renewed = datetime.fromisoformat(api.get("leases", "node-n1", LEASE_NAMESPACE)["spec"]["renewTime"])
            assert clock.now() - renewed <= timedelta(minutes=31)
        operator.cancel()
    assert api.get(PLURAL, NAME, "")["status"]["phase"] == "Succeeded"
    kinds = Counter(it.kind.plural for it in api.history if it.revision > began and it.username == "operator")
    assert set(kinds) == {"leases", PLURAL}, "nothing else is written"
    assert kinds["leases"] <= 2 * 24 * 2
    assert kinds[PLURAL] <= 2 * 24 * 2, "only the next look is updated"


async def test_lease_of_another_holder_is_acquired_when_it_expires(clock: Clock) -> None:
    async with a_still_cluster(clock) as cluster:
        await cluster.create(a_lease("n1", holder=OTHER, now=clock.now(), duration=timedelta(minutes=20)))
        await create_maintenance(cluster, "n1")
        await cluster.pass_time(minutes=19)
        assert phase(cluster) == "Running"
        assert status(cluster)["nextReconcile"]
        await cluster.eventually(lambda: phase(cluster), becomes="Succeeded", within=timedelta(minutes=2))
        assert lease(cluster, "n1")["spec"]["leaseTransitions"] == 1


async def test_lease_taken_by_others_after_success_fails_the_maintenance(clock: Clock) -> None:
    async with a_still_cluster(clock) as cluster:
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.patch(
            "leases", f"{LEASE_NAMESPACE}/node-n1", spec=a_lease("n1", holder=OTHER, now=clock.now())["spec"]
        )
        await cluster.pass_time(seconds=30)
        assert phase(cluster) == "Succeeded"
        assert "used to be owned by us" in last_error(cluster)
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        assert is_released(cluster, "n1")
        await end_maintenance(cluster)
        assert lease(cluster, "n1")["spec"]["holderIdentity"] == OTHER


async def test_maintenance_can_be_requested_again_where_another_holds_the_lease(clock: Clock) -> None:
    """A cached failure to release the lease must not hide the lease from the next maintenance."""
    async with a_still_cluster(clock) as cluster:
        for _ in range(2):
            await create_maintenance(cluster, "n1")
            await cluster.eventually(lambda: phase(cluster) == "Succeeded" or "held by" in last_error(cluster))
            spec = a_lease("n1", holder=OTHER, now=clock.now())["spec"]
            await cluster.patch("leases", f"{LEASE_NAMESPACE}/node-n1", spec=spec)
            await end_maintenance(cluster)
            assert lease(cluster, "n1")["spec"]["holderIdentity"] == OTHER
            assert is_released(cluster, "n1")


async def test_blocked_drain_sends_few_requests(clock: Clock) -> None:
    plan = with_blocking_pods(with_nodemaintenance_crd(a_cluster(clock)).with_nodes(1), "n1").with_invariants(
        *invariants()
    )
    async with plan.on_the_sandbox() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.pass_time(minutes=1)
        since, request_count = cluster.revision, requests(cluster)
        await cluster.pass_time(minutes=10)
        assert len(writes(cluster, PLURAL, since=since)) <= 11
        assert requests(cluster) - request_count <= 60
        assert "PodDisruptionBudget shop/on-n1" in last_error(cluster)
        assert event_reasons(cluster).count("DrainBlocked") == 1


async def test_status_is_written_at_most_once_per_second(clock: Clock) -> None:
    pods = [a_pod(f"shop/p{number}", on="n1", behaviour={"stop-seconds": str(number / 4)}) for number in range(20)]
    plan = with_nodemaintenance_crd(a_cluster(clock)).with_nodes(2).with_objects(*pods).with_invariants(*invariants())
    async with plan.on_the_sandbox() as cluster:
        cluster.run(run_controller)
        request_count = requests(cluster)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        times = writes(cluster, PLURAL)[1:-1]  # but for the finalizer and another phase
        gaps = [later - sooner for sooner, later in pairwise(times)]
        assert gaps
        assert min(gaps) >= timedelta(seconds=1)
        assert (requests(cluster) - request_count) / len(pods) <= 3


async def test_many_drains_share_the_status_write_rate(clock: Clock) -> None:
    nodes, seconds = [f"n{number}" for number in range(1, 41)], range(1, 21)
    pods = [
        a_pod(f"shop/{node}-{it}", on=node, behaviour={"stop-seconds": str(it)}) for node in nodes for it in seconds
    ]
    plan = (
        with_nodemaintenance_crd(a_cluster(clock))
        .with_nodes(len(nodes))
        .with_objects(*pods)
        .with_invariants(*invariants())
    )
    async with plan.on_the_sandbox() as cluster:
        cluster.run(run_controller)
        for node in nodes:
            await create_maintenance(cluster, node, name=node)
        await cluster.pass_time(seconds=4)
        since = cluster.revision
        await cluster.pass_time(seconds=10)
        written_at = writes(cluster, PLURAL, since=since)
        assert len(written_at) >= len(nodes), "each of them every few seconds"
        assert len(written_at) <= 220, "and all together some twenty times a second"
        for node in nodes:
            await wait_for_success(cluster, node)


async def test_policy_refusal_fails_before_any_eviction(clock: Clock) -> None:
    plan = (
        with_nodemaintenance_crd(a_cluster(clock))
        .with_nodes(1)
        .with_daemon_set("shop/logs")
        .with_invariants(*invariants())
    )
    async with plan.with_objects(a_pod("shop/free", on="n1")).on_the_sandbox() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"ignoreDaemonSets": False})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        assert condition_of(cluster, "Failed") == ("True", "DrainRefused")
        assert "DaemonSet-managed Pods" in last_error(cluster)
        assert len(cluster.pods_on("n1")) == 2
        await cluster.patch(PLURAL, NAME, spec={"drain": None})
        await wait_for_success(cluster)
        assert len(cluster.pods_on("n1")) == 1


async def test_order_withdrawn_at_once_leaves_nothing_behind(clock: Clock) -> None:
    for moment in range(12):
        async with a_still_cluster(clock) as cluster:
            await create_maintenance(cluster, "n1")
            await cluster.clock.sleep(timedelta(milliseconds=moment))
            await delete_maintenance(cluster)
            await cluster.eventually(lambda: is_gone(cluster))
            await cluster.pass_time(seconds=5)
            assert is_released(cluster, "n1")
            assert not has_lease(cluster, "n1")


async def test_maintenance_of_the_same_name_again_is_a_new_one(clock: Clock) -> None:
    async with a_still_cluster(clock) as cluster:
        for _ in range(3):
            await create_maintenance(cluster, "n1")
            await wait_for_success(cluster)
            await end_maintenance(cluster)
            assert is_released(cluster, "n1")
        await cluster.pass_time(seconds=5)
        assert event_reasons(cluster).count("BeginMaintenance") == 3


async def test_node_maintenance_without_a_spec_fails_with_node_unnamed(clock: Clock) -> None:
    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(1).on_the_sandbox() as cluster:
        cluster.run(run_controller)
        await cluster.create({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                              "metadata": {"name": NAME}})  # fmt: skip
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        assert condition_of(cluster, "Failed") == ("True", "NodeUnnamed")
        await end_maintenance(cluster)


async def test_stuck_pod_delays_no_other_node(clock: Clock) -> None:
    names = [f"n{number}" for number in range(1, 31)]
    plan = with_blocking_pods(with_nodemaintenance_crd(a_cluster(clock)).with_nodes(30), "n1").with_invariants(
        *invariants()
    )
    async with plan.on_the_sandbox() as cluster:
        cluster.run(run_controller)
        await asyncio.gather(*(create_maintenance(cluster, name, name=f"patch-{name}") for name in names))
        for name in names[1:]:
            await cluster.eventually(
                lambda name=name: phase(cluster, f"patch-{name}"),  # type: ignore[misc]
                becomes="Succeeded",
                within=timedelta(seconds=10),
            )
        assert phase(cluster, "patch-n1") == "Running"
        assert has_maintenance_marks(cluster, "n1")


async def test_changed_machine_drain_rule_applies_at_once(clock: Clock) -> None:
    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(1).on_the_sandbox() as cluster:
        await cluster.create(a_pod("shop/db", on="n1"))
        keeps = '{"rules":[{"name":"jobs","behavior":"WaitCompleted"}]}'
        await cluster.patch("nodes", "n1", metadata={"annotations": {DRAIN_RULES: keeps}})
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: status(cluster).get("blockers"))
        await cluster.pass_time(seconds=1)
        cluster.pause("kubelets")  # so that nothing else wakes the operator
        await cluster.pass_time(seconds=1)
        await cluster.patch("nodes", "n1", metadata={"annotations": {DRAIN_RULES: None}})
        await cluster.eventually(lambda: is_terminating(cluster.get("pods", "shop/db")), within=timedelta(seconds=1))
