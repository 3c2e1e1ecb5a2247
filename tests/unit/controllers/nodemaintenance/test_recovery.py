"""How long a maintenance that was deleted waits for workloads, and what is left of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.nodemaintenance import FINALIZER, NodeMaintenance
from haulout.api.objects import Node
from haulout.budget.unavailable_nodes import (
    RECOVERING_ANNOTATION,
    is_unavailable,
    is_under_maintenance_by,
    recovering_node_maintenances_of,
    unavailability_reason,
)
from haulout.budget.unavailable_nodes import MaintenanceCause as Taker
from haulout.controllers.nodemaintenance import recovery
from haulout.controllers.nodemaintenance.actions import EndRecovery, RemoveFinalizer
from haulout.controllers.nodemaintenance.controller import NodeMaintenanceController
from haulout.controllers.nodemaintenance.decision import decide
from haulout.controllers.nodemaintenance.observation import Observation
from haulout.controllers.nodemaintenance.recovery import RecoveryObservation
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from support.clusters.cluster_plan import a_cluster
from support.operators.nodemaintenance import (
    PLURAL,
    create_maintenance,
    delete_maintenance,
    end_maintenance,
    run_controller,
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


def decided(maintenance: NodeMaintenance, seen: RecoveryObservation | None = KNOWN, node: Node | None = None) -> Any:
    return decide(Observation(maintenance=maintenance, now=NOW, node=node or a_node(), recovery=seen))


@pytest.mark.parametrize(
    ("timeout", "ends"),
    [("", 10), ("5m", 5), ("0s", 0), ("9999h", 24 * 60), ("1e999", 10), ("soon", 10), ("-5m", 0)],
)
def test_the_wait_is_bounded_whatever_is_written(timeout: str, ends: int) -> None:
    start = NOW - 2 * MINUTE
    assert recovery.recovery_deadline(a_maintenance({"timeout": timeout}), NOW) == start + ends * MINUTE


def test_an_edited_start_does_not_make_it_longer() -> None:
    assert recovery.recovery_deadline(a_maintenance({}, startTime="2126-01-05T09:00:00Z"), NOW) == NOW + 10 * MINUTE


@pytest.mark.parametrize(
    ("node", "seen", "says"),
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
def test_it_says_what_is_missing_and_until_when_it_waits(
    node: Node, seen: RecoveryObservation | None, says: str
) -> None:
    decision = decided(a_maintenance({}), seen, node)
    assert decision.action is None
    assert says in decision.problem
    assert decision.problem.endswith("the maintenance ends at 2026-01-05 09:08:00 UTC at the latest")
    assert decision.requeue_at == NOW + 8 * MINUTE


@pytest.mark.parametrize("status", [{"problem": "may not list"}, {"omitted": 3}])
def test_what_could_not_be_recorded_is_unknown(status: Any) -> None:
    assert "cannot tell whether" in decided(a_maintenance({}, **status)).problem


def test_it_ends_when_all_is_well_when_the_time_is_over_and_when_nobody_asks() -> None:
    assert decided(a_maintenance({})).action.is_recovered
    late = decided(a_maintenance({"timeout": "1m"}), RecoveryObservation(degraded=("Deployment a/b (0 of 1)",))).action
    assert isinstance(late, EndRecovery)
    assert "Deployment a/b" in late.missing
    assert isinstance(decided(a_maintenance(None)).action, EndRecovery)
    assert isinstance(decided(a_maintenance({}), node=a_node("")).action, RemoveFinalizer)


def test_a_node_that_recovers_is_out_of_service_for_budgets() -> None:
    node = a_node("patch,other")
    assert recovering_node_maintenances_of(node) == ("patch", "other")
    assert is_unavailable(node, NOW)
    assert is_under_maintenance_by(Taker.NODE_MAINTENANCES, node)
    assert not is_under_maintenance_by(Taker.PROFILES, node)
    assert unavailability_reason(node, NOW).startswith("waiting for workloads to recover from NodeMaintenance patch")
    left = recovery.remove_recovering_patch(node, "patch")["metadata"]["annotations"]
    assert left == {RECOVERING_ANNOTATION: "other"}
    assert not is_unavailable(a_node(""), NOW)


@pytest.mark.parametrize("how", ["torn away", "invented"])
async def test_no_mark_of_recovery_stays_that_nobody_waits_for(clock: Clock, how: str) -> None:
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


async def test_workloads_are_followed_only_while_a_maintenance_asks_for_recovery(clock: Clock) -> None:
    plan = with_operator_rbac(a_cluster(clock)).with_nodes(2).with_deployment("shop/cart", replicas=1)
    async with plan.running() as cluster:
        seen: list[NodeMaintenanceController] = []

        async def program(client: Client) -> None:
            seen.append(
                NodeMaintenanceController(client, events=EventRecorder(client, instance="test", controller="x"))
            )
            await seen[0].run()

        cluster.run(program)
        await create_maintenance(cluster, "n2", name="plain")
        await wait_for_success(cluster, "plain")
        follows = [seen[0].watches_workloads]
        await create_maintenance(cluster, "n1", recovery={})
        await wait_for_success(cluster)
        follows.append(seen[0].watches_workloads)
        await end_maintenance(cluster)
        await cluster.pass_time(minutes=1)
        assert [*follows, seen[0].watches_workloads] == [False, True, False]
