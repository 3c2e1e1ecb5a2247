"""Replicas of the operator in a cluster for drains: the leader, failover, and their writes to nodes.

async with a_replica_cluster(clock, "n1", "n2") as cluster:
    start_replica(cluster, "one", node="n1")
    await cluster.wait_until(lambda: lease_holders(cluster) == all_leases_held_by("one"))
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.api.nodemaintenance import NODE_MAINTENANCES, custom_resource_definition
from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.plugin import STATE_LABEL
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster
from support.clusters.process import Process
from support.fakes.external_client import FakeExternalClient

NAMESPACE = "haulout"


@asynccontextmanager
async def a_replica_cluster(clock: Clock, *nodes: str) -> AsyncIterator[DrainCluster]:
    """Yield a cluster in which the operator could run."""
    async with a_drain_cluster(clock, *nodes) as cluster:
        cluster.put(custom_resource_definition())
        for name in (NAMESPACE, "default"):
            cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield cluster


def start_replica(cluster: DrainCluster, name: str, *, node: str = "") -> Process:
    """Start an operator whose pod is on a node."""
    settings = OperatorSettings(namespace=NAMESPACE, identity=name, node=node)

    async def program(client: Client) -> None:
        await run_operator(client, settings)

    process = Process(cluster.cluster, name, program)
    process.start()
    return process


class ReplicaWithProfiles(NamedTuple):
    """An operator with profiles."""

    process: Process
    profiles: ProfilesComponent
    external_client: FakeExternalClient


def start_replica_with_profiles(cluster: DrainCluster, name: str, file: Path, *, node: str = "") -> ReplicaWithProfiles:
    """Start an operator with profiles."""
    settings = OperatorSettings(namespace=NAMESPACE, identity=name, node=node)
    external_client = FakeExternalClient()
    profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=cluster.cluster.clock), external_client)

    async def program(client: Client) -> None:
        await run_operator(client, settings, profiles=profiles)

    process = Process(cluster.cluster, name, program)
    process.start()
    return ReplicaWithProfiles(process, profiles, external_client)


# Actions of a user


def create_maintenance(cluster: DrainCluster, node: str, name: str = "m1", **spec: Any) -> None:
    """Create a NodeMaintenance."""
    cluster.put(
        {
            "apiVersion": NODE_MAINTENANCES.api_version,
            "kind": NODE_MAINTENANCES.kind,
            "metadata": {"name": name, "generation": 1},
            "spec": {"nodeName": node, **spec},
        }
    )


async def set_labels(cluster: DrainCluster, node: str, **labels: str | None) -> None:
    """Set labels of a node; None takes one off."""
    await cluster.cluster.client("admin").patch(NODES, node, merge_patch({"metadata": {"labels": labels}}))


# State


def lease_holders(cluster: DrainCluster) -> dict[str, str]:
    """Return who holds the leases of leaders."""
    found = cluster.api.objects("leases", namespace=NAMESPACE)
    return {lease["metadata"]["name"]: str(lease["spec"].get("holderIdentity", "")) for lease in found}


def leader(cluster: DrainCluster) -> str:
    """Return who leads."""
    return lease_holders(cluster).get(LEADER_LEASE, "")


def all_leases_held_by(name: str) -> dict[str, str]:
    """Return what `lease_holders` are if one holds all leases."""
    return {LEADER_LEASE: name, PROFILES_LEASE: name}


def maintenance(cluster: DrainCluster, name: str = "m1") -> RawObject:
    """Return a maintenance."""
    return next(
        candidate for candidate in cluster.api.objects("nodemaintenances") if candidate["metadata"]["name"] == name
    )


def is_done(cluster: DrainCluster, name: str = "m1") -> bool:
    """Tell whether the node of a maintenance is empty."""
    return bool(maintenance(cluster, name).get("status", {}).get("phase") == "Succeeded")


def writing_users(cluster: DrainCluster, path: str) -> set[str]:
    """Return who has written to what."""
    return {write.username for write in cluster.api.history if path in write.path}


def evicting_users(cluster: DrainCluster) -> set[str]:
    """Return who has evicted pods."""
    return {write.username for write in cluster.api.history if write.verb == "evict"}


def node_state(cluster: DrainCluster, name: str) -> str:
    """Return the state label of a node."""
    return str(cluster.api.get("nodes", name)["metadata"].get("labels", {}).get(STATE_LABEL, ""))


def is_cordoned(cluster: DrainCluster, name: str) -> bool:
    """Tell whether a node takes no pods."""
    return bool(cluster.api.get("nodes", name)["spec"].get("unschedulable"))


def has_drained_condition(cluster: DrainCluster, name: str) -> bool:
    """Tell whether the conditions of a node say that it is drained."""
    found = cluster.api.get("nodes", name).get("status", {}).get("conditions", ())
    return any(condition["type"] == "Drained" and condition["status"] == "True" for condition in found)


def event_notes(cluster: DrainCluster, name: str) -> dict[str, str]:
    """Return what events say about an object, by their reasons."""
    found = [event for event in cluster.api.objects("events") if _regarding(event).get("name") == name]
    return {event["reason"]: str(event.get("note") or event.get("message")) for event in found}


def _regarding(event: RawObject) -> RawObject:
    found: RawObject = event.get("regarding") or event.get("involvedObject") or {}
    return found
