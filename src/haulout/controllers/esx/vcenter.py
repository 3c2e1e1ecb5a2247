"""The interface to a vCenter, and its values. Each call may raise `CloudError`; its `code` is the name of the fault.

Names of hosts and machines need not be unique in a vCenter: all matches are returned, and the caller decides.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from haulout.controllers.esx.settings import VCenterAccess

TOOLS_UNAVAILABLE = "ToolsUnavailable"  # the guest cannot be asked to shut down
INVALID_POWER_STATE = "InvalidPowerState"  # the machine is on, or off, already
INVALID_LOGIN = "InvalidLogin"


class PowerState(StrEnum):
    """The power state of a virtual machine."""

    ON = "poweredOn"
    OFF = "poweredOff"
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"  # the vCenter does not report it


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An ESX host."""

    name: str
    version: str = ""
    alarms: frozenset[str] = frozenset()  # names of triggered alarms
    in_maintenance: bool = False
    is_entering_maintenance: bool = False  # a task that enters maintenance mode is running
    problem: str = ""  # why the state of the host is unknown


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """A virtual machine."""

    moref: str  # its managed object reference in the vCenter
    name: str
    power: PowerState


class VCenter(Protocol):
    """A session with a vCenter."""

    async def hosts(self, *, with_alarms: bool) -> Sequence[Host]: ...

    async def machines(self, names: Collection[str]) -> Sequence[VirtualMachine]:
        """Return the machines with these names; a name may match several."""
        ...

    async def power_on(self, machine: VirtualMachine) -> None:
        """Power a machine on; return when it is done."""
        ...

    async def power_off(self, machine: VirtualMachine) -> None:
        """Power a machine off without shutting the guest down; return when it is done."""
        ...

    async def shut_down(self, machine: VirtualMachine) -> None:
        """Ask the guest to shut down; return at once."""
        ...

    async def close(self) -> None:
        """Log out."""
        ...


VCenterLogin = Callable[[VCenterAccess], Awaitable[VCenter]]
"""Logs in; whatever goes wrong is a `CloudError` without any password."""
