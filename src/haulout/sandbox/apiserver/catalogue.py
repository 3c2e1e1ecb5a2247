"""Which kinds the server serves now, found by their path.

Built-in kinds and those that a test made known stay; those of custom resources come, change and go with their
definitions.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from haulout.sandbox.apiserver.kinds import Kind


class Catalogue:
    """The kinds there are, in the order in which they came; of two at the same path the first is served."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[Kind, None] = {}
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._groups: Counter[str] = Counter()
        self._built_in: set[str] = set()
        self.change(add=kinds)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    def __contains__(self, kind: Kind) -> bool:
        return kind in self._kinds

    def __len__(self) -> int:
        return len(self._kinds)

    def change(self, *, remove: Iterable[Kind] = (), add: Iterable[Kind] = ()) -> None:
        """Serve other kinds from now on."""
        for kind in remove:
            del self._kinds[kind]
            self._groups[kind.group] -= 1
            if self._by_path[_path(kind)] is kind:
                del self._by_path[_path(kind)]
        for kind in add:
            self._kinds[kind] = None
            self._groups[kind.group] += 1
            self._by_path.setdefault(_path(kind), kind)
            if not kind.custom:
                self._built_in.add(kind.group)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind at a path."""
        return self._by_path.get((group, version, plural))

    def has_group(self, group: str) -> bool:
        """Tell whether anything is served in the group."""
        return self._groups[group] > 0

    def is_built_in(self, group: str) -> bool:
        """Tell whether it is a group of the server itself, which is there whatever is defined."""
        return group in self._built_in


def _path(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural
