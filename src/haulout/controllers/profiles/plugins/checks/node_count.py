"""The check `nodeCount`: whether the cluster has enough nodes."""

from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, PluginContext, fails, passes
from haulout.controllers.profiles.view import topics
from haulout.core.text import format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCount(Check):
    """Passes if the cluster has at least a number of nodes, whatever their state.

    Use it where maintenance replaces nodes: the next node starts only after the replacement of the last one has joined.
    """

    type = "nodeCount"
    example = "count: 12"

    count: int = option("How many nodes there must be; not 0.", required=True)

    def evaluate(self, context: PluginContext) -> CheckResult:
        current = len(context.cluster.nodes())
        outcome = passes if current >= self.count else fails
        reason = f"the cluster has {format_count(current, 'node')}, {self.count} needed"
        return outcome(reason, current=current, expected=self.count)

    def topics(self, node: str) -> tuple[str, ...]:
        del node
        return (topics.NODE_COUNT,)
