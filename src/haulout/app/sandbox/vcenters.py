"""The vCenters of a sandbox, as the operator in it speaks to them: stand-ins in the same process, without any SDK."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from haulout.app.esx import Esx
from haulout.app.sandbox.interface import Machines, TaskModel, VCenterModel
from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.esx.settings import Access, Credentials, Settings, VCenters
from haulout.esx.vcenter import Connect, Host, Machine, Power, VCenter

_VCENTER = "https://vcenter-$AZ.sandbox"
_TASK_LOOKS = timedelta(milliseconds=500)


def on_esx(fleet: Machines) -> Esx | None:
    """Return how nodes on ESX hosts are seen to; None if there are no such hosts in a scenario."""
    clouds = fleet.vcenters
    if not clouds:
        return None
    credentials = {zone: Credentials(*next(iter(it.users.items()))) for zone, it in clouds.items()}
    settings = Settings(
        vcenters=VCenters(template_url=_VCENTER, credentials=credentials),
        period=timedelta(seconds=20),
        alarms=fleet.esx_alarms,
        looks_every=timedelta(seconds=5),
        shuts_down_within=timedelta(minutes=2),
    )
    by_url = {settings.vcenters.access(zone).url: it for zone, it in clouds.items()}
    return Esx(read=lambda: settings, connect=lambda _: vcenters(by_url))


def vcenters(clouds: Mapping[str, VCenterModel]) -> Connect:
    """Return what logs in at stand-ins of vCenter, which are found at these addresses."""

    async def connect(access: Access) -> VCenter:
        if access.url not in clouds:
            raise CloudError("nobody is there", doing=f"logging in at {access.url}")
        cloud, who = clouds[access.url], access.credentials
        return _StandIn(cloud, await cloud.log_in(who.username, who.password))

    return connect


class _StandIn:
    """A session with a stand-in of vCenter."""

    def __init__(self, cloud: VCenterModel, session: str) -> None:
        self._cloud = cloud
        self._clock: Clock = cloud.clock
        self._session = session

    async def hosts(self, *, with_alarms: bool) -> Sequence[Host]:
        """Return all hosts."""
        await self._cloud.read(self._session)
        return [
            Host(
                name=it.name,
                version=it.version if it.is_connected else "",
                alarms=frozenset(it.alarms if with_alarms else ()),
                in_maintenance=it.in_maintenance,
                is_entering=self._cloud.is_entering_maintenance(called),
            )
            for called, it in self._cloud.hosts.items()
        ]

    async def machines(self, names: Collection[str]) -> Sequence[Machine]:
        """Return the machines of these names."""
        await self._cloud.read(self._session)
        known = self._cloud.machines.values()
        return [Machine(it.called, it.name, Power(it.power)) for it in known if it.name in names]

    async def power_on(self, machine: Machine) -> None:
        """Turn a machine on."""
        await self._finished(await self._cloud.power_on(self._session, machine.called))

    async def power_off(self, machine: Machine) -> None:
        """Turn a machine off."""
        await self._finished(await self._cloud.power_off(self._session, machine.called))

    async def shut_down(self, machine: Machine) -> None:
        """Ask the guest to shut down."""
        await self._cloud.shut_down(self._session, machine.called)

    async def close(self) -> None:
        """Log out."""
        await self._cloud.log_out(self._session)

    async def _finished(self, task: TaskModel) -> None:
        while task.state == "running":
            await self._clock.sleep(_TASK_LOOKS)
        if task.fault:
            raise CloudError(task.fault, doing=task.name, code=task.fault)
