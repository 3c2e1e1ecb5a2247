"""Safeguards of the runtime: pauses, limits of actions, retries of stale observations, handover."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.controllers.profiles.machine.loop_backoff import LoopBackoff
from haulout.controllers.profiles.plugin import PROFILE_LABEL, STATE_LABEL, State
from haulout.core.clock import Clock
from haulout.errors import LeadershipHandover
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout.runtime.controller import MAX_ACTIONS
from haulout.runtime.flapping_guard import INTERVAL, MAX_CHANGES
from haulout.runtime.handover import Handover
from haulout_sandbox.nodes import Delays
from support.builders.objects import a_namespace, a_node, a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.fakes.profile_node import load_configuration
from support.operators.profiles_controller import (
    NAMESPACE,
    NotificationLog,
    a_profiles_controller,
    metadata,
    own_events,
    profiles_controller,
    run_with_nodes,
    set_labels,
    state,
    states,
)

OPERATIONAL, REQUIRED, MAINTAINED = State

CIRCLE = """
intervals: {requeue: 5m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: wanted}}
profiles:
- name: circle
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, next: operational}]
"""
ON_CIRCLE = {PROFILE_LABEL: "circle", "wanted": ""}
STEADY = CIRCLE.replace("check: wanted, next: operational", "check: '!wanted', next: operational")


@asynccontextmanager
async def a_still_cluster(clock: Clock, file: str) -> AsyncIterator[SandboxCluster]:
    """Run the controller with two nodes that have no kubelets."""
    async with a_cluster(clock).with_objects(a_namespace(NAMESPACE)).on_the_sandbox() as cluster:
        for name in ("n1", "n2"):
            cluster.api.put(a_node(name))
        cluster.run(profiles_controller(file))
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=OPERATIONAL)
        yield cluster


async def test_node_on_which_another_writer_undoes_each_write_is_paused(clock: Clock) -> None:
    """Such as an old operator that still runs, or a controller that owns all labels of nodes."""
    async with a_still_cluster(clock, STEADY) as cluster:
        task = asyncio.ensure_future(remove_state_labels(cluster))  # noqa: TID251 - cancelled below
        await cluster.pass_time(minutes=10)
        written = [item for item in cluster.history if item.key == "n1" and item.username == "operator"]
        rounds = timedelta(minutes=10) / INTERVAL
        assert rounds < len(written) <= (rounds + 1) * (MAX_CHANGES + 1)
        await set_labels(cluster, "n2", ON_CIRCLE)
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=REQUIRED, within=timedelta(seconds=1))
        task.cancel()
        await asyncio.wait([task])
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL, within=INTERVAL)


async def remove_state_labels(cluster: SandboxCluster) -> None:
    """Remove the state label of n1 again and again."""
    while True:
        if state(cluster, "n1"):
            await set_labels(cluster, "n1", {STATE_LABEL: None})
        await cluster.pass_time(milliseconds=20)


async def test_endless_transitions_are_reported_with_the_last_one(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopBackoff, "throttled", lambda *_: {})
    async with a_still_cluster(clock, CIRCLE) as cluster:
        await set_labels(cluster, "n1", ON_CIRCLE)
        await cluster.pass_time(minutes=1)
        events = [item for item in own_events(cluster, "n1") if item["reason"] == "MaintenanceStepFailed"]
        last = "to change profile circle from maintenance-required to operational"
        expected = f"is not settled after {MAX_ACTIONS} actions in one reconcile; the last decision was {last}"
        notes = {item.get("note") or item.get("message") for item in events}
        assert notes == {f"reconcile failed and will be retried: profiles n1 {expected}"}
        await set_labels(cluster, "n2", {**ON_CIRCLE, PROFILE_LABEL: "none"})
        await cluster.eventually(lambda: states(cluster, "n2"), becomes={})


async def test_node_whose_write_is_answered_with_not_found_is_tried_again(clock: Clock) -> None:
    """It exists, so that the watch delivers no deletion."""
    async with a_still_cluster(clock, STEADY) as cluster:
        faults = cluster.processes["operator"].transport.faults
        rule = faults.fail_before_effect(response=404, path="/nodes/n1", times=2)
        await set_labels(cluster, "n1", ON_CIRCLE)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED, within=timedelta(seconds=10))
        faults.remove(rule)


async def test_profiles_hand_over_with_the_other_controllers_of_their_process(clock: Clock) -> None:
    handover = Handover("n1")
    ended: list[LeadershipHandover] = []

    async def run(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="maintenance")
        controller = a_profiles_controller(client, events, NotificationLog(), handover=handover)
        controller.use(load_configuration(STEADY))
        try:
            await run_with_nodes(controller)
        except LeadershipHandover as error:
            ended.append(error)

    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
        cluster.run(run)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        with pytest.raises(LeadershipHandover):
            handover.before_drain("n1")
        await cluster.eventually(lambda: len(ended), becomes=1)


# Not to be guarded against

MANY = 8
PROFILE = """
- name: pN
  operational:
    transitions: [{check: "!doneN", next: maintenance-required}]
  maintenance-required:
    transitions: [{check: room, next: in-maintenance, trigger: drain}]
  in-maintenance:
    enter: finishN
    transitions: [{check: doneN, next: operational, trigger: uncordon}]
"""
PROFILES = "".join(
    (
        "intervals: {requeue: 5m}\ninstances:\n  check:\n  - {name: room, type: maxMaintenance, config: {max: 1}}\n",
        *(
            f"  - {{name: done{number}, type: hasAnnotation, config: {{key: done{number}}}}}\n"
            for number in range(MANY)
        ),
        "  trigger:\n",
        "  - {name: drain, type: eviction, config: {action: drain}}\n",
        "  - {name: uncordon, type: eviction, config: {action: uncordon}}\n",
        *(
            f"  - {{name: finish{number}, type: alterAnnotation, config: {{key: done{number}, value: x}}}}\n"
            for number in range(MANY)
        ),
        "profiles:",
        *(PROFILE.replace("N", str(number)) for number in range(MANY)),
    )
)


async def test_maintenance_of_many_profiles_at_once_is_not_paused(clock: Clock) -> None:
    names = [f"p{number}" for number in range(MANY)]
    plan = a_cluster(clock).with_nodes(1).with_delays(Delays.zero())
    async with plan.with_objects(a_namespace(NAMESPACE), a_pod("shop/p", on="n1")).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(PROFILES))
        await set_labels(cluster, "n1", {PROFILE_LABEL: "--".join(names)})
        await cluster.eventually(
            lambda: (
                {f"done{number}" for number in range(MANY)} <= metadata(cluster, "n1").get("annotations", {}).keys()
                and states(cluster, "n1") == dict.fromkeys(names, OPERATIONAL)
            ),
            within=timedelta(seconds=10),
        )
