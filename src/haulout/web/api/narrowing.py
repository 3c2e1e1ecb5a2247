"""Which nodes somebody wants to see: `?state=blocked,draining&zone=eu-1a&q=shop`.

Values of one parameter are alternatives, given with commas or by repeating it; parameters add up. An empty value
narrows nothing, so that a form can send all its fields. In `q` every word must be found, somewhere in what a tile says.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TypeVar

from haulout.web.api.shapes import NodeState, Tile

PARAMETERS = ("state", "zone", "pool", "profile", "q")

_Value = TypeVar("_Value", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What a tile must have; empty means that anything will do."""

    states: frozenset[NodeState] = frozenset()
    zones: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, it.name) for it in fields(self))

    def admits(self, tile: Tile) -> bool:
        """Tell whether a tile is among those."""
        return (
            _among(tile.state, self.states)
            and _among(tile.zone, self.zones)
            and _among(tile.pool, self.pools)
            and (not self.profiles or not self.profiles.isdisjoint(tile.profiles))
            and (not self.words or _has_words(tile, self.words))
        )

    def of(self, tiles: Iterable[Tile]) -> tuple[Tile, ...]:
        """Return those of the tiles."""
        return tuple(tile for tile in tiles if self.admits(tile)) if self else tuple(tiles)


EVERYTHING = Narrowing()


def _among(value: _Value, wanted: frozenset[_Value]) -> bool:
    return not wanted or value in wanted


def _has_words(tile: Tile, words: tuple[str, ...]) -> bool:
    says = (tile.name, tile.state, tile.why, tile.zone, tile.pool, tile.maintenance, tile.hold)
    pairs = (f"{key}={value}" for where in (tile.profiles, tile.labels) for key, value in where.items())
    text = "\n".join((*says, *pairs)).casefold()
    return all(word in text for word in words)
