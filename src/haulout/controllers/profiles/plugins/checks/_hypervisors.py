"""What the checks of hypervisors have in common."""

from collections.abc import Mapping
from typing import Any

from haulout.api.objects import RawObject
from haulout.controllers.profiles.plugin import CheckResult, unknown


def hypervisor_missing(name: str) -> CheckResult:
    """Return the verdict if there is no such hypervisor."""
    return unknown(f"there is no hypervisor {name} (hypervisors.kvm.cloud.sap), so nothing is known of it")


def status_of(hypervisor: RawObject) -> Mapping[str, Any]:
    """Return its status."""
    status = hypervisor.get("status")
    return status if isinstance(status, Mapping) else {}
