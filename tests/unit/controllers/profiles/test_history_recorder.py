"""The history of profiles: every transition once, despite crashes and faults."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from haulout.api.maintenancerecord import RECONSTRUCTED_REASON
from haulout.controllers.profiles.machine.transitions import PASSED_ANNOTATION
from haulout.controllers.profiles.plugin import PROFILE_LABEL, State
from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import Write
from haulout_sandbox.nodes import Delays
from support.builders.objects import a_namespace, a_pod
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import LiveCluster
from support.expectations.end_state import end_state
from support.expectations.maintenance_records import (
    PLURAL,
    drain_records,
    entries,
    transitions,
    with_record_crd,
    write_count,
)
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.faults.named_faults import Fault, fault_mixture
from support.faults.selection import faults_for_turn
from support.operators.profiles_controller import (
    NAMESPACE,
    invariants,
    metadata,
    profiles_controller,
    set_annotations,
    set_labels,
    state,
)

OPERATIONAL, REQUIRED, MAINTAINED = State
OS = "profile/os"
ROUND = [(OS, OPERATIONAL, REQUIRED), (OS, REQUIRED, MAINTAINED), (OS, MAINTAINED, OPERATIONAL)]

FILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: wanted}}
  - {name: done, type: hasAnnotation, config: {key: done}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted && !done, next: in-maintenance, TRIGGER}]
  in-maintenance:
    ENTER
    transitions: [{check: done, next: operational, trigger: uncordon}]
- name: idle
  operational: {}
"""
WAYS = {
    "drain in the trigger": FILE.replace("TRIGGER", "trigger: drain").replace("ENTER", ""),
    "drain on entering": FILE.replace(", TRIGGER", "").replace("ENTER", "enter: drain"),
}
PODS = [a_pod(f"shop/p{number}", on="n1", behaviour={"stop-seconds": "3"}) for number in range(2)]
OURS = ("done",)


def a_plan(clock: Clock) -> ClusterPlan:
    return with_record_crd(a_cluster(clock)).with_nodes(1).with_objects(a_namespace(NAMESPACE), *PODS)


async def complete_maintenance(cluster: LiveCluster, *, rounds: int = 1) -> None:
    """Complete the maintenance of a node, and wait until its history is written."""
    for _ in range(rounds):
        await set_annotations(cluster, "n1", done=None)
        await set_labels(cluster, "n1", {PROFILE_LABEL: "os--idle", "wanted": ""})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await cluster.eventually(lambda: not cluster.pods_on("n1"))
        await cluster.pass_time(seconds=5)
        await set_labels(cluster, "n1", {"wanted": None})
        await set_annotations(cluster, "n1", done="")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        await cluster.pass_time(seconds=5)


@pytest.mark.parametrize("way", WAYS)
async def test_each_transition_is_recorded_with_its_reason(clock: Clock, way: str) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(WAYS[way], with_history=True))
        await complete_maintenance(cluster)
        assert transitions(cluster, "n1") == ROUND
        first, *_, last = entries(cluster, "n1")
        assert first["reason"] == "wanted passed: node n1 has the label wanted"
        assert last["reason"] == "done passed: node n1 has the annotation done"
        assert last["since"] == next(entry["time"] for entry in entries(cluster, "n1") if entry.get("to") == MAINTAINED)
        (drain,) = drain_records(cluster, "n1")
        assert drain["pods"] == 2
        assert 2 <= drain["seconds"] < 10


async def test_idle_profile_leaves_no_history(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(WAYS["drain in the trigger"], with_history=True))
        await set_labels(cluster, "n1", {PROFILE_LABEL: "os--idle"})
        await cluster.pass_time(minutes=10)
        assert not cluster.has(PLURAL, "n1")


async def test_full_cycle_costs_few_history_writes(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(WAYS["drain in the trigger"], with_history=True))
        await complete_maintenance(cluster)
        assert write_count(cluster, "n1") <= 3


async def test_longest_drain_blocker_is_recorded(clock: Clock) -> None:
    plan = a_plan(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(profiles_controller(WAYS["drain in the trigger"], with_history=True))
        await set_labels(cluster, "n1", {PROFILE_LABEL: "os", "wanted": ""})
        await cluster.pass_time(minutes=3)
        await cluster.delete("poddisruptionbudgets", "shop/cart")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await cluster.pass_time(seconds=5)
        (drain,) = drain_records(cluster, "n1")
        assert drain["blockedBy"] == "PodDisruptionBudget shop/cart"
        assert 170 < drain["blockedSeconds"] <= drain["seconds"]


# Crashes


def counts(request: Request) -> bool:
    """Count the writes to the node and to its history: what lies between them is what may be lost."""
    return request.method != "GET" and any(item in request.path for item in ("/nodes/", f"/{PLURAL}"))


@pytest.mark.parametrize("way", WAYS)
def test_every_transition_is_recorded_once_after_a_crash_at_any_write(way: str) -> None:
    async def story(run: CrashRun) -> None:
        async with a_plan(run.clock).with_delays(Delays.zero()).on_the_sandbox() as cluster:
            run.start_operator(cluster.cluster)
            await complete_maintenance(cluster)
            assert transitions(cluster, "n1") == ROUND

    operator = profiles_controller(WAYS[way], with_history=True)
    held = invariants(own_metadata=OURS)
    writes = assert_survives_crashes(
        story, operator=operator, invariants=held, counts=counts, compare=_without_reasons, writes_only_to_api=True
    )
    assert writes >= 7


def _without_reasons(history: Sequence[Write]) -> dict[str, Any]:
    """Return the end state with history transitions without reasons: a successor does not know them."""
    found = end_state(history)
    for name in [item for item in found if item.startswith(PLURAL)]:
        found[name] = sorted((item.get("from", ""), item["to"]) for item in found[name]["entries"] if "to" in item)
    return found


async def test_successor_completes_unrecorded_transitions_hours_later(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        operator = cluster.run(profiles_controller(WAYS["drain in the trigger"], with_history=True))
        rule = cluster.transport().faults.fail_before_effect(
            response=503, where=lambda item: PLURAL in item.path, times=None
        )
        await set_labels(cluster, "n1", {PROFILE_LABEL: "os", "wanted": ""})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        operator.kill()
        cluster.transport().faults.remove(rule)
        assert entries(cluster, "n1") == []
        await cluster.pass_time(hours=3)
        operator.start()
        await cluster.pass_time(seconds=10)
        assert transitions(cluster, "n1") == ROUND[:2]
        assert entries(cluster, "n1")[0]["reason"] == RECONSTRUCTED_REASON


async def test_lost_response_loses_no_transition(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(WAYS["drain in the trigger"], with_history=True))
        await complete_maintenance(cluster)
        cluster.transport().faults.fail_after_effect(
            response=504, where=lambda item: item.path.endswith("/nodes/n1"), times=None
        )
        await set_labels(cluster, "n1", {"wanted": ""})
        await set_annotations(cluster, "n1", done=None)
        await cluster.pass_time(minutes=10)
        assert transitions(cluster, "n1") == [*ROUND, *ROUND[:2]]


@pytest.mark.parametrize("fault", [*faults_for_turn(1), *map(fault_mixture, range(3))], ids=str)
async def test_every_transition_is_recorded_once_under_any_fault(clock: Clock, fault: Fault) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(WAYS["drain in the trigger"], with_history=True))
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault))
            await complete_maintenance(cluster)
        await complete_maintenance(cluster)
        await cluster.pass_time(minutes=6)
        assert transitions(cluster, "n1") == ROUND * 2


# Where there is none


async def test_profiles_work_without_a_history(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).with_objects(a_namespace(NAMESPACE), *PODS).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(WAYS["drain in the trigger"], with_history=True))
        await complete_maintenance(cluster, rounds=2)


async def test_unrecorded_states_annotation_is_removed_once_the_history_is_written(clock: Clock) -> None:
    """A fast transition leaves the annotation, and no later transition removes it."""
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(WAYS["drain in the trigger"], with_history=True))
        await set_labels(cluster, "n1", {PROFILE_LABEL: "os--idle", "wanted": ""})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await set_labels(cluster, "n1", {"wanted": None})
        await set_annotations(cluster, "n1", done="")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        assert PASSED_ANNOTATION in metadata(cluster, "n1")["annotations"]
        await cluster.pass_time(seconds=10)
        assert PASSED_ANNOTATION not in metadata(cluster, "n1")["annotations"]
        assert transitions(cluster, "n1") == ROUND
