"""The trigger `alterFinalizer`."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.machine.metadata_validation import key_problem
from haulout.controllers.profiles.plugin import Action, PluginContext, SetFinalizer, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterFinalizer(Trigger):
    """Adds a finalizer to the node, or takes it off.

    While a node has a finalizer it cannot be deleted for good. Finalizers of others stay as they are.
    """

    type = "alterFinalizer"
    example = "key: example.com/maintenance"

    key: str = option("The finalizer.", required=True)
    remove: bool = option("Take it off instead.", default=False)

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return the one change."""
        del context
        return (SetFinalizer(self.key, not self.remove),)

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what no finalizer can be called; the Go controller loads it, and so do we."""
        if reason := key_problem(self.key):
            yield "key", reason
