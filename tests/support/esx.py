"""Nodes on ESX hosts: two vCenters, hosts in them, and the integration as a process.

async with a_site(clock) as site:
    site.cluster.run(site.operate)
    site.vcenter("a").enter_maintenance("esx-a1")
    await site.approve("n1")
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from haulout.app.sandbox.vcenters import vcenters
from haulout.core.clock import Clock, RealClock
from haulout.drain.cordon import BACKUP, MARK
from haulout.esx.controller import Controller
from haulout.esx.keys import APPROVED, ASKED, HOST, INITIATED, STATE, VERSION, ZONE
from haulout.esx.settings import Credentials, Settings, VCenters
from haulout.esx.vcenter import Connect
from haulout.history.keeper import Keeper
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import RawObject
from haulout.kube.resources import NODES
from haulout_sandbox.clouds.vsphere import VsphereCloud
from haulout_sandbox.clouds.vsphere.cloud import ON
from haulout_sandbox.nodes import Delays, Kubelets, Machine
from support.clusters import ClusterPlan, a_cluster
from support.live import LiveCluster, SandboxCluster

PASSWORD = "tidal-secret"
BOOT = timedelta(seconds=10)
PATIENCE = timedelta(minutes=30)
SETTINGS = Settings(
    vcenters=VCenters(
        template_url="https://vcenter-$AZ.example.com",
        credentials={zone: Credentials("maintenance", PASSWORD) for zone in "ab"},
    ),
    period=timedelta(minutes=1),
    jitter=0.1,
    alarms=frozenset({"Host memory"}),
    looks_every=timedelta(seconds=10),
    shuts_down_within=timedelta(minutes=3),
)
HOSTS = {"n1": "esx-a1", "n2": "esx-a1", "n3": "esx-a2", "n4": "esx-b1"}


def zone_of(host: str) -> str:
    """Return the letter of a host's zone, which is in its name."""
    return host.split("-")[1][0]


def a_vcenter(clock: Clock, zone: str, hosts: Mapping[str, str], **more: Any) -> VsphereCloud:
    """Return a vCenter with the hosts of a zone, and a machine for each node on them."""
    cloud = VsphereCloud(clock, users={"maintenance": PASSWORD}, **more)
    for host in sorted({it for it in hosts.values() if zone_of(it) == zone}):
        cloud.add_host(host, version="8.0.2")
    for node, host in hosts.items():
        if zone_of(host) == zone:
            cloud.add_machine(node, on=host)
    return cloud


def powering(kubelets: Kubelets, cloud: VsphereCloud, *, boot: timedelta = BOOT) -> None:
    """Have nodes go down with their machines, and come back with them."""

    def powered(name: str, is_on: bool) -> None:  # noqa: FBT001 - it is called with what happened
        if is_on:
            kubelets.reboot(name, boot)
        else:
            kubelets.kill(name)

    cloud.powered = powered


def with_nodes(plan: ClusterPlan, hosts: Mapping[str, str] | None = None) -> ClusterPlan:
    """Return a plan with nodes on hosts."""
    made = tuple(
        Machine(name=node, zone="z1", labels={HOST: host, ZONE: f"region-1{zone_of(host)}"})
        for node, host in (hosts or HOSTS).items()
    )
    return replace(plan, machines=(*plan.machines, *made)).with_delays(Delays.none())


@dataclass(slots=True)
class Site:
    """A cluster on ESX hosts."""

    cluster: LiveCluster
    clouds: dict[str, VsphereCloud]
    settings: Settings = SETTINGS
    connect: Connect | None = None
    own_node: str = ""
    remembers: bool = False  # it keeps the history of nodes
    controllers: list[Controller] = field(default_factory=list)

    def vcenter(self, zone: str) -> VsphereCloud:
        """Return the vCenter of a zone."""
        return self.clouds[zone]

    @property
    def controller(self) -> Controller:
        """The integration, in its latest life."""
        return self.controllers[-1]

    async def operate(self, client: Client) -> None:
        """Be the integration."""
        events = EventRecorder(client, instance="test", controller="ESX")
        nodes = Cache(client, Selection(NODES), row=as_is)
        history = Keeper(client) if self.remembers else None
        controller = Controller(
            client,
            connect=self.connect or self.standing_in(),
            read=lambda: self.settings,
            events=events,
            nodes=nodes,
            own_node=self.own_node,
            namespace="default",
            history=history,
        )
        self.controllers.append(controller)
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(it.run()) for it in (events, nodes, *(() if history is None else (history,)))]
            try:
                await controller.run()
            finally:
                for task in beside:
                    task.cancel()

    def standing_in(self) -> Connect:
        """Return the way to the vCenters in this process."""
        return vcenters({f"https://vcenter-{zone}.example.com/sdk": it for zone, it in self.clouds.items()})

    # Nodes

    def node(self, name: str) -> RawObject:
        """Return a node."""
        return self.cluster.get("nodes", name)

    def label(self, name: str, key: str = STATE) -> str | None:
        """Return a label of a node."""
        found: str | None = self.node(name)["metadata"].get("labels", {}).get(key)
        return found

    def annotation(self, name: str, key: str = INITIATED) -> str | None:
        """Return an annotation of a node."""
        found: str | None = self.node(name)["metadata"].get("annotations", {}).get(key)
        return found

    def is_cordoned(self, name: str) -> bool:
        """Tell whether a node takes no pods."""
        return bool(self.node(name)["spec"].get("unschedulable"))

    def power(self, name: str) -> str:
        """Return whether the machine of a node is on."""
        return next(it.power for cloud in self.clouds.values() for it in cloud.machines.values() if it.name == name)

    def is_off(self, name: str) -> bool:
        """Tell whether it is not."""
        return self.power(name) != ON

    async def approve(self, *names: str, value: str | None = "true") -> None:
        """Have somebody approve that nodes are shut down, or take that back."""
        for name in names:
            await self.cluster.change("nodes", name, metadata={"labels": {APPROVED: value}})

    async def is_down(self, *names: str) -> None:
        """Wait until the machines of nodes are off, and that is noted."""
        for name in names:
            await self.cluster.eventually(partial(self.is_off, name), within=PATIENCE)
            await self.cluster.eventually(partial(self.annotation, name, ASKED), becomes=None, within=PATIENCE)

    async def is_back(self, *names: str) -> None:
        """Wait until nodes are as before."""
        for name in names:
            await self.cluster.eventually(partial(self.is_given_back, name), within=PATIENCE)

    def is_given_back(self, name: str) -> bool:
        """Tell whether a node has nothing of ours any more, and its machine is on."""
        marks = [self.annotation(name, it) for it in (INITIATED, ASKED, MARK, BACKUP)]
        return self.power(name) == ON and not any(marks) and not self.is_cordoned(name)

    async def labelled(self, **states: str) -> None:
        """Wait until nodes say that of their hosts."""
        for name, state in states.items():
            await self.cluster.eventually(partial(self.label, name), becomes=state)
            assert self.label(name, VERSION) == "8.0.2"


@asynccontextmanager
async def a_site(
    clock: Clock, *, plan: ClusterPlan | None = None, hosts: Mapping[str, str] | None = None, **more: Any
) -> AsyncIterator[Site]:
    """Have such a cluster on the sandbox."""
    async with with_nodes(plan or a_cluster(clock), hosts).on_the_sandbox() as cluster:
        yield site_of(cluster, hosts, **more)


def site_of(cluster: LiveCluster, hosts: Mapping[str, str] | None = None, **more: Any) -> Site:
    """Return a site in a cluster that has these nodes."""
    hosts = hosts or HOSTS
    zones = sorted({zone_of(it) for it in hosts.values()})
    clock = cluster.cluster.clock if isinstance(cluster, SandboxCluster) else cluster.clock
    clouds = {zone: a_vcenter(clock, zone, hosts, **more) for zone in zones}
    for cloud in clouds.values():
        powering(cluster.kubelets, cloud, boot=timedelta(seconds=1) if isinstance(clock, RealClock) else BOOT)
    return Site(cluster, clouds)
