"""Sessions with the simulated vCenters of a sandbox, in the same process, without any SDK."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from haulout.app.sandbox.interface import CloudMachines, TaskModel, VCenterModel
from haulout.controllers.esx.component import Esx
from haulout.controllers.esx.settings import EsxSettings, VCenterAccess, VCenterCredentials, VCenters
from haulout.controllers.esx.vcenter import Host, PowerState, VCenter, VCenterLogin, VirtualMachine
from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.runtime.component import Component

_VCENTER = "https://vcenter-$AZ.sandbox"
_TASK_POLL_INTERVAL = timedelta(milliseconds=500)


def components(fleet: CloudMachines) -> tuple[Component, ...]:
    """Return the component for the vCenters of a scenario, if it has any."""
    clouds = fleet.vcenters
    if not clouds:
        return ()
    credentials = {zone: VCenterCredentials(*next(iter(model.users.items()))) for zone, model in clouds.items()}
    settings = EsxSettings(
        vcenters=VCenters(template_url=_VCENTER, credentials=credentials),
        interval=timedelta(seconds=20),
        alarms=fleet.vcenter_alarms,
        shutdown_poll_interval=timedelta(seconds=5),
        shutdown_timeout=timedelta(minutes=2),
    )
    by_url = {settings.vcenters.access(zone).url: model for zone, model in clouds.items()}
    return (Esx(lambda: settings, lambda _: connect_to_models(by_url)),)


def connect_to_models(clouds: Mapping[str, VCenterModel]) -> VCenterLogin:
    """Return a login to the simulated vCenters at these URLs."""

    async def connect(access: VCenterAccess) -> VCenter:
        if access.url not in clouds:
            raise CloudError("no vCenter has this address", doing=f"logging in at {access.url}")
        cloud, credentials = clouds[access.url], access.credentials
        return _ModelSession(cloud, await cloud.log_in(credentials.username, credentials.password))

    return connect


class _ModelSession:
    """A session with a simulated vCenter, with the interface of a real one."""

    def __init__(self, cloud: VCenterModel, session: str) -> None:
        self._cloud = cloud
        self._clock: Clock = cloud.clock
        self._session = session

    async def hosts(self, *, with_alarms: bool) -> Sequence[Host]:
        await self._cloud.read(self._session)
        return [
            Host(
                name=host.name,
                version=host.version if host.is_connected else "",
                alarms=frozenset(host.alarms if with_alarms else ()),
                in_maintenance=host.in_maintenance,
                is_entering_maintenance=self._cloud.is_entering_maintenance(host_id),
            )
            for host_id, host in self._cloud.hosts.items()
        ]

    async def machines(self, names: Collection[str]) -> Sequence[VirtualMachine]:
        await self._cloud.read(self._session)
        models = self._cloud.machines.values()
        return [
            VirtualMachine(machine.moref, machine.name, PowerState(machine.power))
            for machine in models
            if machine.name in names
        ]

    async def power_on(self, machine: VirtualMachine) -> None:
        await self._wait_for_task(await self._cloud.power_on(self._session, machine.moref))

    async def power_off(self, machine: VirtualMachine) -> None:
        await self._wait_for_task(await self._cloud.power_off(self._session, machine.moref))

    async def shut_down(self, machine: VirtualMachine) -> None:
        """Ask the guest to shut down."""
        await self._cloud.shut_down(self._session, machine.moref)

    async def close(self) -> None:
        await self._cloud.log_out(self._session)

    async def _wait_for_task(self, task: TaskModel) -> None:
        while task.state == "running":
            await self._clock.sleep(_TASK_POLL_INTERVAL)
        if task.fault:
            raise CloudError(task.fault, doing=task.name, code=task.fault)
