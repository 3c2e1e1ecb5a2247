"""The trigger `alterHypervisor`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haulout.core.shaped import meant
from haulout.kube.access import Permission
from haulout.profiles.options import REST, option
from haulout.profiles.performing import HYPERVISORS
from haulout.profiles.plugin import Effect, PatchHypervisor, Scene, Trigger

_TRUTH, _TEXT, _TEXTS = "true or false", "a text", "a list of texts"
_FIELDS = {
    "reboot": _TRUTH,
    "evacuateOnReboot": _TRUTH,
    "lifecycleEnabled": _TRUTH,
    "skipTests": _TRUTH,
    "highAvailability": _TRUTH,
    "createCertManagerCertificate": _TRUTH,
    "installCertificate": _TRUTH,
    "version": _TEXT,
    "maintenance": _TEXT,
    "maintenanceReason": _TEXT,
    "customTraits": _TEXTS,
    "aggregates": _TEXTS,
    "allowedProjects": _TEXTS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterHypervisor(Trigger):
    """Sets fields in the spec of the node's Hypervisor.

    The Hypervisor (`hypervisors.kvm.cloud.sap/v1`) has the name of the node. The keys are names of fields of its spec:
    `reboot`, `evacuateOnReboot`, `lifecycleEnabled`, `skipTests`, `highAvailability`, `createCertManagerCertificate`
    and `installCertificate` (true or false), the texts `version`, `maintenance` (empty, `manual`, `auto`, `ha` or
    `termination`) and `maintenanceReason`, and the lists of texts `customTraits`, `aggregates` and `allowedProjects`.
    Values must be of exactly these types. What is not given stays as it is; a list is replaced as a whole.

    If there is no Hypervisor the trigger fails, and is tried again.
    """

    type = "alterHypervisor"
    example = """\
maintenance: manual
maintenanceReason: kernel update
customTraits: [CUSTOM_DRAINING]
"""

    fields: Mapping[str, Any] = option("Fields of the spec, and the values that they get.", default={}, kind=REST)

    def effects(self, scene: Scene) -> tuple[Effect, ...]:
        """Return the one change; none if nothing is to be set."""
        del scene
        return (PatchHypervisor(dict(self.fields)),) if self.fields else ()

    def permissions(self, home: str) -> tuple[Permission, ...]:
        """Return what it takes to change it."""
        del home
        why = "change hypervisors"
        return (Permission(("patch",), HYPERVISORS.group, HYPERVISORS.plural, None, why),) if self.fields else ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield fields that there are not, and values that they cannot have."""
        for key, value in self.fields.items():
            if key not in _FIELDS:
                yield key, f"a hypervisor's spec has no such field that can be set{meant(key, _FIELDS)}"
            elif not _is(_FIELDS[key], value):
                yield key, f"found {value!r}, expected {_FIELDS[key]}"


def _is(kind: str, value: Any) -> bool:
    if kind == _TEXTS:
        return isinstance(value, (list, tuple)) and all(isinstance(it, str) for it in value)
    return isinstance(value, bool if kind == _TRUTH else str)
