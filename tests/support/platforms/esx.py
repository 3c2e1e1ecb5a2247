"""Nodes on ESX hosts: two vCenters with hosts, and the ESX controller as a process.

async with an_esx_cluster(clock) as site:
    site.cluster.run(site.run_controller)
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

from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.app.sandbox.vcenters import connect_to_models
from haulout.controllers.esx.controller import EsxController
from haulout.controllers.esx.labels import APPROVED, HOST, INITIATED, SHUTDOWN_REQUESTED, STATE, VERSION, ZONE
from haulout.controllers.esx.settings import EsxSettings, VCenterCredentials, VCenters
from haulout.controllers.esx.vcenter import VCenterLogin
from haulout.core.clock import Clock, RealClock
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal
from haulout_sandbox.clouds.vsphere import VsphereCloud
from haulout_sandbox.clouds.vsphere.cloud import POWERED_ON
from haulout_sandbox.nodes import Delays, Kubelets, Machine
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import LiveCluster, SandboxCluster
from support.operators.freezes import freeze_source

PASSWORD = "tidal-secret"
BOOT_TIME = timedelta(seconds=10)
TIMEOUT = timedelta(minutes=30)
SETTINGS = EsxSettings(
    vcenters=VCenters(
        template_url="https://vcenter-$AZ.example.com",
        credentials={zone: VCenterCredentials("maintenance", PASSWORD) for zone in "ab"},
    ),
    interval=timedelta(minutes=1),
    jitter=0.1,
    alarms=frozenset({"Host memory"}),
    shutdown_poll_interval=timedelta(seconds=10),
    shutdown_timeout=timedelta(minutes=3),
)
HOSTS = {"n1": "esx-a1", "n2": "esx-a1", "n3": "esx-a2", "n4": "esx-b1"}


def zone_of(host: str) -> str:
    """Return the letter of a host's zone, which is in its name."""
    return host.split("-")[1][0]


def a_vcenter(clock: Clock, zone: str, hosts: Mapping[str, str], **more: Any) -> VsphereCloud:
    """Return a vCenter with the hosts of a zone, and a machine for each node on them."""
    cloud = VsphereCloud(clock, users={"maintenance": PASSWORD}, **more)
    for host in sorted({candidate for candidate in hosts.values() if zone_of(candidate) == zone}):
        cloud.add_host(host, version="8.0.2")
    for node, host in hosts.items():
        if zone_of(host) == zone:
            cloud.add_machine(node, on=host)
    return cloud


def connect_power(kubelets: Kubelets, cloud: VsphereCloud, *, boot: timedelta = BOOT_TIME) -> None:
    """Stop and start the kubelets of nodes together with their machines."""

    def on_power_change(name: str, is_on: bool) -> None:  # noqa: FBT001 - it is called with what happened
        if is_on:
            kubelets.reboot(name, boot)
        else:
            kubelets.kill(name)

    cloud.on_power_change = on_power_change


def with_nodes(plan: ClusterPlan, hosts: Mapping[str, str] | None = None) -> ClusterPlan:
    """Return a plan with nodes on hosts."""
    made = tuple(
        Machine(name=node, zone="z1", labels={HOST: host, ZONE: f"region-1{zone_of(host)}"})
        for node, host in (hosts or HOSTS).items()
    )
    return replace(plan, machines=(*plan.machines, *made)).with_delays(Delays.zero())


@dataclass(slots=True)
class EsxCluster:
    """A cluster on ESX hosts."""

    cluster: LiveCluster
    clouds: dict[str, VsphereCloud]
    settings: EsxSettings = SETTINGS
    connect: VCenterLogin | None = None
    own_node: str = ""
    keeps_history: bool = False  # it keeps the history of nodes
    reads_freezes: bool = False
    controllers: list[EsxController] = field(default_factory=list)

    def vcenter(self, zone: str) -> VsphereCloud:
        """Return the vCenter of a zone."""
        return self.clouds[zone]

    @property
    def controller(self) -> EsxController:
        """The ESX controller of the latest process."""
        return self.controllers[-1]

    async def run_controller(self, client: Client) -> None:
        """Run the ESX controller."""
        async with freeze_source(client, reads_freezes=self.reads_freezes) as freezes:
            await self._run_controller(client, freezes)

    async def _run_controller(self, client: Client, freezes: FreezeSource) -> None:
        events = EventRecorder(client, instance="test", controller="ESX")
        nodes = Informer(client, ListWatch(NODES), transform=as_is)
        history = HistoryWriter(client) if self.keeps_history else None
        controller = EsxController(
            client,
            connect=self.connect or self.connect_in_process(),
            read_settings=lambda: self.settings,
            journal=Journal("ESX", events, history, metrics=client.metrics),
            nodes=nodes,
            handover=Handover(self.own_node),
            namespace="default",
            freezes=freezes,
        )
        self.controllers.append(controller)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(component.run())
                for component in (events, nodes, *(() if history is None else (history,)))
            ]
            try:
                await controller.run()
            finally:
                for task in tasks:
                    task.cancel()

    def connect_in_process(self) -> VCenterLogin:
        """Return a login to the vCenters in this process."""
        return connect_to_models(
            {f"https://vcenter-{zone}.example.com/sdk": cloud for zone, cloud in self.clouds.items()}
        )

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

    def power_state(self, name: str) -> str:
        """Return whether the machine of a node is on."""
        return next(
            machine.power
            for cloud in self.clouds.values()
            for machine in cloud.machines.values()
            if machine.name == name
        )

    def is_off(self, name: str) -> bool:
        """Return whether the machine of a node is off."""
        return self.power_state(name) != POWERED_ON

    async def approve(self, *names: str, value: str | None = "true") -> None:
        """Approve the shutdown of nodes, or withdraw the approval."""
        for name in names:
            await self.cluster.patch("nodes", name, metadata={"labels": {APPROVED: value}})

    async def wait_until_down(self, *names: str) -> None:
        """Wait until the machines of nodes are off, and that is noted."""
        for name in names:
            await self.cluster.eventually(partial(self.is_off, name), within=TIMEOUT)
            await self.cluster.eventually(
                partial(self.annotation, name, SHUTDOWN_REQUESTED), becomes=None, within=TIMEOUT
            )

    async def wait_until_back(self, *names: str) -> None:
        """Wait until nodes are released."""
        for name in names:
            await self.cluster.eventually(partial(self.is_released, name), within=TIMEOUT)

    def is_released(self, name: str) -> bool:
        """Tell whether a node has nothing of ours any more, and its machine is on."""
        marks = [
            self.annotation(name, key)
            for key in (INITIATED, SHUTDOWN_REQUESTED, CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION)
        ]
        return self.power_state(name) == POWERED_ON and not any(marks) and not self.is_cordoned(name)

    async def wait_for_labels(self, **states: str) -> None:
        """Wait until nodes have these labels about their hosts."""
        for name, state in states.items():
            await self.cluster.eventually(partial(self.label, name), becomes=state)
            assert self.label(name, VERSION) == "8.0.2"


@asynccontextmanager
async def an_esx_cluster(
    clock: Clock, *, plan: ClusterPlan | None = None, hosts: Mapping[str, str] | None = None, **more: Any
) -> AsyncIterator[EsxCluster]:
    """Have such a cluster on the sandbox."""
    async with with_nodes(plan or a_cluster(clock), hosts).on_the_sandbox() as cluster:
        yield esx_cluster_of(cluster, hosts, **more)


def esx_cluster_of(cluster: LiveCluster, hosts: Mapping[str, str] | None = None, **more: Any) -> EsxCluster:
    """Return a site in a cluster that has these nodes."""
    hosts = hosts or HOSTS
    zones = sorted({zone_of(host) for host in hosts.values()})
    clock = cluster.cluster.clock if isinstance(cluster, SandboxCluster) else cluster.clock
    clouds = {zone: a_vcenter(clock, zone, hosts, **more) for zone in zones}
    for cloud in clouds.values():
        connect_power(cluster.kubelets, cloud, boot=timedelta(seconds=1) if isinstance(clock, RealClock) else BOOT_TIME)
    return EsxCluster(cluster, clouds)
