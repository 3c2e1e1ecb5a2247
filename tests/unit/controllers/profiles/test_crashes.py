"""The operator crashes at each write, suffers faults and is replaced during a maintenance.

The end state is the same, no notification is sent twice, and the limit holds at every revision.
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

from haulout.controllers.profiles.machine import transitions
from haulout.controllers.profiles.plugin import PROFILE_LABEL, State
from haulout.core.clock import Clock
from haulout.errors import LeadershipLost
from haulout.kube.client import Client
from haulout.kube.leaderelection import LeaderElection
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import Write
from haulout_sandbox.event_loops.virtual_time import run_virtual
from haulout_sandbox.nodes import Delays
from support.builders.objects import a_namespace, a_node, a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.clusters.process import Program
from support.expectations.end_state import IGNORED_KINDS, end_state
from support.expectations.invariant_checks import assert_invariants
from support.faults.crash_test import Crash, CrashRun, assert_survives_crashes, counts_as_write
from support.faults.named_faults import Fault, fault_mixture
from support.faults.selection import faults_for_turn
from support.invariants import PodDisruptionBudgetsRespected
from support.operators.profiles_controller import (
    NAMESPACE,
    NotificationLog,
    invariants,
    is_cordoned,
    is_in_maintenance,
    metadata,
    profiles_controller,
    set_annotations,
    set_labels,
    state,
)

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
PODS = [a_pod(f"shop/p{number}", on="n1", behaviour={"stop-seconds": "3"}) for number in range(2)]


def counts(request: Request) -> bool:
    """Count the leases of profiles, too."""
    return counts_as_write(request) or (request.method != "GET" and f"/{NAMESPACE}/leases" in request.path)


async def complete_maintenance(cluster: SandboxCluster, *nodes: str, within: timedelta = LATER) -> None:
    """Complete the maintenance of each node, in the order in which they enter it."""
    for name in nodes:
        await set_labels(cluster, name, WANTED)
    left = set(nodes)
    while left:
        await cluster.eventually(lambda: any(exists(cluster, item) for item in left), within=within)
        name = next(item for item in sorted(left) if exists(cluster, item))
        await cluster.pass_time(seconds=5)
        await set_labels(cluster, name, {"wanted": None})
        await set_annotations(cluster, name, done="")
        await cluster.eventually(partial(is_over, cluster, name), within=LATER)
        left.remove(name)


def exists(cluster: SandboxCluster, name: str) -> bool:
    """Tell whether a node is in maintenance, cordoned and empty."""
    return state(cluster, name) == MAINTAINED and is_cordoned(cluster, name) and not cluster.pods_on(name)


def is_over(cluster: SandboxCluster, name: str) -> bool:
    """Tell whether nothing of a maintenance is left."""
    rests = transitions.PENDING_ANNOTATION in metadata(cluster, name).get("annotations", {})
    return state(cluster, name) == OPERATIONAL and not is_cordoned(cluster, name) and not rests


@pytest.mark.parametrize("way", WAYS)
def test_successor_after_a_crash_at_any_write_reaches_the_same_end(way: str) -> None:
    notification_logs: list[NotificationLog] = []

    async def story(run: CrashRun) -> None:
        notification_log = NotificationLog()
        notification_logs.append(notification_log)
        run.operator = profiles_controller(WAYS[way], notification_log)
        plan = a_cluster(run.clock).with_nodes(2).with_delays(Delays.zero()).with_objects(a_namespace(NAMESPACE), *PODS)
        async with plan.on_the_sandbox() as cluster:
            run.start_operator(cluster.cluster)
            await complete_maintenance(cluster, "n1", "n2")
            await cluster.pass_time(minutes=3)
            if run.crash is None:
                assert (
                    cluster.get("configmaps", f"{NAMESPACE}/haulout-budget-nodes-in-maintenance")["data"]["slots"]
                    == "[]"
                )

    held = (*invariants(max_unavailable=1, own_metadata=OURS), PodDisruptionBudgetsRespected())
    writes = assert_survives_crashes(
        story, operator=profiles_controller(WAYS[way]), invariants=held, counts=counts, compare=_ends
    )
    assert writes >= 14
    undisturbed, *others = notification_logs
    assert Counter(undisturbed.sent) == Counter(
        {(node, "told", item): 1 for node in ("n1", "n2") for item in (REQUIRED, MAINTAINED)}
    )
    for notification_log in others:
        assert not Counter(notification_log.sent) - Counter(undisturbed.sent), "a notification was sent twice"


class RepeatedCrashRun(CrashRun):
    """A run in which the operator crashes repeatedly: before or after the writes of these numbers."""

    def __init__(self, operator: Program, crashes: Mapping[int, bool], down_for: timedelta) -> None:
        super().__init__(operator, counts, restart_delay=down_for)
        self.crashes = crashes

    def should_crash(self, request: Request) -> bool:
        """Count a request; tell whether a crash comes at this one."""
        super().should_crash(request)
        number = len(self.sent_writes)
        if not counts(request) or number not in self.crashes:
            return False
        self.crash = Crash(number, before=self.crashes[number])
        return True

    def kill_operator(self) -> None:
        """Kill the operator, unless it is dead already: it may have two writes on their way."""
        if self.process is not None and self.process.is_running:
            super().kill_operator()


def _run_cycle(way: str, run: CrashRun, notification_log: NotificationLog) -> Sequence[Write]:
    """Complete the maintenance of two nodes in a crash run; return the history."""

    async def story() -> None:
        run.operator = profiles_controller(WAYS[way], notification_log)
        plan = a_cluster(run.clock).with_nodes(2).with_delays(Delays.zero()).with_objects(a_namespace(NAMESPACE), *PODS)
        async with plan.on_the_sandbox() as cluster:
            run.start_operator(cluster.cluster)
            await complete_maintenance(cluster, "n1", "n2")
            await cluster.pass_time(minutes=3)

    run_virtual(story())
    return run.history


@settings(max_examples=8, derandomize=True)
@given(
    way=st.sampled_from(sorted(WAYS)),
    crashes=st.dictionaries(st.integers(1, 24), st.booleans(), min_size=2, max_size=8),
    down_for=st.sampled_from([timedelta(0), timedelta(seconds=2), timedelta(seconds=40)]),
)
def test_any_sequence_of_crashes_reaches_the_same_end(way: str, crashes: dict[int, bool], down_for: timedelta) -> None:
    expected, expected_notifications = _undisturbed_run(way)
    notification_log = NotificationLog()
    run = RepeatedCrashRun(profiles_controller(WAYS[way]), crashes, down_for)
    history = _run_cycle(way, run, notification_log)
    assert run.crash is not None
    assert _ends(history) == expected
    assert_invariants(history, *invariants(max_unavailable=1, own_metadata=OURS), PodDisruptionBudgetsRespected())
    assert not Counter(notification_log.sent) - expected_notifications, "a notification was sent twice"


@cache
def _undisturbed_run(way: str) -> tuple[dict[str, Any], Counter[tuple[str, str, str]]]:
    """Return the end state and the notifications of a run without crashes."""
    notification_log = NotificationLog()
    return _ends(_run_cycle(way, CrashRun(profiles_controller(WAYS[way]), counts), notification_log)), Counter(
        notification_log.sent
    )


def _ends(history: Sequence[Write]) -> dict[str, Any]:
    """Return the end state without ConfigMaps: an unreleased slot is verified as free by the next acquirer."""
    return end_state(history, ignored={*IGNORED_KINDS, "configmaps"})


@pytest.mark.parametrize("fault", [*faults_for_turn(0), *map(fault_mixture, range(3))], ids=str)
async def test_maintenance_completes_despite_any_fault(clock: Clock, fault: Fault) -> None:
    notification_log = NotificationLog()
    held = invariants("operator", "operator-2", "test", max_unavailable=1, own_metadata=OURS)
    plan = a_cluster(clock).with_nodes(2).with_objects(a_namespace(NAMESPACE), *PODS).with_invariants(*held)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(profiles_controller(WAYS["drain in the trigger"], notification_log))
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault))
            await complete_maintenance(cluster, "n1")
        # A lease acquired while the clock was hours ahead is valid for hours.
        await complete_maintenance(cluster, "n2", within=timedelta(hours=4) if "clock" in fault.name else LATER)
        assert max(Counter(notification_log.sent).values()) == 1


# Several replicas


@asynccontextmanager
async def a_replicated_cluster(clock: Clock, seed: int, *, nodes: int, most: int) -> AsyncIterator[SandboxCluster]:
    """Run a cluster in which one of three replicas leads."""
    names = ("a", "b", "c")
    text = WAYS["drain on entering"].replace("max: 1", f"max: {most}").replace("duration: 1m", "duration: 1s")
    plan = (
        a_cluster(clock)
        .with_seed(seed)
        .with_objects(a_namespace(NAMESPACE))
        .with_invariants(*invariants(*names, max_unavailable=most, own_metadata=OURS))
    )
    async with plan.on_the_sandbox() as cluster:
        for number in range(nodes):
            cluster.api.put(a_node(f"n{number}"))
        for name in names:
            cluster.run(partial(_run_leader_election, name, profiles_controller(text)), name=name)
        yield cluster


async def _run_leader_election(name: str, operator: Program, client: Client) -> None:
    async def lead(client: Client) -> None:
        await operator(client)

    while True:
        election = LeaderElection(client, name="leader", namespace=NAMESPACE, identity=name)
        with suppress(LeadershipLost):
            await election.run(lead)


@pytest.mark.parametrize("seed", range(4))
async def test_limit_holds_while_replicas_fail_over_at_random(clock: Clock, seed: int) -> None:
    random = Random(seed)
    nodes = [f"n{number}" for number in range(8)]
    async with a_replicated_cluster(clock, seed, nodes=len(nodes), most=2) as cluster:
        for name in nodes:
            await set_labels(cluster, name, WANTED)
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
                    await cluster.patch(
                        "nodes", name, metadata={"labels": {"wanted": None}, "annotations": {"done": ""}}
                    )
        for name in nodes:
            await set_annotations(cluster, name, done="")
            await set_labels(cluster, name, {"wanted": None})
        await cluster.eventually(lambda: {state(cluster, item) for item in nodes}, becomes={OPERATIONAL}, within=LATER)
        assert not [item for item in nodes if is_cordoned(cluster, item)]
        were_there = {
            item.key
            for item in cluster.history
            if item.kind.plural == "nodes" and item.after and is_in_maintenance(item.after)
        }
        assert len(were_there) > 3
