"""The check `condition`."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Scene, Verdict
from haulout.profiles.plugins.checks import _presence

STATUSES = ("True", "False", "Unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(Check):
    """Passes if a condition in the node's status has a certain status.

    A condition that the node does not have does not pass, whatever status is asked for. Quote the status: without
    quotes YAML reads `True` as a truth value, which arrives as `true` and never matches.
    """

    type = "condition"
    example = "type: Ready\nstatus: 'True'"

    condition: str = option("The condition's type, such as `Ready` or `DiskPressure`.", required=True, key="type")
    status: str = option("The status that it must have: `'True'`, `'False'` or `'Unknown'`, in quotes.", required=True)

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        found = next((it for it in scene.node.status.conditions if it.type == self.condition), None)
        return _presence.condition(
            self.condition,
            found.status if found else None,
            self.status,
            of=f"node {scene.node.name}",
            because=(found.message or found.reason) if found else "",
        )

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what will not do what was probably meant."""
        yield from status_warnings(self.status)


def status_warnings(status: str) -> Iterator[tuple[str, str]]:
    """Yield why a condition will never have a status."""
    meant = next((it for it in STATUSES if it.lower() == status.lower()), None)
    if meant not in (None, status):
        yield "status", f"found {status}, which no condition ever is; expected '{meant}', in quotes"
