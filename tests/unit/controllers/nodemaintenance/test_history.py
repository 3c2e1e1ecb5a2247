"""What a NodeMaintenance leaves in the history of its node: that it began, how it went, that it is over."""

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
BEGUN, DRAINED, ENDED = (
    (ORDER, "", "Running"),
    (ORDER, "Running", "Succeeded"),
    (ORDER, "Succeeded", "Ended"),
)
PODS = [a_pod(f"shop/p{number}", on="n1", behaviour={"stop-seconds": "3"}) for number in range(2)]


def a_plan(clock: Clock) -> ClusterPlan:
    return with_record_crd(with_nodemaintenance_crd(a_cluster(clock))).with_nodes(2).with_objects(*PODS)


async def test_a_maintenance_is_written_down_from_the_order_to_its_end(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1", reason="new kernel")
        await wait_for_success(cluster)
        await cluster.pass_time(minutes=5)
        await end_maintenance(cluster)
        assert transitions(cluster, "n1") == [BEGUN, DRAINED, ENDED], "all is there when the object is gone"
        begun, drained, ended = entries(cluster, "n1")
        assert begun["reason"] == "new kernel"
        assert drained["result"] == "Drained"
        assert drained["drain"]["pods"] == 2
        assert 2 <= drained["drain"]["seconds"] <= 10
        assert drained["since"] == begun["time"]
        assert ended["since"] == drained["time"]


async def test_it_costs_no_more_than_a_write_for_each(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.pass_time(hours=5)
        await end_maintenance(cluster)
        await cluster.pass_time(minutes=1)
        assert write_count(cluster, "n1") == 3


async def test_what_blocked_longest_is_written_down(clock: Clock) -> None:
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


async def test_a_failure_is_written_down_with_its_cause(clock: Clock) -> None:
    async with with_blocking_pods(a_plan(clock), "n1").on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1", drain={"timeout": "1m"})
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        await cluster.pass_time(seconds=5)
        failed = entries(cluster, "n1")[-1]
        assert (failed["from"], failed["to"], failed["result"]) == ("Running", "Failed", "DrainTimedOut")
        assert failed["drain"]["seconds"] >= 59


async def test_an_order_for_a_node_that_is_not_there_leaves_nothing(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n9")
        await cluster.eventually(lambda: phase(cluster), becomes="Failed")
        await end_maintenance(cluster)
        assert cluster.by_key(PLURAL) == {}


async def test_the_same_name_again_is_another_maintenance(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        for _ in range(2):
            await create_maintenance(cluster, "n1")
            await wait_for_success(cluster)
            await cluster.pass_time(seconds=5)
            await end_maintenance(cluster)
        assert [to for _, _, to in transitions(cluster, "n1")] == ["Running", "Succeeded", "Ended"] * 2


async def test_what_the_node_maintenance_operator_began_is_in_the_history(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        await started_by_nmo(cluster, "n1", phase="Running", drainProgress=50, evictionPods=2, totalpods=2)
        cluster.run(run_controller_with_history)
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        assert [to for _, _, to in transitions(cluster, "n1")] == ["Running", "Succeeded", "Ended"]


async def test_a_node_that_the_order_names_no_more_has_that_in_its_history(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.patch(NM_PLURAL, NAME, spec={"nodeName": "n2"})
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n2"))
        await wait_for_success(cluster)
        await cluster.pass_time(seconds=5)
        assert transitions(cluster, "n1") == [BEGUN, DRAINED, ENDED]
        assert transitions(cluster, "n2") == [BEGUN, DRAINED]


async def test_an_order_that_comes_back_to_a_node_is_in_its_history_twice(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        for node in ("n2", "n1"):
            await wait_for_success(cluster)
            await cluster.patch(NM_PLURAL, NAME, spec={"nodeName": node})
            await cluster.eventually(partial(has_maintenance_marks, cluster, node))
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        assert transitions(cluster, "n1") == [BEGUN, DRAINED, ENDED] * 2
        assert transitions(cluster, "n2") == [BEGUN, DRAINED, ENDED]
        assert not [it for it in entries(cluster, "n1") if it.get("result") == GAP]


async def test_a_maintenance_that_vanished_while_the_operator_was_away_has_ended(clock: Clock) -> None:
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
        assert transitions(cluster, "n1") == [BEGUN, DRAINED, ENDED]
        last = entries(cluster, "n1")[-1]
        assert (last["reason"], last["reconstructed"]) == (ENDED_UNOBSERVED_REASON, True)


async def test_a_maintenance_whose_finalizer_somebody_took_off_has_ended(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        found = cluster.get(NM_PLURAL, NAME)
        cluster.api.put({**found, "metadata": {**found["metadata"], "finalizers": []}})
        await cluster.delete(NM_PLURAL, NAME)
        await cluster.pass_time(seconds=10)
        assert transitions(cluster, "n1")[-1] == ENDED


async def test_phases_that_were_passed_while_nothing_could_be_written_are_known_from_the_object(clock: Clock) -> None:
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
        told = [to for _, _, to in transitions(cluster, "n1")]
        assert told == phases(cluster)
        assert "Failed" in told


async def test_a_definition_that_comes_later_is_filled_with_how_maintenances_stand(clock: Clock) -> None:
    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(2).with_objects(*PODS).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await cluster.pass_time(minutes=5)
        await cluster.admin.create(CUSTOM_RESOURCE_DEFINITIONS, CRD)
        await cluster.pass_time(seconds=70)
        assert transitions(cluster, "n1") == [BEGUN, DRAINED]


@pytest.mark.parametrize("is_old", [False, True], ids=["this version", "an older one"])
async def test_whichever_definition_is_installed_the_history_is_the_same(clock: Clock, *, is_old: bool) -> None:
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
        assert len(written) == 9, "no status is written in vain"
        await end_maintenance(cluster)
        assert transitions(cluster, "n1") == [BEGUN, DRAINED, ENDED]


async def test_a_history_that_cannot_be_written_delays_an_end_by_no_more_than_a_second(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        cluster.transport().faults.fail_before_effect(response=503, where=lambda it: PLURAL in it.path, times=None)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        began = clock.monotonic()
        await end_maintenance(cluster)
        assert clock.monotonic() - began < 2
        assert is_released(cluster, "n1")


async def test_maintenances_work_the_same_without_a_history(clock: Clock) -> None:
    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(2).with_objects(*PODS).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        began = clock.monotonic()
        await end_maintenance(cluster)
        assert clock.monotonic() - began < 1


def an_order(*fields: tuple[str, str, int]) -> NodeMaintenance:
    """Return one to which these have written: the manager, the subresource, the minute."""
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
    ids=["from the start", "since it began anew"],
)
def test_all_phases_that_a_maintenance_passed_on_its_node_are_noted(phases: list[str], noted: list[str]) -> None:
    changes = [{"number": number, "phase": it, "time": EPOCH} for number, it in enumerate(phases, start=1)]
    maintenance = a_maintenance(phase="Succeeded", phaseTransitions=changes)
    assert [it.entry.to for it in history_notes(maintenance, None)] == noted


def test_who_ordered_it_is_the_program_that_wrote_first() -> None:
    assert creating_manager(an_order(("haulout", "status", 0), ("kubectl-edit", "", 5), ("kubectl-create", "", 1))) == (
        "kubectl-create"
    )
    assert creating_manager(an_order()) == ""


# Whoever dies


def counts(request: Request) -> bool:
    """Count the writes to the leases of nodes, too."""
    return counts_as_write(request) or (
        request.method != "GET" and f"/namespaces/{LEASE_NAMESPACE}/leases" in request.path
    )


def test_nothing_is_lost_or_doubled_whichever_write_is_the_last() -> None:
    async def story(stage: CrashRun) -> None:
        async with a_plan(stage.clock).with_delays(Delays.zero()).on_the_sandbox() as cluster:
            stage.start_operator(cluster.cluster)
            await run_maintenance(cluster)
            assert transitions(cluster, "n1") == [BEGUN, DRAINED, ENDED]

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
async def test_no_fault_doubles_or_disorders_what_is_written(clock: Clock, fault: Fault) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(run_controller_with_history)
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault))
            await create_maintenance(cluster, "n1")
            await wait_for_success(cluster)
        await cluster.pass_time(minutes=6)
        await end_maintenance(cluster)
        await cluster.eventually(lambda: is_gone(cluster))
        assert transitions(cluster, "n1") == [BEGUN, DRAINED, ENDED]
