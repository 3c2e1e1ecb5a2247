"""The check `hypervisorCondition`: compares the status of a condition of the node's Hypervisor."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, Need, PluginContext
from haulout.controllers.profiles.plugins.checks import _comparison
from haulout.controllers.profiles.plugins.checks.check_hypervisor import hypervisor_missing, status_of
from haulout.controllers.profiles.plugins.checks.condition import status_warnings
from haulout.controllers.profiles.view import topics


@dataclass(frozen=True, slots=True, kw_only=True)
class HypervisorCondition(Check):
    """Passes if a condition of the node's Hypervisor has a certain status.

    The Hypervisor (`hypervisors.kvm.cloud.sap/v1`) has the name of the node. If it does not have the condition, the
    check does not pass, whatever the status. If there is no Hypervisor, the check does not pass, negated or not. Quote
    the status: without quotes YAML parses `True` as a boolean, which becomes `true` and never matches.
    """

    type = "hypervisorCondition"
    example = "type: Evicting\nstatus: 'False'"
    needs = frozenset({Need.HYPERVISORS})

    condition: str = option("The condition's type.", required=True, key="type")
    status: str = option("The status that it must have: `'True'`, `'False'` or `'Unknown'`, in quotes.", required=True)

    def evaluate(self, context: PluginContext) -> CheckResult:
        name = context.node.name
        hypervisor = context.cluster.hypervisor(name)
        if hypervisor is None:
            return hypervisor_missing(name)
        found = next(
            (condition for condition in _conditions(status_of(hypervisor)) if condition.get("type") == self.condition),
            None,
        )
        current = None if found is None else str(found.get("status", ""))
        return _comparison.compare_condition(self.condition, current, self.status, of=f"hypervisor {name}")

    def topics(self, node: str) -> tuple[str, ...]:
        return (topics.hypervisor(node),)

    def warnings(self) -> Iterator[tuple[str, str]]:
        yield from status_warnings(self.status)


def _conditions(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = status.get("conditions")
    return [condition for condition in listed if isinstance(condition, Mapping)] if isinstance(listed, list) else []
