"""Replicas of the operator in a town: who leads, who takes over, and what they do to nodes.

async with a_site(clock, "n1", "n2") as town:
    replica(town, "one", node="n1", file=file)
    await town.until(lambda: holders(town) == both("one"))
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from haulout.app.configured import Configured
from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.maintenance.resource import NODE_MAINTENANCES, definition
from haulout.profiles.plugin import STATE_LABEL
from support.draining import Town, a_town
from support.outside import FakeOutside
from support.processes import Process

HOME = "haulout"


@asynccontextmanager
async def a_site(clock: Clock, *nodes: str) -> AsyncIterator[Town]:
    """Yield a cluster in which the operator could run."""
    async with a_town(clock, *nodes) as town:
        town.put(definition())
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


class WithProfiles(NamedTuple):
    """An operator that sees to profiles, too."""

    process: Process
    profiles: Profiles
    outside: FakeOutside


def replica_with_profiles(town: Town, name: str, file: Path, *, node: str = "") -> WithProfiles:
    """Start an operator that sees to profiles, too."""
    settings = OperatorSettings(namespace=HOME, identity=name, node=node)
    outside = FakeOutside()
    profiles = Profiles(Configured(file, environ={}, clock=town.cluster.clock), outside)

    async def program(client: Client) -> None:
        await run_operator(client, settings, profiles=profiles)

    process = Process(town.cluster, name, program)
    process.start()
    return WithProfiles(process, profiles, outside)


# What a person does


def order(town: Town, node: str, name: str = "m1", **spec: Any) -> None:
    """Order a maintenance."""
    town.put(
        {
            "apiVersion": NODE_MAINTENANCES.api_version,
            "kind": NODE_MAINTENANCES.kind,
            "metadata": {"name": name, "generation": 1},
            "spec": {"nodeName": node, **spec},
        }
    )


async def label(town: Town, node: str, **labels: str | None) -> None:
    """Set labels of a node; None takes one off."""
    await town.cluster.client("admin").patch(NODES, node, merge_patch({"metadata": {"labels": labels}}))


# How it stands


def holders(town: Town) -> dict[str, str]:
    """Return who holds the leases of leaders."""
    found = town.api.objects("leases", namespace=HOME)
    return {it["metadata"]["name"]: str(it["spec"].get("holderIdentity", "")) for it in found}


def leader(town: Town) -> str:
    """Return who leads."""
    return holders(town).get(LEADER_LEASE, "")


def both(name: str) -> dict[str, str]:
    """Return what `holders` are if one holds all leases."""
    return {LEADER_LEASE: name, PROFILES_LEASE: name}


def maintenance(town: Town, name: str = "m1") -> RawObject:
    """Return a maintenance."""
    return next(it for it in town.api.objects("nodemaintenances") if it["metadata"]["name"] == name)


def is_done(town: Town, name: str = "m1") -> bool:
    """Tell whether the node of a maintenance is empty."""
    return bool(maintenance(town, name).get("status", {}).get("phase") == "Succeeded")


def writers(town: Town, path: str) -> set[str]:
    """Return who has written to what."""
    return {write.who for write in town.api.history if path in write.path}


def evicters(town: Town) -> set[str]:
    """Return who has evicted pods."""
    return {write.who for write in town.api.history if write.verb == "evict"}


def node_state(town: Town, name: str) -> str:
    """Return the state label of a node."""
    return str(town.api.get("nodes", name)["metadata"].get("labels", {}).get(STATE_LABEL, ""))


def is_cordoned(town: Town, name: str) -> bool:
    """Tell whether a node takes no pods."""
    return bool(town.api.get("nodes", name)["spec"].get("unschedulable"))


def says_drained(town: Town, name: str) -> bool:
    """Tell whether the conditions of a node say that it is drained."""
    found = town.api.get("nodes", name).get("status", {}).get("conditions", ())
    return any(it["type"] == "Drained" and it["status"] == "True" for it in found)


def told(town: Town, name: str) -> dict[str, str]:
    """Return what events say about an object, by their reasons."""
    found = [it for it in town.api.objects("events") if _about(it).get("name") == name]
    return {it["reason"]: str(it.get("note") or it.get("message")) for it in found}


def _about(event: RawObject) -> RawObject:
    found: RawObject = event.get("regarding") or event.get("involvedObject") or {}
    return found
