"""Invalid input is reported in the status and by an event, recovers once repaired, and causes no hot loop.

Requests are counted over ten minutes of failure: fewer than one per second.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.resources import NODES
from haulout.cli.cordon.node_changes import cordon_node
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.kube.namespaces import namespace
from haulout.kube.transport import Request
from haulout_sandbox.apiserver.transport.faults import RequestMatch
from support.builders.objects import a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.operators.nodemaintenance import (
    CRD,
    LEASE_NAMESPACE,
    NAME,
    OPERATOR_RBAC,
    PLURAL,
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
    with_operator_rbac,
)

NOTICED = timedelta(seconds=75)  # until a granted permission is detected without a watch event
FREE = a_pod("shop/free", on="n1", behaviour={"stop-seconds": "1"})


@asynccontextmanager
async def a_shop(
    clock: Clock, *, held: bool = False, entitling: bool = False, mute: bool = False
) -> AsyncIterator[SandboxCluster]:
    """Run a cluster with a pod on its first node; with `held`, also a pod blocked by its PodDisruptionBudget.

    With `mute` the operator cannot write a status for ten minutes.
    """
    bare = a_cluster(clock)
    plan = with_operator_rbac(bare) if entitling else with_nodemaintenance_crd(bare)
    plan = plan.with_nodes(2).with_objects(FREE)
    plan = with_blocking_pods(plan, "n1") if held else plan
    silent_for = timedelta(minutes=12) if mute else timedelta(seconds=30)
    async with plan.with_invariants(*invariants(max_silence=silent_for)).on_the_sandbox() as cluster:
        yield cluster


def requests(cluster: SandboxCluster) -> int:
    return len(cluster.processes["operator"].transport.requests)


async def assert_few_requests(cluster: SandboxCluster) -> None:
    """Let ten minutes pass, in which the operator must send few requests."""
    before = requests(cluster)
    await cluster.pass_time(minutes=10)
    request_count = requests(cluster) - before
    assert request_count < 600, f"{request_count} requests in ten minutes"


async def wait_until_failed(cluster: SandboxCluster, reason: str, name: str = NAME) -> None:
    await cluster.eventually(lambda: phase(cluster, name), becomes="Failed")
    assert condition_of(cluster, "Failed", name) == ("True", reason)
    await cluster.eventually(lambda: "FailedMaintenance" in event_reasons(cluster, name))


# Which node


async def test_node_created_later_is_put_into_maintenance(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n7")
        await wait_until_failed(cluster, "NodeMissing")
        await assert_few_requests(cluster)
        cluster.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n7"}})
        await wait_for_success(cluster)
        assert has_maintenance_marks(cluster, "n7")
        assert "lastError" not in status(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n7")


async def test_empty_node_name_fails_until_it_is_set(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "")
        await wait_until_failed(cluster, "NodeUnnamed")
        assert last_error(cluster) == "spec.nodeName is empty, expected the name of a node"
        await assert_few_requests(cluster)
        await cluster.patch(PLURAL, NAME, spec={"nodeName": "n1"})
        await wait_for_success(cluster)
        await end_maintenance(cluster)


@pytest.mark.parametrize("name", ["n1/status", "../nodes/n1", "n1 ", "N1", "n1?x=y", "%2e%2e", "ü", "-", "n" * 300])
async def test_invalid_node_name_fails_with_node_missing(clock: Clock, name: str) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, name)
        await wait_until_failed(cluster, "NodeMissing")
        assert last_error(cluster) == f'nodes "{name}" not found'
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


@pytest.mark.parametrize("first_fails", [False, True], ids=["while it is running", "although it failed"])
async def test_second_node_maintenance_of_a_node_waits_for_the_first(clock: Clock, *, first_fails: bool) -> None:
    """The webhook refuses it. Without a webhook the first takes precedence, even if it failed, as it may resume."""
    drain = {"timeout": "5s"} if first_fails else {}
    async with a_shop(clock, held=True) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", name="first", drain=drain)
        await (
            wait_until_failed(cluster, "DrainTimedOut", "first")
            if first_fails
            else wait_until_blocked(cluster, "first")
        )
        await cluster.pass_time(seconds=1)
        await create_maintenance(cluster, "n1", name="second")
        how = "first, which has failed: " if first_fails else "first: "
        expected = (
            f"node n1 is already in maintenance by NodeMaintenance {how}this one continues when that one is deleted"
        )
        await cluster.eventually(lambda: last_error(cluster, "second"), becomes=expected)
        await cluster.eventually(
            lambda: event_reasons(cluster, "second"), becomes=["BeginMaintenance", "MaintenanceWaiting"]
        )
        assert phase(cluster, "second") == "Running"
        await assert_few_requests(cluster)
        await end_maintenance(cluster, "first")
        await wait_until_blocked(cluster, "second")
        assert has_maintenance_marks(cluster, "n1")
        await end_maintenance(cluster, "second")
        assert is_released(cluster, "n1")


async def test_changed_node_name_releases_the_previous_node(clock: Clock) -> None:
    """The webhook refuses it. Without a webhook the first node is released."""
    async with a_shop(clock, held=True) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.patch(PLURAL, NAME, spec={"nodeName": "n2"})
        await wait_for_success(cluster)
        assert has_maintenance_marks(cluster, "n2")
        assert is_released(cluster, "n1")
        assert (has_lease(cluster, "n1"), has_lease(cluster, "n2")) == (False, True)
        assert cluster.ready_pod_count("shop/on-n1") == 1
        assert not {"evictionPods", "totalpods", "blockers", "lastError"} & set(status(cluster)), "n2 has no pods"
        await end_maintenance(cluster)
        assert is_released(cluster, "n2")
        assert not has_lease(cluster, "n2")


async def test_node_is_released_when_the_node_name_changes_to_a_missing_node(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.patch(PLURAL, NAME, spec={"nodeName": "nowhere"})
        await wait_until_failed(cluster, "NodeMissing")
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def test_node_renamed_while_no_operator_runs_is_released_on_deletion(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        operator.kill()
        await cluster.patch(PLURAL, NAME, spec={"nodeName": "n2"})
        await delete_maintenance(cluster)
        operator.start()
        await cluster.eventually(lambda: is_gone(cluster))
        assert is_released(cluster, "n1")
        assert is_released(cluster, "n2")
        assert not has_lease(cluster, "n1")


async def test_node_deleted_during_a_drain_fails_and_its_recreation_resumes(clock: Clock) -> None:
    async with a_shop(clock, held=True) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.kubelets.remove("n1")
        await wait_until_failed(cluster, "NodeMissing")
        assert last_error(cluster) == 'nodes "n1" not found'
        await assert_few_requests(cluster)
        cluster.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await cluster.eventually(lambda: phase(cluster) != "Failed")
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


async def test_node_maintenance_of_a_deleted_node_can_be_deleted(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.kubelets.remove("n1")
        await end_maintenance(cluster)
        await cluster.eventually(lambda: not has_lease(cluster, "n1"))


async def test_recreated_node_is_put_into_maintenance_again(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        cluster.api.remove("nodes", "n1", "")
        cluster.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


# Missing objects


@pytest.mark.parametrize("with_rights", [False, True], ids=["with all rights", "with ours"])
async def test_leases_are_recreated_after_their_namespace_was_deleted(clock: Clock, *, with_rights: bool) -> None:
    async with a_shop(clock, held=True, entitling=with_rights) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        before = lease(cluster, "n1")["metadata"]["uid"]
        await cluster.delete("namespaces", LEASE_NAMESPACE)
        await cluster.eventually(lambda: not cluster.has("namespaces", LEASE_NAMESPACE))
        await assert_few_requests(cluster)
        if with_rights:  # those that we ship went with the namespace
            assert "forbidden" in last_error(cluster).lower()
            for right in (namespace(LEASE_NAMESPACE), *OPERATOR_RBAC):
                cluster.api.put(right)
        await cluster.eventually(lambda: lease(cluster, "n1")["metadata"]["uid"] != before, within=NOTICED)
        assert has_maintenance_marks(cluster, "n1")
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await wait_for_success(cluster)
        assert "lastError" not in status(cluster)
        await end_maintenance(cluster)


async def test_missing_role_in_the_lease_namespace_is_reported_until_it_is_restored(
    clock: Clock,
) -> None:
    plan = with_operator_rbac(with_blocking_pods(a_cluster(clock).with_nodes(2), "n1"))
    async with plan.on_the_sandbox() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.delete("namespaces", LEASE_NAMESPACE)
        await cluster.eventually(lambda: "forbidden" in status(cluster).get("lastError", ""))
        assert (
            f"apply the installation again: it contains namespace {LEASE_NAMESPACE} and the Role in it"
            in last_error(cluster)
        )
        assert has_maintenance_marks(cluster, "n1")
        for role in (namespace(LEASE_NAMESPACE), *OPERATOR_RBAC):
            cluster.api.put(role)
        await cluster.eventually(lambda: has_lease(cluster, "n1"), within=NOTICED)
        await end_maintenance(cluster)


async def test_crd_may_be_installed_after_the_operator(clock: Clock) -> None:
    plan = a_cluster(clock).with_nodes(1)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(run_controller)
        await assert_few_requests(cluster)
        cluster.api.put(CRD)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await end_maintenance(cluster)


async def test_deleted_crd_releases_nodes_and_a_new_crd_is_reconciled(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.delete("customresourcedefinitions", CRD["metadata"]["name"])
        await cluster.eventually(lambda: is_released(cluster, "n1"))
        await assert_few_requests(cluster)
        cluster.api.put(CRD)
        await create_maintenance(cluster, "n2")
        await wait_for_success(cluster)
        assert has_maintenance_marks(cluster, "n2")


@pytest.mark.parametrize("operator_is", ["dead", "cut off"])
@pytest.mark.parametrize("then", ["ordered again", "left alone", "cordoned by a person"])
async def test_orphaned_cordon_is_reported_and_released_after_a_while(
    clock: Clock, operator_is: str, then: str
) -> None:
    async with a_shop(clock) as cluster:
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        if operator_is == "dead":
            operator.kill()
        else:
            operator.transport.cut()
        await cluster.patch(PLURAL, NAME, metadata={"finalizers": None})
        await delete_maintenance(cluster)
        if operator_is == "dead":
            operator.start()
        else:
            operator.transport.mend()
        await cluster.eventually(lambda: "OrphanedCordon" in event_reasons(cluster, "n1", kind="Node"))
        await cluster.pass_time(minutes=4)
        assert has_maintenance_marks(cluster, "n1"), "a user may still work on it"
        if then == "ordered again":
            await create_maintenance(cluster, "n1")
            await wait_for_success(cluster)
            await cluster.pass_time(minutes=10)
            assert has_maintenance_marks(cluster, "n1")
            await end_maintenance(cluster)
        elif then == "cordoned by a person":
            await cordon_node(cluster.admin, await cluster.admin.get(NODES, "n1"))
            await cluster.eventually(lambda: not has_lease(cluster, "n1"))
            assert cluster.get("nodes", "n1")["spec"]["unschedulable"]
            await cluster.uncordon("n1")
        await cluster.eventually(lambda: is_released(cluster, "n1") and not has_lease(cluster, "n1"))


# Missing permissions


FORBIDDEN: dict[str, RequestMatch] = {
    "to see nodes": {"method": "GET", "path": "/nodes"},
    "to cordon nodes": {"method": "PATCH", "where": lambda it: it.path == "/api/v1/nodes/n1"},
    "to set conditions of nodes": {"method": "PATCH", "path": "/nodes/n1/status"},
    "to see pods": {"method": "GET", "path": "/pods"},
    "to evict pods": {"path": "/eviction"},
    "to see leases": {"method": "GET", "path": "/leases"},
    "to take leases": {"path": "/leases", "where": lambda it: it.method != "GET"},
    "to hold maintenances": {"method": "PATCH", "where": lambda it: it.path.endswith(f"/{PLURAL}/{NAME}")},
    "to write their status": {"method": "PATCH", "path": f"/{PLURAL}/{NAME}/status"},
    "to see maintenances": {"method": "GET", "path": f"/{PLURAL}"},
    "to tell by events": {"path": "/events"},
}
HARMLESS = {"to set conditions of nodes", "to tell by events"}
UNSPEAKABLE = {"to see maintenances", "to write their status", *HARMLESS}


@pytest.mark.parametrize("what", FORBIDDEN)
async def test_missing_permission_is_reported_and_recovered_from(clock: Clock, what: str) -> None:
    async with a_shop(clock, mute=what in UNSPEAKABLE - HARMLESS) as cluster:
        transport = cluster.transport()
        rule = transport.faults.fail_before_effect(response=403, **FORBIDDEN[what] | {"times": None})
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await assert_few_requests(cluster)
        if what in HARMLESS:
            assert phase(cluster) == "Succeeded"
        else:
            assert phase(cluster) != "Succeeded"
        if what not in UNSPEAKABLE:
            assert "forbidden" in last_error(cluster).lower()
            assert status(cluster)["nextReconcile"]
        if what not in HARMLESS | {"to see maintenances"}:
            assert {"MaintenanceError", "DrainBlocked"} & set(event_reasons(cluster))
        transport.faults.remove(rule)
        await cluster.eventually(lambda: phase(cluster), becomes="Succeeded", within=NOTICED)
        await cluster.eventually(lambda: "lastError" not in status(cluster), within=NOTICED)
        assert has_maintenance_marks(cluster, "n1")
        rule = transport.faults.fail_before_effect(response=403, **FORBIDDEN[what] | {"times": None})
        await delete_maintenance(cluster)
        await assert_few_requests(cluster)
        transport.faults.remove(rule)
        await cluster.eventually(lambda: is_gone(cluster), within=NOTICED)
        assert is_released(cluster, "n1")


async def test_endless_conflicts_are_retried_with_backoff(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        transport = cluster.transport()
        rule = transport.faults.fail_before_effect(
            response=409, method="PATCH", times=None, where=lambda it: "/nodes" in it.path
        )
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await assert_few_requests(cluster)
        assert last_error(cluster)
        transport.faults.remove(rule)
        await cluster.eventually(lambda: phase(cluster), becomes="Succeeded", within=NOTICED)


async def test_failing_api_server_is_retried_with_backoff(clock: Clock) -> None:
    async with a_shop(clock, held=True, mute=True) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        transport = cluster.cluster.transport("operator")
        rule = transport.faults.fail_before_effect(response=500, times=None)
        await assert_few_requests(cluster)
        transport.faults.remove(rule)
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await wait_for_success(cluster)


async def test_failing_status_update_is_retried_with_backoff(clock: Clock) -> None:
    async with a_shop(clock, held=True, mute=True) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: phase(cluster), becomes="Running")
        transport = cluster.transport()
        rule = transport.faults.fail_before_effect(response=500, method="PATCH", path=PLURAL, times=None)
        since = requests(cluster)
        await cluster.pass_time(minutes=10)
        tries = [it for it in cluster.processes["operator"].transport.requests[since:] if PLURAL in it.request.path]
        assert 0 < len(tries) <= 70
        transport.faults.remove(rule)
        await cluster.eventually(lambda: condition_of(cluster, "Drained"), becomes=("False", "Blocked"), within=NOTICED)


# Invalid objects


POLICIES: list[tuple[dict[str, Any], str]] = [
    ({"deletionTimeout": "1m"}, "spec.drain.deletionTimeout: found without forceDelete, expected forceDelete: true"),
    ({"force": False, "evictionTimeout": "1m"}, "spec.drain.evictionTimeout: found without force"),
    ({"rules": [{"name": "a"}, {"name": "a"}]}, "spec.drain.rules[1].name: found 'a' again"),
    ({"timeout": "0s"}, "spec.drain.timeout: found '0s', expected a duration above zero"),
    ({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "spec.drain.podSelector"),
]


@pytest.mark.parametrize(("policy", "expected"), POLICIES)
async def test_invalid_policy_fails_before_any_change(clock: Clock, policy: dict[str, Any], expected: str) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain=policy)
        await wait_until_failed(cluster, "PolicyInvalid")
        assert expected in last_error(cluster)
        await assert_few_requests(cluster)
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")
        await cluster.patch(PLURAL, NAME, spec={"drain": None})
        await wait_for_success(cluster)
        assert condition_of(cluster, "Failed") == ("False", "Resumed")
        await end_maintenance(cluster)


async def test_policy_that_becomes_invalid_stops_the_drain_and_keeps_the_node(clock: Clock) -> None:
    async with a_shop(clock, held=True) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.patch(PLURAL, NAME, spec={"drain": {"deletionTimeout": "1m"}})
        await wait_until_failed(cluster, "PolicyInvalid")
        eviction_count = len(cluster.cluster.transport("operator").sent_requests(path="/eviction"))
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await cluster.pass_time(hours=2)
        assert len(cluster.cluster.transport("operator").sent_requests(path="/eviction")) == eviction_count
        assert has_maintenance_marks(cluster, "n1")
        assert condition_of(cluster, "Leased")[0] == "True"
        renewed = lease(cluster, "n1")["spec"]["renewTime"]
        assert renewed > (cluster.clock.now() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")
        await cluster.patch(PLURAL, NAME, spec={"drain": None})
        await wait_for_success(cluster)


REASONS = ["x" * 1_000_000, "a\x00b\r\nc\t\u202e\u2028", "🦭" * 5000, "\n" * 2000, "</script>{{7*7}}%s%n"]


@pytest.mark.parametrize("reason", REASONS, ids=["huge", "controls", "seals", "blank", "code"])
async def test_reason_may_contain_any_text(clock: Clock, reason: str) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", reason=reason)
        await wait_for_success(cluster)
        messages = [it["message"] for it in cluster.get("nodes", "n1")["status"]["conditions"]]
        assert max(map(len, messages)) < 500
        assert all(transport.isprintable() or "\u202e" in transport or "\x00" in transport for transport in messages)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


async def test_unreadable_cordon_annotation_is_reported_and_awaits_repair(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        await cluster.patch("nodes", "n1", metadata={"annotations": {cordon.CORDON_ANNOTATION: '{"owners": 7}'}})
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: cordon.CORDON_ANNOTATION in last_error(cluster))
        await cluster.eventually(lambda: event_reasons(cluster), becomes=["BeginMaintenance", "MaintenanceWaiting"])
        assert condition_of(cluster, "Cordoned") == ("False", "CordonAnnotationInvalid")
        await assert_few_requests(cluster)
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")
        await cluster.patch("nodes", "n1", metadata={"annotations": {cordon.CORDON_ANNOTATION: None}})
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


async def test_repeated_uncordon_is_restored_at_a_limited_rate(clock: Clock) -> None:
    async with a_shop(clock) as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        before = requests(cluster)
        for _ in range(600):
            await cluster.uncordon("n1")
            await cluster.pass_time(seconds=1)
        assert requests(cluster) - before < 600
        mine = [it.after for it in cluster.history if it.key == NAME and it.after is not None]
        errors = [it.get("status", {}).get("lastError", "") for it in mine]
        assert any("another client keeps undoing" in it for it in errors)
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await cluster.eventually(lambda: "lastError" not in status(cluster))


def test_forbidden_requests_match_only_their_request() -> None:
    """The tests above would prove nothing if their faults matched no request."""
    cordoning = Request(method="PATCH", path="/api/v1/nodes/n1")
    telling = Request(method="PATCH", path="/api/v1/nodes/n1/status")
    assert FORBIDDEN["to cordon nodes"]["where"](cordoning)
    assert not FORBIDDEN["to cordon nodes"]["where"](telling)
