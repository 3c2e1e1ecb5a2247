"""What makes no sense is said, in the status and by an event; nothing is stuck once it is repaired, and nothing is hot.

`tests/unit/controllers/nodemaintenance/test_bad_input.py` has more cases, which need the sandbox and simulated hours.
"""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout.controllers.nodemaintenance import reconciler
from haulout.controllers.nodemaintenance import status as told
from support.builders.objects import a_pod
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.faults.injected_responses import ResponseInjector
from support.operators.nodemaintenance import (
    CRD,
    NAME,
    OPERATOR_RBAC,
    PLURAL,
    condition_of,
    create_maintenance,
    end_maintenance,
    event_reasons,
    has_lease,
    has_maintenance_marks,
    invariants,
    is_released,
    last_error,
    phase,
    run_controller,
    status,
    wait_for_success,
    wait_until_blocked,
    with_blocking_pods,
    with_operator_rbac,
)

ROLE = next(it for it in OPERATOR_RBAC if it["kind"] == "ClusterRole" and it["metadata"]["name"] == "haulout")


@pytest.fixture
def seconds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the duration of a fault: minutes on simulated time, seconds on real time with earlier reports."""
    if request.config.getoption("--backend") == "sandbox":
        return 600.0
    for module in (reconciler, told):
        monkeypatch.setattr(module, "BLOCKED_AFTER", timedelta(seconds=1))
    return 8.0


def a_plan(a_cluster: PlanFactory, *, held: bool = False) -> ClusterPlan:
    plan = (
        with_operator_rbac(a_cluster())
        .with_nodes(2)
        .with_objects(a_pod("shop/free", on="n1"))
        .with_invariants(*invariants())
    )
    return with_blocking_pods(plan, "n1") if held else plan


def running_operator(cluster: LiveCluster) -> ResponseInjector:
    """Run the operator; return its requests."""
    injector = ResponseInjector()
    cluster.run(injector.wrap_program(run_controller))
    return injector


async def assert_few_requests(cluster: LiveCluster, operator: ResponseInjector, seconds: float) -> None:
    """Let time pass, and check that the operator sends less than one request per second."""
    await cluster.pass_time(seconds=3)
    before = len(operator.requests)
    await cluster.pass_time(seconds=seconds)
    requests = [f"{item.method} {item.path}" for item in operator.requests[before:]]
    assert len(requests) < seconds, requests


async def wait_for_failure(cluster: LiveCluster, reason: str) -> None:
    await cluster.eventually(lambda: phase(cluster), becomes="Failed")
    assert condition_of(cluster, "Failed") == ("True", reason)
    await cluster.eventually(lambda: "FailedMaintenance" in event_reasons(cluster))


async def test_empty_node_name_fails_the_maintenance(a_cluster: PlanFactory, seconds: float) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = running_operator(cluster)
        await create_maintenance(cluster, "")
        await wait_for_failure(cluster, "NodeUnnamed")
        assert last_error(cluster) == "spec.nodeName is empty, expected the name of a node"
        await assert_few_requests(cluster, operator, seconds)
        await cluster.patch(PLURAL, NAME, spec={"nodeName": "n1"})
        await wait_for_success(cluster)
        await end_maintenance(cluster)


async def test_missing_node_fails_the_maintenance_until_it_is_created(a_cluster: PlanFactory, seconds: float) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = running_operator(cluster)
        await create_maintenance(cluster, "n3")
        await wait_for_failure(cluster, "NodeMissing")
        await assert_few_requests(cluster, operator, seconds)
        await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n3"}})
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n3"))
        await wait_for_success(cluster)
        assert "lastError" not in status(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n3")


async def test_node_deleted_during_a_drain_fails_the_maintenance_until_it_is_recreated(
    a_cluster: PlanFactory, seconds: float
) -> None:
    async with a_plan(a_cluster, held=True).running() as cluster:
        operator = running_operator(cluster)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.kubelets.remove("n1")
        await wait_for_failure(cluster, "NodeMissing")
        assert last_error(cluster) == 'nodes "n1" not found'
        await assert_few_requests(cluster, operator, seconds)
        await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await cluster.eventually(lambda: phase(cluster) != "Failed")
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


async def test_changed_node_name_releases_the_first_node_and_takes_the_second(a_cluster: PlanFactory) -> None:
    """The webhook refuses that; without it the first node is released."""
    async with a_plan(a_cluster, held=True).running() as cluster:
        running_operator(cluster)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.patch(PLURAL, NAME, spec={"nodeName": "n2"})
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n2"))
        await wait_for_success(cluster)
        await cluster.eventually(lambda: is_released(cluster, "n1"))
        assert (has_lease(cluster, "n1"), has_lease(cluster, "n2")) == (False, True)
        assert cluster.ready_pod_count("shop/on-n1") == 1
        await end_maintenance(cluster)


@pytest.mark.parametrize(
    ("drain", "problem"),
    [
        ({"deletionTimeout": "1m"}, "spec.drain.deletionTimeout: found without forceDelete"),
        ({"rules": [{"name": "a"}, {"name": "a"}]}, "spec.drain.rules[1].name: found 'a' again"),
    ],
    ids=["escalation", "rules"],
)
async def test_invalid_drain_policy_fails_the_maintenance_before_the_node_is_changed(
    a_cluster: PlanFactory, seconds: float, drain: dict[str, Any], problem: str
) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = running_operator(cluster)
        await create_maintenance(cluster, "n1", drain=drain)
        await wait_for_failure(cluster, "PolicyInvalid")
        assert problem in last_error(cluster)
        await assert_few_requests(cluster, operator, seconds)
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")
        await cluster.patch(PLURAL, NAME, spec={"drain": None})
        await wait_for_success(cluster)
        assert condition_of(cluster, "Failed") == ("False", "Resumed")
        await end_maintenance(cluster)


@pytest.mark.parametrize(
    ("resource", "verb"),
    [("pods/eviction", "create"), ("nodes", "patch"), ("pods", "list")],
    ids=["to evict pods", "to cordon nodes", "to watch pods"],
)
async def test_missing_permission_is_reported_and_the_maintenance_resumes_once_it_is_granted(
    a_cluster: PlanFactory, seconds: float, resource: str, verb: str
) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = running_operator(cluster)
        await cluster.patch("clusterroles", "haulout", rules=_rules_without(resource, verb))
        try:
            await create_maintenance(cluster, "n1")
            await cluster.eventually(lambda: "forbidden" in last_error(cluster).lower())
            await cluster.eventually(lambda: bool({"MaintenanceError", "DrainBlocked"} & set(event_reasons(cluster))))
            assert status(cluster)["nextReconcile"]
            await assert_few_requests(cluster, operator, seconds)
            assert phase(cluster) == "Running"
        finally:
            await cluster.patch("clusterroles", "haulout", rules=ROLE["rules"])
        await wait_for_success(cluster)
        assert "lastError" not in status(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


def _rules_without(resource: str, verb: str) -> list[dict[str, Any]]:
    """Return the rules of our role, but one."""
    less = [
        {**rule, "verbs": [candidate for candidate in rule["verbs"] if candidate != verb]}
        if resource in rule["resources"]
        else rule
        for rule in ROLE["rules"]
    ]
    return [rule for rule in less if rule["verbs"]]


async def test_deleted_definition_releases_nodes_and_maintenance_works_after_it_is_recreated(
    a_cluster: PlanFactory, seconds: float
) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = running_operator(cluster)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.delete("customresourcedefinitions", CRD["metadata"]["name"])
        await cluster.eventually(lambda: is_released(cluster, "n1"))
        await cluster.eventually(lambda: not cluster.has("customresourcedefinitions", CRD["metadata"]["name"]))
        await assert_few_requests(cluster, operator, seconds)
        await cluster.create(CRD)
        cluster.created.pop()  # it stays when the test is over
        await _wait_until_served(cluster)
        await create_maintenance(cluster, "n2", name="anew")
        await wait_for_success(cluster, "anew")
        assert has_maintenance_marks(cluster, "n2")
        await end_maintenance(cluster, "anew")


async def _wait_until_served(cluster: LiveCluster) -> None:
    name = CRD["metadata"]["name"]

    async def is_established() -> bool:
        found = await cluster.admin.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        conditions = found.get("status", {}).get("conditions") or ()
        return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)

    await cluster.eventually(is_established)
