"""Pools whose nodes are OpenShift Machines: their MachineSets and their cloud instances.

A pool becomes one MachineSet per zone, as OpenShift's installer creates them. A label of a Machine names its pool.
Machines launch instances of the fleet, so the cloud knows them and can announce maintenance for them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from random import Random

from haulout.api.objects import RawObject
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes import Machine as Host
from haulout_sandbox.openshift.machine import MachineApiDelays
from haulout_sandbox.openshift.machineset import MachineApi
from haulout_sandbox.openshift.objects import (
    Machine,
    MachineTemplateOptions,
    a_control_plane_machine_set,
    a_machine_set,
    an_infrastructure,
    custom_resource_definitions,
)
from haulout_sandbox.scenarios import expansion
from haulout_sandbox.scenarios.fleet import Fleet
from haulout_sandbox.scenarios.model import Pool, Scenario

MACHINE_API_CLIENT = "machine-api"
CLUSTER_NAME = "sandbox"  # as if the installer had named it
# Faster than real clouds, so that users see the new node soon.
_DELAYS = MachineApiDelays(
    instance=timedelta(seconds=15), node_join=timedelta(seconds=60), termination=timedelta(seconds=20)
)


def openshift_objects(scenario: Scenario) -> list[RawObject]:
    """Return the objects that make a cluster an OpenShift cluster, if the scenario has such pools."""
    if not scenario.has_machines:
        return []
    machine_sets = [
        machine_set
        for pool, machines_before in zip(scenario.pools, expansion.machines_before(scenario.pools), strict=True)
        for machine_set in _machine_sets(pool, machines_before)
    ]
    region = next((pool.region for pool in scenario.pools if pool.machines), "")
    return [*custom_resource_definitions(), an_infrastructure(name=CLUSTER_NAME, region=region), *machine_sets]


def new_machine_api(cluster: Cluster, fleet: Fleet) -> MachineApi:
    """Return the Machine API of a cluster, which must serve the result of `openshift_objects`."""
    instances = FleetInstanceProvider(cluster, fleet)
    return MachineApi(
        cluster.client(MACHINE_API_CLIENT),
        instances,
        random=Random(f"{cluster.seed} {MACHINE_API_CLIENT}"),
        delays=_DELAYS,
    )


class FleetInstanceProvider:
    """Launches the instances of Machines in the fleet of a scenario."""

    def __init__(self, cluster: Cluster, fleet: Fleet) -> None:
        self._kubelets = cluster.kubelets
        self._fleet = fleet
        self._pools = [pool.name for pool in fleet.openshift_pools]
        self._hosts: dict[str, Host] = {}  # by the uid of the Machine

    def launch(self, machine: Machine) -> str:
        if machine.uid not in self._hosts:
            pool = machine.labels.get(expansion.POOL_LABEL, "")
            pool = pool if pool in self._pools else self._pools[0]  # for a MachineSet that a user created
            self._hosts[machine.uid] = self._fleet.launch_machine(pool, zone=machine.spec.zone)
        return self._hosts[machine.uid].provider_id

    def boot(self, machine: Machine) -> None:
        host = self._hosts[machine.uid]
        if host.name not in self._kubelets.names:
            self._kubelets.add(replace(host, labels={**machine.role_labels, **host.labels}))

    async def terminate(self, machine: Machine) -> None:
        host = self._hosts.pop(machine.uid, None)
        if host is None:
            return
        if host.name in self._kubelets.names:
            await self._fleet.remove_machine(host.name)
        self._fleet.terminate_instance(host.name)


def _machine_sets(pool: Pool, machines_before: int) -> Iterable[RawObject]:
    if pool.machines is None:
        return
    count_by_zone = Counter(
        expansion.new_machine(pool, number, machines_before=machines_before).zone for number in range(1, pool.count + 1)
    )
    for zone in pool.zones:
        options = MachineTemplateOptions(
            zone=zone, region=pool.region, instance_type=pool.instance_type, labels={expansion.POOL_LABEL: pool.name}
        )
        if expansion.is_control_plane(pool):
            yield a_control_plane_machine_set(replicas=count_by_zone[zone], options=options, cluster=CLUSTER_NAME)
            continue
        name = pool.name if len(pool.zones) == 1 else f"{pool.name}-{zone}"
        yield a_machine_set(name, replicas=count_by_zone[zone], options=options, cluster=CLUSTER_NAME)
