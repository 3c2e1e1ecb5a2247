"""The operator as a whole: who leads, who takes over, and who gives way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from haulout.app.configured import Configured
from haulout.app.operator import LEADER_LEASE, OperatorSettings, run_operator
from haulout.app.profiles import LEASE as PROFILES_LEASE
from haulout.app.profiles import Profiles
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.maintenance.resource import NODE_MAINTENANCES, definition
from haulout.sandbox.processes import Process
from support.draining import SHOP, Town, a_town, a_workload
from support.outside import FakeOutside

SECOND = timedelta(seconds=1)
HOME = "haulout"


@asynccontextmanager
async def a_site(clock: Clock, *nodes: str) -> AsyncIterator[Town]:
    """Yield a cluster in which the operator could run."""
    async with a_town(clock, *nodes) as town:
        town.put(yaml.safe_load(definition()))
        for name in (HOME, "default"):
            town.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield town


def replica(town: Town, name: str, *, node: str = "") -> Process:
    """Start an operator that believes to be on a node."""
    settings = OperatorSettings(namespace=HOME, identity=name, node=node)

    async def program(client: Client) -> None:
        await run_operator(client, settings)

    process = Process(town.cluster, name, program)
    process.start()
    return process


def leader(town: Town) -> str:
    found = [it for it in town.api.objects("leases", namespace=HOME) if it["metadata"]["name"] == LEADER_LEASE]
    return str(found[0]["spec"].get("holderIdentity", "")) if found else ""


def maintenance(town: Town, name: str = "m1") -> RawObject:
    return next(it for it in town.api.objects("nodemaintenances") if it["metadata"]["name"] == name)


def order(town: Town, node: str, name: str = "m1", **spec: Any) -> None:
    town.put(
        {
            "apiVersion": NODE_MAINTENANCES.api_version,
            "kind": NODE_MAINTENANCES.kind,
            "metadata": {"name": name, "generation": 1},
            "spec": {"nodeName": node, **spec},
        }
    )


def is_done(town: Town, name: str = "m1") -> bool:
    return bool(maintenance(town, name).get("status", {}).get("phase") == "Succeeded")


def writers(town: Town, path: str) -> set[str]:
    """Return who has written to what."""
    return {write.who for write in town.api.history if path in write.path}


async def test_of_two_replicas_one_works_and_the_other_takes_over_when_it_dies(clock: Clock) -> None:
    async with a_site(clock, "n1", "n2") as town:
        await town.run_pods("web", 4, on="n1", stop=20)
        one, _ = replica(town, "one"), replica(town, "two")
        await town.until(lambda: leader(town) == "one")
        order(town, "n1")
        await town.until(lambda: any(write.verb == "evict" for write in town.api.history))
        one.kill()
        assert await town.until(lambda: leader(town) == "two") < 30
        await town.until(lambda: is_done(town))
        assert town.pods(on="n1") == []


async def test_a_replica_that_is_told_to_end_lets_the_other_lead_within_seconds(clock: Clock) -> None:
    async with a_site(clock, "n1") as town, asyncio.TaskGroup() as group:
        settings = OperatorSettings(namespace=HOME, identity="one")
        ending = group.create_task(run_operator(town.cluster.client("one"), settings))
        await town.until(lambda: leader(town) == "one")
        replica(town, "two")
        ending.cancel()
        assert await town.until(lambda: leader(town) == "two") < 6


async def test_the_leader_on_the_node_to_be_drained_gives_way_first(clock: Clock) -> None:
    async with a_site(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n1", stop=1)
        replica(town, "one", node="n1")
        replica(town, "two", node="n2")
        await town.until(lambda: leader(town) == "one")
        order(town, "n1")
        await town.until(lambda: is_done(town))
        assert leader(town) == "two"
        evicted = [write.who for write in town.api.history if write.verb == "evict"]
        assert set(evicted) == {"two"}
        assert "one" in writers(town, "/nodes/n1")  # cordoned by the first, so that the second is not placed there


async def test_a_leader_that_nobody_replaces_drains_its_own_node(clock: Clock) -> None:
    async with a_site(clock, "n1") as town:
        await town.run_pods("web", 3, on="n1", stop=1)
        replica(town, "one", node="n1")
        await town.until(lambda: leader(town) == "one")
        order(town, "n1")
        assert await town.until(lambda: is_done(town)) < 60
        assert leader(town) == "one"


async def test_the_definition_may_come_later_than_the_operator(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        town.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        await town.run_pods("web", 1, on="n1")
        process = replica(town, "one")
        await clock.sleep(600 * SECOND)
        assert len(process.transport.requests) < 600
        town.put(yaml.safe_load(definition()))
        order(town, "n1")
        assert await town.until(lambda: is_done(town)) < 60


async def test_ten_nodes_drain_at_once_while_one_is_stuck(clock: Clock) -> None:
    names = [f"n{number:02}" for number in range(10)]
    async with a_site(clock, *names) as town:
        town.put(a_workload("Deployment", "spare", replicas=0))
        for name in names:
            await town.run_pods(name, 5, on=name, stop=3)
        budget = {"selector": {"matchLabels": {"app": "n00"}}, "maxUnavailable": 0}
        meta = {"name": "stuck", "namespace": SHOP}
        town.put({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": budget})
        replica(town, "one")
        await town.until(lambda: leader(town) == "one")
        for name in names:
            order(town, name, name)
        assert await town.until(lambda: all(is_done(town, name) for name in names[1:])) < 6
        blockers = maintenance(town, "n00")["status"]["blockers"]
        assert {it["object"] for it in blockers} == {f"PodDisruptionBudget {SHOP}/stuck"}


# Profiles


CONFIGURATION = """
intervals: {requeue: 30s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
profiles:
- name: default
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
"""


def replica_with_profiles(town: Town, name: str, file: Path, *, node: str = "") -> tuple[Process, Profiles]:
    """Start an operator that sees to profiles, too."""
    settings = OperatorSettings(namespace=HOME, identity=name, node=node)
    profiles = Profiles(Configured(file, environ={}, clock=town.cluster.clock), FakeOutside())

    async def program(client: Client) -> None:
        await run_operator(client, settings, profiles=profiles)

    process = Process(town.cluster, name, program)
    process.start()
    return process, profiles


def holders(town: Town) -> dict[str, str]:
    """Return who holds the leases of leaders."""
    found = town.api.objects("leases", namespace=HOME)
    return {it["metadata"]["name"]: str(it["spec"].get("holderIdentity", "")) for it in found}


def both(name: str) -> dict[str, str]:
    return {LEADER_LEASE: name, PROFILES_LEASE: name}


def node_state(town: Town, name: str) -> str:
    labels = town.api.get("nodes", name)["metadata"].get("labels", {})
    return str(labels.get("cloud.sap/maintenance-state", ""))


async def test_who_leads_holds_both_leases_and_a_successor_takes_both(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    async with a_site(clock, "n1", "n2") as town:
        one, knowing = replica_with_profiles(town, "one", file)
        _, waiting = replica_with_profiles(town, "two", file)
        await town.until(lambda: holders(town) == both("one") and node_state(town, "n1") == "operational")
        assert waiting.infos() is None
        assert [it["node"] for it in knowing.infos() or ()] == ["n1", "n2"]
        one.kill()
        await town.until(lambda: holders(town) == both("two"))
        await town.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"patch": "yes"}}}))
        await town.until(lambda: node_state(town, "n1") == "maintenance-required")
        assert waiting.infos() is not None


async def test_who_hands_over_gives_up_both_leases(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    async with a_site(clock, "n1", "n2") as town:
        replica_with_profiles(town, "one", file, node="n1")
        await town.until(lambda: holders(town) == both("one"))
        replica_with_profiles(town, "two", file, node="n2")
        order(town, "n1")
        await town.until(lambda: is_done(town) and holders(town) == both("two"))
