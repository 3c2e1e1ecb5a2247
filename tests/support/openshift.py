"""OpenShift's Machine API in a cluster under test, sandbox or real.

plan = openshift(a_cluster())
async with plan.running() as cluster, machine_api(cluster):
await with_machine_set(cluster, "workers", replicas=3)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import cache
from random import Random

from haulout.core.clock import RealClock
from haulout.errors import NotFound
from haulout.kinds import machinemaintenance, notice
from haulout.kinds.machines import machine_key
from haulout.kinds.openshift import MACHINE_NAMESPACE
from haulout.kube.objects import RawObject
from haulout.machines.claims import CLAIM
from haulout_sandbox.nodes import Delays
from haulout_sandbox.openshift import MachineApi, OwnInstances, Paces, a_control_plane_set, a_machine_set, definitions
from support.clusters import ClusterPlan
from support.live import LiveCluster, SandboxCluster
from support.looking import condition

BRISK = Paces(instance=timedelta(seconds=3), node=timedelta(seconds=10), termination=timedelta(seconds=3))
_SOON = Paces(instance=timedelta(), node=timedelta(seconds=1), termination=timedelta(seconds=2))
PATIENCE = timedelta(minutes=30)


def openshift(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan of a cluster that knows Machines, notices and MachineMaintenances."""
    for definition in _definitions():
        plan = plan.with_definition(definition)
    return plan.with_delays(Delays.none())


@cache
def _definitions() -> tuple[RawObject, ...]:
    """Return what such a cluster serves; read once, as tests ask for it a thousand times."""
    ours = [it.definition() for it in (machinemaintenance, notice)]
    return *definitions(), *ours


@asynccontextmanager
async def machine_api(cluster: LiveCluster, *, seed: int = 1, paces: Paces | None = None) -> AsyncIterator[None]:
    """Have the Machine API run while the context lasts."""
    if isinstance(cluster.clock, RealClock):
        paces = _SOON
    async with asyncio.TaskGroup() as group:
        client = cluster.cluster.client("machine-api") if isinstance(cluster, SandboxCluster) else cluster.me
        api = MachineApi(client, OwnInstances(cluster.kubelets), random=Random(seed), paces=paces)
        task = group.create_task(api.run())
        try:
            yield
        finally:
            if not isinstance(cluster, SandboxCluster):
                await _end_all(cluster)
            task.cancel()


async def _end_all(cluster: LiveCluster) -> None:
    """Leave no Machine behind whose finalizer nobody would take away any more."""
    for plural in ("machinesets", "controlplanemachinesets", "machines"):
        for name, obj in list(cluster.all(plural).items()):
            with suppress(NotFound):
                if plural == "machines":
                    await cluster.change(plural, name, spec={"lifecycleHooks": {"preDrain": None}})
                if "deletionTimestamp" not in obj["metadata"]:
                    await cluster.delete(plural, name)
    await cluster.eventually(lambda: machines(cluster), becomes=[])


async def with_machine_set(cluster: LiveCluster, name: str, *, replicas: int) -> list[str]:
    """Make a MachineSet; return its Machines when all of them are nodes."""
    await cluster.create(a_machine_set(name, replicas=replicas))
    await cluster.eventually(lambda: len(ready(cluster, name)), becomes=replicas, within=PATIENCE)
    return ready(cluster, name)


async def with_control_plane(cluster: LiveCluster) -> list[str]:
    """Make the ControlPlaneMachineSet; return its Machines when all of them are nodes."""
    await cluster.create(a_control_plane_set())
    await cluster.eventually(lambda: len(ready(cluster, "cluster")), becomes=3, within=PATIENCE)
    return ready(cluster, "cluster")


def machine(cluster: LiveCluster, name: str) -> RawObject:
    """Return a Machine."""
    return cluster.get("machines", f"{MACHINE_NAMESPACE}/{name}")


def machines(cluster: LiveCluster, owner: str = "") -> list[str]:
    """Return the Machines there are, those that leave included."""
    found = cluster.all("machines").values()
    return sorted(it["metadata"]["name"] for it in found if not owner or _is_owned(it, owner))


def leaving(cluster: LiveCluster, owner: str = "") -> list[str]:
    """Return the Machines that were told to go."""
    return [it for it in machines(cluster, owner) if "deletionTimestamp" in machine(cluster, it)["metadata"]]


def ready(cluster: LiveCluster, owner: str = "") -> list[str]:
    """Return the Machines that serve as nodes and stay."""
    return [it for it in machines(cluster, owner) if it not in leaving(cluster, owner) and _is_ready(cluster, it)]


def claim_on(cluster: LiveCluster, owner: str) -> str:
    """Return which Machine of a set is being replaced, as it is written there."""
    found = cluster.get("machinesets", f"{MACHINE_NAMESPACE}/{owner}")
    return str(found["metadata"].get("annotations", {}).get(CLAIM, ""))


def node_of(cluster: LiveCluster, name: str) -> str:
    """Return the name of the node of a Machine, empty while there is none."""
    return str(machine(cluster, name).get("status", {}).get("nodeRef", {}).get("name", ""))


def instance_of(cluster: LiveCluster, name: str) -> str:
    """Return the instance of a Machine."""
    return machine_key(machine(cluster, name)["spec"]["providerID"])


def _is_owned(found: RawObject, owner: str) -> bool:
    return any(it["name"] == owner for it in found["metadata"].get("ownerReferences", ()))


def _is_ready(cluster: LiveCluster, name: str) -> bool:
    node = node_of(cluster, name)
    return cluster.has("nodes", node) and condition(cluster.get("nodes", node), "Ready")[0] == "True"
