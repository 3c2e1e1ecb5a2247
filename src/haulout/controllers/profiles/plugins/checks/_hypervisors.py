"""Helpers for the checks of hypervisors."""

from collections.abc import Mapping
from typing import Any

from haulout.api.objects import RawObject
from haulout.controllers.profiles.plugin import CheckResult, unknown


def hypervisor_missing(name: str) -> CheckResult:
    """Return the result if the hypervisor does not exist."""
    return unknown(f"Hypervisor {name} (hypervisors.kvm.cloud.sap) does not exist")


def status_of(hypervisor: RawObject) -> Mapping[str, Any]:
    status = hypervisor.get("status")
    return status if isinstance(status, Mapping) else {}
