"""What a vCenter knows, what happens in it, and the calls that it answers.

Putting a host into maintenance is a task that runs for as long as machines run on the host. A guest that is asked to
shut down takes its time. Both go by the injected clock.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout_sandbox.clouds.faults import Faults

ON, OFF, SUSPENDED = "poweredOn", "poweredOff", "suspended"
ENTER, LEAVE = "EnterMaintenanceMode_Task", "ExitMaintenanceMode_Task"
POWER_ON, POWER_OFF = "PowerOnVM_Task", "PowerOffVM_Task"
_SERVER_ERROR = 500  # the HTTP status of faults
_KEEPS_TASKS = 20

Outcome = Literal["queued", "running", "success", "error"]


@dataclass(slots=True)
class Task:
    """Something that takes its time."""

    called: str
    name: str
    entity: str
    state: Outcome = "running"
    fault: str = ""


@dataclass(slots=True)
class Machine:
    """A virtual machine."""

    called: str
    name: str
    host: str  # how the host is called
    power: str = ON
    has_tools: bool = True
    is_stubborn: bool = False  # its guest does not care
    goes_off: int = 0  # counts, so that only the last request to the guest counts


@dataclass(slots=True)
class Host:
    """An ESX host."""

    called: str
    name: str
    version: str = "8.0.3"
    in_maintenance: bool = False
    is_connected: bool = True  # else nobody knows of its version
    alarms: list[str] = field(default_factory=list)  # names of alarms
    tasks: list[str] = field(default_factory=list)


class VsphereCloud:
    """One vCenter. `powered` hears of machines that go off or on."""

    def __init__(
        self,
        clock: Clock,
        *,
        users: dict[str, str] | None = None,
        guests_take: timedelta = timedelta(seconds=15),
        tasks_take: timedelta = timedelta(seconds=1),
        powered: Callable[[str, bool], object] = lambda _name, _is_on: None,
    ) -> None:
        self.clock = clock
        self.faults = Faults(clock)
        self.users = {"maintenance": "secret"} if users is None else users
        self.guests_take, self.tasks_take = guests_take, tasks_take
        self.powered = powered
        self.hosts: dict[str, Host] = {}  # by how they are called
        self.machines: dict[str, Machine] = {}
        self.tasks: dict[str, Task] = {}
        self.alarms: dict[str, str] = {}  # how definitions of alarms are called, by name
        self.sessions: set[str] = set()
        self._numbers: Iterator[int] = itertools.count(1)

    # What happens

    def add_host(self, name: str, *, version: str = "8.0.3") -> Host:
        """Add a host; names need not be unique."""
        host = Host(f"host-{next(self._numbers)}", name, version)
        self.hosts[host.called] = host
        return host

    def add_machine(self, name: str, *, on: str) -> Machine:
        """Add a machine that runs."""
        machine = Machine(f"vm-{next(self._numbers)}", name, self.host(on).called)
        self.machines[machine.called] = machine
        return machine

    def remove_machine(self, name: str) -> None:
        """Have a machine be no more."""
        self.machines.pop(self.machine(name).called)

    def host(self, name: str) -> Host:
        """Return a host by its name."""
        return next(it for it in self.hosts.values() if it.name == name)

    def machine(self, name: str) -> Machine:
        """Return a machine by its name."""
        return next(it for it in self.machines.values() if it.name == name)

    def enter_maintenance(self, name: str) -> Task:
        """Put a host into maintenance, as soon as nothing runs on it."""
        host = self.host(name)
        task = self._begin(ENTER, host.called)
        self._settle(host)
        return task

    def leave_maintenance(self, name: str) -> Task:
        """Take a host out of maintenance, or call that off which would put it there."""
        host = self.host(name)
        for task in self._entering(host):
            task.state, task.fault = "error", "RequestCanceled"
        host.in_maintenance = False
        task = self._begin(LEAVE, host.called)
        task.state = "success"
        return task

    def raise_alarm(self, name: str, alarm: str) -> None:
        """Have an alarm be triggered on a host."""
        self.alarms.setdefault(alarm, f"alarm-{next(self._numbers)}")
        self.host(name).alarms.append(alarm)

    def clear_alarm(self, name: str, alarm: str) -> None:
        """Have it be over."""
        self.host(name).alarms.remove(alarm)

    def turn(self, name: str, power: str) -> None:
        """Have somebody turn a machine on or off."""
        self._set_power(self.machine(name), power)

    # What it answers

    async def log_in(self, username: str, password: str) -> str:
        """Return a new session."""
        return await self.faults.call("Login", lambda: self._logged_in(username, password))

    def _logged_in(self, username: str, password: str) -> str:
        if not password or self.users.get(username) != password:
            raise refused("InvalidLogin", "Cannot complete login due to an incorrect user name or password.")
        session = f"session-{next(self._numbers)}"
        self.sessions.add(session)
        return session

    async def log_out(self, session: str) -> None:
        """End a session."""
        self.check(session)
        await self.faults.call("Logout", lambda: self.sessions.discard(session))

    def check(self, session: str) -> None:
        """Refuse who is not logged in."""
        if session not in self.sessions:
            raise refused("NotAuthenticated", "The session is not authenticated.")

    async def read(self, session: str) -> None:
        """Let somebody read."""
        self.check(session)
        await self.faults.call("RetrievePropertiesEx", lambda: None)

    async def power_on(self, session: str, machine: str) -> Task:
        """Begin to turn a machine on."""
        self.check(session)
        return await self.faults.call(POWER_ON, lambda: self._power(machine, POWER_ON, ON))

    async def power_off(self, session: str, machine: str) -> Task:
        """Begin to turn a machine off."""
        self.check(session)
        return await self.faults.call(POWER_OFF, lambda: self._power(machine, POWER_OFF, OFF))

    async def shut_down(self, session: str, machine: str) -> None:
        """Ask a guest to shut down."""
        self.check(session)
        await self.faults.call("ShutdownGuest", lambda: self._ask_guest(self._known(machine)))

    def _power(self, called: str, name: str, power: str) -> Task:
        machine = self._known(called)
        task = self._begin(name, called)
        self._later(self.tasks_take, partial(self._finish, task, machine, power))
        return task

    def _finish(self, task: Task, machine: Machine, power: str) -> None:
        if machine.power == power:
            task.state, task.fault = "error", "InvalidPowerState"
            return
        host = self.hosts[machine.host]
        if power == ON and (host.in_maintenance or self._entering(host)):
            task.state, task.fault = "error", "InvalidState"
            return
        self._set_power(machine, power)
        task.state = "success"

    def _ask_guest(self, machine: Machine) -> None:
        if machine.power != ON:
            raise refused("InvalidPowerState", "The attempted operation cannot be performed in the current state.")
        if not machine.has_tools:
            raise refused("ToolsUnavailable", "VMware Tools is not running in this virtual machine.")
        if machine.is_stubborn:
            return
        machine.goes_off += 1
        self._later(self.guests_take, partial(self._end_guest, machine, machine.goes_off))

    def _end_guest(self, machine: Machine, number: int) -> None:
        if machine.power == ON and machine.goes_off == number:
            self._set_power(machine, OFF)

    def _set_power(self, machine: Machine, power: str) -> None:
        before, machine.power = machine.power, power
        machine.goes_off += 1
        if (before == ON) != (power == ON):
            self.powered(machine.name, power == ON)
        self._settle(self.hosts[machine.host])

    def _settle(self, host: Host) -> None:
        """Have a host be in maintenance that is to be, when nothing runs on it."""
        if any(it.host == host.called and it.power == ON for it in self.machines.values()):
            return
        for task in self._entering(host):
            task.state, host.in_maintenance = "success", True

    def is_entering_maintenance(self, called: str) -> bool:
        """Tell whether a task runs that puts a host into maintenance."""
        return bool(self._entering(self.hosts[called]))

    def _entering(self, host: Host) -> list[Task]:
        known = (self.tasks[it] for it in host.tasks if it in self.tasks)
        return [it for it in known if it.name == ENTER and it.state == "running"]

    def _begin(self, name: str, entity: str) -> Task:
        task = Task(f"task-{next(self._numbers)}", name, entity)
        self.tasks[task.called] = task
        if entity in self.hosts:
            self.hosts[entity].tasks = [*self.hosts[entity].tasks, task.called][-_KEEPS_TASKS:]
        return task

    def _known(self, called: str) -> Machine:
        if called not in self.machines:
            raise refused("ManagedObjectNotFound", "The object has already been deleted.")
        return self.machines[called]

    def _later(self, after: timedelta, callback: Callable[[], object]) -> None:
        at: datetime = self.clock.now() + after
        self.clock.call_at(at, callback)


def refused(fault: str, message: str) -> CloudError:
    """Return a fault."""
    return CloudError(message, doing="vCenter", status=_SERVER_ERROR, code=fault)
