"""Pools whose nodes are Machines of OpenShift: the sets that make them, and the instances that they run on.

A pool comes to a MachineSet in each of its zones, as OpenShift's installer does it. Its Machines find their pool again
by a label, and launch instances of the fleet: so the cloud knows them, and can announce something for them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from random import Random

from haulout.kube.objects import RawObject
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes import Machine as Host
from haulout_sandbox.openshift import (
    MachineApi,
    Order,
    Paces,
    a_control_plane_set,
    a_machine_set,
    an_infrastructure,
    definitions,
)
from haulout_sandbox.openshift.objects import Machine
from haulout_sandbox.scenarios import plan
from haulout_sandbox.scenarios.fleet import Fleet
from haulout_sandbox.scenarios.model import Pool, Scenario

CLIENT = "machine-api"
CLUSTER = "sandbox"  # what the installer would have called it
# Quicker than life, so that people who watch see the new node come.
_PACES = Paces(instance=timedelta(seconds=15), node=timedelta(seconds=60), termination=timedelta(seconds=20))


def objects(scenario: Scenario) -> list[RawObject]:
    """Return what makes a cluster one of OpenShift, if its scenario has such pools."""
    if not scenario.has_machines:
        return []
    sets = [
        made
        for pool, before in zip(scenario.pools, plan.counts_before(scenario.pools), strict=True)
        for made in _sets(pool, before)
    ]
    region = next((pool.region for pool in scenario.pools if pool.machines), "")
    return [*definitions(), an_infrastructure(name=CLUSTER, region=region), *sets]


def machine_api(cluster: Cluster, fleet: Fleet) -> MachineApi:
    """Return the Machine API of a cluster; what `objects` returns must be served."""
    instances = FleetInstances(cluster, fleet)
    return MachineApi(cluster.client(CLIENT), instances, random=Random(f"{cluster.seed} {CLIENT}"), paces=_PACES)


class FleetInstances:
    """Instances of Machines in the fleet of a scenario."""

    def __init__(self, cluster: Cluster, fleet: Fleet) -> None:
        self._kubelets = cluster.kubelets
        self._fleet = fleet
        self._pools = [pool.name for pool in fleet.of_machines]
        self._hosts: dict[str, Host] = {}  # by the uid of the Machine

    def launch(self, machine: Machine) -> str:
        """Return the providerID of a Machine's instance."""
        if machine.uid not in self._hosts:
            pool = machine.labels.get(plan.POOL, "")
            pool = pool if pool in self._pools else self._pools[0]  # a set that somebody made by hand
            self._hosts[machine.uid] = self._fleet.launch(pool, zone=machine.spec.zone)
        return self._hosts[machine.uid].provider_id

    def boot(self, machine: Machine) -> None:
        """Have the instance become a node."""
        host = self._hosts[machine.uid]
        if host.name not in self._kubelets.names:
            self._kubelets.add(replace(host, labels={**machine.roles, **host.labels}))

    async def terminate(self, machine: Machine) -> None:
        """End the instance and its node."""
        host = self._hosts.pop(machine.uid, None)
        if host is None:
            return
        if host.name in self._kubelets.names:
            await self._fleet.remove(host.name)
        self._fleet.terminate(host.name)


def _sets(pool: Pool, before: int) -> Iterable[RawObject]:
    if pool.machines is None:
        return
    dealt = Counter(plan.machine(pool, number, before=before).zone for number in range(1, pool.count + 1))
    for zone in pool.zones:
        order = Order(zone=zone, region=pool.region, instance_type=pool.instance_type, labels={plan.POOL: pool.name})
        if plan.is_control_plane(pool):
            yield a_control_plane_set(replicas=dealt[zone], order=order, cluster=CLUSTER)
            continue
        name = pool.name if len(pool.zones) == 1 else f"{pool.name}-{zone}"
        yield a_machine_set(name, replicas=dealt[zone], order=order, cluster=CLUSTER)
