"""The vSphere SDK against a simulated vCenter over HTTPS."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.controllers.esx import vsphere_sdk
from haulout.controllers.esx.settings import VCenterAccess, VCenterCredentials
from haulout.controllers.esx.vcenter import Host, PowerState, VCenter
from haulout.controllers.esx.vsphere_sdk import vcenter_login
from haulout.core.certificate_authority import CertificateAuthority
from haulout.core.clock import RealClock
from haulout.errors import CloudError, ConfigError
from haulout_sandbox.clouds.http_server import serve_app
from haulout_sandbox.clouds.vsphere import VsphereCloud
from haulout_sandbox.https_server import listen
from support.clouds.vsphere.http_server import Front
from support.expectations.eventually import eventually
from support.platforms.esx import PASSWORD

pytestmark = pytest.mark.real_time

HERE = "127.0.0.1"
SOON = timedelta(milliseconds=50)


@pytest.fixture(autouse=True)
def short_task_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the task poll interval."""
    monkeypatch.setattr(vsphere_sdk, "_TASK_POLL_INTERVAL", SOON)


@dataclass(frozen=True, slots=True)
class World:
    """A vCenter with two hosts, and two machines on the first."""

    cloud: VsphereCloud
    front: Front
    port: int
    authority: CertificateAuthority

    def access(self, password: str = PASSWORD, *, insecure: bool = True) -> VCenterAccess:
        """Return the way there."""
        credentials = VCenterCredentials("maintenance", password)
        return VCenterAccess(url=f"https://{HERE}:{self.port}/sdk", credentials=credentials, insecure=insecure)


@asynccontextmanager
async def a_world(hosts: int = 2) -> AsyncIterator[World]:
    from aiohttp import web

    cloud = VsphereCloud(RealClock(), users={"maintenance": PASSWORD}, guest_shutdown_delay=SOON, task_duration=SOON)
    for number in range(1, hosts + 1):
        cloud.add_host(f"esx-{number}", version=f"8.0.{number}")
    for name in ("n1", "n2"):
        cloud.add_machine(name, on="esx-1")
    authority, front, app = CertificateAuthority("test"), Front(cloud, is_secure=True), web.Application()
    front.mount(app)
    tls = authority.issue_server(HERE).server_context()
    async with serve_app(app, listen(HERE, 0), tls=tls) as port:
        yield World(cloud, front, port, authority)
        # A thread that closes its connection while the server ends would leave that half open.
        await eventually(RealClock(), lambda: not any(thread.name == "vcenter" for thread in threading.enumerate()))


@asynccontextmanager
async def a_session(world: World) -> AsyncIterator[VCenter]:
    vcenter = await vcenter_login(RealClock())(world.access())
    try:
        yield vcenter
    finally:
        await vcenter.close()
    assert not world.cloud.sessions


async def refused(call: Callable[[], object]) -> CloudError:
    with pytest.raises(CloudError) as error:
        await call()  # type: ignore[misc]  # all that are asked here are calls
    assert PASSWORD not in str(error.value)
    return error.value


async def test_hosts_have_versions_tasks_and_alarms() -> None:
    async with a_world() as world, a_session(world) as vcenter:
        world.cloud.enter_maintenance("esx-1")
        world.cloud.raise_alarm("esx-2", "Host memory <usage> & more")
        world.cloud.raise_alarm("esx-2", "Another")
        alarms = frozenset({"Host memory <usage> & more", "Another"})
        assert await vcenter.hosts(with_alarms=True) == [
            Host(name="esx-1", version="8.0.1", is_entering_maintenance=True),
            Host(name="esx-2", version="8.0.2", alarms=alarms),
        ]
        world.cloud.set_power("n1", "poweredOff")
        world.cloud.set_power("n2", "suspended")
        world.cloud.host_by_name("esx-2").is_connected = False
        before = len(world.cloud.faults.calls)
        assert await vcenter.hosts(with_alarms=True) == [
            Host(name="esx-1", version="8.0.1", in_maintenance=True),
            Host(name="esx-2", alarms=alarms),
        ]
        assert list(world.cloud.faults.calls)[before:] == ["RetrievePropertiesEx"], "one call for all hosts"
        assert not any(host.alarms for host in await vcenter.hosts(with_alarms=False))


async def test_hosts_are_read_in_pages() -> None:
    async with a_world(hosts=1203) as world, a_session(world) as vcenter:
        assert len({host.name for host in await vcenter.hosts(with_alarms=True)}) == 1203


async def test_unreadable_property_is_a_problem_of_its_host() -> None:
    async with a_world() as world, a_session(world) as vcenter:
        world.front.collector.hidden["HostSystem", "runtime.inMaintenanceMode"] = "NoPermission"
        (first, _) = await vcenter.hosts(with_alarms=True)
        assert first.problem == "runtime.inMaintenanceMode: NoPermission"


async def test_unreadable_alarm_name_is_a_problem_of_its_host() -> None:
    async with a_world() as world, a_session(world) as vcenter:
        world.cloud.raise_alarm("esx-1", "Host memory")
        world.front.collector.hidden["Alarm", "info.name"] = "NoPermission"
        (first, second) = await vcenter.hosts(with_alarms=True)
        assert (first.problem, second.problem) == (
            f"no permission to read the name of {world.cloud.alarms['Host memory']}",
            "",
        )
        world.front.collector.hidden.clear()
        (first, _) = await vcenter.hosts(with_alarms=True)
        assert (first.problem, first.alarms) == ("", frozenset({"Host memory"}))


async def test_unreadable_machine_has_an_unknown_power_state() -> None:
    async with a_world() as world, a_session(world) as vcenter:
        world.front.collector.hidden["VirtualMachine", "runtime.powerState"] = "NoPermission"
        assert [(machine.name, machine.power) for machine in await vcenter.machines(["n1"])] == [
            ("n1", PowerState.UNKNOWN)
        ]


async def test_machine_is_shut_down_powered_off_and_powered_on() -> None:
    async with a_world() as world, a_session(world) as vcenter:
        first, second = await vcenter.machines(["n1", "n2", "n3"])
        assert (first.name, second.name, first.power) == ("n1", "n2", PowerState.ON)
        await vcenter.shut_down(first)
        await eventually(RealClock(), lambda: world.cloud.machine_by_name("n1").power == "poweredOff")
        await vcenter.power_off(second)
        assert [machine.power for machine in await vcenter.machines(["n1", "n2"])] == [PowerState.OFF, PowerState.OFF]
        await vcenter.power_on(first)
        assert world.cloud.machine_by_name("n1").power == "poweredOn"


async def test_faults_keep_their_codes() -> None:
    async with a_world() as world, a_session(world) as vcenter:
        first, second = await vcenter.machines(["n1", "n2"])
        world.cloud.machine_by_name("n1").has_tools = False
        error = await refused(lambda: vcenter.shut_down(first))
        assert (error.code, str(error)) == (
            "ToolsUnavailable",
            "shutting n1 down: ToolsUnavailable: VMware Tools is not running in this virtual machine.",
        )
        assert (await refused(lambda: vcenter.power_on(first))).code == "InvalidPowerState"
        world.cloud.faults.fail("PowerOffVM_Task", status=500, code="NoPermission", message="not for you")
        assert (await refused(lambda: vcenter.power_off(first))).code == "NoPermission"
        world.cloud.remove_machine("n2")
        assert (await refused(lambda: vcenter.power_off(second))).code == "ManagedObjectNotFound"
        sessions = set(world.cloud.sessions)
        world.cloud.sessions.clear()
        assert (await refused(lambda: vcenter.hosts(with_alarms=True))).code == "NotAuthenticated"
        world.cloud.sessions |= sessions


async def test_refused_login_is_reported_without_the_password() -> None:
    async with a_world() as world:
        error = await refused(lambda: vcenter_login(RealClock())(world.access("tidal-secret-2")))
        assert error.code == "InvalidLogin"
        assert "tidal" not in str(error)


async def test_untrusted_server_does_not_receive_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world() as world:
        error = await refused(lambda: vcenter_login(RealClock())(world.access(insecure=False)))
        assert "CERTIFICATE_VERIFY_FAILED" in str(error)
        assert "Login" not in world.cloud.faults.calls
        trusted = tmp_path / "ca.pem"
        trusted.write_bytes(world.authority.certificate)
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        vcenter = await vcenter_login(RealClock())(world.access(insecure=False))
        await vcenter.close()


async def test_refused_connection_and_wrong_server_are_distinguished() -> None:
    connect = vcenter_login(RealClock())
    credentials = VCenterCredentials("maintenance", PASSWORD)
    nobody = await refused(lambda: connect(VCenterAccess(url=f"https://{HERE}:1/sdk", credentials=credentials)))
    assert "Connection refused" in str(nobody)
    async with a_world() as world:
        url = f"https://{HERE}:{world.port}/elsewhere"
        other = await refused(lambda: connect(VCenterAccess(url=url, credentials=credentials, insecure=True)))
        assert "expected a vCenter there, found HTTP status 404" in str(other)


async def test_session_of_a_late_login_is_logged_out() -> None:
    async with a_world() as world:
        world.cloud.faults.delay("Login", duration=timedelta(milliseconds=300))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await vcenter_login(RealClock())(world.access())
        await eventually(RealClock(), lambda: "Logout" in world.cloud.faults.calls)
        assert not world.cloud.sessions


async def test_truncated_response_is_a_cloud_error() -> None:
    async with a_world() as world, a_session(world) as vcenter:
        world.cloud.faults.fail("RetrievePropertiesEx", status=0)
        error = await refused(lambda: vcenter.hosts(with_alarms=True))
        assert (error.code, error.status) == ("", 0)
        assert len(await vcenter.hosts(with_alarms=True)) == 2


def test_missing_sdk_is_reported_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    vsphere_sdk.check()
    monkeypatch.setattr(vsphere_sdk, "PACKAGE", "no_such_package")
    with pytest.raises(ConfigError, match=r"pip install 'haulout\[vsphere\]', or the image with the tag -vsphere"):
        vsphere_sdk.check()


def test_insecure_is_not_the_default() -> None:
    assert VCenterAccess(url="", credentials=VCenterCredentials("a")).insecure is False
    assert ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED
