"""The machines of hosts: their nodes, and their power as a BMC sees it.

When a host is powered off, its containers are lost and its Node becomes silent; when it is powered on, it boots.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout_sandbox.nodes import Kubelets


@dataclass(frozen=True, slots=True, kw_only=True)
class Metal3Delays:
    inspection: timedelta = timedelta(minutes=2)
    provisioning: timedelta = timedelta(minutes=4)
    deprovisioning: timedelta = timedelta(minutes=1)
    shutdown: timedelta = timedelta(seconds=40)  # a soft power off
    power_switch: timedelta = timedelta(seconds=5)  # a hard power off, and a power on
    boot: timedelta = timedelta(seconds=90)  # from power on to a ready node


QUICK_DELAYS = Metal3Delays(
    inspection=timedelta(seconds=2),
    provisioning=timedelta(seconds=5),
    deprovisioning=timedelta(seconds=3),
    shutdown=timedelta(seconds=10),
    power_switch=timedelta(seconds=2),
    boot=timedelta(seconds=20),
)


@dataclass(slots=True)
class _RackHost:
    """A host as its BMC sees it."""

    is_on: bool = False
    switches_at: datetime | None = None  # while power is being switched
    switches_on: bool = False
    node: tuple[Kubelets, str] | None = None  # the node on it


class Rack:
    """All hosts, by `namespace/name`."""

    def __init__(self, clock: Clock, *, delays: Metal3Delays | None = None) -> None:
        self._clock = clock
        self.delays = delays or Metal3Delays()
        self._rack_hosts: dict[str, _RackHost] = {}

    def is_on(self, host: str) -> bool:
        return self._rack_host(host).is_on

    def set_power(self, host: str, *, on: bool, hard: bool = False) -> datetime | None:
        """Switch a host on or off; return when that is complete, or None if it already is."""
        rack_host, now = self._rack_host(host), self._clock.now()
        if rack_host.is_on == on:
            rack_host.switches_at = None
            return None
        duration = self.delays.power_switch if on or hard else self.delays.shutdown
        if (
            rack_host.switches_at is None
            or rack_host.switches_on != on
            or (hard and rack_host.switches_at > now + duration)
        ):
            rack_host.switches_at, rack_host.switches_on = now + duration, on
        if now < rack_host.switches_at:
            return rack_host.switches_at
        rack_host.is_on, rack_host.switches_at = on, None
        self._apply_power(rack_host)
        return None

    def install_node(self, host: str, kubelets: Kubelets, node: str) -> None:
        """Attach a node to a host; its machine follows the host's power."""
        rack_host = self._rack_host(host)
        if rack_host.node is None:
            rack_host.node = kubelets, node
            if not rack_host.is_on:
                self._apply_power(rack_host)

    def remove_node(self, host: str) -> None:
        rack_host = self._rack_host(host)
        if rack_host.node is not None:
            kubelets, node = rack_host.node
            if node in kubelets.names:
                kubelets.remove_without_node(node)
            rack_host.node = None

    def _rack_host(self, host: str) -> _RackHost:
        return self._rack_hosts.setdefault(host, _RackHost())

    def _apply_power(self, rack_host: _RackHost) -> None:
        if rack_host.node is None:
            return
        kubelets, node = rack_host.node
        if rack_host.is_on:
            kubelets.reboot(node, self.delays.boot)
        else:
            kubelets.kill(node)
