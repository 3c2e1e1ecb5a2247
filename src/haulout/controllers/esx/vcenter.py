"""What is asked of a vCenter, and what it answers. Each call may raise `CloudError`; its `code` names the fault.

Host and machine names need not be unique in a vCenter: all that there are come back, and who asks decides.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from haulout.controllers.esx.settings import VCenterAccess

TOOLS_UNAVAILABLE = "ToolsUnavailable"  # the guest cannot be asked
INVALID_POWER_STATE = "InvalidPowerState"  # the machine is on, or off, already
INVALID_LOGIN = "InvalidLogin"


class PowerState(StrEnum):
    """Whether a machine runs."""

    ON = "poweredOn"
    OFF = "poweredOff"
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"  # we are not told


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An ESX host."""

    name: str
    version: str = ""
    alarms: frozenset[str] = frozenset()  # names of those that are triggered
    in_maintenance: bool = False
    is_entering_maintenance: bool = False  # a task that puts it into maintenance runs
    problem: str = ""  # why it cannot be told how it stands with it


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """A virtual machine."""

    moref: str  # how the vCenter names it
    name: str
    power: PowerState


class VCenter(Protocol):
    """A session with a vCenter."""

    async def hosts(self, *, with_alarms: bool) -> Sequence[Host]:
        """Return all hosts."""
        ...

    async def machines(self, names: Collection[str]) -> Sequence[VirtualMachine]:
        """Return the machines of these names."""
        ...

    async def power_on(self, machine: VirtualMachine) -> None:
        """Turn a machine on; return when it is."""
        ...

    async def power_off(self, machine: VirtualMachine) -> None:
        """Turn a machine off, whatever runs on it; return when it is."""
        ...

    async def shut_down(self, machine: VirtualMachine) -> None:
        """Ask what runs on a machine to end, and the machine to turn itself off; return at once."""
        ...

    async def close(self) -> None:
        """Log out."""
        ...


VCenterLogin = Callable[[VCenterAccess], Awaitable[VCenter]]
"""Logs in; whatever goes wrong is a `CloudError` without any password."""
