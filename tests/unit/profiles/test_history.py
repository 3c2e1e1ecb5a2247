"""What profiles leave in the history of a node: every transition, once, whatever happens to who writes it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.history.record import COMPLETED
from haulout.kube.transport import Request
from haulout.profiles import passed
from haulout.profiles.plugin import PROFILE_LABEL, State
from haulout_sandbox.apiserver import Write
from haulout_sandbox.nodes import Delays
from support.builders import a_namespace, a_pod
from support.clusters import ClusterPlan, a_cluster
from support.crashes import Stage, survives_crashes
from support.endings import end_state
from support.faults import Fault, mixture
from support.live import LiveCluster
from support.profiling import HOME, annotate, invariants, label, metadata, operating, state
from support.recorded import PLURAL, drains, entries, moves, recorded, writes
from support.suffered import faults_for

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
PODS = [a_pod(f"shop/p{number}", on="n1", act={"stop-seconds": "3"}) for number in range(2)]
OURS = ("done",)


def a_plan(clock: Clock) -> ClusterPlan:
    return recorded(a_cluster(clock)).with_nodes(1).with_objects(a_namespace(HOME), *PODS)


async def led_through(cluster: LiveCluster, *, rounds: int = 1) -> None:
    """Lead a node through its maintenance, and let what happened be written down."""
    for _ in range(rounds):
        await annotate(cluster, "n1", done=None)
        await label(cluster, "n1", {PROFILE_LABEL: "os--idle", "wanted": ""})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await cluster.eventually(lambda: not cluster.pods_on("n1"))
        await cluster.pass_time(seconds=5)
        await label(cluster, "n1", {"wanted": None})
        await annotate(cluster, "n1", done="")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        await cluster.pass_time(seconds=5)


@pytest.mark.parametrize("way", WAYS)
async def test_each_transition_is_written_down_with_what_let_it_through(clock: Clock, way: str) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(operating(WAYS[way], with_history=True))
        await led_through(cluster)
        assert moves(cluster, "n1") == ROUND
        first, *_, last = entries(cluster, "n1")
        assert first["why"] == "wanted passed: node n1 has the label wanted"
        assert last["why"] == "done passed: node n1 has the annotation done"
        assert last["since"] == next(it["time"] for it in entries(cluster, "n1") if it.get("to") == MAINTAINED)
        (drain,) = drains(cluster, "n1")
        assert drain["pods"] == 2
        assert 2 <= drain["seconds"] < 10


async def test_a_node_whose_profiles_do_nothing_has_no_history(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(operating(WAYS["drain in the trigger"], with_history=True))
        await label(cluster, "n1", {PROFILE_LABEL: "os--idle"})
        await cluster.pass_time(minutes=10)
        assert not cluster.has(PLURAL, "n1")


async def test_a_round_costs_few_writes(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(operating(WAYS["drain in the trigger"], with_history=True))
        await led_through(cluster)
        assert writes(cluster, "n1") <= 3


async def test_what_blocked_a_drain_longest_is_written_down(clock: Clock) -> None:
    plan = a_plan(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(operating(WAYS["drain in the trigger"], with_history=True))
        await label(cluster, "n1", {PROFILE_LABEL: "os", "wanted": ""})
        await cluster.pass_time(minutes=3)
        await cluster.delete("poddisruptionbudgets", "shop/cart")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await cluster.pass_time(seconds=5)
        (drain,) = drains(cluster, "n1")
        assert drain["blockedBy"] == "PodDisruptionBudget shop/cart"
        assert 170 < drain["blockedSeconds"] <= drain["seconds"]


# Whoever dies


def counts(request: Request) -> bool:
    """Count the writes to the node and to its history: what lies between them is what may be lost."""
    return request.method != "GET" and any(it in request.path for it in ("/nodes/", f"/{PLURAL}"))


@pytest.mark.parametrize("way", WAYS)
def test_no_transition_is_lost_or_doubled_whichever_write_is_the_last(way: str) -> None:
    async def story(stage: Stage) -> None:
        async with a_plan(stage.clock).with_delays(Delays.none()).on_the_sandbox() as cluster:
            stage.begin(cluster.cluster)
            await led_through(cluster)
            assert moves(cluster, "n1") == ROUND

    operator = operating(WAYS[way], with_history=True)
    held = invariants(ours=OURS)
    writes = survives_crashes(
        story, operator=operator, invariants=held, counts=counts, compare=_without_words, inward=True
    )
    assert writes >= 7


def _without_words(history: Sequence[Write]) -> dict[str, Any]:
    """Return how all ends, and of the history only what was where: who completes it does not know why."""
    found = end_state(history)
    for name in [it for it in found if it.startswith(PLURAL)]:
        found[name] = sorted((it.get("from", ""), it["to"]) for it in found[name]["entries"] if "to" in it)
    return found


async def test_a_successor_completes_what_was_not_written_down_hours_later(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        operator = cluster.run(operating(WAYS["drain in the trigger"], with_history=True))
        rule = cluster.line().faults.before(answer=503, where=lambda it: PLURAL in it.path, times=None)
        await label(cluster, "n1", {PROFILE_LABEL: "os", "wanted": ""})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        operator.kill()
        cluster.line().faults.lift(rule)
        assert entries(cluster, "n1") == []
        await cluster.pass_time(hours=3)
        operator.start()
        await cluster.pass_time(seconds=10)
        assert moves(cluster, "n1") == ROUND[:2]
        assert entries(cluster, "n1")[0]["why"] == COMPLETED


async def test_an_answer_that_nobody_heard_loses_no_transition(clock: Clock) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(operating(WAYS["drain in the trigger"], with_history=True))
        await led_through(cluster)
        cluster.line().faults.after(answer=504, where=lambda it: it.path.endswith("/nodes/n1"), times=None)
        await label(cluster, "n1", {"wanted": ""})
        await annotate(cluster, "n1", done=None)
        await cluster.pass_time(minutes=10)
        assert moves(cluster, "n1") == [*ROUND, *ROUND[:2]]


@pytest.mark.parametrize("fault", [*faults_for(1), *map(mixture, range(3))], ids=str)
async def test_no_fault_loses_or_doubles_a_transition(clock: Clock, fault: Fault) -> None:
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(operating(WAYS["drain in the trigger"], with_history=True))
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.suffer(fault))
            await led_through(cluster)
        await led_through(cluster)
        await cluster.pass_time(minutes=6)
        assert moves(cluster, "n1") == ROUND * 2


# Where there is none


async def test_profiles_work_the_same_without_a_history(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).with_objects(a_namespace(HOME), *PODS).on_the_sandbox() as cluster:
        cluster.run(operating(WAYS["drain in the trigger"], with_history=True))
        await led_through(cluster, rounds=2)


async def test_no_state_that_was_passed_stays_on_an_operational_node_when_its_history_is_written(clock: Clock) -> None:
    """A profile that goes on at once leaves the annotation, and no later transition comes that could remove it."""
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(operating(WAYS["drain in the trigger"], with_history=True))
        await label(cluster, "n1", {PROFILE_LABEL: "os--idle", "wanted": ""})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await label(cluster, "n1", {"wanted": None})
        await annotate(cluster, "n1", done="")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        assert passed.ANNOTATION in metadata(cluster, "n1")["annotations"]
        await cluster.pass_time(seconds=10)
        assert passed.ANNOTATION not in metadata(cluster, "n1")["annotations"]
        assert moves(cluster, "n1") == ROUND
