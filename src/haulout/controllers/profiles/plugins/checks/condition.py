"""The check `condition`: compares the status of a condition of the node."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, PluginContext
from haulout.controllers.profiles.plugins.checks import _comparison

STATUSES = ("True", "False", "Unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(Check):
    """Passes if a condition in the node's status has a certain status.

    If the node does not have the condition, the check does not pass, whatever the status. Quote the status: without
    quotes YAML parses `True` as a boolean, which becomes `true` and never matches.
    """

    type = "condition"
    example = "type: Ready\nstatus: 'True'"

    condition: str = option("The condition's type, such as `Ready` or `DiskPressure`.", required=True, key="type")
    status: str = option("The status that it must have: `'True'`, `'False'` or `'Unknown'`, in quotes.", required=True)

    def evaluate(self, context: PluginContext) -> CheckResult:
        found = context.node.condition(self.condition)
        return _comparison.compare_condition(
            self.condition,
            found.status if found else None,
            self.status,
            of=f"node {context.node.name}",
            details=(found.message or found.reason) if found else "",
        )

    def warnings(self) -> Iterator[tuple[str, str]]:
        yield from status_warnings(self.status)


def status_warnings(status: str) -> Iterator[tuple[str, str]]:
    """Yield why a condition can never have a status."""
    meant = next((known_status for known_status in STATUSES if known_status.lower() == status.lower()), None)
    if meant not in (None, status):
        yield "status", f"found {status}, which no condition ever is; expected '{meant}', in quotes"
