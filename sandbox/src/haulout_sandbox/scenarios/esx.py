"""ESX hosts of a scenario: a stand-in of vCenter for each zone, and what happens to hosts.

A machine of a pool with `esxHosts` is a virtual machine on one of the hosts of its zone, in turn. Its node goes down
with it, and boots when it is turned on again.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random

from haulout.core.clock import Clock
from haulout.core.duration import short
from haulout_sandbox.clouds.vsphere import VsphereCloud
from haulout_sandbox.nodes import Kubelets, Machine
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.deeds import Deed, Does, Say, for_

HOST, ZONE = "kubernetes.cloud.sap/host", "failure-domain.beta.kubernetes.io/zone"
ALARM = "Host memory usage"
_BOOTS = timedelta(seconds=30)
_LOOKS_EVERY = timedelta(seconds=2)


class EsxHosts:
    """The hosts of all zones."""

    def __init__(self, clock: Clock, kubelets: Kubelets) -> None:
        self.clouds: dict[str, VsphereCloud] = {}  # by the letter of the zone
        self._clock = clock
        self._kubelets = kubelets
        self._places: dict[tuple[str, str], int] = {}  # by pool and zone: how many machines were placed there

    def place(self, machine: Machine, *, pool: str, hosts: int) -> Machine:
        """Put a machine on a host of its zone; return it with what its node says of that."""
        cloud = self._cloud(machine.zone[-1:])
        number = self._places.get((pool, machine.zone), 0)
        self._places[pool, machine.zone] = number + 1
        host = f"esx-{pool}-{machine.zone[-1:]}{number % hosts + 1}"
        if not any(it.name == host for it in cloud.hosts.values()):
            cloud.add_host(host)
        cloud.add_machine(machine.name, on=host)
        return replace(machine, labels={HOST: host, ZONE: machine.zone, **machine.labels})

    def drop(self, name: str) -> None:
        """Have the machine of a node be no more, if it is one of these."""
        for cloud in self.clouds.values():
            if any(it.name == name for it in cloud.machines.values()):
                cloud.remove_machine(name)

    def of(self, host: str) -> VsphereCloud:
        """Return the vCenter that knows a host; raises `ValueError`."""
        for cloud in self.clouds.values():
            if any(it.name == host for it in cloud.hosts.values()):
                return cloud
        known = sorted(it.name for cloud in self.clouds.values() for it in cloud.hosts.values())
        raise ValueError(f"there is no ESX host {host}; there are {', '.join(known) or 'none'}")

    def _cloud(self, letter: str) -> VsphereCloud:
        if letter not in self.clouds:
            self.clouds[letter] = VsphereCloud(self._clock, powered=self._power)
        return self.clouds[letter]

    def _power(self, name: str, is_on: bool) -> None:  # noqa: FBT001 - it is called with what happened
        if name not in self._kubelets.names:
            return
        if is_on:
            self._kubelets.reboot(name, _BOOTS)
        else:
            self._kubelets.kill(name)


class EsxDeeds:
    """Does what happens to hosts."""

    def __init__(self, clock: Clock, hosts: EsxHosts) -> None:
        self._clock = clock
        self._hosts = hosts
        self.all: Mapping[str, Does] = {"esxMaintenance": self._maintain, "esxAlarm": self._alarm}

    async def _maintain(self, action: model.EsxMaintenance, _: Random) -> Deed:
        host, cloud = action.host, self._hosts.of(action.host)
        cloud.enter_maintenance(host)

        async def course(say: Say) -> None:
            while not cloud.host(host).in_maintenance:
                await self._clock.sleep(_LOOKS_EVERY)
            say(f"nothing runs on {host} any more: it is in maintenance, for {short(action.for_)}")
            await self._clock.sleep(action.for_)
            cloud.leave_maintenance(host)
            say(f"ESX host back: {host}")

        return Deed(f"ESX host enters maintenance: {host}", follows=(course,))

    async def _alarm(self, action: model.EsxAlarm, _: Random) -> Deed:
        host, cloud = action.host, self._hosts.of(action.host)
        cloud.raise_alarm(host, action.alarm)

        async def end() -> str:
            cloud.clear_alarm(host, action.alarm)
            return f"no more alarm on ESX host {host}: {action.alarm}"

        return Deed(f"alarm on ESX host {host}{for_(action.for_)}: {action.alarm}", action.for_, end)
