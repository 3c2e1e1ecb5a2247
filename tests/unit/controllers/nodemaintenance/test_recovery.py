"""Recovery: how long a deleted NodeMaintenance waits for workloads."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.nodemaintenance import FINALIZER, NodeMaintenance
from haulout.api.objects import Node
from haulout.budget.unavailable_nodes import (
    RECOVERING_ANNOTATION,
    MaintenanceCause,
    is_unavailable,
    is_under_maintenance_by,
    recovering_node_maintenances_of,
    unavailability_reason,
)
from haulout.controllers.nodemaintenance import recovery
from haulout.controllers.nodemaintenance.actions import EndRecovery, RemoveFinalizer
from haulout.controllers.nodemaintenance.controller import NodeMaintenanceController
from haulout.controllers.nodemaintenance.decision import decide
from haulout.controllers.nodemaintenance.observation import Observation
from haulout.controllers.nodemaintenance.recovery import RecoveryObservation
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout.runtime.journal import Journal
from support.clusters.cluster_plan import a_cluster
from support.operators.nodemaintenance import (
    PLURAL,
    a_controller,
    create_maintenance,
    delete_maintenance,
    end_maintenance,
    run_controller,
    run_with_informers,
    wait_for_success,
    with_operator_rbac,
)
from support.operators.profiles import annotation

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KNOWN = RecoveryObservation()


def a_node(annotation: str = "patch", *, ready: str = "True") -> Node:
    return msgspec.convert(
        {
            "metadata": {
                "name": "n1",
                "uid": "u",
                "resourceVersion": "1",
                "annotations": {RECOVERING_ANNOTATION: annotation} if annotation else {},
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        },
        Node,
    )


def a_maintenance(spec: Any = None, **status: Any) -> NodeMaintenance:
    return msgspec.convert(
        {
            "metadata": {
                "name": "patch",
                "finalizers": [FINALIZER],
                "deletionTimestamp": "2026-01-05T08:59:00Z",
            },
            "spec": {"nodeName": "n1", "recovery": spec},
            "status": {"phase": "Succeeded", "recovery": {"startTime": "2026-01-05T08:58:00Z", **status}},
        },
        NodeMaintenance,
    )


def decision_for_recovery(
    maintenance: NodeMaintenance, recovery_observation: RecoveryObservation | None = KNOWN, node: Node | None = None
) -> Any:
    return decide(Observation(maintenance=maintenance, now=NOW, node=node or a_node(), recovery=recovery_observation))


@pytest.mark.parametrize(
    ("timeout", "ends"),
    [("", 10), ("5m", 5), ("0s", 0), ("9999h", 24 * 60), ("1e999", 10), ("soon", 10), ("-5m", 0)],
)
def test_recovery_deadline_is_bounded_whatever_the_timeout(timeout: str, ends: int) -> None:
    start = NOW - 2 * MINUTE
    assert recovery.recovery_deadline(a_maintenance({"timeout": timeout}), NOW) == start + ends * MINUTE


def test_edited_start_time_does_not_extend_the_recovery() -> None:
    assert recovery.recovery_deadline(a_maintenance({}, startTime="2126-01-05T09:00:00Z"), NOW) == NOW + 10 * MINUTE


@pytest.mark.parametrize(
    ("node", "recovery_observation", "message"),
    [
        (a_node(ready="False"), KNOWN, "node n1 is not Ready"),
        (
            a_node(),
            RecoveryObservation(degraded=("Deployment a/b (0 of 1)",)),
            "not fully available again: Deployment a/b (0 of 1)",
        ),
        (a_node(), RecoveryObservation(problem="may not list"), "are available again: may not list"),
        (a_node(), None, "are available again: they are not watched"),
    ],
)
def test_recovery_states_what_is_missing_and_its_deadline(
    node: Node, recovery_observation: RecoveryObservation | None, message: str
) -> None:
    decision = decision_for_recovery(a_maintenance({}), recovery_observation, node)
    assert decision.action is None
    assert message in decision.problem
    assert decision.problem.endswith("the maintenance ends at 2026-01-05 09:08:00 UTC at the latest")
    assert decision.requeue_at == NOW + 8 * MINUTE


@pytest.mark.parametrize("status", [{"problem": "may not list"}, {"omitted": 3}])
def test_recovery_is_unknown_when_the_state_before_was_not_recorded(status: Any) -> None:
    assert "cannot tell whether" in decision_for_recovery(a_maintenance({}, **status)).problem


def test_recovery_ends_when_workloads_are_available_or_the_timeout_passes_or_it_is_not_requested() -> None:
    assert decision_for_recovery(a_maintenance({})).action.is_recovered
    late = decision_for_recovery(
        a_maintenance({"timeout": "1m"}), RecoveryObservation(degraded=("Deployment a/b (0 of 1)",))
    ).action
    assert isinstance(late, EndRecovery)
    assert "Deployment a/b" in late.missing
    assert isinstance(decision_for_recovery(a_maintenance(None)).action, EndRecovery)
    assert isinstance(decision_for_recovery(a_maintenance({}), node=a_node("")).action, RemoveFinalizer)


def test_recovering_node_is_unavailable_for_budgets() -> None:
    node = a_node("patch,other")
    assert recovering_node_maintenances_of(node) == ("patch", "other")
    assert is_unavailable(node, NOW)
    assert is_under_maintenance_by(MaintenanceCause.NODE_MAINTENANCES, node)
    assert not is_under_maintenance_by(MaintenanceCause.PROFILES, node)
    assert unavailability_reason(node, NOW).startswith("waiting for workloads to recover from NodeMaintenance patch")
    left = recovery.remove_recovering_patch(node, "patch")["metadata"]["annotations"]
    assert left == {RECOVERING_ANNOTATION: "other"}
    assert not is_unavailable(a_node(""), NOW)


@pytest.mark.parametrize("how", ["torn away", "invented"])
async def test_unused_recovering_annotation_is_removed(clock: Clock, how: str) -> None:
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    plan = with_operator_rbac(a_cluster(clock)).with_nodes(1).with_deployment("shop/cart", replicas=1, pods=pods)
    async with plan.running() as cluster:
        cluster.run(run_controller)
        if how == "torn away":
            await create_maintenance(cluster, "n1", recovery={"timeout": "1h"})
            await wait_for_success(cluster)
            await cluster.patch("nodes", "n1", metadata={"labels": {"kubernetes.io/hostname": "elsewhere"}})
            await delete_maintenance(cluster)
            await cluster.eventually(lambda: annotation(cluster, "n1", RECOVERING_ANNOTATION), becomes="patch")
            await cluster.patch(PLURAL, "patch", metadata={"finalizers": None})
        else:
            await cluster.patch("nodes", "n1", metadata={"annotations": {RECOVERING_ANNOTATION: "nobody"}})
        within = timedelta(minutes=10)
        await cluster.eventually(lambda: annotation(cluster, "n1", RECOVERING_ANNOTATION) is None, within=within)


async def test_workloads_are_watched_only_while_a_maintenance_requests_recovery(clock: Clock) -> None:
    plan = with_operator_rbac(a_cluster(clock)).with_nodes(2).with_deployment("shop/cart", replicas=1)
    async with plan.running() as cluster:
        controllers: list[NodeMaintenanceController] = []

        async def program(client: Client) -> None:
            events = EventRecorder(client, instance="test", controller="x")
            controllers.append(a_controller(client, Journal("x", events, metrics=client.metrics)))
            await run_with_informers(controllers[0])

        cluster.run(program)
        await create_maintenance(cluster, "n2", name="plain")
        await wait_for_success(cluster, "plain")
        follows = [controllers[0]._workload_informers.is_watching]
        await create_maintenance(cluster, "n1", recovery={})
        await wait_for_success(cluster)
        follows.append(controllers[0]._workload_informers.is_watching)
        await end_maintenance(cluster)
        await cluster.pass_time(minutes=1)
        assert [*follows, controllers[0]._workload_informers.is_watching] == [False, True, False]
