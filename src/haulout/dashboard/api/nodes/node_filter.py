"""The filter of nodes in a query: `?state=blocked,draining&zone=eu-1a&q=shop`.

Values of one parameter are alternatives, separated by commas or given by repeating it; all parameters must match. An
empty value matches everything, so that a form can send all its fields. In `q` every word must occur somewhere in the
tile.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TypeVar

from haulout.dashboard.api.types import NodeState, NodeSummary

PARAMETERS = ("state", "zone", "pool", "profile", "q")

_Value = TypeVar("_Value", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilter:
    """The conditions on a tile; an empty one matches everything."""

    states: frozenset[NodeState] = frozenset()
    zones: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    terms: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, condition.name) for condition in fields(self))

    def matches(self, tile: NodeSummary) -> bool:
        """Return whether a tile matches."""
        return (
            _is_in(tile.state, self.states)
            and _is_in(tile.zone, self.zones)
            and _is_in(tile.pool, self.pools)
            and (not self.profiles or not self.profiles.isdisjoint(tile.profiles))
            and (not self.terms or _has_terms(tile, self.terms))
        )

    def apply(self, tiles: Iterable[NodeSummary]) -> tuple[NodeSummary, ...]:
        """Return the matching tiles."""
        return tuple(tile for tile in tiles if self.matches(tile)) if self else tuple(tiles)


ALL_NODES = NodeFilter()


def _is_in(value: _Value, allowed: frozenset[_Value]) -> bool:
    return not allowed or value in allowed


def _has_terms(tile: NodeSummary, terms: tuple[str, ...]) -> bool:
    texts = (tile.name, tile.state, tile.message, tile.zone, tile.pool, tile.maintenance, tile.hold)
    pairs = (f"{key}={value}" for mapping in (tile.profiles, tile.labels) for key, value in mapping.items())
    text = "\n".join((*texts, *pairs)).casefold()
    return all(term in text for term in terms)
