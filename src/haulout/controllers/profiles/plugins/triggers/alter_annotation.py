"""The trigger `alterAnnotation`."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.machine.metadata_validation import key_problem
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, Action, PluginContext, SetAnnotation, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterAnnotation(Trigger):
    """Sets an annotation of the node, or takes it off.

    The annotation is written together with the node's new state, so nobody sees the one without the other.
    """

    type = "alterAnnotation"
    example = """\
key: example.com/approved-by
value: maintenance
"""

    key: str = option("The annotation's key.", required=True)
    value: str = option("The value that it gets; may be empty.", default="")
    remove: bool = option("Take the annotation off instead.", default=False)

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return the one change."""
        del context
        return (SetAnnotation(self.key, None if self.remove else self.value),)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the one that is not to be touched."""
        if self.key == DATA_ANNOTATION:
            yield "key", f"found {self.key}, in which the state of the profiles is kept, expected any other"

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what no annotation can be called; the Go controller loads it, and so do we."""
        if reason := key_problem(self.key):
            yield "key", reason
