"""The check `checkHypervisor`: compares fields in the status of the node's Hypervisor."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haulout.api.objects import RawObject
from haulout.controllers.profiles.config.options import REST, option
from haulout.controllers.profiles.plugin import (
    Check,
    CheckResult,
    Need,
    PluginContext,
    check_error,
    fails,
    passes,
    unknown,
)
from haulout.controllers.profiles.view import topics
from haulout.core.yaml_decoder import did_you_mean

_ZERO_VALUES: Mapping[str, Any] = {  # the fields that can be compared, with the values they have if absent
    "evicted": False,
    "numInstances": 0,
    "libVirtVersion": "",
    "hypervisorVersion": "",
    "hypervisorId": "",
    "serviceId": "",
    "internalIp": "",
    "specHash": "",
    "traits": [],
}
_KINDS = {bool: "true or false", int: "a whole number", str: "a text", list: "a list of texts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckHypervisor(Check):
    """Passes if fields in the status of the node's Hypervisor have certain values.

    The Hypervisor (`hypervisors.kvm.cloud.sap/v1`) has the name of the node. The keys are names of fields of its
    status: `evicted` (true or false), `numInstances` (a number), `traits` (a list of texts, in any order), and the
    texts `libVirtVersion`, `hypervisorVersion`, `hypervisorId`, `serviceId`, `internalIp` and `specHash`. Values must
    have exactly these types. All given fields must be equal; a field that is not in the status counts as false, 0 or
    empty. Without any key, the check passes if the Hypervisor exists.

    If there is no Hypervisor, the check does not pass, negated or not.
    """

    type = "checkHypervisor"
    example = "evicted: true\nnumInstances: 0"
    needs = frozenset({Need.HYPERVISORS})

    fields: Mapping[str, Any] = option(
        "Fields of the status, and the values that they must have.", default={}, kind=REST
    )

    def evaluate(self, context: PluginContext) -> CheckResult:
        found = context.cluster.hypervisor(context.node.name)
        if found is None:
            return hypervisor_missing(context.node.name)
        status = status_of(found)
        for key, wanted in self.fields.items():
            current = status.get(key, _ZERO_VALUES.get(key))
            if key not in _ZERO_VALUES or not _is_same_type(current, wanted):
                return check_error(
                    f"field {key} of hypervisor {context.node.name} is {current!r}, "
                    f"which cannot be compared with {wanted!r}"
                )
        for key, wanted in self.fields.items():
            current = status.get(key, _ZERO_VALUES[key])
            if _comparable(current) != _comparable(wanted):
                return fails(f"{key} of hypervisor {context.node.name} is {current!r}, not {wanted!r}")
        return passes(f"hypervisor {context.node.name} has all required values")

    def topics(self, node: str) -> tuple[str, ...]:
        return (topics.hypervisor(node),)

    def problems(self) -> Iterator[tuple[str, str]]:
        for key, wanted in self.fields.items():
            if key not in _ZERO_VALUES:
                yield (
                    key,
                    f"a hypervisor's status has no such field that can be compared{did_you_mean(key, _ZERO_VALUES)}",
                )
            elif not _is_same_type(_ZERO_VALUES[key], wanted):
                yield key, f"found {wanted!r}, expected {_KINDS[type(_ZERO_VALUES[key])]}"


def _is_same_type(one: Any, other: Any) -> bool:
    """Return whether two values have exactly the same type."""
    return type(one) is type(other) and (
        not isinstance(one, list) or all(isinstance(item, str) for item in (*one, *other))
    )


def _comparable(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


def hypervisor_missing(name: str) -> CheckResult:
    """Return the result if the hypervisor does not exist."""
    return unknown(f"Hypervisor {name} (hypervisors.kvm.cloud.sap) does not exist")


def status_of(hypervisor: RawObject) -> Mapping[str, Any]:
    status = hypervisor.get("status")
    return status if isinstance(status, Mapping) else {}
