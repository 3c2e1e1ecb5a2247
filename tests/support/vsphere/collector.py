"""The property collector of the stand-in: objects, their properties, and how one gets from one to the other.

What is asked for are properties of kinds, and where to begin: at an object, or at a view, from which paths lead on.
Paths are followed one after the other, as `selectSet` of the request nests them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haulout_sandbox.clouds.vsphere.cloud import VsphereCloud, refused
from support.vsphere.soap import Element, Ref, Typed, text_of

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """An object, what is known of what was asked, and what is not, with the reason."""

    ref: Ref
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

    def collect(self, spec: Element) -> Iterator[Found]:
        """Yield what one `specSet` asks for."""
        wanted = {
            text_of(it, "type"): [path.text or "" for path in it.findall("pathSet")] for it in spec.findall("propSet")
        }
        for start in spec.findall("objectSet"):
            named = start.find("obj")
            if named is None:
                raise refused("InvalidArgument", "an objectSet has an obj")
            ref = Ref(named.get("type", ""), named.text or "")
            reached = self._reached(ref, start.findall("selectSet"))
            for it in (*(() if text_of(start, "skip") == "true" else (ref,)), *reached):
                if it.kind in wanted:
                    yield self._found(it, wanted[it.kind])

    def _reached(self, ref: Ref, paths: list[Element]) -> Iterator[Ref]:
        for path in paths:
            if text_of(path, "type") != ref.kind:
                continue
            for it in self._led(ref, text_of(path, "path")):
                yield it
                yield from self._reached(it, path.findall("selectSet"))

    def _led(self, ref: Ref, path: str) -> list[Ref]:
        if (ref.kind, path) == ("ContainerView", "view"):
            if ref.called not in self.views:
                raise _gone(ref)
            kind = self.views[ref.called]
            known = [*self._cloud.hosts] if kind == "HostSystem" else [*self._cloud.machines]
            return [Ref(kind, it) for it in known]
        found: list[Any] = self._values(ref).get(path, [])
        return [it for it in found if isinstance(it, Ref)]

    def _found(self, ref: Ref, paths: list[str]) -> Found:
        values = self._values(ref)
        hidden = {path: self.hidden[ref.kind, path] for path in paths if (ref.kind, path) in self.hidden}
        shown = {path: values[path] for path in paths if path in values and path not in hidden}
        return Found(ref, shown, hidden)

    def _values(self, ref: Ref) -> Values:
        try:
            return self._read[ref.kind](ref.called)
        except KeyError:
            raise _gone(ref) from None

    def _host(self, called: str) -> Values:
        host = self._cloud.hosts[called]
        on = [Ref("VirtualMachine", it.called) for it in self._cloud.machines.values() if it.host == called]
        known: dict[str, Any] = {
            "name": host.name,
            "runtime.inMaintenanceMode": host.in_maintenance,
            "recentTask": [Ref("Task", it) for it in host.tasks],
            "triggeredAlarmState": Typed("ArrayOfAlarmState", [self._alarm_state(called, it) for it in host.alarms]),
            "vm": on,
        }
        return known | ({"config.product.version": host.version} if host.is_connected else {})

    def _alarm_state(self, host: str, name: str) -> Values:
        alarm = self._cloud.alarms[name]
        return {
            "key": f"{alarm}.{host}",
            "entity": Ref("HostSystem", host),
            "alarm": Ref("Alarm", alarm),
            "overallStatus": "red",
            "time": self._cloud.clock.now(),
            "acknowledged": False,
        }

    def _machine(self, called: str) -> Values:
        machine = self._cloud.machines[called]
        tools = "guestToolsRunning" if machine.has_tools and machine.power == "poweredOn" else "guestToolsNotRunning"
        return {
            "name": machine.name,
            "runtime.powerState": Typed("VirtualMachinePowerState", machine.power),
            "runtime.host": Ref("HostSystem", machine.host),
            "guest.toolsRunningStatus": tools,
        }

    def _task(self, called: str) -> Values:
        task = self._cloud.tasks[called]
        known: dict[str, Any] = {"info.name": task.name, "info.state": Typed("TaskInfoState", task.state)}
        if task.fault:
            fault = {"fault": Typed(task.fault, _FIELDS.get(task.fault, {})), "localizedMessage": task.fault}
            known["info.error"] = Typed("LocalizedMethodFault", fault)
        return known

    def _alarm(self, called: str) -> Values:
        return {"info.name": {known: name for name, known in self._cloud.alarms.items()}[called]}


_FIELDS = {"InvalidPowerState": {"existingState": "poweredOff"}}


def _gone(ref: Ref) -> Exception:
    return refused("ManagedObjectNotFound", f"The object '{ref.kind}:{ref.called}' has already been deleted.")
