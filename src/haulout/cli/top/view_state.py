"""What the user selected, and how keys change it. Pure.

state = handle_key(state, "down", names)
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from haulout.dashboard.api.types import NodeState, NodeSummary

_ORDER = (NodeState.BLOCKED, NodeState.DRAINING, NodeState.RECOVERING, NodeState.IN_MAINTENANCE, NodeState.PLANNED)
_PAGE_ROWS = 10


class Sort(StrEnum):
    """The order of nodes."""

    STATE = "state"  # problems first
    NAME = "name"
    SINCE = "since"
    NEXT = "next"


FILTERS: tuple[NodeState | None, ...] = (None, *_ORDER, NodeState.IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """The selection of the user."""

    sort: Sort = Sort.STATE
    state: NodeState | None = None  # None: all but idle nodes
    search: str = ""
    is_searching: bool = False
    selected_row: int = 0  # the highlighted row
    detail_node: str = ""  # the node whose details are shown
    has_quit: bool = False


def visible_nodes(state: ViewState, tiles: Iterable[NodeSummary]) -> list[NodeSummary]:
    """Return the nodes to show, in order."""
    matching = [tile for tile in tiles if _matches(state, tile)]
    match state.sort:
        case Sort.NAME:
            return sorted(matching, key=lambda tile: tile.name)
        case Sort.SINCE:
            return sorted(
                matching, key=lambda tile: (tile.since is None, tile.since.timestamp() if tile.since else 0, tile.name)
            )
        case Sort.NEXT:
            return sorted(
                matching,
                key=lambda tile: (tile.next_at is None, tile.next_at.timestamp() if tile.next_at else 0, tile.name),
            )
    return sorted(matching, key=lambda tile: (_rank(tile), tile.name))


def _rank(tile: NodeSummary) -> int:
    return _ORDER.index(tile.state) if tile.state in _ORDER else len(_ORDER)


def _matches(state: ViewState, tile: NodeSummary) -> bool:
    words = f"{tile.name} {tile.zone} {tile.pool} {tile.message} {tile.hold} {' '.join(tile.profiles)}".casefold()
    if state.search.casefold() not in words:
        return False
    if state.state is not None:
        return tile.state is state.state
    return tile.state is not NodeState.IDLE or bool(state.search)


def handle_key(state: ViewState, key: str, names: Sequence[str]) -> ViewState:
    """Return the selection after a key; `names` are the visible rows."""
    if state.is_searching:
        return _handle_search_key(state, key)
    if state.detail_node:
        return replace(state, detail_node="") if key in ("escape", "enter", "q", "left") else state
    last = max(len(names) - 1, 0)
    if key in _ENTER_KEYS:
        return replace(state, detail_node=names[min(state.selected_row, last)]) if names else state
    if key in _KEY_HANDLERS:
        return _KEY_HANDLERS[key](state)
    steps = {**_MOVES, "home": -last, "end": last}
    return replace(state, selected_row=min(max(state.selected_row + steps.get(key, 0), 0), last))


def _next_sort(state: ViewState) -> ViewState:
    sorts = list(Sort)
    return replace(state, sort=sorts[(sorts.index(state.sort) + 1) % len(sorts)])


def _next_filter(state: ViewState) -> ViewState:
    return replace(state, state=FILTERS[(FILTERS.index(state.state) + 1) % len(FILTERS)], selected_row=0)


_ENTER_KEYS = ("enter", "right")
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_PAGE_ROWS, "pagedown": _PAGE_ROWS}
_KEY_HANDLERS: dict[str, Callable[[ViewState], ViewState]] = {
    "q": lambda it: replace(it, has_quit=True),
    "/": lambda it: replace(it, is_searching=True, search="", selected_row=0),
    "s": _next_sort,
    "f": _next_filter,
    "escape": lambda it: replace(it, state=None, search="", selected_row=0),
}


def _handle_search_key(state: ViewState, key: str) -> ViewState:
    match key:
        case "enter":
            return replace(state, is_searching=False)
        case "escape":
            return replace(state, is_searching=False, search="")
        case "backspace":
            return replace(state, search=state.search[:-1])
    return replace(state, search=state.search + key, selected_row=0) if len(key) == 1 and key.isprintable() else state
