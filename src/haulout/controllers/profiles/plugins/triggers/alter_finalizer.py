"""The trigger `alterFinalizer`: adds or removes a finalizer of the node."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.machine.node_draft import key_problem
from haulout.controllers.profiles.plugin import Action, PluginContext, SetFinalizer, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterFinalizer(Trigger):
    """Adds a finalizer to the node, or removes it.

    A node with a finalizer cannot be deleted completely. Other finalizers are not changed.
    """

    type = "alterFinalizer"
    example = "key: example.com/maintenance"

    key: str = option("The finalizer.", required=True)
    remove: bool = option("Remove it instead.", default=False)

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        del context
        return (SetFinalizer(self.key, not self.remove),)

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield why the name is not valid. This is a warning because the Go controller loads such a file, too."""
        if reason := key_problem(self.key):
            yield "key", reason
