"""The trigger `alterLabel`: sets or removes a label of the node."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.machine.node_draft import key_problem, value_problem
from haulout.controllers.profiles.plugin import Action, PluginContext, SetLabel, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterLabel(Trigger):
    """Sets a label of the node, or removes it.

    The label is written together with the node's new state, in one request, so no client sees one without the other.
    """

    type = "alterLabel"
    example = """\
key: example.com/reboot-ok
value: "true"
"""

    key: str = option("The label's key.", required=True)
    value: str = option("The value to set; may be empty.", default="")
    remove: bool = option("Remove the label instead.", default=False)

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        del context
        return (SetLabel(self.key, None if self.remove else self.value),)

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield why the key or value is not valid. A warning only, because the Go controller loads such a file, too."""
        if reason := key_problem(self.key):
            yield "key", reason
        if not self.remove and (reason := value_problem(self.value)):
            yield "value", reason
