"""The trigger `alterHypervisor`: patches the spec of the node's Hypervisor."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haulout.controllers.profiles.config.options import REST, option
from haulout.controllers.profiles.executor import HYPERVISORS
from haulout.controllers.profiles.plugin import Action, PatchHypervisor, PluginContext, Trigger
from haulout.core.yaml_decoder import did_you_mean
from haulout.kube.rbac import Permission

_BOOLEAN_TEXT, _STRING_TEXT, _STRINGS_TEXT = "true or false", "a text", "a list of texts"
_FIELDS = {
    "reboot": _BOOLEAN_TEXT,
    "evacuateOnReboot": _BOOLEAN_TEXT,
    "lifecycleEnabled": _BOOLEAN_TEXT,
    "skipTests": _BOOLEAN_TEXT,
    "highAvailability": _BOOLEAN_TEXT,
    "createCertManagerCertificate": _BOOLEAN_TEXT,
    "installCertificate": _BOOLEAN_TEXT,
    "version": _STRING_TEXT,
    "maintenance": _STRING_TEXT,
    "maintenanceReason": _STRING_TEXT,
    "customTraits": _STRINGS_TEXT,
    "aggregates": _STRINGS_TEXT,
    "allowedProjects": _STRINGS_TEXT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterHypervisor(Trigger):
    """Sets fields in the spec of the node's Hypervisor.

    The Hypervisor (`hypervisors.kvm.cloud.sap/v1`) has the name of the node. The keys are names of fields of its spec:
    `reboot`, `evacuateOnReboot`, `lifecycleEnabled`, `skipTests`, `highAvailability`, `createCertManagerCertificate`
    and `installCertificate` (true or false), the texts `version`, `maintenance` (empty, `manual`, `auto`, `ha` or
    `termination`) and `maintenanceReason`, and the lists of texts `customTraits`, `aggregates` and `allowedProjects`.
    Values must have exactly these types. Fields that are not given are not changed; a list is replaced as a whole.

    If there is no Hypervisor, the trigger fails and is retried.
    """

    type = "alterHypervisor"
    example = """\
maintenance: manual
maintenanceReason: kernel update
customTraits: [CUSTOM_DRAINING]
"""

    fields: Mapping[str, Any] = option("Fields of the spec, and the values to set.", default={}, kind=REST)

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return the patch; nothing if no fields are set."""
        del context
        return (PatchHypervisor(dict(self.fields)),) if self.fields else ()

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        del namespace
        reason = "change hypervisors"
        return (Permission(("patch",), HYPERVISORS.group, HYPERVISORS.plural, None, reason),) if self.fields else ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield unknown fields, and values of the wrong type."""
        for key, value in self.fields.items():
            if key not in _FIELDS:
                yield key, f"a hypervisor's spec has no such field that can be set{did_you_mean(key, _FIELDS)}"
            elif not _has_type(_FIELDS[key], value):
                yield key, f"found {value!r}, expected {_FIELDS[key]}"


def _has_type(kind: str, value: Any) -> bool:
    if kind == _STRINGS_TEXT:
        return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    return isinstance(value, bool if kind == _BOOLEAN_TEXT else str)
