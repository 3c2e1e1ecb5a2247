"""The check `hasLabel`: whether the node has a label. Approvals of people can set it."""

from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, PluginContext
from haulout.controllers.profiles.plugins.checks._comparison import compare_value


@dataclass(frozen=True, slots=True, kw_only=True)
class HasLabel(Check):
    """Passes if the node has a label and, if a value is given, exactly this value.

    Changes by triggers in the same reconcile already count.
    """

    type = "hasLabel"
    example = "key: example.com/reboot-needed\nvalue: 'true'"

    key: str = option("The label's key.", required=True)
    value: str = option("The value it must have. Without it, or if it is empty, any value passes.", default="")

    def evaluate(self, context: PluginContext) -> CheckResult:
        found = context.node.metadata.labels.get(self.key)
        return compare_value(f"label {self.key}", found, self.value, of=f"node {context.node.name}")
