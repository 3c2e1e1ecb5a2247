"""The check `nodeCount`."""

from dataclasses import dataclass

from haulout.profiles import topics
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Scene, Verdict, fails, passes
from haulout.profiles.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCount(Check):
    """Passes if the cluster has at least a number of nodes, in whatever state they are.

    Use it where maintenance replaces nodes: the next one is not taken before the last one's successor has come.
    """

    type = "nodeCount"
    example = "count: 12"

    count: int = option("How many nodes there must be; not 0.", required=True)

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        current = len(scene.sights.nodes())
        says = passes if current >= self.count else fails
        why = f"the cluster has {counted(current, 'node')}, {self.count} needed"
        return says(why, current=current, expected=self.count)

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        del node
        return (topics.NODE_COUNT,)
