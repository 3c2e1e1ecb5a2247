"""What the checks of hypervisors have in common."""

from collections.abc import Mapping
from typing import Any

from haulout.kube.objects import RawObject
from haulout.profiles.plugin import Verdict, unknown


def missing(name: str) -> Verdict:
    """Return the verdict if there is no such hypervisor."""
    return unknown(f"there is no hypervisor {name} (hypervisors.kvm.cloud.sap), so nothing is known of it")


def status_of(hypervisor: RawObject) -> Mapping[str, Any]:
    """Return its status."""
    status = hypervisor.get("status")
    return status if isinstance(status, Mapping) else {}
