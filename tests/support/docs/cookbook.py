"""Runs the recipes of the cookbook: a cluster, the operator with the recipe's file, and agents that work on nodes.

    file = recipe("os-patching")
    plan = cluster_at(berlin_time("2026-01-05 21:00")).with_nodes(6, zones=3)
    async with with_recipe_invariants(plan, file, max_unavailable=2).running() as cluster:
        operate(cluster, file)
        async with running_actors(worker(cluster, "example.com/patch-now", patch)):
            await set_labels(cluster, ["n1", "n2"], "example.com/patches", "pending")
            …

Agents poll, as real ones do, and assert that the node is drained when they are told to begin. Results are read from the
history at the end: the states of each node, with their times.
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

from haulout.api.leases import LEADER_LEASE
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.app.operator import shared_informers
from haulout.cli.output import ASCII_MARKS
from haulout.cli.why import why_text
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.dry_run import dry_run
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.explain.explanation import explain
from haulout.controllers.profiles.plugin import STATE_LABEL, State
from haulout.controllers.profiles.plugins.registry import registries
from haulout.kube.client import Client
from haulout.runtime.manager import Manager, ManagerSettings
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters import cluster_plan
from support.clusters.cluster_plan import ClusterPlan
from support.clusters.live_cluster import LiveCluster
from support.expectations.eventually import eventually
from support.expectations.history_text import recent_writes
from support.fakes.external_client import FakeExternalClient
from support.invariants.pods import is_skipped_by_drains
from support.operators import profiles_controller
from support.operators.nodemaintenance import OPERATOR, with_operator_rbac
from support.operators.profiles import NAMESPACE, operator_with_profiles, state

FOLDER = Path(__file__).parents[3] / "examples" / "cookbook"
ENVIRON = {
    "TEAMS_WORKFLOW": "https://teams.example.com/workflow",
    "SLACK_HOOK": "https://hooks.example.com/slack",
    "SLACK_TOKEN": "xoxb-1",
    "HOOK_SECRET": "a secret",
}
BERLIN = ZoneInfo("Europe/Berlin")
_POLL_INTERVAL = timedelta(seconds=5)
_SHOWN_WRITES = 12  # writes, that a failure shows
_READY_FOR = re.compile(r"readyFor: \w+")


def recipe(name: str) -> Path:
    """Return the file of a recipe."""
    return FOLDER / f"{name}.yaml"


def configuration(file: Path) -> Configuration:
    """Return what is in a file."""
    found = dry_run(file.read_bytes(), registries(), ENVIRON, file=file.name)
    assert found.loaded is not None, found.errors
    return found.loaded.configuration


def with_short_ready_time(file: Path, folder: Path) -> Path:
    """Return the same recipe where a node must be ready for a second only: for clusters on real time."""
    shortened = folder / file.name
    shortened.write_text(_READY_FOR.sub("readyFor: 1s", file.read_text()))
    return shortened


def berlin_time(text: str) -> datetime:
    """Return the instant of a wall time in Berlin."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(UTC)


def with_recipe_invariants(
    plan: ClusterPlan,
    file: Path | None = None,
    *,
    max_unavailable: int | str | None = None,
    own_metadata: Collection[str] = (),
) -> ClusterPlan:
    """Return the plan of a cluster whose history must be sound.

    The operator may do what `haulout manifests --config FILE` grants and, without a file, what it grants to most.
    """
    wanted = Installation(image="example/haulout", configuration=configuration(file) if file else None)
    held = profiles_controller.invariants(OPERATOR, max_unavailable=max_unavailable, own_metadata=tuple(own_metadata))
    return with_operator_rbac(plan, operator_manifests.role_objects(wanted)).with_invariants(*held)


def cluster_at(instant: datetime) -> ClusterPlan:
    """Return the plan of an empty cluster on the sandbox, in which it is this instant."""
    return cluster_plan.a_cluster(VirtualClock(instant))


def operate(cluster: LiveCluster, file: Path, external_client: FakeExternalClient | None = None) -> None:
    """Run the operator by a recipe."""
    cluster.run(operator_with_profiles(file, external_client=external_client or FakeExternalClient(), environ=ENVIRON))


def run_profiles_program(cluster: LiveCluster, file: Path, external_client: FakeExternalClient | None = None) -> None:
    """Run only the profiles component of the operator, for hours without another leader or edits of the file."""

    async def program(client: Client) -> None:
        profiles = ProfilesComponent(
            ProfilesFile(file, environ=ENVIRON, clock=client.clock), external_client or FakeExternalClient()
        )
        manager = Manager(
            client,
            [profiles],
            settings=ManagerSettings(
                namespace=NAMESPACE, identity="operator_1", lease=LEADER_LEASE, reporter="NodeMaintenance"
            ),
            share=shared_informers,
        )
        await manager.run()

    cluster.run(program)


async def explain_node(
    cluster: LiveCluster, file: Path, node: str, external_client: FakeExternalClient | None = None
) -> str:
    """Return what `haulout why` says."""
    found = await explain(cluster.admin, configuration(file), node, external=external_client)
    return click.unstyle("\n".join(why_text.text_lines(found, marks=ASCII_MARKS)))


# Actors

Work = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def running_actors(*actors: Awaitable[None]) -> AsyncIterator[None]:
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
    """Work on each node whose label allows it, and assert that the node is drained."""
    busy: set[str] = set()
    async with asyncio.TaskGroup() as group:
        while True:
            allowed = {name for name in cluster.by_key("nodes") if label(cluster, name, key) == value}
            for name in sorted(allowed - busy):
                assert drainable_pods(cluster, name) == [], f"{name} is not empty, and is to be worked on"
                group.create_task(_awaited(work(name)))
            busy = allowed
            await cluster.clock.sleep(_POLL_INTERVAL)


async def reboot(cluster: LiveCluster, node: str, *, duration: timedelta = timedelta(minutes=4)) -> None:
    """Reboot a machine, and return when its agents run again."""
    cluster.reboot(node, duration=duration)
    await cluster.clock.sleep(duration + timedelta(seconds=30))


# State


def label(cluster: LiveCluster, node: str, key: str) -> str | None:
    """Return a label of a node."""
    found: str | None = cluster.get("nodes", node)["metadata"].get("labels", {}).get(key)
    return found


async def set_label(cluster: LiveCluster, node: str, key: str, value: str | None) -> None:
    """Set a label, or take it off."""
    await cluster.patch("nodes", node, metadata={"labels": {key: value}})


async def set_labels(cluster: LiveCluster, nodes: Collection[str], key: str, value: str | None) -> None:
    """Set a label of several nodes."""
    for node in nodes:
        await set_label(cluster, node, key, value)


def drainable_pods(cluster: LiveCluster, node: str) -> list[str]:
    """Return the pods on a node that a drain concerns and that have not ended, terminating ones included."""
    running = [pod for pod in cluster.by_key("pods").values() if pod["status"]["phase"] not in ("Succeeded", "Failed")]
    pods = [pod for pod in running if pod["spec"].get("nodeName") == node]
    return [pod["metadata"]["name"] for pod in pods if not is_skipped_by_drains(pod)]


def is_cordoned(cluster: LiveCluster, node: str) -> bool:
    """Tell whether a node takes no pods."""
    return bool(cluster.get("nodes", node)["spec"].get("unschedulable"))


# Results


@dataclass(frozen=True, slots=True)
class MaintenancePeriod:
    """A time that a node was in maintenance; without an end it still is."""

    node: str
    since: datetime
    until: datetime | None


def maintenance_periods(cluster: LiveCluster) -> list[MaintenancePeriod]:
    """Return the times that nodes were in maintenance, in the order of their beginning."""
    began: dict[str, datetime] = {}
    ended: list[MaintenancePeriod] = []
    for write in cluster.history:
        if write.kind.plural != "nodes":
            continue
        labels = write.after["metadata"].get("labels", {}) if write.after else {}
        if labels.get(STATE_LABEL) == State.IN_MAINTENANCE:
            began.setdefault(write.key, write.written_at)
        elif write.key in began:
            ended.append(MaintenancePeriod(write.key, began.pop(write.key), write.written_at))
    return sorted(
        [*ended, *(MaintenancePeriod(node, since, None) for node, since in began.items())],
        key=lambda period: period.since,
    )


def max_concurrent(periods: Sequence[MaintenancePeriod]) -> int:
    """Return the maximum number of concurrent periods."""
    return max(
        (
            sum(
                other.since <= period.since and (other.until is None or period.since < other.until) for other in periods
            )
            for period in periods
        ),
        default=0,
    )


async def wait_until(cluster: LiveCluster, probe: Callable[[], bool], **within: float) -> None:
    """Wait for a condition that takes hours, checked at long intervals."""
    describe_recent: Callable[[], Sequence[str]] = lambda: recent_writes(cluster.history, _SHOWN_WRITES)  # noqa: E731 - a word for a sentence
    await eventually(
        cluster.clock, probe, within=timedelta(**within), every=_POLL_INTERVAL, recent_events=describe_recent
    )


def all_done(cluster: LiveCluster, nodes: Collection[str], label_key: str) -> bool:
    """Tell whether nothing is left to do on any of the nodes, and all are operational."""
    return not any(label(cluster, node, label_key) or state(cluster, node) != State.OPERATIONAL for node in nodes)
