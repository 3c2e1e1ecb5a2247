"""What becomes of nodes that maintenance is announced for, where nobody has configured anything: a table of stories.

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

Deed = Callable[[AnnouncedMaintenance], Awaitable[object]]
LAST = 70
LATE = 3  # minutes, if the operator is down when something happens


def says(stage: NoticeStage = NoticeStage.SCHEDULED, **plan: Any) -> Deed:
    """Let the cloud say something."""
    return lambda cloud: cloud.report(stage, **plan)


def reboots(lasting: int) -> Deed:
    """Reboot the machine."""

    async def deed(cloud: AnnouncedMaintenance) -> None:
        cloud.cluster.reboot(cloud.node, duration=timedelta(minutes=lasting))

    return deed


async def vanishes(cloud: AnnouncedMaintenance) -> None:
    """Take the machine away, and with it its node."""
    await cloud.cluster.kubelets.remove(cloud.node)


async def comes(cloud: AnnouncedMaintenance) -> None:
    """Let the machine join the cluster."""
    cloud.cluster.kubelets.add(Machine(name=cloud.node, zone="z1"))


async def another_comes(cloud: AnnouncedMaintenance) -> None:
    """Let another machine join the cluster under the same name."""
    cloud.cluster.kubelets.add(Machine(name=cloud.node, zone="z1", provider_id=f"sandbox://z1/not-{cloud.node}"))


async def is_written_by_a_person(cloud: AnnouncedMaintenance) -> None:
    """Announce what begins and ends by the clock, as nobody will tell."""
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
class Story:
    """What happens at which minute, and from when to when its node should be out of service then."""

    out: tuple[tuple[int, int], ...]
    deeds: Mapping[int, Deed]
    is_there: bool = field(default=True)  # in the end
    comes_later: bool = False


STARTED, ENDED, FAILED, CANCELLED = NoticeStage.STARTED, NoticeStage.ENDED, NoticeStage.FAILED, NoticeStage.CANCELLED
STORIES = {
    "planned": Story(
        ((10, 40),), {5: says(start=25, end=60), 25: says(STARTED), 30: reboots(3), 40: says(ENDED)}
    ),
    "by the clock": Story(((10, 40),), {5: is_written_by_a_person}),
    "by the clock, gone and back": Story(((10, 40),), {2: is_written_by_a_person, 5: vanishes, 8: comes}),
    "by the clock, another machine": Story((), {2: is_written_by_a_person, 5: vanishes, 8: another_comes}),
    "moved earlier": Story(
        ((15, 40),), {5: says(start=50, end=60), 10: says(start=30, end=40), 30: says(STARTED), 40: says(ENDED)}
    ),
    "moved later": Story(
        ((35, 55),), {5: says(start=30, end=40), 10: says(start=50, end=60), 50: says(STARTED), 55: says(ENDED)}
    ),
    "moved later when drained": Story(
        ((10, 15), (35, 55)), {5: says(start=25, end=35), 15: says(start=50, end=60), 55: says(ENDED)}
    ),
    "moved past": Story(((15, 40),), {5: says(start=50, end=60), 15: says(start=12, end=40)}),
    "cancelled": Story((), {5: says(start=40, end=50), 10: says(CANCELLED)}),
    "cancelled when drained": Story(((10, 20),), {5: says(start=25, end=40), 20: says(CANCELLED)}),
    "begun early": Story(((15, 30),), {5: says(start=60, end=65), 15: says(STARTED), 30: says(ENDED)}),
    "begun unannounced": Story(((10, 25),), {10: says(STARTED), 25: says(ENDED)}),
    "ended before it is back": Story(
        ((10, 40),), {5: says(start=25, end=60), 25: reboots(15), 30: says(STARTED), 35: says(ENDED)}
    ),
    "ended twice": Story(
        ((10, 30),), {5: says(start=25, end=40), 30: says(ENDED), 35: says(ENDED), 40: says(start=55, end=60)}
    ),
    "failed": Story(((10, 45),), {5: says(start=25, end=40), 30: says(FAILED), 45: says(ENDED)}),
    "instance gone": Story(
        ((10, 30),),
        {5: says(start=25, end=40, kind=MaintenanceKind.TERMINATE), 30: vanishes, 35: says(ENDED)},
        is_there=False,
    ),
    "unknown instance": Story(
        ((15, 40),), {5: says(start=25, end=60), 15: comes, 40: says(ENDED)}, comes_later=True
    ),
    "duplicate": Story(
        ((10, 40),), {**dict.fromkeys((5, 10, 15), says(start=25, end=60, reported_at=5)), 40: says(ENDED)}
    ),
    "out of order": Story(
        (), {10: says(ENDED), 15: says(STARTED, reported_at=8), 20: says(start=25, end=60, reported_at=5)}
    ),
    "a freeze": Story((), {5: says(start=25, end=30, kind=MaintenanceKind.FREEZE)}),
}  # fmt: skip
FEW = ("planned", "moved later when drained", "begun unannounced", "instance gone")  # two replicas take their time
NODES = {name: f"n{number}" for number, name in enumerate(STORIES, start=2)}  # nothing is announced for n1


@dataclass(frozen=True, slots=True)
class Played:
    """What came of all stories."""

    out: Mapping[str, list[tuple[int, int | None]]]
    nodes: Mapping[str, RawObject]
    written: frozenset[str]  # nodes that the operator wrote to
    evicted: list[str]


async def _up(cluster: SandboxCluster) -> None:
    cluster.run(notice_operator())


async def _down(cluster: SandboxCluster) -> None:
    process = cluster.run(notice_operator())
    await cluster.pass_time(minutes=4)
    for _ in range(4, LAST, 5):
        process.kill()
        await cluster.pass_time(minutes=3)
        process.start()
        await cluster.pass_time(minutes=2)


async def _in_turns(cluster: SandboxCluster) -> None:
    replicas = [cluster.run(notice_operator(identity=name), name=name) for name in ("one", "two")]
    for number in range(0, LAST, 5):
        await cluster.pass_time(minutes=4.8)
        process = replicas[number // 5 % 2]
        process.kill()
        await cluster.pass_time(minutes=0.2)
        process.start()


WAYS = {"while it runs": _up, "while it is down": _down, "while replicas die in turns": _in_turns}


@cache
def played(way: str) -> Played:
    """Play all stories."""
    return run_virtual(_played(way))


async def _played(way: str) -> Played:
    plan = with_notices(a_cluster(VirtualClock()).with_deployment("shop/web", replicas=20, budget=14))
    stories = {name: STORIES[name] for name in _played_by(way)}
    there = ["n1", *(NODES[name] for name, it in stories.items() if not it.comes_later)]
    plan = replace(plan, machines=tuple(Machine(name=name, zone="z1") for name in there))
    async with plan.on_the_sandbox() as cluster:
        clouds = {name: AnnouncedMaintenance(cluster, NODES[name]) for name in stories}
        async with asyncio.TaskGroup() as group:
            group.create_task(WAYS[way](cluster))
            for name, story in stories.items():
                group.create_task(_told(clouds[name], story))
            await cluster.pass_time(minutes=LAST)
        return Played(
            out={name: cloud.out_of_service() for name, cloud in clouds.items()},
            nodes=cluster.by_key("nodes"),
            written=frozenset(
                it.key for it in cluster.history if it.kind.plural == "nodes" and "haulout" in it.username
            ),
            evicted=[it.key for it in cluster.history if it.verb == "evict"],
        )


async def _told(cloud: AnnouncedMaintenance, story: Story) -> None:
    for minute, deed in story.deeds.items():
        await cloud.wait_until_minute(minute)
        await deed(cloud)


def _played_by(way: str) -> tuple[str, ...]:
    return FEW if way == "while replicas die in turns" else tuple(STORIES)


@pytest.mark.parametrize(("way", "name"), [(way, name) for way in WAYS for name in _played_by(way)])
def test_a_node_is_out_of_service_when_it_should_be_and_nothing_is_left_on_it(way: str, name: str) -> None:
    story, found = STORIES[name], played(way)
    late = 0 if way == "while it runs" else LATE
    assert len(found.out[name]) == len(story.out), found.out[name]
    for (since, until), (wanted_since, wanted_until) in zip(found.out[name], story.out, strict=True):
        assert wanted_since <= since <= wanted_since + late, found.out[name]
        assert until is not None, "the node stays cordoned"
        assert wanted_until <= until <= wanted_until + max(late, 1), found.out[name]
    assert (NODES[name] in found.nodes) is story.is_there
    if story.is_there:
        assert own_metadata(found.nodes[NODES[name]]) == {}


@pytest.mark.parametrize("way", WAYS)
def test_a_node_that_nothing_is_announced_for_is_never_written_to(way: str) -> None:
    assert "n1" not in played(way).written
    assert played(way).evicted, "somebody should have been evicted from the others"
