"""The check `hasAnnotation`."""

from dataclasses import dataclass

from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Scene, Verdict
from haulout.profiles.plugins.checks._presence import compared


@dataclass(frozen=True, slots=True, kw_only=True)
class HasAnnotation(Check):
    """Passes if the node has an annotation and, if a value is given, exactly this value.

    Changes that a trigger has made in the same step already count.
    """

    type = "hasAnnotation"
    example = "key: example.com/approved-by"

    key: str = option("The annotation's key.", required=True)
    value: str = option("The value it must have. Without it, or if it is empty, any will do.", default="")

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        found = scene.node.metadata.annotations.get(self.key)
        return compared(f"annotation {self.key}", found, self.value, of=f"node {scene.node.name}")
