"""The machines themselves: what is on them, and their power, as a BMC sees it.

What runs on a host that goes off is lost, and its Node falls silent; when it is on again it boots.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout_sandbox.nodes import Kubelets


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """How long things take."""

    inspection: timedelta = timedelta(minutes=2)
    provisioning: timedelta = timedelta(minutes=4)
    deprovisioning: timedelta = timedelta(minutes=1)
    shutdown: timedelta = timedelta(seconds=40)  # of a host that is asked to
    switch: timedelta = timedelta(seconds=5)  # of one that is not, and of one that goes on
    boot: timedelta = timedelta(seconds=90)  # from its power to its node


QUICK = Paces(
    inspection=timedelta(seconds=2),
    provisioning=timedelta(seconds=5),
    deprovisioning=timedelta(seconds=3),
    shutdown=timedelta(seconds=10),
    switch=timedelta(seconds=2),
    boot=timedelta(seconds=20),
)


@dataclass(slots=True)
class _Unit:
    """A host, as its BMC knows it."""

    is_on: bool = False
    turns_at: datetime | None = None  # while it goes on or off
    goes_on: bool = False
    node: tuple[Kubelets, str] | None = None  # what is on it


class Rack:
    """All hosts, by `namespace/name`."""

    def __init__(self, clock: Clock, *, paces: Paces | None = None) -> None:
        self._clock = clock
        self.paces = paces or Paces()
        self._units: dict[str, _Unit] = {}

    def is_on(self, host: str) -> bool:
        """Tell whether a host has power."""
        return self._unit(host).is_on

    def turn(self, host: str, *, on: bool, hard: bool = False) -> datetime | None:
        """Turn a host on or off; return when that is so, None if it is."""
        unit, now = self._unit(host), self._clock.now()
        if unit.is_on == on:
            unit.turns_at = None
            return None
        takes = self.paces.switch if on or hard else self.paces.shutdown
        if unit.turns_at is None or unit.goes_on != on or (hard and unit.turns_at > now + takes):
            unit.turns_at, unit.goes_on = now + takes, on
        if now < unit.turns_at:
            return unit.turns_at
        unit.is_on, unit.turns_at = on, None
        self._follow(unit)
        return None

    def install(self, host: str, kubelets: Kubelets, node: str) -> None:
        """Have a node on a host, which lives as its power does."""
        unit = self._unit(host)
        if unit.node is None:
            unit.node = kubelets, node
            if not unit.is_on:
                self._follow(unit)

    def wipe(self, host: str) -> None:
        """Have nothing on a host any more."""
        unit = self._unit(host)
        if unit.node is not None:
            kubelets, node = unit.node
            if node in kubelets.names:
                kubelets.discard(node)
            unit.node = None

    def _unit(self, host: str) -> _Unit:
        return self._units.setdefault(host, _Unit())

    def _follow(self, unit: _Unit) -> None:
        if unit.node is None:
            return
        kubelets, node = unit.node
        if unit.is_on:
            kubelets.reboot(node, self.paces.boot)
        else:
            kubelets.kill(node)
