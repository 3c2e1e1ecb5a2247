"""A vCenter by pyVmomi, the vSphere SDK, in threads.

    connect = connecting(clock)
    vcenter = await connect(access)

The SDK waits for answers in the thread that asks. Each call has a thread of its own, one at a time for each session: so
a vCenter that hangs takes nothing that others need. Its socket has a time limit: the thread ends by itself, and then a
session that nobody wants any more is logged out.

Few calls are made: one for all hosts and the tasks on them, one for the names of alarms that are not known yet, and one
for all names of machines in a session, then one for the machines that matter. The version of the API is the newest that
both sides know. The SDK's own way to connect is not used: it keeps the session in a global variable, and asks for the
version without a time limit.
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

from haulout.core.clock import Clock
from haulout.core.redaction import redact_values
from haulout.core.sdk_limits import BoundedResponse
from haulout.core.threads import in_a_thread
from haulout.errors import CloudError, ConfigError
from haulout.esx.settings import Access
from haulout.esx.vcenter import Connect, Host, Machine, Power, VCenter

T = TypeVar("T")
Properties = Mapping[str, Any]

PACKAGE = "pyVmomi"
_THREAD = "vcenter"
_SECONDS = 30  # shorter than we wait for a call, so that no thread is left behind
_VERSIONS = re.compile(r"<version>\s*([\w.]+)\s*</version>")
_PAGE = 500
_OK = 200
_PORTS = {"https": 443, "http": 80}
_ENTERING = "EnterMaintenanceMode"
_TASK_LASTS, _TASK_LOOKS = timedelta(seconds=50), timedelta(seconds=1)
_MAINTENANCE, _ALARMS, _PRODUCT = "runtime.inMaintenanceMode", "triggeredAlarmState", "config.product.version"


def connecting(clock: Clock) -> Connect:
    """Return what logs in at vCenters."""

    async def connect(access: Access) -> VCenter:
        vcenter = SdkVCenter(access, clock)
        try:
            await vcenter.log_in()
        except BaseException:  # also if nobody waits any more: the thread may still get a session
            vcenter.abandon()
            raise
        return vcenter

    return connect


def check() -> None:
    """Raise `ConfigError` if the SDK is not installed; it is not loaded for that."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise lacking(f"there is no module {PACKAGE}")


def lacking(problem: object) -> ConfigError:
    """Return the error that says what to install."""
    where = "pip install 'haulout[vsphere]', or the image with the tag -vsphere"
    return ConfigError(f"to speak to vCenters the vSphere SDK is needed: {where} ({problem})")


class SdkVCenter:
    """A session."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._turn = threading.Lock()
        self._calls = _Calls(access)
        self._is_closed = False

    async def log_in(self) -> None:
        """Log in."""
        access = self._access
        await self._do(f"logging in at {access.url} as {access.credentials.username}", self._calls.log_in)

    async def hosts(self, *, with_alarms: bool) -> Sequence[Host]:
        """Return all hosts."""
        return await self._do("asking for hosts", partial(self._calls.hosts, with_alarms=with_alarms))

    async def machines(self, names: Collection[str]) -> Sequence[Machine]:
        """Return the machines of these names."""
        return await self._do("asking for virtual machines", partial(self._calls.machines, names))

    async def power_on(self, machine: Machine) -> None:
        """Turn a machine on; return when it is."""
        await self._finished(f"turning {machine.name} on", partial(self._calls.power_on, machine))

    async def power_off(self, machine: Machine) -> None:
        """Turn a machine off; return when it is."""
        await self._finished(f"turning {machine.name} off", partial(self._calls.power_off, machine))

    async def shut_down(self, machine: Machine) -> None:
        """Ask the guest to shut down."""
        await self._do(f"shutting {machine.name} down", partial(self._calls.shut_down, machine))

    async def close(self) -> None:
        """Log out."""
        try:
            await self._do("logging out", self._calls.log_out)
        finally:
            self._is_closed = True

    def abandon(self) -> None:
        """Have the thread log out when it gets to that, and wait for nothing."""
        self._is_closed = True
        threading.Thread(target=self._log_out_quietly, name=_THREAD, daemon=True).start()

    def _log_out_quietly(self) -> None:
        """Log out for nobody: if that fails, the session ends by itself after half an hour."""
        with contextlib.suppress(Exception), self._turn:
            self._calls.log_out()

    async def _finished(self, doing: str, begin: Callable[[], Any]) -> None:
        """Begin a task, and wait for its end."""
        task = await self._do(doing, begin)
        until = self._clock.monotonic() + _TASK_LASTS.total_seconds()
        while not await self._do(doing, partial(self._calls.is_finished, task)):
            if self._clock.monotonic() > until:
                raise CloudError("the task takes long", doing=doing, code="TaskRuns")
            await self._clock.sleep(_TASK_LOOKS)

    async def _do(self, doing: str, call: Callable[[], T]) -> T:
        """Return what a call in the thread comes to; whatever goes wrong is a `CloudError`."""
        if self._is_closed:
            raise CloudError("the session is closed", doing=doing)
        return await in_a_thread(partial(self._called, doing, call), name=_THREAD)

    def _called(self, doing: str, call: Callable[[], T]) -> T:
        try:
            with self._turn:
                return call()
        except CloudError as error:
            raise CloudError(error.message, doing=doing, code=error.code) from None
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - the SDK lets through what HTTP, TLS and XML libraries raise
            raise CloudError(self._words(error), doing=doing, code=_fault(error)) from None

    def _words(self, error: BaseException) -> str:
        """Return what an error says in a line, and no password whoever repeats it."""
        said = str(getattr(error, "msg", "") or "it says no more")  # faults of vSphere have one
        line = (said if _fault(error) else f"{type(error).__name__}: {error}").splitlines()[0][:300]
        return redact_values(line, [self._access.credentials.password])


class _Calls:
    """The calls, for one thread."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sdk = _sdk()
        self._stub: Any = None
        self._content: Any = None
        self._is_logged_in = False
        self._views: dict[type, Any] = {}
        self._alarms: dict[str, str] = {}  # names, by how the vCenter calls them
        self._machines: dict[str, list[Any]] = {}  # by name

    def log_in(self) -> None:
        """Connect, and log in."""
        where = urlsplit(self._access.url)
        port = where.port or _PORTS[where.scheme]
        context = None if where.scheme == "http" else self._trust()
        version = self._version(where.hostname or "", port, f"{where.path}/vimServiceVersions.xml", context)
        self._stub = self._sdk.SoapStubAdapter(
            host=where.hostname or "",
            port=-port if context is None else port,  # below zero it speaks without TLS
            path=where.path,
            version=version,
            sslContext=context,
            httpConnectionTimeout=_SECONDS,
            acceptCompressedResponses=False,
        )
        self._stub.scheme = partial(_bounded, self._stub.scheme)
        self._content = self._sdk.vim.ServiceInstance("ServiceInstance", self._stub).RetrieveContent()
        credentials = self._access.credentials
        self._content.sessionManager.Login(credentials.username, credentials.password, None)
        self._is_logged_in = True

    def _trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._access.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _version(self, host: str, port: int, path: str, context: ssl.SSLContext | None) -> str:
        """Return the newest version of the API that both sides know."""
        connection = (
            _bounded(http.client.HTTPConnection, host, port, timeout=_SECONDS)
            if context is None
            else _bounded(http.client.HTTPSConnection, host, port, timeout=_SECONDS, context=context)
        )
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        if answer.status != _OK:
            raise CloudError(f"expected a vCenter there, found HTTP status {answer.status}", doing="")
        known = set(_VERSIONS.findall(text))
        support = self._sdk.support
        for version in support.GetServiceVersions("vim25"):
            if support.versionIdMap[version] in known:
                return str(version)
        raise CloudError("expected a vCenter there, found something else, or one that is too old or new", doing="")

    def log_out(self) -> None:
        """Log out, and close connections."""
        try:
            if self._is_logged_in:
                self._is_logged_in = False
                self._content.sessionManager.Logout()
        finally:
            if self._stub is not None:
                self._stub.DropConnections()

    # Hosts

    def hosts(self, *, with_alarms: bool) -> list[Host]:
        """Return all hosts."""
        vim = self._sdk.vim
        wanted = ["name", _PRODUCT, _MAINTENANCE, "recentTask", *([_ALARMS] if with_alarms else [])]
        tasks = self._traversal(vim.HostSystem, "recentTask")
        found = dict(self._retrieved(vim.HostSystem, {vim.HostSystem: wanted, vim.Task: _TASK}, below=[tasks]))
        hosts = [values for it, values in found.items() if isinstance(it, vim.HostSystem)]
        self._learn_alarms(state.alarm for it in hosts for state in it.get(_ALARMS) or ())
        return [self._host(it, found) for it in hosts if "name" in it]

    def _host(self, values: Properties, found: Mapping[Any, Properties]) -> Host:
        missing = [it for it in (_MAINTENANCE, _ALARMS) if isinstance(values.get(it), _Missing)]
        problems = [f"{it}: {values[it].why}" for it in missing]
        alarms = [it.alarm._moId for it in (() if missing else values.get(_ALARMS) or ())]  # noqa: SLF001 - the SDK's only name for it
        problems += [f"the name of {it} may not be read" for it in alarms if it not in self._alarms]
        return Host(
            name=str(values["name"]),
            version="" if isinstance(values.get(_PRODUCT), _Missing) else str(values.get(_PRODUCT) or ""),
            alarms=frozenset(self._alarms[it] for it in alarms if it in self._alarms),
            in_maintenance=values.get(_MAINTENANCE) is True,
            is_entering=any(_is_entering(found.get(it, {})) for it in _listed(values.get("recentTask"))),
            problem="; ".join(problems),
        )

    def _learn_alarms(self, alarms: Iterator[Any]) -> None:
        new = {it._moId: it for it in alarms if it._moId not in self._alarms}  # noqa: SLF001 - as above
        for alarm, values in self._asked(list(new.values()), self._sdk.vim.alarm.Alarm, ["info.name"]):
            if isinstance(name := values.get("info.name"), str):
                self._alarms[alarm._moId] = name  # noqa: SLF001 - as above

    # Machines

    def machines(self, names: Collection[str]) -> list[Machine]:
        """Return machines; where they are is asked once for each session, and for names that were not found then."""
        vim = self._sdk.vim
        if not all(it in self._machines for it in names):
            self._machines = {}
            for machine, values in self._retrieved(vim.VirtualMachine, {vim.VirtualMachine: ["name"]}):
                self._machines.setdefault(str(values.get("name", "")), []).append(machine)
        known = [machine for name in names for machine in self._machines.get(name, ())]
        found = self._asked(known, vim.VirtualMachine, ["name", "runtime.powerState"])
        return [Machine(it._moId, str(values.get("name", "")), _power(values)) for it, values in found]  # noqa: SLF001 - as above

    def power_on(self, machine: Machine) -> Any:
        """Begin to turn a machine on."""
        return self._machine(machine).PowerOnVM_Task(None)

    def power_off(self, machine: Machine) -> Any:
        """Begin to turn a machine off."""
        return self._machine(machine).PowerOffVM_Task()

    def shut_down(self, machine: Machine) -> None:
        """Ask a guest to shut down."""
        self._machine(machine).ShutdownGuest()

    def is_finished(self, task: Any) -> bool:
        """Tell whether a task has come to its end; raises what it failed by."""
        ((_, values),) = self._asked([task], self._sdk.vim.Task, ["info.state", "info.error"])
        if values["info.state"] == "error":
            raise values["info.error"]
        return bool(values["info.state"] == "success")

    def _machine(self, machine: Machine) -> Any:
        return self._sdk.vim.VirtualMachine(machine.called, self._stub)

    # The property collector

    def _retrieved(
        self, kind: type, wanted: Mapping[type, Sequence[str]], *, below: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, Properties]]:
        """Yield all objects of a kind, and those below them, with their properties."""
        if kind not in self._views:
            content = self._content
            self._views[kind] = content.viewManager.CreateContainerView(content.rootFolder, [kind], True)
        view = self._traversal(self._sdk.vim.view.ContainerView, "view", below=below)
        start = self._sdk.collector.ObjectSpec(obj=self._views[kind], skip=True, selectSet=[view])
        return self._collected([start], wanted)

    def _asked(self, objects: Sequence[Any], kind: type, wanted: Sequence[str]) -> list[tuple[Any, Properties]]:
        """Return these objects, with their properties."""
        starts = [self._sdk.collector.ObjectSpec(obj=it, skip=False) for it in objects]
        return list(self._collected(starts, {kind: wanted})) if starts else []

    def _collected(
        self, starts: Sequence[Any], wanted: Mapping[type, Sequence[str]]
    ) -> Iterator[tuple[Any, Properties]]:
        collector, of = self._content.propertyCollector, self._sdk.collector
        specs = [of.PropertySpec(type=kind, pathSet=list(paths), all=False) for kind, paths in wanted.items()]
        options = of.RetrieveOptions(maxObjects=_PAGE)
        page = collector.RetrievePropertiesEx([of.FilterSpec(propSet=specs, objectSet=list(starts))], options)
        while page is not None:  # as it is where there is nothing
            for it in page.objects:
                missing = {each.path: _Missing(_fault(each.fault) or "unknown") for each in it.missingSet or ()}
                yield it.obj, missing | {each.name: each.val for each in it.propSet or ()}
            page = collector.ContinueRetrievePropertiesEx(page.token) if page.token else None

    def _traversal(self, kind: type, path: str, *, below: Sequence[Any] = ()) -> Any:
        return self._sdk.collector.TraversalSpec(type=kind, path=path, skip=False, selectSet=list(below))


class _Sdk:
    """What is used of the SDK, which has no types."""

    def __init__(self) -> None:
        package = importlib.import_module(PACKAGE)
        self.vim: Any = package.vim
        self.collector: Any = package.vmodl.query.PropertyCollector
        self.support: Any = importlib.import_module(f"{PACKAGE}.VmomiSupport")
        self.SoapStubAdapter: Any = importlib.import_module(f"{PACKAGE}.SoapAdapter").SoapStubAdapter


class _Missing:
    """A property that we were not told."""

    def __init__(self, why: str) -> None:
        self.why = why


_TASK = ("info.name", "info.state")


def _sdk() -> _Sdk:
    try:
        return _Sdk()
    except ImportError as error:
        raise lacking(error) from error


def _bounded(make: Callable[..., http.client.HTTPConnection], *args: Any, **more: Any) -> http.client.HTTPConnection:
    connection = make(*args, **more)
    connection.response_class = BoundedResponse
    return connection


def _is_entering(task: Properties) -> bool:
    name = str(task.get("info.name", "")).removesuffix("_Task")
    return name == _ENTERING and task.get("info.state") == "running"


def _power(machine: Properties) -> Power:
    said = str(machine.get("runtime.powerState", ""))
    return Power(said) if said in tuple(Power) else Power.UNKNOWN


def _listed(value: Any) -> Sequence[Any]:
    return () if value is None or isinstance(value, _Missing) else value


def _fault(error: object) -> str:
    """Return the name of a fault of vSphere: `InvalidLogin`; empty if it is something else."""
    name = type(error).__name__
    return name.rpartition(".")[2] if name.startswith(("vim.", "vmodl.")) else ""
