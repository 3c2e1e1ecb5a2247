"""A vCenter through pyVmomi, the vSphere SDK, in threads.

    connect = vcenter_login(clock)
    vcenter = await connect(access)

The SDK blocks the calling thread. Each call has its own thread, one at a time per session, so that a vCenter that hangs
blocks nothing else. The socket has a timeout, so the thread ends by itself; an abandoned session is logged out then.

Few calls are made: one for all hosts and their tasks, one for the names of unknown alarms, one per session for the
names of all machines, then one for the machines needed. The API version is the newest that both sides support. The
SDK's own connect function is not used: it keeps the session in a global variable, and requests the version without a
timeout.
"""

import contextlib
import http.client
import importlib
import importlib.util
import re
import ssl
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from haulout.controllers.esx.settings import VCenterAccess
from haulout.controllers.esx.vcenter import Host, PowerState, VCenter, VCenterLogin, VirtualMachine
from haulout.core.clock import Clock
from haulout.core.cloud_sdk import UncompressedLimitedResponse, run_in_thread
from haulout.core.redaction import redact_values
from haulout.errors import CloudError, ConfigError

T = TypeVar("T")
Properties = Mapping[str, Any]

PACKAGE = "pyVmomi"
_THREAD = "vcenter"
_TIMEOUT_SECONDS = 30  # shorter than the timeout of a call, so that no thread is left behind
_VERSIONS = re.compile(r"<version>\s*([\w.]+)\s*</version>")
_PAGE = 500
_OK = 200
_PORTS = {"https": 443, "http": 80}
_ENTER_MAINTENANCE_MODE = "EnterMaintenanceMode"
_TASK_TIMEOUT, _TASK_POLL_INTERVAL = timedelta(seconds=50), timedelta(seconds=1)
_MAINTENANCE, _ALARMS, _PRODUCT = "runtime.inMaintenanceMode", "triggeredAlarmState", "config.product.version"


def vcenter_login(clock: Clock) -> VCenterLogin:
    """Return a function that logs in at a vCenter."""

    async def connect(access: VCenterAccess) -> VCenter:
        vcenter = SdkVCenter(access, clock)
        try:
            await vcenter.log_in()
        except BaseException:  # also on cancellation: the thread may still open a session
            vcenter.abandon()
            raise
        return vcenter

    return connect


def check() -> None:
    """Raise `ConfigError` if the SDK is not installed; does not import it."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise missing_sdk_error(f"there is no module {PACKAGE}")


def missing_sdk_error(problem: object) -> ConfigError:
    """Return the error that says how to install the SDK."""
    how_to_install = "pip install 'haulout[vsphere]', or the image with the tag -vsphere"
    return ConfigError(f"the vSphere SDK is not installed: use {how_to_install} ({problem})")


class SdkVCenter:
    """A session with a vCenter."""

    def __init__(self, access: VCenterAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._lock = threading.Lock()
        self._client = _VSphereClient(access)
        self._is_closed = False

    async def log_in(self) -> None:
        access = self._access
        await self._call(f"logging in at {access.url} as {access.credentials.username}", self._client.log_in)

    async def hosts(self, *, with_alarms: bool) -> Sequence[Host]:
        return await self._call("asking for hosts", partial(self._client.hosts, with_alarms=with_alarms))

    async def machines(self, names: Collection[str]) -> Sequence[VirtualMachine]:
        return await self._call("asking for virtual machines", partial(self._client.machines, names))

    async def power_on(self, machine: VirtualMachine) -> None:
        """Power a machine on; return when it is done."""
        await self._wait_for_task(f"turning {machine.name} on", partial(self._client.power_on, machine))

    async def power_off(self, machine: VirtualMachine) -> None:
        """Power a machine off; return when it is done."""
        await self._wait_for_task(f"turning {machine.name} off", partial(self._client.power_off, machine))

    async def shut_down(self, machine: VirtualMachine) -> None:
        await self._call(f"shutting {machine.name} down", partial(self._client.shut_down, machine))

    async def close(self) -> None:
        try:
            await self._call("logging out", self._client.log_out)
        finally:
            self._is_closed = True

    def abandon(self) -> None:
        """Log out in a background thread, without waiting for it."""
        self._is_closed = True
        threading.Thread(target=self._log_out_quietly, name=_THREAD, daemon=True).start()

    def _log_out_quietly(self) -> None:
        """Log out; if that fails, the vCenter ends the session after half an hour."""
        with contextlib.suppress(Exception), self._lock:
            self._client.log_out()

    async def _wait_for_task(self, doing: str, start_task: Callable[[], Any]) -> None:
        """Start a task, and wait until it ends."""
        task = await self._call(doing, start_task)
        deadline = self._clock.monotonic() + _TASK_TIMEOUT.total_seconds()
        while not await self._call(doing, partial(self._client.is_finished, task)):
            if self._clock.monotonic() > deadline:
                raise CloudError("the task takes long", doing=doing, code="TaskRuns")
            await self._clock.sleep(_TASK_POLL_INTERVAL)

    async def _call(self, doing: str, call: Callable[[], T]) -> T:
        """Run a call in a thread and return its result; every failure is a `CloudError`."""
        if self._is_closed:
            raise CloudError("the session is closed", doing=doing)
        return await run_in_thread(partial(self._call_in_thread, doing, call), name=_THREAD)

    def _call_in_thread(self, doing: str, call: Callable[[], T]) -> T:
        try:
            with self._lock:
                return call()
        except CloudError as error:
            raise CloudError(error.message, doing=doing, code=error.code) from None
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - the SDK lets errors of HTTP, TLS and XML libraries through
            raise CloudError(self._error_text(error), doing=doing, code=_fault_name(error)) from None

    def _error_text(self, error: BaseException) -> str:
        """Return the error as one line, with the password redacted."""
        message = str(getattr(error, "msg", "") or "no error message")  # vSphere faults have `msg`
        line = (message if _fault_name(error) else f"{type(error).__name__}: {error}").splitlines()[0][:300]
        return redact_values(line, [self._access.credentials.password])


class _VSphereClient:
    """The SDK calls, for one thread."""

    def __init__(self, access: VCenterAccess) -> None:
        self._access = access
        self._sdk = _load_sdk()
        self._stub: Any = None
        self._content: Any = None
        self._is_logged_in = False
        self._views: dict[type, Any] = {}
        self._alarms: dict[str, str] = {}  # alarm names by managed object reference
        self._machines: dict[str, list[Any]] = {}  # by name

    def log_in(self) -> None:
        url = urlsplit(self._access.url)
        port = url.port or _PORTS[url.scheme]
        context = None if url.scheme == "http" else self._ssl_context()
        version = self._api_version(url.hostname or "", port, f"{url.path}/vimServiceVersions.xml", context)
        self._stub = self._sdk.SoapStubAdapter(
            host=url.hostname or "",
            port=-port if context is None else port,  # a negative port means no TLS
            path=url.path,
            version=version,
            sslContext=context,
            httpConnectionTimeout=_TIMEOUT_SECONDS,
            acceptCompressedResponses=False,
        )
        self._stub.scheme = partial(_bounded_connection, self._stub.scheme)
        self._content = self._sdk.vim.ServiceInstance("ServiceInstance", self._stub).RetrieveContent()
        credentials = self._access.credentials
        self._content.sessionManager.Login(credentials.username, credentials.password, None)
        self._is_logged_in = True

    def _ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._access.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _api_version(self, host: str, port: int, path: str, context: ssl.SSLContext | None) -> str:
        """Return the newest API version that both sides support."""
        connection = (
            _bounded_connection(http.client.HTTPConnection, host, port, timeout=_TIMEOUT_SECONDS)
            if context is None
            else _bounded_connection(http.client.HTTPSConnection, host, port, timeout=_TIMEOUT_SECONDS, context=context)
        )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        finally:
            connection.close()
        if response.status != _OK:
            raise CloudError(f"expected a vCenter there, found HTTP status {response.status}", doing="")
        server_versions = set(_VERSIONS.findall(text))
        support = self._sdk.support
        for version in support.GetServiceVersions("vim25"):
            if support.versionIdMap[version] in server_versions:
                return str(version)
        raise CloudError("expected a vCenter with a supported API version, found none", doing="")

    def log_out(self) -> None:
        """Log out, and close the connections."""
        try:
            if self._is_logged_in:
                self._is_logged_in = False
                self._content.sessionManager.Logout()
        finally:
            if self._stub is not None:
                self._stub.DropConnections()

    # Hosts

    def hosts(self, *, with_alarms: bool) -> list[Host]:
        vim = self._sdk.vim
        properties = ["name", _PRODUCT, _MAINTENANCE, "recentTask", *([_ALARMS] if with_alarms else [])]
        tasks = self._traversal_spec(vim.HostSystem, "recentTask")
        found = dict(self._retrieve(vim.HostSystem, {vim.HostSystem: properties, vim.Task: _TASK}, nested=[tasks]))
        hosts = [values for item, values in found.items() if isinstance(item, vim.HostSystem)]
        self._load_alarm_names(state.alarm for item in hosts for state in item.get(_ALARMS) or ())
        return [self._to_host(item, found) for item in hosts if "name" in item]

    def _to_host(self, values: Properties, found: Mapping[Any, Properties]) -> Host:
        missing = [item for item in (_MAINTENANCE, _ALARMS) if isinstance(values.get(item), _MissingProperty)]
        problems = [f"{item}: {values[item].fault}" for item in missing]
        alarms = [item.alarm._moId for item in (() if missing else values.get(_ALARMS) or ())]  # noqa: SLF001 - the SDK has no public name for it
        problems += [f"no permission to read the name of {item}" for item in alarms if item not in self._alarms]
        return Host(
            name=str(values["name"]),
            version="" if isinstance(values.get(_PRODUCT), _MissingProperty) else str(values.get(_PRODUCT) or ""),
            alarms=frozenset(self._alarms[item] for item in alarms if item in self._alarms),
            in_maintenance=values.get(_MAINTENANCE) is True,
            is_entering_maintenance=any(
                _is_entering(found.get(item, {})) for item in _as_list(values.get("recentTask"))
            ),
            problem="; ".join(problems),
        )

    def _load_alarm_names(self, alarms: Iterator[Any]) -> None:
        unknown = {alarm_ref._moId: alarm_ref for alarm_ref in alarms if alarm_ref._moId not in self._alarms}  # noqa: SLF001 - as above
        for alarm, values in self._retrieve_objects(list(unknown.values()), self._sdk.vim.alarm.Alarm, ["info.name"]):
            if isinstance(name := values.get("info.name"), str):
                self._alarms[alarm._moId] = name  # noqa: SLF001 - as above

    # Machines

    def machines(self, names: Collection[str]) -> list[VirtualMachine]:
        """Return machines by name. The list of names is fetched once per session, and again for unknown names."""
        vim = self._sdk.vim
        if not all(item in self._machines for item in names):
            self._machines = {}
            for machine, values in self._retrieve(vim.VirtualMachine, {vim.VirtualMachine: ["name"]}):
                self._machines.setdefault(str(values.get("name", "")), []).append(machine)
        candidates = [machine for name in names for machine in self._machines.get(name, ())]
        found = self._retrieve_objects(candidates, vim.VirtualMachine, ["name", "runtime.powerState"])
        return [VirtualMachine(item._moId, str(values.get("name", "")), _power_state(values)) for item, values in found]  # noqa: SLF001 - as above

    def power_on(self, machine: VirtualMachine) -> Any:
        """Start the task that powers a machine on."""
        return self._machine(machine).PowerOnVM_Task(None)

    def power_off(self, machine: VirtualMachine) -> Any:
        """Start the task that powers a machine off."""
        return self._machine(machine).PowerOffVM_Task()

    def shut_down(self, machine: VirtualMachine) -> None:
        self._machine(machine).ShutdownGuest()

    def is_finished(self, task: Any) -> bool:
        """Return whether a task has succeeded; raise the fault of a failed one."""
        ((_, values),) = self._retrieve_objects([task], self._sdk.vim.Task, ["info.state", "info.error"])
        if values["info.state"] == "error":
            raise values["info.error"]
        return bool(values["info.state"] == "success")

    def _machine(self, machine: VirtualMachine) -> Any:
        return self._sdk.vim.VirtualMachine(machine.moref, self._stub)

    # The property collector

    def _retrieve(
        self, kind: type, properties: Mapping[type, Sequence[str]], *, nested: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, Properties]]:
        """Yield all objects of a kind, and those that `nested` selects, with their properties."""
        if kind not in self._views:
            content = self._content
            self._views[kind] = content.viewManager.CreateContainerView(content.rootFolder, [kind], True)
        view = self._traversal_spec(self._sdk.vim.view.ContainerView, "view", nested=nested)
        start = self._sdk.collector.ObjectSpec(obj=self._views[kind], skip=True, selectSet=[view])
        return self._collect([start], properties)

    def _retrieve_objects(
        self, objects: Sequence[Any], kind: type, properties: Sequence[str]
    ) -> list[tuple[Any, Properties]]:
        starts = [self._sdk.collector.ObjectSpec(obj=obj, skip=False) for obj in objects]
        return list(self._collect(starts, {kind: properties})) if starts else []

    def _collect(
        self, starts: Sequence[Any], properties: Mapping[type, Sequence[str]]
    ) -> Iterator[tuple[Any, Properties]]:
        collector, types = self._content.propertyCollector, self._sdk.collector
        specs = [types.PropertySpec(type=kind, pathSet=list(paths), all=False) for kind, paths in properties.items()]
        options = types.RetrieveOptions(maxObjects=_PAGE)
        page = collector.RetrievePropertiesEx([types.FilterSpec(propSet=specs, objectSet=list(starts))], options)
        while page is not None:  # None if there are no objects
            for content in page.objects:
                missing = {
                    prop.path: _MissingProperty(_fault_name(prop.fault) or "unknown")
                    for prop in content.missingSet or ()
                }
                yield content.obj, missing | {prop.name: prop.val for prop in content.propSet or ()}
            page = collector.ContinueRetrievePropertiesEx(page.token) if page.token else None

    def _traversal_spec(self, kind: type, path: str, *, nested: Sequence[Any] = ()) -> Any:
        return self._sdk.collector.TraversalSpec(type=kind, path=path, skip=False, selectSet=list(nested))


class _Sdk:
    """The parts of the SDK in use; the SDK has no type hints."""

    def __init__(self) -> None:
        package = importlib.import_module(PACKAGE)
        self.vim: Any = package.vim
        self.collector: Any = package.vmodl.query.PropertyCollector
        self.support: Any = importlib.import_module(f"{PACKAGE}.VmomiSupport")
        self.SoapStubAdapter: Any = importlib.import_module(f"{PACKAGE}.SoapAdapter").SoapStubAdapter


class _MissingProperty:
    """A property that the vCenter did not return."""

    def __init__(self, fault: str) -> None:
        self.fault = fault


_TASK = ("info.name", "info.state")


def _load_sdk() -> _Sdk:
    try:
        return _Sdk()
    except ImportError as error:
        raise missing_sdk_error(error) from error


def _bounded_connection(
    factory: Callable[..., http.client.HTTPConnection], *args: Any, **kwargs: Any
) -> http.client.HTTPConnection:
    connection = factory(*args, **kwargs)
    connection.response_class = UncompressedLimitedResponse
    return connection


def _is_entering(task: Properties) -> bool:
    name = str(task.get("info.name", "")).removesuffix("_Task")
    return name == _ENTER_MAINTENANCE_MODE and task.get("info.state") == "running"


def _power_state(machine: Properties) -> PowerState:
    state = str(machine.get("runtime.powerState", ""))
    return PowerState(state) if state in tuple(PowerState) else PowerState.UNKNOWN


def _as_list(value: Any) -> Sequence[Any]:
    return () if value is None or isinstance(value, _MissingProperty) else value


def _fault_name(error: object) -> str:
    """Return the name of a vSphere fault, such as `InvalidLogin`; empty for other errors."""
    name = type(error).__name__
    return name.rpartition(".")[2] if name.startswith(("vim.", "vmodl.")) else ""
