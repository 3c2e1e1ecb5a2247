"""The recipes of the cookbook, played: a cluster, the operator by a recipe's file, and those who do the work on nodes.

file = recipe("os-patching")
async with upheld(at(berlin("2026-01-05 21:00")).with_nodes(6, zones=3), file, most=2).running() as cluster:
    see_to(cluster, file)
    async with acting(worker(cluster, "example.com/patch-now", patch)):
        await set_labels(cluster, ["n1", "n2"], "example.com/patches", "pending")
        await comes_true(cluster, lambda: all_over(cluster, ["n1", "n2"], "example.com/patches"), hours=12)

Who works on nodes polls, as such agents do, and insists that the node is empty by the time it is told to begin. What
happened is read from the history in the end: who was in which state from when to when.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from haulout.app import manifests
from haulout.app.configured import Configured
from haulout.app.manifests import Installation
from haulout.app.names import PROFILES_LEASE
from haulout.app.profiles import Profiles, see_to_profiles
from haulout.cli import why_text
from haulout.cli.terminal import PLAIN
from haulout.kube.client import Client
from haulout.kube.leader import LeaderElection
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import STATE_LABEL, State
from haulout.profiles.plugins.registry import registries
from haulout.profiles.trial import attempt
from haulout.profiles.why import judge
from haulout_sandbox.event_loops.virtual import VirtualClock
from support import clusters, profiling
from support.clusters import ClusterPlan
from support.eventually import eventually
from support.invariants.pods import is_skipped_by_drains
from support.live import LiveCluster
from support.maintaining import OPERATOR, entitled
from support.narration import latest
from support.outside import FakeOutside
from support.profiled import NAMESPACE, operating, state

FOLDER = Path(__file__).parents[2] / "examples" / "cookbook"
ENVIRON = {
    "TEAMS_WORKFLOW": "https://teams.example.com/workflow",
    "SLACK_HOOK": "https://hooks.example.com/slack",
    "SLACK_TOKEN": "xoxb-1",
    "HOOK_SECRET": "a secret",
}
BERLIN = ZoneInfo("Europe/Berlin")
_LOOKS_EVERY = timedelta(seconds=5)
_LAST = 12  # writes, that a failure shows
_READY_FOR = re.compile(r"readyFor: \w+")


def recipe(name: str) -> Path:
    """Return the file of a recipe."""
    return FOLDER / f"{name}.yaml"


def configuration(file: Path) -> Configuration:
    """Return what is in a file."""
    found = attempt(file.read_bytes(), registries(), ENVIRON, file=file.name)
    assert found.loaded is not None, found.errors
    return found.loaded.configuration


def hasty(file: Path, folder: Path) -> Path:
    """Return the same recipe where a node must be ready for a second only: for clusters on real time."""
    made = folder / file.name
    made.write_text(_READY_FOR.sub("readyFor: 1s", file.read_text()))
    return made


def berlin(text: str) -> datetime:
    """Return the instant of a wall time in Berlin."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(UTC)


def upheld(
    plan: ClusterPlan, file: Path | None = None, *, most: int | str | None = None, ours: Collection[str] = ()
) -> ClusterPlan:
    """Return the plan of a cluster whose history must be sound.

    The operator may do what `haulout manifests --config FILE` grants and, without a file, what it grants to most.
    """
    wanted = Installation(image="example/haulout", configuration=configuration(file) if file else None)
    held = profiling.invariants(OPERATOR, most=most, ours=tuple(ours))
    return entitled(plan, manifests.permissions(wanted)).upholding(*held)


def at(instant: datetime) -> ClusterPlan:
    """Return the plan of an empty cluster on the sandbox, in which it is this instant."""
    return clusters.a_cluster(VirtualClock(instant))


def operate(cluster: LiveCluster, file: Path, outside: FakeOutside | None = None) -> None:
    """Run the operator by a recipe."""
    cluster.run(operating(file, outside=outside or FakeOutside(), environ=ENVIRON))


def see_to(cluster: LiveCluster, file: Path, outside: FakeOutside | None = None) -> None:
    """Run the part of the operator that sees to profiles, for hours in which nobody else leads or edits the file."""

    async def program(client: Client) -> None:
        profiles = Profiles(Configured(file, environ=ENVIRON, clock=client.clock), outside or FakeOutside())
        election = LeaderElection(client, name=PROFILES_LEASE, namespace=NAMESPACE, identity="operator_1")
        await see_to_profiles(client, profiles, election=election)

    cluster.run(program)


async def why(cluster: LiveCluster, file: Path, node: str, outside: FakeOutside | None = None) -> str:
    """Return what `haulout why` says."""
    found = await judge(cluster.me, configuration(file), node, outside=outside)
    return click.unstyle("\n".join(why_text.as_text(found, marks=PLAIN)))


# Who does the work

Work = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def acting(*actors: Awaitable[None]) -> AsyncIterator[None]:
    """Let actors do their work while the context lasts."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_awaited(actor)) for actor in actors]
        try:
            yield
        finally:
            for task in running:
                task.cancel()


async def _awaited(actor: Awaitable[None]) -> None:
    await actor


async def worker(cluster: LiveCluster, key: str, work: Work, *, value: str = "true") -> None:
    """Begin to work on each node whose label says that it may be; it must be empty by then."""
    busy: set[str] = set()
    async with asyncio.TaskGroup() as group:
        while True:
            allowed = {name for name in cluster.all("nodes") if label(cluster, name, key) == value}
            for name in sorted(allowed - busy):
                assert guests(cluster, name) == [], f"{name} is not empty, and is to be worked on"
                group.create_task(_awaited(work(name)))
            busy = allowed
            await cluster.clock.sleep(_LOOKS_EVERY)


async def reboot(cluster: LiveCluster, node: str, *, lasting: timedelta = timedelta(minutes=4)) -> None:
    """Reboot a machine, and return when its agents run again."""
    cluster.reboot(node, lasting=lasting)
    await cluster.clock.sleep(lasting + timedelta(seconds=30))


# How things stand


def label(cluster: LiveCluster, node: str, key: str) -> str | None:
    """Return a label of a node."""
    found: str | None = cluster.get("nodes", node)["metadata"].get("labels", {}).get(key)
    return found


async def set_label(cluster: LiveCluster, node: str, key: str, value: str | None) -> None:
    """Set a label, or take it off."""
    await cluster.change("nodes", node, metadata={"labels": {key: value}})


async def set_labels(cluster: LiveCluster, nodes: Collection[str], key: str, value: str | None) -> None:
    """Set a label of several nodes."""
    for node in nodes:
        await set_label(cluster, node, key, value)


def guests(cluster: LiveCluster, node: str) -> list[str]:
    """Return the pods on a node that a drain has to do with and that have not ended, those that leave included."""
    running = [pod for pod in cluster.all("pods").values() if pod["status"]["phase"] not in ("Succeeded", "Failed")]
    pods = [pod for pod in running if pod["spec"].get("nodeName") == node]
    return [pod["metadata"]["name"] for pod in pods if not is_skipped_by_drains(pod)]


def is_cordoned(cluster: LiveCluster, node: str) -> bool:
    """Tell whether a node takes no pods."""
    return bool(cluster.get("nodes", node)["spec"].get("unschedulable"))


# What happened


@dataclass(frozen=True, slots=True)
class Stay:
    """A time that a node was in maintenance; without an end it still is."""

    node: str
    since: datetime
    until: datetime | None


def maintenances(cluster: LiveCluster) -> list[Stay]:
    """Return the times that nodes were in maintenance, in the order of their beginning."""
    began: dict[str, datetime] = {}
    ended: list[Stay] = []
    for write in cluster.history:
        if write.kind.plural != "nodes":
            continue
        labels = write.after["metadata"].get("labels", {}) if write.after else {}
        if labels.get(STATE_LABEL) == State.IN_MAINTENANCE:
            began.setdefault(write.key, write.at)
        elif write.key in began:
            ended.append(Stay(write.key, began.pop(write.key), write.at))
    return sorted([*ended, *(Stay(node, since, None) for node, since in began.items())], key=lambda it: it.since)


def most_at_once(stays: Sequence[Stay]) -> int:
    """Return how many there were at most at the same time."""
    return max(
        (sum(it.since <= one.since and (it.until is None or one.since < it.until) for it in stays) for one in stays),
        default=0,
    )


async def comes_true(cluster: LiveCluster, look: Callable[[], bool], **within: float) -> None:
    """Wait for what takes hours: it is looked at now and then only."""
    happened: Callable[[], Sequence[str]] = lambda: latest(cluster.history, _LAST)  # noqa: E731 - a word for a sentence
    await eventually(cluster.clock, look, within=timedelta(**within), every=_LOOKS_EVERY, happened=happened)


def all_over(cluster: LiveCluster, nodes: Collection[str], need: str) -> bool:
    """Tell whether nothing is left to do on any of the nodes, and all are operational."""
    return not any(label(cluster, node, need) or state(cluster, node) != State.OPERATIONAL for node in nodes)
