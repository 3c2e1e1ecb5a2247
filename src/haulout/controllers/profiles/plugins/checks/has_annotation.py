"""The check `hasAnnotation`: whether the node has an annotation. Approvals of people can set it."""

from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, PluginContext
from haulout.controllers.profiles.plugins.checks._comparison import compare_value


@dataclass(frozen=True, slots=True, kw_only=True)
class HasAnnotation(Check):
    """Passes if the node has an annotation and, if a value is given, exactly this value.

    Changes by triggers in the same reconcile already count.
    """

    type = "hasAnnotation"
    example = "key: example.com/approved-by"

    key: str = option("The annotation's key.", required=True)
    value: str = option("The value it must have. Without it, or if it is empty, any value passes.", default="")

    def evaluate(self, context: PluginContext) -> CheckResult:
        found = context.node.metadata.annotations.get(self.key)
        return compare_value(f"annotation {self.key}", found, self.value, of=f"node {context.node.name}")
