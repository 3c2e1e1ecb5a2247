"""ESX hosts of a scenario: a simulated vCenter per zone, and the actions on hosts.

Machines of a pool with `esxHosts` are virtual machines, distributed over the hosts of their zone. A node goes down with
its virtual machine, and boots when that is powered on again.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random

from haulout.core.clock import Clock
from haulout.core.duration import format_short
from haulout_sandbox.clouds.vsphere import VsphereCloud
from haulout_sandbox.nodes import Kubelets, Machine
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.actions.action_result import ActionHandler, ActionResult, OnEvent, format_for

HOST_LABEL, ZONE_LABEL = "kubernetes.cloud.sap/host", "failure-domain.beta.kubernetes.io/zone"
ALARM_NAME = "Host memory usage"
_BOOT_DURATION = timedelta(seconds=30)
_POLL_INTERVAL = timedelta(seconds=2)


class EsxHosts:
    def __init__(self, clock: Clock, kubelets: Kubelets) -> None:
        self.vcenters: dict[str, VsphereCloud] = {}  # by the letter of the zone
        self._clock = clock
        self._kubelets = kubelets
        self._machine_counts: dict[tuple[str, str], int] = {}  # by pool and zone: how many machines were placed there

    def place_machine(self, machine: Machine, *, pool: str, hosts: int) -> Machine:
        """Place a machine on a host of its zone; return it with the host's data for its node."""
        cloud = self._vcenter(machine.zone[-1:])
        number = self._machine_counts.get((pool, machine.zone), 0)
        self._machine_counts[pool, machine.zone] = number + 1
        host = f"esx-{pool}-{machine.zone[-1:]}{number % hosts + 1}"
        if not any(known_host.name == host for known_host in cloud.hosts.values()):
            cloud.add_host(host)
        cloud.add_machine(machine.name, on=host)
        return replace(machine, labels={HOST_LABEL: host, ZONE_LABEL: machine.zone, **machine.labels})

    def remove_machine(self, name: str) -> None:
        """Remove the virtual machine of a node, if there is one."""
        for cloud in self.vcenters.values():
            if any(machine.name == name for machine in cloud.machines.values()):
                cloud.remove_machine(name)

    def vcenter_of(self, host: str) -> VsphereCloud:
        """Return the vCenter of a host; raise `ValueError`."""
        for cloud in self.vcenters.values():
            if any(known_host.name == host for known_host in cloud.hosts.values()):
                return cloud
        host_names = sorted(known_host.name for cloud in self.vcenters.values() for known_host in cloud.hosts.values())
        raise ValueError(f"there is no ESX host {host}; there are {', '.join(host_names) or 'none'}")

    def _vcenter(self, letter: str) -> VsphereCloud:
        if letter not in self.vcenters:
            self.vcenters[letter] = VsphereCloud(self._clock, on_power_change=self._on_power_change)
        return self.vcenters[letter]

    def _on_power_change(self, name: str, is_on: bool) -> None:  # noqa: FBT001 - it is called with what happened
        if name not in self._kubelets.names:
            return
        if is_on:
            self._kubelets.reboot(name, _BOOT_DURATION)
        else:
            self._kubelets.kill(name)


class EsxActions:
    def __init__(self, clock: Clock, hosts: EsxHosts) -> None:
        self._clock = clock
        self._hosts = hosts
        self.handlers: Mapping[str, ActionHandler] = {
            "esxMaintenance": self._enter_maintenance,
            "esxAlarm": self._raise_alarm,
        }

    async def _enter_maintenance(self, action: model.EsxMaintenance, _: Random) -> ActionResult:
        host, cloud = action.host, self._hosts.vcenter_of(action.host)
        cloud.enter_maintenance(host)

        async def finish_maintenance(on_event: OnEvent) -> None:
            while not cloud.host_by_name(host).in_maintenance:
                await self._clock.sleep(_POLL_INTERVAL)
            on_event(f"nothing runs on {host} any more: it is in maintenance, for {format_short(action.for_)}")
            await self._clock.sleep(action.for_)
            cloud.exit_maintenance(host)
            on_event(f"ESX host back: {host}")

        return ActionResult(f"ESX host enters maintenance: {host}", follow_ups=(finish_maintenance,))

    async def _raise_alarm(self, action: model.EsxAlarm, _: Random) -> ActionResult:
        host, cloud = action.host, self._hosts.vcenter_of(action.host)
        cloud.raise_alarm(host, action.alarm)

        async def clear_alarm() -> str:
            cloud.clear_alarm(host, action.alarm)
            return f"no more alarm on ESX host {host}: {action.alarm}"

        return ActionResult(
            f"alarm on ESX host {host}{format_for(action.for_)}: {action.alarm}", action.for_, clear_alarm
        )
