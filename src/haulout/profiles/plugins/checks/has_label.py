"""The check `hasLabel`."""

from dataclasses import dataclass

from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Scene, Verdict
from haulout.profiles.plugins.checks._presence import compared


@dataclass(frozen=True, slots=True, kw_only=True)
class HasLabel(Check):
    """Passes if the node has a label and, if a value is given, exactly this value.

    Changes that a trigger has made in the same step already count.
    """

    type = "hasLabel"
    example = "key: example.com/reboot-needed\nvalue: 'true'"

    key: str = option("The label's key.", required=True)
    value: str = option("The value it must have. Without it, or if it is empty, any will do.", default="")

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        found = scene.node.metadata.labels.get(self.key)
        return compared(f"label {self.key}", found, self.value, of=f"node {scene.node.name}")
