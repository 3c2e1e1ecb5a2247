"""The kstatus of a NodeMaintenance, as Flux and others use it: not current before its node is drained."""

from datetime import timedelta
from itertools import pairwise

import pytest

from haulout.api.objects import RawObject
from haulout.drain.progress import STALLED_AFTER
from haulout.kube.patches import merge_patch
from support.clusters.cluster_plan import PlanFactory
from support.clusters.live_cluster import RESOURCES, LiveCluster
from support.expectations.kstatus import CURRENT, FAILED, IN_PROGRESS, TERMINATING, kstatus
from support.operators.nodemaintenance import (
    NAME,
    PLURAL,
    condition_of,
    create_maintenance,
    delete_maintenance,
    invariants,
    phases,
    run_controller,
    status,
    wait_for_success,
    wait_until_blocked,
    with_blocking_pods,
    with_operator_rbac,
)
from support.packaging.argocd import health

MINUTE = timedelta(minutes=1)


def maintenance(cluster: LiveCluster) -> RawObject:
    return cluster.get(PLURAL, NAME)


async def test_unprocessed_maintenance_is_in_progress(a_cluster: PlanFactory) -> None:
    """The operator may be down: by its conditions alone, kstatus would take the object for current."""
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: cluster.has(PLURAL, NAME))
        assert status(cluster) == {"observedGeneration": -1}
        assert kstatus(maintenance(cluster)) == IN_PROGRESS
        assert health(maintenance(cluster))[0] == "Progressing"


async def test_maintenance_is_current_only_when_the_node_is_drained(a_cluster: PlanFactory) -> None:
    plan = (
        with_operator_rbac(a_cluster())
        .with_nodes(2)
        .with_deployment("shop/cart", replicas=2)
        .with_invariants(*invariants())
    )
    async with plan.running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert condition_of(cluster, "Ready") == ("True", "DrainCompleted")
        assert health(maintenance(cluster))[0] == "Healthy"
        writes = (write.after for write in cluster.history if write.kind.plural == PLURAL and write.after is not None)
        *before, last = (
            write for write in writes if "status" in write
        )  # the sandbox stores a new object without its defaults
        assert kstatus(last) == CURRENT
        assert {kstatus(write) for write in before} == {IN_PROGRESS}
        assert {health(write)[0] for write in before} == {"Progressing"}


async def test_maintenance_of_another_node_is_in_progress_until_that_node_is_drained(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(2).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.patch(PLURAL, NAME, spec={"nodeName": "n2"})
        await cluster.eventually(lambda: phases(cluster), becomes=["Running", "Succeeded", "", "Running", "Succeeded"])
        writes = [write.after for write in cluster.history if write.kind.plural == PLURAL and write.after is not None]
        *intermediate, last = (write for write in writes if write["spec"]["nodeName"] == "n2")
        assert {kstatus(write) for write in intermediate} == {IN_PROGRESS}
        assert kstatus(last) == CURRENT


async def test_maintenance_of_a_missing_node_has_failed(a_cluster: PlanFactory) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "missing")
        await cluster.eventually(lambda: condition_of(cluster, "Stalled"), becomes=("True", "NodeMissing"))
        assert kstatus(maintenance(cluster)) == FAILED
        assert health(maintenance(cluster)) == ("Degraded", 'nodes "missing" not found')


async def test_deleted_maintenance_that_is_blocked_is_terminating(a_cluster: PlanFactory) -> None:
    async with with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(1), "n1").running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        assert kstatus(maintenance(cluster)) == IN_PROGRESS
        finalizer_patch = merge_patch(
            {"metadata": {"finalizers": [*maintenance(cluster)["metadata"]["finalizers"], "a.b/stay"]}}
        )
        await cluster.admin.patch(RESOURCES[PLURAL], NAME, finalizer_patch)
        await delete_maintenance(cluster)
        await cluster.eventually(lambda: "deletionTimestamp" in maintenance(cluster)["metadata"])
        assert kstatus(maintenance(cluster)) == TERMINATING
        await cluster.admin.patch(RESOURCES[PLURAL], NAME, merge_patch({"metadata": {"finalizers": None}}))


# Only on simulated time


@pytest.fixture(name="simulated")
def a_simulated_cluster(a_cluster: PlanFactory, request: pytest.FixtureRequest) -> PlanFactory:
    if request.config.getoption("--backend") == "real":
        pytest.skip(f"it would take {STALLED_AFTER}")
    return a_cluster


async def test_drain_blocked_beyond_the_limit_is_failed_until_it_continues(simulated: PlanFactory) -> None:
    async with with_blocking_pods(with_operator_rbac(simulated()).with_nodes(2), "n1").running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.pass_time(minutes=29)
        assert kstatus(maintenance(cluster)) == IN_PROGRESS
        await cluster.pass_time(minutes=2)
        assert condition_of(cluster, "Stalled") == ("True", "Blocked")
        assert kstatus(maintenance(cluster)) == FAILED
        assert health(maintenance(cluster))[0] == "Degraded"
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await wait_for_success(cluster)
        assert kstatus(maintenance(cluster)) == CURRENT


async def test_stalled_condition_survives_an_operator_restart(
    simulated: PlanFactory,
) -> None:
    async with with_blocking_pods(with_operator_rbac(simulated()).with_nodes(1), "n1").running() as cluster:
        first = cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.eventually(lambda: kstatus(maintenance(cluster)), becomes=FAILED, within=STALLED_AFTER + MINUTE)
        since = _stalled_since(cluster)
        first.kill()
        cluster.run(run_controller, name="successor")
        for _ in range(20):
            await cluster.pass_time(seconds=5)
            assert kstatus(maintenance(cluster)) == FAILED
        assert _stalled_since(cluster) == since


def _stalled_since(cluster: LiveCluster) -> str:
    (stalled,) = (condition for condition in status(cluster)["conditions"] if condition["type"] == "Stalled")
    return str(stalled["lastTransitionTime"])


async def test_stalled_condition_causes_at_most_one_extra_write(simulated: PlanFactory) -> None:
    """All other changes of these conditions are part of writes that happen anyway."""
    async with with_blocking_pods(with_operator_rbac(simulated()).with_nodes(2), "n1").running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.pass_time(hours=1)
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await wait_for_success(cluster)
        statuses = [
            _without_kstatus_fields(write.after)
            for write in cluster.history
            if write.kind.plural == PLURAL and write.after is not None
        ]
        alone = [now for before, now in pairwise(statuses) if now == before]
        assert len(statuses) > 60
        assert len(alone) <= 1


def _without_kstatus_fields(obj: RawObject) -> RawObject:
    """Return an object without the conditions that kstatus reads, and without its update time."""
    status_fields = obj.get("status", {})
    conditions = [
        condition
        for condition in status_fields.get("conditions", ())
        if condition["type"] not in ("Ready", "Reconciling", "Stalled")
    ]
    metadata = {name: value for name, value in obj["metadata"].items() if name in ("finalizers", "deletionTimestamp")}
    return {"metadata": metadata, "status": status_fields | {"conditions": conditions, "lastUpdate": ""}}
