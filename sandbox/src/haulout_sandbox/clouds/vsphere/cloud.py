"""The state of a vCenter, simulated events, and its API calls.

Entering maintenance mode is a task that runs as long as machines run on the host. The shutdown of a guest takes time.
Both use the injected clock.
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

POWERED_ON, POWERED_OFF, SUSPENDED = "poweredOn", "poweredOff", "suspended"
ENTER_MAINTENANCE, EXIT_MAINTENANCE = "EnterMaintenanceMode_Task", "ExitMaintenanceMode_Task"
POWER_ON, POWER_OFF = "PowerOnVM_Task", "PowerOffVM_Task"
_SERVER_ERROR = 500  # the HTTP status of faults
_MAX_RECENT_TASKS = 20

TaskState = Literal["queued", "running", "success", "error"]


@dataclass(slots=True)
class Task:
    moref: str
    name: str
    entity: str
    state: TaskState = "running"
    fault: str = ""


@dataclass(slots=True)
class VirtualMachine:
    moref: str
    name: str
    host: str  # the id of the host
    power: str = POWERED_ON
    has_tools: bool = True
    ignores_shutdown: bool = False  # the guest ignores shutdown requests
    power_generation: int = 0  # incremented at each power change, so that only the latest shutdown request counts


@dataclass(slots=True)
class Host:
    moref: str
    name: str
    version: str = "8.0.3"
    in_maintenance: bool = False
    is_connected: bool = True  # if not, its version is unknown
    alarms: list[str] = field(default_factory=list)  # ids of alarms
    tasks: list[str] = field(default_factory=list)


class VsphereCloud:
    """One vCenter. `on_power_change` is called for machines that are powered off or on."""

    def __init__(
        self,
        clock: Clock,
        *,
        users: dict[str, str] | None = None,
        guest_shutdown_delay: timedelta = timedelta(seconds=15),
        task_duration: timedelta = timedelta(seconds=1),
        on_power_change: Callable[[str, bool], object] = lambda _name, _is_on: None,
    ) -> None:
        self.clock = clock
        self.faults = Faults(clock)
        self.users = {"maintenance": "secret"} if users is None else users
        self.guest_shutdown_delay, self.task_duration = guest_shutdown_delay, task_duration
        self.on_power_change = on_power_change
        self.hosts: dict[str, Host] = {}  # by id
        self.machines: dict[str, VirtualMachine] = {}
        self.tasks: dict[str, Task] = {}
        self.alarms: dict[str, str] = {}  # ids of alarm definitions, by name
        self.sessions: set[str] = set()
        self._numbers: Iterator[int] = itertools.count(1)

    # Simulated events

    def add_host(self, name: str, *, version: str = "8.0.3") -> Host:
        """Add a host; names need not be unique."""
        host = Host(f"host-{next(self._numbers)}", name, version)
        self.hosts[host.moref] = host
        return host

    def add_machine(self, name: str, *, on: str) -> VirtualMachine:
        machine = VirtualMachine(f"vm-{next(self._numbers)}", name, self.host_by_name(on).moref)
        self.machines[machine.moref] = machine
        return machine

    def remove_machine(self, name: str) -> None:
        self.machines.pop(self.machine_by_name(name).moref)

    def host_by_name(self, name: str) -> Host:
        return next(candidate for candidate in self.hosts.values() if candidate.name == name)

    def machine_by_name(self, name: str) -> VirtualMachine:
        return next(candidate for candidate in self.machines.values() if candidate.name == name)

    def enter_maintenance(self, name: str) -> Task:
        """Put a host into maintenance mode as soon as no machine runs on it."""
        host = self.host_by_name(name)
        task = self._start_task(ENTER_MAINTENANCE, host.moref)
        self._finish_enter_tasks(host)
        return task

    def exit_maintenance(self, name: str) -> Task:
        """Take a host out of maintenance mode, or cancel the task that would put it there."""
        host = self.host_by_name(name)
        for task in self._enter_tasks(host):
            task.state, task.fault = "error", "RequestCanceled"
        host.in_maintenance = False
        task = self._start_task(EXIT_MAINTENANCE, host.moref)
        task.state = "success"
        return task

    def raise_alarm(self, name: str, alarm: str) -> None:
        self.alarms.setdefault(alarm, f"alarm-{next(self._numbers)}")
        self.host_by_name(name).alarms.append(alarm)

    def clear_alarm(self, name: str, alarm: str) -> None:
        self.host_by_name(name).alarms.remove(alarm)

    def set_power(self, name: str, power: str) -> None:
        """Set the power state of a machine, as a user of vCenter does."""
        self._apply_power(self.machine_by_name(name), power)

    # API calls

    async def log_in(self, username: str, password: str) -> str:
        return await self.faults.call("Login", lambda: self._create_session(username, password))

    def _create_session(self, username: str, password: str) -> str:
        if not password or self.users.get(username) != password:
            raise vim_fault("InvalidLogin", "Cannot complete login due to an incorrect user name or password.")
        session = f"session-{next(self._numbers)}"
        self.sessions.add(session)
        return session

    async def log_out(self, session: str) -> None:
        self.check_session(session)
        await self.faults.call("Logout", lambda: self.sessions.discard(session))

    def check_session(self, session: str) -> None:
        """Refuse a request without a valid session."""
        if session not in self.sessions:
            raise vim_fault("NotAuthenticated", "The session is not authenticated.")

    async def read(self, session: str) -> None:
        self.check_session(session)
        await self.faults.call("RetrievePropertiesEx", lambda: None)

    async def power_on(self, session: str, machine: str) -> Task:
        """Start a task that powers a machine on."""
        self.check_session(session)
        return await self.faults.call(POWER_ON, lambda: self._start_power_task(machine, POWER_ON, POWERED_ON))

    async def power_off(self, session: str, machine: str) -> Task:
        """Start a task that powers a machine off."""
        self.check_session(session)
        return await self.faults.call(POWER_OFF, lambda: self._start_power_task(machine, POWER_OFF, POWERED_OFF))

    async def shut_down(self, session: str, machine: str) -> None:
        self.check_session(session)
        await self.faults.call("ShutdownGuest", lambda: self._start_guest_shutdown(self._machine_by_moref(machine)))

    def _start_power_task(self, moref: str, name: str, power: str) -> Task:
        machine = self._machine_by_moref(moref)
        task = self._start_task(name, moref)
        self._call_later(self.task_duration, partial(self._finish_power_task, task, machine, power))
        return task

    def _finish_power_task(self, task: Task, machine: VirtualMachine, power: str) -> None:
        if machine.power == power:
            task.state, task.fault = "error", "InvalidPowerState"
            return
        host = self.hosts[machine.host]
        if power == POWERED_ON and (host.in_maintenance or self._enter_tasks(host)):
            task.state, task.fault = "error", "InvalidState"
            return
        self._apply_power(machine, power)
        task.state = "success"

    def _start_guest_shutdown(self, machine: VirtualMachine) -> None:
        if machine.power != POWERED_ON:
            raise vim_fault("InvalidPowerState", "The attempted operation cannot be performed in the current state.")
        if not machine.has_tools:
            raise vim_fault("ToolsUnavailable", "VMware Tools is not running in this virtual machine.")
        if machine.ignores_shutdown:
            return
        machine.power_generation += 1
        self._call_later(
            self.guest_shutdown_delay, partial(self._finish_guest_shutdown, machine, machine.power_generation)
        )

    def _finish_guest_shutdown(self, machine: VirtualMachine, generation: int) -> None:
        if machine.power == POWERED_ON and machine.power_generation == generation:
            self._apply_power(machine, POWERED_OFF)

    def _apply_power(self, machine: VirtualMachine, power: str) -> None:
        previous, machine.power = machine.power, power
        machine.power_generation += 1
        if (previous == POWERED_ON) != (power == POWERED_ON):
            self.on_power_change(machine.name, power == POWERED_ON)
        self._finish_enter_tasks(self.hosts[machine.host])

    def _finish_enter_tasks(self, host: Host) -> None:
        """Complete the maintenance tasks of a host if no machine runs on it."""
        if any(machine.host == host.moref and machine.power == POWERED_ON for machine in self.machines.values()):
            return
        for task in self._enter_tasks(host):
            task.state, host.in_maintenance = "success", True

    def is_entering_maintenance(self, called: str) -> bool:
        """Return whether a task runs that puts a host into maintenance mode."""
        return bool(self._enter_tasks(self.hosts[called]))

    def _enter_tasks(self, host: Host) -> list[Task]:
        tasks = (self.tasks[element] for element in host.tasks if element in self.tasks)
        return [element for element in tasks if element.name == ENTER_MAINTENANCE and element.state == "running"]

    def _start_task(self, name: str, entity: str) -> Task:
        task = Task(f"task-{next(self._numbers)}", name, entity)
        self.tasks[task.moref] = task
        if entity in self.hosts:
            self.hosts[entity].tasks = [*self.hosts[entity].tasks, task.moref][-_MAX_RECENT_TASKS:]
        return task

    def _machine_by_moref(self, moref: str) -> VirtualMachine:
        if moref not in self.machines:
            raise vim_fault("ManagedObjectNotFound", "The object has already been deleted.")
        return self.machines[moref]

    def _call_later(self, delay: timedelta, callback: Callable[[], object]) -> None:
        at: datetime = self.clock.now() + delay
        self.clock.call_at(at, callback)


def vim_fault(fault: str, message: str) -> CloudError:
    return CloudError(message, doing="vCenter", status=_SERVER_ERROR, code=fault)
