"""What a person chose to see, and what their keys change about it. Pure.

choice = pressed(choice, "down", names)
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from haulout.web.api.shapes import NodeState, Tile

_ORDER = (NodeState.BLOCKED, NodeState.DRAINING, NodeState.RECOVERING, NodeState.IN_MAINTENANCE, NodeState.PLANNED)
_PAGE = 10


class Sort(StrEnum):
    """In what order nodes are shown."""

    STATE = "state"  # those first that somebody should look at
    NAME = "name"
    SINCE = "since"
    NEXT = "next"


FILTERS: tuple[NodeState | None, ...] = (None, *_ORDER, NodeState.IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is to be seen."""

    sort: Sort = Sort.STATE
    state: NodeState | None = None  # None: all but idle ones
    search: str = ""
    is_typing: bool = False
    at: int = 0  # the row that is lit
    detail: str = ""  # the node that is shown alone
    is_over: bool = False


def shown(choice: Choice, tiles: Iterable[Tile]) -> list[Tile]:
    """Return the nodes to show, in order."""
    found = [it for it in tiles if _is_meant(choice, it)]
    match choice.sort:
        case Sort.NAME:
            return sorted(found, key=lambda it: it.name)
        case Sort.SINCE:
            return sorted(found, key=lambda it: (it.since is None, it.since.timestamp() if it.since else 0, it.name))
        case Sort.NEXT:
            return sorted(found, key=lambda it: (it.at is None, it.at.timestamp() if it.at else 0, it.name))
    return sorted(found, key=lambda it: (_rank(it), it.name))


def _rank(tile: Tile) -> int:
    return _ORDER.index(tile.state) if tile.state in _ORDER else len(_ORDER)


def _is_meant(choice: Choice, tile: Tile) -> bool:
    words = f"{tile.name} {tile.zone} {tile.pool} {tile.why} {tile.hold} {' '.join(tile.profiles)}".casefold()
    if choice.search.casefold() not in words:
        return False
    if choice.state is not None:
        return tile.state is choice.state
    return tile.state is not NodeState.IDLE or bool(choice.search)


def pressed(choice: Choice, key: str, names: Sequence[str]) -> Choice:
    """Return the choice after a key; `names` are the rows that there are."""
    if choice.is_typing:
        return _typed(choice, key)
    if choice.detail:
        return replace(choice, detail="") if key in ("escape", "enter", "q", "left") else choice
    last = max(len(names) - 1, 0)
    if key in _ENTERS:
        return replace(choice, detail=names[min(choice.at, last)]) if names else choice
    if key in _CHANGES:
        return _CHANGES[key](choice)
    steps = {**_STEPS, "home": -last, "end": last}
    return replace(choice, at=min(max(choice.at + steps.get(key, 0), 0), last))


def _sorted_otherwise(choice: Choice) -> Choice:
    sorts = list(Sort)
    return replace(choice, sort=sorts[(sorts.index(choice.sort) + 1) % len(sorts)])


def _filtered_otherwise(choice: Choice) -> Choice:
    return replace(choice, state=FILTERS[(FILTERS.index(choice.state) + 1) % len(FILTERS)], at=0)


_ENTERS = ("enter", "right")
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_PAGE, "pagedown": _PAGE}
_CHANGES: dict[str, Callable[[Choice], Choice]] = {
    "q": lambda it: replace(it, is_over=True),
    "/": lambda it: replace(it, is_typing=True, search="", at=0),
    "s": _sorted_otherwise,
    "f": _filtered_otherwise,
    "escape": lambda it: replace(it, state=None, search="", at=0),
}


def _typed(choice: Choice, key: str) -> Choice:
    match key:
        case "enter":
            return replace(choice, is_typing=False)
        case "escape":
            return replace(choice, is_typing=False, search="")
        case "backspace":
            return replace(choice, search=choice.search[:-1])
    return replace(choice, search=choice.search + key, at=0) if len(key) == 1 and key.isprintable() else choice
