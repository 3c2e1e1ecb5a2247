"""OpenShift's Machine API in a cluster under test, sandbox or real.

plan = with_openshift(a_cluster())
async with plan.running() as cluster, machine_api(cluster):
    await create_machine_set(cluster, "workers", replicas=3)
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import cache
from random import Random

from haulout.api import machinemaintenance, maintenancenotice
from haulout.api.objects import RawObject, machine_key
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout.controllers.machines.replacement_claim import CLAIM_ANNOTATION
from haulout.core.clock import RealClock
from haulout.errors import NotFound
from haulout_sandbox.nodes import Delays, Kubelets
from haulout_sandbox.nodes import Machine as Host
from haulout_sandbox.openshift.machine import MachineApiDelays
from haulout_sandbox.openshift.machineset import MachineApi
from haulout_sandbox.openshift.objects import (
    Machine,
    a_control_plane_machine_set,
    a_machine_set,
    custom_resource_definitions,
)
from support.clusters.cluster_plan import ClusterPlan
from support.clusters.live_cluster import LiveCluster, SandboxCluster
from support.expectations.objects import condition_status

SHORT_DELAYS = MachineApiDelays(
    instance=timedelta(seconds=3), node_join=timedelta(seconds=10), termination=timedelta(seconds=3)
)
_NO_DELAYS = MachineApiDelays(instance=timedelta(), node_join=timedelta(seconds=1), termination=timedelta(seconds=2))
TIMEOUT = timedelta(minutes=30)


def with_openshift(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan of a cluster that knows Machines, notices and MachineMaintenances."""
    for definition in _definitions():
        plan = plan.with_crd(definition)
    return plan.with_delays(Delays.zero())


@cache
def _definitions() -> tuple[RawObject, ...]:
    """Return what such a cluster serves; read once, as tests ask for it a thousand times."""
    own_definitions = [module.definition() for module in (machinemaintenance, maintenancenotice)]
    return *custom_resource_definitions(), *own_definitions


@asynccontextmanager
async def machine_api(
    cluster: LiveCluster, *, seed: int = 1, delays: MachineApiDelays | None = None
) -> AsyncIterator[None]:
    """Run the Machine API until the context ends."""
    if isinstance(cluster.clock, RealClock):
        delays = _NO_DELAYS
    async with asyncio.TaskGroup() as group:
        client = cluster.cluster.client("machine-api") if isinstance(cluster, SandboxCluster) else cluster.admin
        api = MachineApi(client, SimulatedInstances(cluster.kubelets), random=Random(seed), delays=delays)
        task = group.create_task(api.run())
        try:
            yield
        finally:
            if not isinstance(cluster, SandboxCluster):
                await _delete_all(cluster)
            task.cancel()


async def _delete_all(cluster: LiveCluster) -> None:
    """Delete all Machines and their finalizers, which no controller would remove later."""
    for plural in ("machinesets", "controlplanemachinesets", "machines"):
        for name, obj in list(cluster.by_key(plural).items()):
            with suppress(NotFound):
                if plural == "machines":
                    await cluster.patch(plural, name, spec={"lifecycleHooks": {"preDrain": None}})
                if "deletionTimestamp" not in obj["metadata"]:
                    await cluster.delete(plural, name)
    await cluster.eventually(lambda: machines(cluster), becomes=[])


async def create_machine_set(cluster: LiveCluster, name: str, *, replicas: int) -> list[str]:
    """Create a MachineSet; return its Machines when all of them are nodes."""
    await cluster.create(a_machine_set(name, replicas=replicas))
    await cluster.eventually(lambda: len(ready_machines(cluster, name)), becomes=replicas, within=TIMEOUT)
    return ready_machines(cluster, name)


async def create_control_plane(cluster: LiveCluster) -> list[str]:
    """Create the ControlPlaneMachineSet; return its Machines when all of them are nodes."""
    await cluster.create(a_control_plane_machine_set())
    await cluster.eventually(lambda: len(ready_machines(cluster, "cluster")), becomes=3, within=TIMEOUT)
    return ready_machines(cluster, "cluster")


def machine(cluster: LiveCluster, name: str) -> RawObject:
    """Return a Machine."""
    return cluster.get("machines", f"{MACHINE_NAMESPACE}/{name}")


def machines(cluster: LiveCluster, owner: str = "") -> list[str]:
    """Return all Machines, terminating ones included."""
    found = cluster.by_key("machines").values()
    return sorted(
        machine_object["metadata"]["name"] for machine_object in found if not owner or _is_owned(machine_object, owner)
    )


def terminating_machines(cluster: LiveCluster, owner: str = "") -> list[str]:
    """Return the terminating Machines."""
    return [
        candidate
        for candidate in machines(cluster, owner)
        if "deletionTimestamp" in machine(cluster, candidate)["metadata"]
    ]


def ready_machines(cluster: LiveCluster, owner: str = "") -> list[str]:
    """Return the Machines whose nodes are ready and that are not terminating."""
    return [
        machine
        for machine in machines(cluster, owner)
        if machine not in terminating_machines(cluster, owner) and _is_ready(cluster, machine)
    ]


def claimed_machine(cluster: LiveCluster, owner: str) -> str:
    """Return the Machine of a set that is recorded as being replaced."""
    found = cluster.get("machinesets", f"{MACHINE_NAMESPACE}/{owner}")
    return str(found["metadata"].get("annotations", {}).get(CLAIM_ANNOTATION, ""))


def node_of(cluster: LiveCluster, name: str) -> str:
    """Return the name of the node of a Machine, empty while there is none."""
    return str(machine(cluster, name).get("status", {}).get("nodeRef", {}).get("name", ""))


def instance_of(cluster: LiveCluster, name: str) -> str:
    """Return the instance of a Machine."""
    return machine_key(machine(cluster, name)["spec"]["providerID"])


def _is_owned(found: RawObject, owner: str) -> bool:
    return any(candidate["name"] == owner for candidate in found["metadata"].get("ownerReferences", ()))


def _is_ready(cluster: LiveCluster, name: str) -> bool:
    node = node_of(cluster, name)
    return cluster.has("nodes", node) and condition_status(cluster.get("nodes", node), "Ready")[0] == "True"


class SimulatedInstances:
    """Instances without a cloud model; their names derive from the Machine."""

    def __init__(self, kubelets: Kubelets) -> None:
        self._kubelets = kubelets

    def launch(self, machine: Machine) -> str:
        return f"aws:///{machine.spec.zone}/i-0{_digest(machine.uid)[:16]}"

    def boot(self, machine: Machine) -> None:
        name = _node_name(machine)
        if name not in self._kubelets.names:
            provider_id = machine.spec.provider_id or ""
            host = Host(name=name, zone=machine.spec.zone, provider_id=provider_id, labels=machine.role_labels)
            self._kubelets.add(host)

    async def terminate(self, machine: Machine) -> None:
        for name in dict.fromkeys((machine.node, _node_name(machine))):
            if name in self._kubelets.names:
                await self._kubelets.remove(name)


def _node_name(machine: Machine) -> str:
    return f"ip-{_digest(machine.uid)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
