"""The trigger `alterAnnotation`: sets or removes an annotation of the node."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.machine.node_draft import key_problem
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, Action, PluginContext, SetAnnotation, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterAnnotation(Trigger):
    """Sets an annotation of the node, or removes it.

    The annotation is written together with the node's new state, in one request, so no client sees one without the
    other.
    """

    type = "alterAnnotation"
    example = """\
key: example.com/approved-by
value: maintenance
"""

    key: str = option("The annotation's key.", required=True)
    value: str = option("The value to set; may be empty.", default="")
    remove: bool = option("Remove the annotation instead.", default=False)

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        del context
        return (SetAnnotation(self.key, None if self.remove else self.value),)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an error for the data annotation, which only the operator may write."""
        if self.key == DATA_ANNOTATION:
            yield "key", f"found {self.key}, which stores the state of the profiles, expected any other"

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield why the key is not valid. This is a warning because the Go controller loads such a file, too."""
        if reason := key_problem(self.key):
            yield "key", reason
