"""The check `hypervisorCondition`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haulout.profiles import topics
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Need, Scene, Verdict
from haulout.profiles.plugins.checks import _presence
from haulout.profiles.plugins.checks._hypervisors import missing, status_of
from haulout.profiles.plugins.checks.condition import status_warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class HypervisorCondition(Check):
    """Passes if a condition of the node's Hypervisor has a certain status.

    The Hypervisor (`hypervisors.kvm.cloud.sap/v1`) has the name of the node. A condition that it does not have does not
    pass, whatever status is asked for. If there is no Hypervisor the check does not pass, negated or not. Quote the
    status: without quotes YAML reads `True` as a truth value, which arrives as `true` and never matches.
    """

    type = "hypervisorCondition"
    example = "type: Evicting\nstatus: 'False'"
    needs = frozenset({Need.HYPERVISORS})

    condition: str = option("The condition's type.", required=True, key="type")
    status: str = option("The status that it must have: `'True'`, `'False'` or `'Unknown'`, in quotes.", required=True)

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        name = scene.node.name
        hypervisor = scene.sights.hypervisor(name)
        if hypervisor is None:
            return missing(name)
        found = next((it for it in _conditions(status_of(hypervisor)) if it.get("type") == self.condition), None)
        current = None if found is None else str(found.get("status", ""))
        return _presence.condition(self.condition, current, self.status, of=f"hypervisor {name}")

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        return (topics.hypervisor(node),)

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what will not do what was probably meant."""
        yield from status_warnings(self.status)


def _conditions(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = status.get("conditions")
    return [it for it in listed if isinstance(it, Mapping)] if isinstance(listed, list) else []
