"""The check `anyLabel`: whether any node of the cluster has a label."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, PluginContext, fails, passes
from haulout.controllers.profiles.view import topics


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyLabel(Check):
    """Passes if any node of the cluster has a label and, if a value is given, exactly this value.

    This includes the node itself. Negated, it is a switch for the whole cluster: as long as one node has the label,
    nothing happens.
    """

    type = "anyLabel"
    example = "key: example.com/freeze\nvalue: 'true'"

    key: str = option("The label's key.", required=True)
    value: str = option("The value it must have. Without it, or if it is empty, any value passes.", default="")

    def evaluate(self, context: PluginContext) -> CheckResult:
        label_text = f"label {self.key}={self.value}" if self.value else f"label {self.key}"
        first = min(self._nodes_with_label(context), default=None)
        return fails(f"no node has the {label_text}") if first is None else passes(f"node {first} has the {label_text}")

    def _nodes_with_label(self, context: PluginContext) -> Iterator[str]:
        for observed in context.cluster.nodes_with(self.key):
            if self.value in ("", observed.node.metadata.labels.get(self.key)):
                yield observed.node.name

    def topics(self, node: str) -> tuple[str, ...]:
        del node
        return (topics.label(self.key),)
