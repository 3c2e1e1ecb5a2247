"""What the printers of all kinds are made of.

A printer has columns, and makes the cells of one object. Columns of priority 1 are those of `-o wide`; their cells are
always there. A printer sees a stored object, or the empty one of a bookmark, and must survive both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from haulout_sandbox.apiserver.ages import since
from haulout_sandbox.apiserver.kinds import JsonObject

Cells = list[Any]
Print = Callable[[JsonObject, datetime], Cells]

NONE, UNSET = "<none>", "<unset>"


@dataclass(frozen=True, slots=True)
class Header:
    """One column of a table."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Printer:
    """How one kind is shown."""

    headers: tuple[Header, ...]
    cells: Print


class Printers(dict[tuple[str, str], Printer]):
    """Printers by group and kind."""

    def of(self, group: str, *kinds: str, columns: Sequence[Header]) -> Callable[[Print], Print]:
        """Make the function below the printer of these kinds."""

        def register(cells: Print) -> Print:
            self.update({(group, kind): Printer(tuple(columns), cells) for kind in kinds})
            return cells

        return register


NAME, AGE = Header("Name", format="name"), Header("Age")


def texts(*names: str) -> tuple[Header, ...]:
    """Return columns of words."""
    return tuple(Header(name) for name in names)


def numbers(*names: str) -> tuple[Header, ...]:
    """Return columns of numbers."""
    return tuple(Header(name, "integer") for name in names)


def wide(*names: str) -> tuple[Header, ...]:
    """Return columns that only `-o wide` shows."""
    return tuple(Header(name, priority=1) for name in names)


def part(obj: Mapping[str, Any], *path: str) -> Any:
    """Return what lies at `path`, an empty dict if nothing does."""
    for name in path:
        obj = obj.get(name) or {}
    return obj


def name_of(obj: JsonObject) -> str:
    """Return the name, as a bookmark's object has it too."""
    return str(part(obj, "metadata").get("name", ""))


def age(obj: JsonObject, now: datetime) -> str:
    """Return how old the object is."""
    return since(part(obj, "metadata").get("creationTimestamp"), now)


def terminating(obj: JsonObject) -> bool:
    """Tell whether the object is being deleted."""
    return bool(part(obj, "metadata").get("deletionTimestamp"))


def equalities(wanted: Mapping[str, str] | None) -> str:
    """Return labels as `a=b,c=d`."""
    return ",".join(f"{key}={value}" for key, value in sorted((wanted or {}).items())) or NONE


_OPERATORS = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


def selector_text(selector: JsonObject | None) -> str:
    """Return a LabelSelector as a command line would say it, sorted by key."""
    selector = selector or {}
    said = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for it in selector.get("matchExpressions") or ():
        key, values = it.get("key", ""), ",".join(sorted(it.get("values") or ()))
        said.append((key, _OPERATORS.get(it.get("operator", ""), "<error>").format(key=key, values=values)))
    return ",".join(text for _, text in sorted(said, key=lambda pair: pair[0]))
