"""From the label to the end of its maintenance the operator is stopped at each write, befallen by faults, and replaced.

All comes to the same end, nobody is told twice, and at no revision more nodes are in maintenance than the file says.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import cache, partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haulout.core.clock import Clock
from haulout.errors import LeadershipLost
from haulout.kube.client import Client
from haulout.kube.leader import LeaderElection
from haulout.kube.transport import Request
from haulout.profiles import begun
from haulout.profiles.plugin import PROFILE_LABEL, State
from haulout_sandbox.apiserver import Write
from haulout_sandbox.event_loops.virtual import run_virtual
from haulout_sandbox.nodes import Delays
from support.builders import a_namespace, a_node, a_pod
from support.clusters import a_cluster
from support.crashes import Crash, Stage, is_counted, survives_crashes
from support.endings import USUALLY_LEFT_OUT, end_state
from support.faults import Fault, mixture
from support.invariants import PodBudgetsKept
from support.live import SandboxCluster
from support.processes import Program
from support.profiling import (
    HOME,
    Phone,
    annotate,
    invariants,
    is_away,
    is_cordoned,
    label,
    metadata,
    operating,
    state,
)
from support.suffered import faults_for
from support.upheld import assert_upheld

OPERATIONAL, REQUIRED, MAINTAINED = State

FILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: wanted}}
  - {name: done, type: hasAnnotation, config: {key: done}}
  - {name: room, type: maxMaintenance, config: {max: 1}}
  - {name: turn, type: stagger, config: {duration: 1m, leaseName: turn, leaseNamespace: haulout}}
  notify:
  - name: told
    type: webhook
    config: {url: "https://example.com/"}
    schedule: {type: periodic, config: {interval: 24h}}
  trigger:
  - {name: uncordon, type: eviction, config: {action: uncordon}}
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: reboot, type: alterLabel, config: {key: reboot}}
  - {name: rebooted, type: alterLabel, config: {key: reboot, remove: true}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted && turn, next: maintenance-required}]
  maintenance-required:
    notify: told
    transitions: [{check: room, next: in-maintenance, TRIGGER}]
  in-maintenance:
    ENTER
    notify: told
    transitions: [{check: done, next: operational, trigger: rebooted && uncordon}]
"""
WAYS = {
    "drain in the trigger": FILE.replace("TRIGGER", "trigger: drain && reboot").replace("ENTER", "enter: reboot"),
    "drain on entering": FILE.replace("TRIGGER", "trigger: reboot").replace("ENTER", "enter: drain"),
}
WANTED = {PROFILE_LABEL: "os", "wanted": ""}
OURS = ("reboot",)
LATER = timedelta(minutes=15)
PODS = [a_pod(f"shop/p{number}", on="n1", act={"stop-seconds": "3"}) for number in range(2)]


def counts(request: Request) -> bool:
    """Count the leases of profiles, too."""
    return is_counted(request) or (request.method != "GET" and f"/{HOME}/leases" in request.path)


async def led_through(cluster: SandboxCluster, *nodes: str, within: timedelta = LATER) -> None:
    """Lead nodes through their maintenance, as each of them gets there."""
    for name in nodes:
        await label(cluster, name, WANTED)
    left = set(nodes)
    while left:
        await cluster.eventually(lambda: any(is_there(cluster, it) for it in left), within=within)
        name = next(it for it in sorted(left) if is_there(cluster, it))
        await cluster.pass_time(seconds=5)
        await label(cluster, name, {"wanted": None})
        await annotate(cluster, name, done="")
        await cluster.eventually(partial(is_over, cluster, name), within=LATER)
        left.remove(name)


def is_there(cluster: SandboxCluster, name: str) -> bool:
    """Tell whether a node is in maintenance, cordoned and empty."""
    return state(cluster, name) == MAINTAINED and is_cordoned(cluster, name) and not cluster.pods_on(name)


def is_over(cluster: SandboxCluster, name: str) -> bool:
    """Tell whether nothing of a maintenance is left."""
    rests = begun.ANNOTATION in metadata(cluster, name).get("annotations", {})
    return state(cluster, name) == OPERATIONAL and not is_cordoned(cluster, name) and not rests


@pytest.mark.parametrize("way", WAYS)
def test_whichever_write_is_the_last_its_successor_comes_to_the_same_end(way: str) -> None:
    phones: list[Phone] = []

    async def story(stage: Stage) -> None:
        phone = Phone()
        phones.append(phone)
        stage.operator = operating(WAYS[way], phone)
        plan = a_cluster(stage.clock).with_nodes(2).with_delays(Delays.none()).with_objects(a_namespace(HOME), *PODS)
        async with plan.on_the_sandbox() as cluster:
            stage.begin(cluster.cluster)
            await led_through(cluster, "n1", "n2")
            await cluster.pass_time(minutes=3)
            if stage.crash is None:
                assert cluster.get("configmaps", f"{HOME}/haulout-budget-nodes-in-maintenance")["data"]["slots"] == "[]"

    held = (*invariants(most=1, ours=OURS), PodBudgetsKept())
    writes = survives_crashes(story, operator=operating(WAYS[way]), invariants=held, counts=counts, compare=_ends)
    assert writes >= 14
    calm, *others = phones
    assert Counter(calm.rang) == Counter(
        {(node, "told", it): 1 for node in ("n1", "n2") for it in (REQUIRED, MAINTAINED)}
    )
    for phone in others:
        assert not Counter(phone.rang) - Counter(calm.rang), "somebody was told twice"


class Unlucky(Stage):
    """A stage on which the operator is stopped again and again: at writes of these numbers, before or after them."""

    def __init__(self, operator: Program, crashes: Mapping[int, bool], down_for: timedelta) -> None:
        super().__init__(operator, counts, down_for=down_for)
        self.crashes = crashes

    def strikes(self, request: Request) -> bool:
        """Count a request; tell whether a crash comes at this one."""
        super().strikes(request)
        number = len(self.sent)
        if not counts(request) or number not in self.crashes:
            return False
        self.crash = Crash(number, before=self.crashes[number])
        return True

    def strike(self) -> None:
        """Kill the operator, unless it is dead already: it may have two writes on their way."""
        if self.process is not None and self.process.is_running:
            super().strike()


def _led(way: str, stage: Stage, phone: Phone) -> Sequence[Write]:
    """Lead two nodes through their maintenance on a stage; return what happened."""

    async def story() -> None:
        stage.operator = operating(WAYS[way], phone)
        plan = a_cluster(stage.clock).with_nodes(2).with_delays(Delays.none()).with_objects(a_namespace(HOME), *PODS)
        async with plan.on_the_sandbox() as cluster:
            stage.begin(cluster.cluster)
            await led_through(cluster, "n1", "n2")
            await cluster.pass_time(minutes=3)

    run_virtual(story())
    return stage.history


@settings(max_examples=8, derandomize=True)
@given(
    way=st.sampled_from(sorted(WAYS)),
    crashes=st.dictionaries(st.integers(1, 24), st.booleans(), min_size=2, max_size=8),
    down_for=st.sampled_from([timedelta(0), timedelta(seconds=2), timedelta(seconds=40)]),
)
def test_any_sequence_of_crashes_comes_to_the_same_end(way: str, crashes: dict[int, bool], down_for: timedelta) -> None:
    expected, rang = _calm(way)
    phone = Phone()
    stage = Unlucky(operating(WAYS[way]), crashes, down_for)
    history = _led(way, stage, phone)
    assert stage.crash is not None
    assert _ends(history) == expected
    assert_upheld(history, *invariants(most=1, ours=OURS), PodBudgetsKept())
    assert not Counter(phone.rang) - rang, "somebody was told twice"


@cache
def _calm(way: str) -> tuple[dict[str, Any], Counter[tuple[str, str, str]]]:
    """Return how it ends if nobody is stopped, and what was told."""
    phone = Phone()
    return _ends(_led(way, Stage(operating(WAYS[way]), counts), phone)), Counter(phone.rang)


def _ends(history: Sequence[Write]) -> dict[str, Any]:
    """Return how nodes end; a slot that nobody could give back is proved to be free by the next who needs it."""
    return end_state(history, without={*USUALLY_LEFT_OUT, "configmaps"})


@pytest.mark.parametrize("fault", [*faults_for(0), *map(mixture, range(3))], ids=str)
async def test_nodes_come_through_any_fault(clock: Clock, fault: Fault) -> None:
    phone = Phone()
    held = invariants("operator", "operator-2", "test", most=1, ours=OURS)
    plan = a_cluster(clock).with_nodes(2).with_objects(a_namespace(HOME), *PODS).upholding(*held)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(operating(WAYS["drain in the trigger"], phone))
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.suffer(fault))
            await led_through(cluster, "n1")
        # A lease that was taken while the clock was hours ahead is in force for as long.
        await led_through(cluster, "n2", within=timedelta(hours=4) if "clock" in fault.name else LATER)
        assert max(Counter(phone.rang).values()) == 1


# Several that may lead


@asynccontextmanager
async def a_crew(clock: Clock, seed: int, *, nodes: int, most: int) -> AsyncIterator[SandboxCluster]:
    """Run a cluster in which one of three replicas leads."""
    names = ("a", "b", "c")
    text = WAYS["drain on entering"].replace("max: 1", f"max: {most}").replace("duration: 1m", "duration: 1s")
    plan = (
        a_cluster(clock)
        .seeded(seed)
        .with_objects(a_namespace(HOME))
        .upholding(*invariants(*names, most=most, ours=OURS))
    )
    async with plan.on_the_sandbox() as cluster:
        for number in range(nodes):
            cluster.api.put(a_node(f"n{number}"))
        for name in names:
            cluster.run(partial(_stand, name, operating(text)), name=name)
        yield cluster


async def _stand(name: str, operator: Program, client: Client) -> None:
    async def lead(client: Client) -> None:
        await operator(client)

    while True:
        election = LeaderElection(client, name="leader", namespace=HOME, identity=name)
        with suppress(LeadershipLost):
            await election.run(lead)


@pytest.mark.parametrize("seed", range(4))
async def test_no_limit_is_exceeded_while_replicas_fail_over_at_random(clock: Clock, seed: int) -> None:
    random = Random(seed)
    nodes = [f"n{number}" for number in range(8)]
    async with a_crew(clock, seed, nodes=len(nodes), most=2) as cluster:
        for name in nodes:
            await label(cluster, name, WANTED)
        for _ in range(25):
            await cluster.pass_time(seconds=random.uniform(0, 12))
            process = cluster.processes[random.choice("abc")]
            if random.random() < 0.7:
                process.kill()
                await cluster.pass_time(seconds=random.uniform(0, 3))
                process.start()
            else:
                process.transport.cut()
                await cluster.pass_time(seconds=random.uniform(5, 25))
                process.transport.mend()
            for name in nodes:
                if state(cluster, name) == MAINTAINED and random.random() < 0.6:
                    await cluster.change(
                        "nodes", name, metadata={"labels": {"wanted": None}, "annotations": {"done": ""}}
                    )
        for name in nodes:
            await annotate(cluster, name, done="")
            await label(cluster, name, {"wanted": None})
        await cluster.eventually(lambda: {state(cluster, it) for it in nodes}, becomes={OPERATIONAL}, within=LATER)
        assert not [it for it in nodes if is_cordoned(cluster, it)]
        were_there = {it.key for it in cluster.history if it.kind.plural == "nodes" and it.after and is_away(it.after)}
        assert len(were_there) > 3
