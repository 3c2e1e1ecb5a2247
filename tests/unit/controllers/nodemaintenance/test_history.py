"""The history entries of a NodeMaintenance: start, drain and end."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from haulout.api.maintenancerecord import ENDED_UNOBSERVED_REASON, GAP
from haulout.api.nodemaintenance import (
    ManagedFields,
    NodeMaintenance,
    NodeMaintenanceMetadata,
    custom_resource_definition,
)
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout.controllers.nodemaintenance.history_recorder import creating_manager, history_notes
from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import Write
from haulout_sandbox.event_loops.virtual_time import EPOCH
from haulout_sandbox.nodes import Delays
from support.builders.nodemaintenance_observation import a_maintenance
from support.builders.objects import a_pod
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.expectations.end_state import end_state
from support.expectations.maintenance_records import (
    CRD,
    PLURAL,
    drain_records,
    entries,
    transitions,
    with_record_crd,
    write_count,
)
from support.faults.crash_test import CrashRun, assert_survives_crashes, counts_as_write
from support.faults.named_faults import Fault
from support.faults.selection import faults_for_turn
from support.operators.nodemaintenance import (
    LEASE_NAMESPACE,
    NAME,
    create_maintenance,
    end_maintenance,
    has_maintenance_marks,
    invariants,
    is_gone,
    is_released,
    phase,
    phases,
    run_controller_with_history,
    started_by_nmo,
    wait_for_success,
    with_blocking_pods,
    with_nodemaintenance_crd,
)
from support.operators.nodemaintenance import PLURAL as NM_PLURAL

ORDER = "NodeMaintenance/patch"
STARTED, DRAINED, ENDED = (
    (ORDER, "", "Running"),
    (ORDER, "Running", "Succeeded"),
    (ORDER, "Succeeded", "Ended"),
)
PODS = [a_pod(f"shop/p{number}", on="n1", behaviour={"stop-seconds": "3"}) for number in range(2)]


def a_plan(clock: Clock) -> ClusterPlan:
    return with_record_crd(with_nodemaintenance_crd(a_cluster(clock))).with_nodes(2).with_objects(*PODS)


async def test_history_records_a_maintenance_from_start_to_end(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1", reason="new kernel")
        await wait_for_success(cluster)
        await cluster.pass_time(minutes=5)
        await end_maintenance(cluster)
        assert transitions(cluster, "n1") == [STARTED, DRAINED, ENDED], (
            "the history is complete when the object is deleted"
        )
        started, drained, ended = entries(cluster, "n1")
        assert started["reason"] == "new kernel"
        assert drained["result"] == "Drained"
        assert drained["drain"]["pods"] == 2
        assert 2 <= drained["drain"]["seconds"] <= 10
        assert drained["since"] == started["time"]
        assert ended["since"] == drained["time"]


async def test_history_costs_one_write_per_transition(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.pass_time(hours=5)
        await end_maintenance(cluster)
        await cluster.pass_time(minutes=1)
        assert write_count(cluster, "n1") == 3


async def test_history_records_the_longest_blocker(clock: Clock) -> None:
    async with with_blocking_pods(a_plan(clock), "n1").on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await cluster.pass_time(minutes=2)
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await wait_for_success(cluster)
        await cluster.pass_time(seconds=5)
        (drain,) = drain_records(cluster, "n1")
        assert drain["blockedBy"] == "PodDisruptionBudget shop/on-n1"
        assert 100 < drain["blockedSeconds"] <= drain["seconds"] + 1


async def test_history_records_a_failure_with_its_reason(clock: Clock) -> None:
    async with with_blocking_pods(a_plan(clock), "n1").on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1", drain={"timeout": "1m"})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        await cluster.pass_time(seconds=5)
        failed = entries(cluster, "n1")[-1]
        assert (failed["from"], failed["to"], failed["result"]) == ("Running", "Failed", "DrainTimedOut")
        assert failed["drain"]["seconds"] >= 59


async def test_maintenance_of_a_missing_node_leaves_no_history(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n9")
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        await end_maintenance(cluster)
        assert cluster.by_key(PLURAL) == {}


async def test_maintenance_of_the_same_name_again_is_recorded_separately(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        for _ in range(2):
            await create_maintenance(cluster, "n1")
            await wait_for_success(cluster)
            await cluster.pass_time(seconds=5)
            await end_maintenance(cluster)
        assert [to for _, _, to in transitions(cluster, "n1")] == ["Running", "Succeeded", "Ended"] * 2


async def test_maintenance_adopted_from_nmo_is_recorded(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        await started_by_nmo(cluster, "n1", phase="Running", drainProgress=50, evictionPods=2, totalpods=2)
        cluster.run(run_controller_with_history)
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        assert [to for _, _, to in transitions(cluster, "n1")] == ["Running", "Succeeded", "Ended"]


async def test_node_no_longer_named_is_recorded_as_ended(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.patch(NM_PLURAL, NAME, spec={"nodeName": "n2"})
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n2"))
        await wait_for_success(cluster)
        await cluster.pass_time(seconds=5)
        assert transitions(cluster, "n1") == [STARTED, DRAINED, ENDED]
        assert transitions(cluster, "n2") == [STARTED, DRAINED]


async def test_node_named_again_is_recorded_twice(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        for node in ("n2", "n1"):
            await wait_for_success(cluster)
            await cluster.patch(NM_PLURAL, NAME, spec={"nodeName": node})
            await cluster.eventually(partial(has_maintenance_marks, cluster, node))
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        assert transitions(cluster, "n1") == [STARTED, DRAINED, ENDED] * 2
        assert transitions(cluster, "n2") == [STARTED, DRAINED, ENDED]
        assert not [it for it in entries(cluster, "n1") if it.get("result") == GAP]


async def test_maintenance_deleted_while_no_operator_ran_is_recorded_as_ended(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        operator = cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.pass_time(seconds=5)
        operator.kill()
        await cluster.patch(NM_PLURAL, NAME, metadata={"finalizers": None})
        await cluster.delete(NM_PLURAL, NAME)
        await cluster.pass_time(hours=1)
        operator.start()
        await cluster.pass_time(seconds=10)
        assert transitions(cluster, "n1") == [STARTED, DRAINED, ENDED]
        last = entries(cluster, "n1")[-1]
        assert (last["reason"], last["reconstructed"]) == (ENDED_UNOBSERVED_REASON, True)


async def test_maintenance_without_its_finalizer_is_recorded_as_ended(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        found = cluster.get(NM_PLURAL, NAME)
        cluster.api.put({**found, "metadata": {**found["metadata"], "finalizers": []}})
        await cluster.delete(NM_PLURAL, NAME)
        await cluster.pass_time(seconds=10)
        assert transitions(cluster, "n1")[-1] == ENDED


async def test_unrecorded_phases_are_reconstructed_from_the_status(clock: Clock) -> None:
    async with with_blocking_pods(a_plan(clock), "n1").on_the_sandbox() as cluster:
        operator = cluster.run(run_controller_with_history)
        rule = cluster.transport().faults.fail_before_effect(
            response=403, where=lambda it: PLURAL in it.path, times=None
        )
        await create_maintenance(cluster, "n1", drain={"timeout": "1m"})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await cluster.patch(NM_PLURAL, NAME, spec={"drain": {"timeout": "1h"}})
        await wait_for_success(cluster)
        operator.kill()
        cluster.transport().faults.remove(rule)
        operator.start()
        await cluster.pass_time(seconds=10)
        recorded = [to for _, _, to in transitions(cluster, "n1")]
        assert recorded == phases(cluster)
        assert "Failed" in recorded


async def test_record_crd_created_later_is_filled_with_the_current_states(clock: Clock) -> None:
    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(2).with_objects(*PODS).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.pass_time(minutes=5)
        await cluster.admin.create(CUSTOM_RESOURCE_DEFINITIONS, CRD)
        await cluster.pass_time(seconds=70)
        assert transitions(cluster, "n1") == [STARTED, DRAINED]


@pytest.mark.parametrize("is_old", [False, True], ids=["this version", "an older one"])
async def test_history_is_the_same_with_an_older_node_maintenance_crd(clock: Clock, *, is_old: bool) -> None:
    """An older one keeps no transitions of phases."""
    old = custom_resource_definition()
    status = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    if is_old:
        del status["properties"]["phaseTransitions"]
    plan = with_record_crd(a_cluster(clock)).with_crd(old).with_nodes(1).with_objects(*PODS)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.pass_time(hours=1)
        written = [it for it in cluster.history if it.kind.plural == NM_PLURAL]
        assert len(written) == 9, "no unnecessary status write"
        await end_maintenance(cluster)
        assert transitions(cluster, "n1") == [STARTED, DRAINED, ENDED]


async def test_failing_history_delays_a_deletion_by_at_most_one_second(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        cluster.transport().faults.fail_before_effect(response=503, where=lambda it: PLURAL in it.path, times=None)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        began = clock.monotonic()
        await end_maintenance(cluster)
        assert clock.monotonic() - began < 2
        assert is_released(cluster, "n1")


async def test_maintenance_works_without_a_history(clock: Clock) -> None:
    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(2).with_objects(*PODS).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        began = clock.monotonic()
        await end_maintenance(cluster)
        assert clock.monotonic() - began < 1


def an_order(*fields: tuple[str, str, int]) -> NodeMaintenance:
    """Return a NodeMaintenance with managed fields of (manager, subresource, minute)."""
    managed = tuple(
        ManagedFields(manager=manager, subresource=subresource, time=EPOCH + timedelta(minutes=minute))
        for manager, subresource, minute in fields
    )
    return NodeMaintenance(metadata=NodeMaintenanceMetadata(name="patch", managed_fields=managed))


@pytest.mark.parametrize(
    ("phases", "noted"),
    [
        (["Running", "Succeeded"], ["Running", "Succeeded"]),
        (["Running", "Failed", "", "Running", "Succeeded"], ["Running", "Succeeded"]),
    ],
    ids=["from the start", "since its restart"],
)
def test_history_notes_contain_all_phases_on_the_node(phases: list[str], noted: list[str]) -> None:
    changes = [{"number": number, "phase": it, "time": EPOCH} for number, it in enumerate(phases, start=1)]
    maintenance = a_maintenance(phase="Succeeded", phaseTransitions=changes)
    assert [it.entry.to for it in history_notes(maintenance, None)] == noted


def test_creating_manager_is_the_first_field_manager() -> None:
    assert creating_manager(an_order(("haulout", "status", 0), ("kubectl-edit", "", 5), ("kubectl-create", "", 1))) == (
        "kubectl-create"
    )
    assert creating_manager(an_order()) == ""


# Crashes


def counts(request: Request) -> bool:
    """Count the writes to the leases of nodes, too."""
    return counts_as_write(request) or (
        request.method != "GET" and f"/namespaces/{LEASE_NAMESPACE}/leases" in request.path
    )


def test_history_is_complete_after_a_crash_at_any_write() -> None:
    async def story(run: CrashRun) -> None:
        async with a_plan(run.clock).with_delays(Delays.zero()).on_the_sandbox() as cluster:
            run.start_operator(cluster.cluster)
            await run_maintenance(cluster)
            assert transitions(cluster, "n1") == [STARTED, DRAINED, ENDED]

    writes = assert_survives_crashes(
        story,
        operator=run_controller_with_history,
        invariants=invariants(),
        counts=counts,
        compare=_transitions,
        writes_only_to_api=True,
    )
    assert writes >= 12


async def run_maintenance(cluster: SandboxCluster) -> None:
    await create_maintenance(cluster, "n1")
    await wait_for_success(cluster)
    await cluster.pass_time(seconds=5)
    await end_maintenance(cluster)
    await cluster.pass_time(seconds=5)


def _transitions(history: Sequence[Write]) -> dict[str, Any]:
    found = end_state(history)
    for name in [it for it in found if it.startswith(PLURAL)]:
        found[name] = sorted((it.get("from", ""), it["to"]) for it in found[name]["entries"])
    return found


@pytest.mark.parametrize("fault", faults_for_turn(2), ids=str)
async def test_history_is_complete_and_ordered_under_any_fault(clock: Clock, fault: Fault) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault))
            await create_maintenance(cluster, "n1")
            await wait_for_success(cluster)
        await cluster.pass_time(minutes=6)
        await end_maintenance(cluster)
        await cluster.eventually(lambda: is_gone(cluster))
        assert transitions(cluster, "n1") == [STARTED, DRAINED, ENDED]
