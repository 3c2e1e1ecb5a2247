"""The property collector of the simulated vCenter: objects, their properties, and traversal between them.

A request names properties by type, and a starting point: an object, or a view with paths to traverse. Paths are
followed one after the other, as the `selectSet` of the request nests them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haulout_sandbox.clouds.vsphere.cloud import VsphereCloud, vim_fault
from support.clouds.vsphere.soap import Element, ManagedObjectRef, TypedValue, text_of

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CollectedObject:
    """An object, what is known of what was asked, and what is not, with the reason."""

    ref: ManagedObjectRef
    values: Values
    missing: Mapping[str, str]


class Collector:
    """Collects properties of what a vCenter knows; `views` are the kinds that views show."""

    def __init__(self, cloud: VsphereCloud) -> None:
        self._cloud = cloud
        self.views: dict[str, str] = {}
        self.hidden: dict[tuple[str, str], str] = {}  # by kind and property: the fault that is given instead
        self._read: Mapping[str, Callable[[str], Values]] = {
            "HostSystem": self._host,
            "VirtualMachine": self._machine,
            "Task": self._task,
            "Alarm": self._alarm,
        }

    def collect(self, spec: Element) -> Iterator[CollectedObject]:
        """Yield what one `specSet` asks for."""
        wanted = {
            text_of(item, "type"): [path.text or "" for path in item.findall("pathSet")]
            for item in spec.findall("propSet")
        }
        for start in spec.findall("objectSet"):
            named = start.find("obj")
            if named is None:
                raise vim_fault("InvalidArgument", "an objectSet has an obj")
            ref = ManagedObjectRef(named.get("type", ""), named.text or "")
            reached = self._traverse(ref, start.findall("selectSet"))
            for item in (*(() if text_of(start, "skip") == "true" else (ref,)), *reached):
                if item.kind in wanted:
                    yield self._collect_one(item, wanted[item.kind])

    def _traverse(self, ref: ManagedObjectRef, paths: list[Element]) -> Iterator[ManagedObjectRef]:
        for path in paths:
            if text_of(path, "type") != ref.kind:
                continue
            for target in self._referenced(ref, text_of(path, "path")):
                yield target
                yield from self._traverse(target, path.findall("selectSet"))

    def _referenced(self, ref: ManagedObjectRef, path: str) -> list[ManagedObjectRef]:
        if (ref.kind, path) == ("ContainerView", "view"):
            if ref.moid not in self.views:
                raise _not_found(ref)
            kind = self.views[ref.moid]
            known = [*self._cloud.hosts] if kind == "HostSystem" else [*self._cloud.machines]
            return [ManagedObjectRef(kind, item) for item in known]
        found: list[Any] = self._values(ref).get(path, [])
        return [item for item in found if isinstance(item, ManagedObjectRef)]

    def _collect_one(self, ref: ManagedObjectRef, paths: list[str]) -> CollectedObject:
        values = self._values(ref)
        hidden = {path: self.hidden[ref.kind, path] for path in paths if (ref.kind, path) in self.hidden}
        visible = {path: values[path] for path in paths if path in values and path not in hidden}
        return CollectedObject(ref, visible, hidden)

    def _values(self, ref: ManagedObjectRef) -> Values:
        try:
            return self._read[ref.kind](ref.moid)
        except KeyError:
            raise _not_found(ref) from None

    def _host(self, moid: str) -> Values:
        host = self._cloud.hosts[moid]
        on = [
            ManagedObjectRef("VirtualMachine", item.moref)
            for item in self._cloud.machines.values()
            if item.host == moid
        ]
        known: dict[str, Any] = {
            "name": host.name,
            "runtime.inMaintenanceMode": host.in_maintenance,
            "recentTask": [ManagedObjectRef("Task", item) for item in host.tasks],
            "triggeredAlarmState": TypedValue(
                "ArrayOfAlarmState", [self._alarm_state(moid, item) for item in host.alarms]
            ),
            "vm": on,
        }
        return known | ({"config.product.version": host.version} if host.is_connected else {})

    def _alarm_state(self, host: str, name: str) -> Values:
        alarm = self._cloud.alarms[name]
        return {
            "key": f"{alarm}.{host}",
            "entity": ManagedObjectRef("HostSystem", host),
            "alarm": ManagedObjectRef("Alarm", alarm),
            "overallStatus": "red",
            "time": self._cloud.clock.now(),
            "acknowledged": False,
        }

    def _machine(self, moid: str) -> Values:
        machine = self._cloud.machines[moid]
        tools = "guestToolsRunning" if machine.has_tools and machine.power == "poweredOn" else "guestToolsNotRunning"
        return {
            "name": machine.name,
            "runtime.powerState": TypedValue("VirtualMachinePowerState", machine.power),
            "runtime.host": ManagedObjectRef("HostSystem", machine.host),
            "guest.toolsRunningStatus": tools,
        }

    def _task(self, moid: str) -> Values:
        task = self._cloud.tasks[moid]
        known: dict[str, Any] = {"info.name": task.name, "info.state": TypedValue("TaskInfoState", task.state)}
        if task.fault:
            fault = {"fault": TypedValue(task.fault, _FIELDS.get(task.fault, {})), "localizedMessage": task.fault}
            known["info.error"] = TypedValue("LocalizedMethodFault", fault)
        return known

    def _alarm(self, moid: str) -> Values:
        return {"info.name": {known: name for name, known in self._cloud.alarms.items()}[moid]}


_FIELDS = {"InvalidPowerState": {"existingState": "poweredOff"}}


def _not_found(ref: ManagedObjectRef) -> Exception:
    return vim_fault("ManagedObjectNotFound", f"The object '{ref.kind}:{ref.moid}' has already been deleted.")
