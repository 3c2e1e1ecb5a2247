"""An indexed set of rows: what a cache holds.

A row is an object, or the few fields of it that are worth keeping. The store knows nothing of watching; it keeps rows
by key and under any number of indexes, in the order in which they came, so that a simulated run repeats exactly.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar


class Row(Protocol):
    """What a store must know of whatever it keeps."""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name."""
        ...

    @property
    def uid(self) -> str:
        """What tells it from a later object of the same name."""
        ...

    @property
    def resource_version(self) -> str:
        """Which state of the object it shows."""
        ...


R = TypeVar("R", bound=Row)
Indexer = Callable[[R], Sequence[str]]


class Store(Generic[R]):
    """Rows by key, and by what else they are asked for.

    `stays` may tell of two states of a row that all indexes put both under the same values. Where it does, which is
    cheaper than asking all indexes, the store remembers where each row is. `size` measures a row in bytes.
    """

    def __init__(
        self,
        indexes: Mapping[str, Indexer[R]] | None = None,
        *,
        stays: Callable[[R, R], bool] | None = None,
        size: Callable[[R], int] | None = None,
    ) -> None:
        self.size = 0  # of all rows, if they are measured
        self._size = size
        self._stays = stays
        self._places: dict[str, tuple[dict[str, R], ...]] = {}  # by key
        self._rows: dict[str, R] = {}
        self._indexers = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[str, R]]] = {name: {} for name in self._indexers}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def get(self, key: str) -> R | None:
        """Return the row with this key."""
        return self._rows.get(key)

    def all(self) -> Collection[R]:
        """Return all rows; a live view, so copy it before you wait for anything."""
        return self._rows.values()

    def by(self, index: str, value: str) -> Collection[R]:
        """Return the rows that `index` puts under `value`; a live view as well."""
        return self._indexes[index].get(value, {}).values()

    def put(self, row: R) -> R | None:
        """Keep `row`; returns the one that it replaces."""
        key = row.key
        old = self._rows.get(key)
        self._rows[key] = row
        if self._size is not None:
            self.size += self._size(row) - (0 if old is None else self._size(old))
        if old is not None and self._stays is not None and self._stays(old, row):
            for place in self._places[key]:
                place[key] = row
            return old
        places: list[dict[str, R]] = []
        for name, indexer in self._indexers.items():
            index, values = self._indexes[name], indexer(row)
            if old is not None and (before := indexer(old)) != values:
                self._leave(index, key, before)
            for value in values:
                bucket = index.get(value)
                if bucket is None:
                    bucket = index[value] = {}
                bucket[key] = row
                places.append(bucket)
        if self._stays is not None:
            self._places[key] = tuple(places)
        return old

    def drop(self, key: str) -> R | None:
        """Forget the row with this key, and return it."""
        old = self._rows.pop(key, None)
        if old is not None:
            if self._size is not None:
                self.size -= self._size(old)
            self._places.pop(key, None)
            self._unindex(key, old)
        return old

    def _unindex(self, key: str, row: R) -> None:
        for name, indexer in self._indexers.items():
            self._leave(self._indexes[name], key, indexer(row))

    def _leave(self, index: dict[str, dict[str, R]], key: str, values: Iterable[str]) -> None:
        for value in values:
            if (bucket := index.get(value)) is None:
                continue
            bucket.pop(key, None)
            if not bucket:
                del index[value]
