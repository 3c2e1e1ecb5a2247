"""The check `anyLabel`."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.profiles import topics
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Scene, Verdict, fails, passes


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyLabel(Check):
    """Passes if any node of the cluster has a label and, if a value is given, exactly this value.

    The node itself is one of them. Negated, it is a switch for the whole cluster: as long as one node carries the
    label, nothing happens.
    """

    type = "anyLabel"
    example = "key: example.com/freeze\nvalue: 'true'"

    key: str = option("The label's key.", required=True)
    value: str = option("The value it must have. Without it, or if it is empty, any will do.", default="")

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        what = f"label {self.key}={self.value}" if self.value else f"label {self.key}"
        first = min(self._having(scene), default=None)
        return fails(f"no node has the {what}") if first is None else passes(f"node {first} has the {what}")

    def _having(self, scene: Scene) -> Iterator[str]:
        for sight in scene.sights.nodes_with(self.key):
            if self.value in ("", sight.node.metadata.labels.get(self.key)):
                yield sight.node.name

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        del node
        return (topics.label(self.key),)
