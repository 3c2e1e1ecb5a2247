"""Nodes with announced maintenance and the default configuration: a table of scenarios.

All stories are played at once, each on a node of its own, by the whole operator: while it runs, while it is down at
each thing that happens, and with two replicas of which always one dies. Things happen every five minutes at most, and
the operator is down from a minute before until two minutes after.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, NoticeStage
from haulout.api.objects import RawObject
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from haulout_sandbox.nodes import Machine
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.operators.announced_maintenance import AnnouncedMaintenance, notice_operator, own_metadata, with_notices

Action = Callable[[AnnouncedMaintenance], Awaitable[object]]
LAST = 70
LATE = 3  # minutes, if the operator is down when an event happens


def report(stage: NoticeStage = NoticeStage.SCHEDULED, **plan: Any) -> Action:
    """Let the cloud report a stage."""
    return lambda cloud: cloud.report(stage, **plan)


def reboots(lasting: int) -> Action:
    """Reboot the machine."""

    async def reboot(cloud: AnnouncedMaintenance) -> None:
        cloud.cluster.reboot(cloud.node, duration=timedelta(minutes=lasting))

    return reboot


async def vanishes(cloud: AnnouncedMaintenance) -> None:
    """Remove the machine, and its node with it."""
    await cloud.cluster.kubelets.remove(cloud.node)


async def joins(cloud: AnnouncedMaintenance) -> None:
    """Let the machine join the cluster."""
    cloud.cluster.kubelets.add(Machine(name=cloud.node, zone="z1"))


async def another_machine_joins(cloud: AnnouncedMaintenance) -> None:
    """Let another machine join the cluster under the same name."""
    cloud.cluster.kubelets.add(Machine(name=cloud.node, zone="z1", provider_id=f"sandbox://z1/not-{cloud.node}"))


async def is_written_by_a_user(cloud: AnnouncedMaintenance) -> None:
    """Create a notice that starts and ends by the clock, without reports."""
    times = {"start": cloud.format_minute(25), "end": cloud.format_minute(40)}
    await cloud.cluster.admin.create(
        MAINTENANCE_NOTICES,
        {
            "apiVersion": MAINTENANCE_NOTICES.api_version,
            "kind": MAINTENANCE_NOTICES.kind,
            "metadata": {"name": f"by-hand-{cloud.node}"},
            "spec": {"nodeName": cloud.node, "source": "me", "noticeID": cloud.node, "kind": "Stop", **times},
        },
    )


@dataclass(frozen=True, slots=True)
class Scenario:
    """The actions by minute, and the expected intervals in which the node is out of service."""

    out: tuple[tuple[int, int], ...]
    actions: Mapping[int, Action]
    is_there: bool = field(default=True)  # in the end
    joins_later: bool = False


STARTED, ENDED, FAILED, CANCELLED = NoticeStage.STARTED, NoticeStage.ENDED, NoticeStage.FAILED, NoticeStage.CANCELLED
SCENARIOS = {
    "planned": Scenario(
        ((10, 40),), {5: report(start=25, end=60), 25: report(STARTED), 30: reboots(3), 40: report(ENDED)}
    ),
    "by the clock": Scenario(((10, 40),), {5: is_written_by_a_user}),
    "by the clock, gone and back": Scenario(((10, 40),), {2: is_written_by_a_user, 5: vanishes, 8: joins}),
    "by the clock, another machine": Scenario((), {2: is_written_by_a_user, 5: vanishes, 8: another_machine_joins}),
    "moved earlier": Scenario(
        ((15, 40),), {5: report(start=50, end=60), 10: report(start=30, end=40), 30: report(STARTED), 40: report(ENDED)}
    ),
    "moved later": Scenario(
        ((35, 55),), {5: report(start=30, end=40), 10: report(start=50, end=60), 50: report(STARTED), 55: report(ENDED)}
    ),
    "moved later when drained": Scenario(
        ((10, 15), (35, 55)), {5: report(start=25, end=35), 15: report(start=50, end=60), 55: report(ENDED)}
    ),
    "moved past": Scenario(((15, 40),), {5: report(start=50, end=60), 15: report(start=12, end=40)}),
    "cancelled": Scenario((), {5: report(start=40, end=50), 10: report(CANCELLED)}),
    "cancelled when drained": Scenario(((10, 20),), {5: report(start=25, end=40), 20: report(CANCELLED)}),
    "begun early": Scenario(((15, 30),), {5: report(start=60, end=65), 15: report(STARTED), 30: report(ENDED)}),
    "begun unannounced": Scenario(((10, 25),), {10: report(STARTED), 25: report(ENDED)}),
    "ended before it is back": Scenario(
        ((10, 40),), {5: report(start=25, end=60), 25: reboots(15), 30: report(STARTED), 35: report(ENDED)}
    ),
    "ended twice": Scenario(
        ((10, 30),), {5: report(start=25, end=40), 30: report(ENDED), 35: report(ENDED), 40: report(start=55, end=60)}
    ),
    "failed": Scenario(((10, 45),), {5: report(start=25, end=40), 30: report(FAILED), 45: report(ENDED)}),
    "instance gone": Scenario(
        ((10, 30),),
        {5: report(start=25, end=40, kind=MaintenanceKind.TERMINATE), 30: vanishes, 35: report(ENDED)},
        is_there=False,
    ),
    "unknown instance": Scenario(
        ((15, 40),), {5: report(start=25, end=60), 15: joins, 40: report(ENDED)}, joins_later=True
    ),
    "duplicate": Scenario(
        ((10, 40),), {**dict.fromkeys((5, 10, 15), report(start=25, end=60, reported_at=5)), 40: report(ENDED)}
    ),
    "out of order": Scenario(
        (), {10: report(ENDED), 15: report(STARTED, reported_at=8), 20: report(start=25, end=60, reported_at=5)}
    ),
    "a freeze": Scenario((), {5: report(start=25, end=30, kind=MaintenanceKind.FREEZE)}),
}  # fmt: skip
FEW = ("planned", "moved later when drained", "begun unannounced", "instance gone")  # two replicas take their time
NODES = {name: f"n{number}" for number, name in enumerate(SCENARIOS, start=2)}  # n1 has no notices


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of all scenarios."""

    out: Mapping[str, list[tuple[int, int | None]]]
    nodes: Mapping[str, RawObject]
    written: frozenset[str]  # nodes that the operator wrote to
    evicted: list[str]


async def _run_continuously(cluster: SandboxCluster) -> None:
    cluster.run(notice_operator())


async def _run_with_downtimes(cluster: SandboxCluster) -> None:
    process = cluster.run(notice_operator())
    await cluster.pass_time(minutes=4)
    for _ in range(4, LAST, 5):
        process.kill()
        await cluster.pass_time(minutes=3)
        process.start()
        await cluster.pass_time(minutes=2)


async def _run_replicas_killed_in_turns(cluster: SandboxCluster) -> None:
    replicas = [cluster.run(notice_operator(identity=name), name=name) for name in ("one", "two")]
    for number in range(0, LAST, 5):
        await cluster.pass_time(minutes=4.8)
        process = replicas[number // 5 % 2]
        process.kill()
        await cluster.pass_time(minutes=0.2)
        process.start()


MODES = {
    "while it runs": _run_continuously,
    "while it is down": _run_with_downtimes,
    "while replicas die in turns": _run_replicas_killed_in_turns,
}


@cache
def outcome_of(mode: str) -> Outcome:
    """Run all scenarios."""
    return run_virtual(_run_scenarios(mode))


async def _run_scenarios(mode: str) -> Outcome:
    plan = with_notices(a_cluster(VirtualClock()).with_deployment("shop/web", replicas=20, budget=14))
    scenarios = {name: SCENARIOS[name] for name in _scenarios_of(mode)}
    there = ["n1", *(NODES[name] for name, it in scenarios.items() if not it.joins_later)]
    plan = replace(plan, machines=tuple(Machine(name=name, zone="z1") for name in there))
    async with plan.on_the_sandbox() as cluster:
        clouds = {name: AnnouncedMaintenance(cluster, NODES[name]) for name in scenarios}
        async with asyncio.TaskGroup() as group:
            group.create_task(MODES[mode](cluster))
            for name, scenario in scenarios.items():
                group.create_task(_act_out(clouds[name], scenario))
            await cluster.pass_time(minutes=LAST)
        return Outcome(
            out={name: cloud.out_of_service() for name, cloud in clouds.items()},
            nodes=cluster.by_key("nodes"),
            written=frozenset(
                it.key for it in cluster.history if it.kind.plural == "nodes" and "haulout" in it.username
            ),
            evicted=[it.key for it in cluster.history if it.verb == "evict"],
        )


async def _act_out(cloud: AnnouncedMaintenance, scenario: Scenario) -> None:
    for minute, action in scenario.actions.items():
        await cloud.wait_until_minute(minute)
        await action(cloud)


def _scenarios_of(mode: str) -> tuple[str, ...]:
    return FEW if mode == "while replicas die in turns" else tuple(SCENARIOS)


@pytest.mark.parametrize(("mode", "name"), [(way, name) for way in MODES for name in _scenarios_of(way)])
def test_node_is_out_of_service_in_the_expected_interval_and_has_no_leftovers(mode: str, name: str) -> None:
    scenario, found = SCENARIOS[name], outcome_of(mode)
    late = 0 if mode == "while it runs" else LATE
    assert len(found.out[name]) == len(scenario.out), found.out[name]
    for (since, until), (wanted_since, wanted_until) in zip(found.out[name], scenario.out, strict=True):
        assert wanted_since <= since <= wanted_since + late, found.out[name]
        assert until is not None, "the node stays cordoned"
        assert wanted_until <= until <= wanted_until + max(late, 1), found.out[name]
    assert (NODES[name] in found.nodes) is scenario.is_there
    if scenario.is_there:
        assert own_metadata(found.nodes[NODES[name]]) == {}


@pytest.mark.parametrize("mode", MODES)
def test_node_without_notices_is_never_written(mode: str) -> None:
    assert "n1" not in outcome_of(mode).written
    assert outcome_of(mode).evicted, "pods should have been evicted from the other nodes"
