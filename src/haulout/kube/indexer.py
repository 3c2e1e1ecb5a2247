"""An indexed store of rows: the content of a cache.

A row is an object, or the few fields of it that are worth keeping. The store does not watch. It keeps rows by key and
by any number of indexes, in insertion order, so that a simulated run is reproducible.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar


class CachedObject(Protocol):
    """The attributes that a store needs of its rows."""

    @property
    def key(self) -> str:
        """`namespace/name`; the name alone if the object is cluster-scoped."""
        ...

    @property
    def uid(self) -> str:
        """The UID, which differs from that of a later object with the same name."""
        ...

    @property
    def resource_version(self) -> str: ...


R = TypeVar("R", bound=CachedObject)
IndexFunc = Callable[[R], Sequence[str]]


class IndexedStore(Generic[R]):
    """Rows by key and by index.

    `has_same_index_values` may return whether all indexes map two versions of a row to the same values. That is cheaper
    than to evaluate all indexes; the store then remembers the buckets of each row. `size` returns the bytes of a row.
    """

    def __init__(
        self,
        indexes: Mapping[str, IndexFunc[R]] | None = None,
        *,
        has_same_index_values: Callable[[R, R], bool] | None = None,
        size: Callable[[R], int] | None = None,
    ) -> None:
        self.size = 0  # bytes of all rows, if `size` is given
        self._size = size
        self._has_same_index_values = has_same_index_values
        self._buckets: dict[str, tuple[dict[str, R], ...]] = {}  # row key to the index buckets that contain it
        self._rows: dict[str, R] = {}
        self._index_funcs = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[str, R]]] = {name: {} for name in self._index_funcs}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def get(self, key: str) -> R | None:
        return self._rows.get(key)

    def all(self) -> Collection[R]:
        """Return all rows. This is a live view: copy it before an `await`."""
        return self._rows.values()

    def by_index(self, index: str, value: str) -> Collection[R]:
        """Return the rows that `index` maps to `value`. This is a live view: copy it before an `await`."""
        return self._indexes[index].get(value, {}).values()

    def put(self, row: R) -> R | None:
        """Store `row`, and return the row that it replaces."""
        key = row.key
        old = self._rows.get(key)
        self._rows[key] = row
        if self._size is not None:
            self.size += self._size(row) - (0 if old is None else self._size(old))
        if old is not None and self._has_same_index_values is not None and self._has_same_index_values(old, row):
            # The key keeps its position in each bucket, so that the order of iteration stays reproducible.
            for bucket_of_key in self._buckets[key]:
                bucket_of_key[key] = row
            return old
        buckets: list[dict[str, R]] = []
        for name, indexer in self._index_funcs.items():
            index, values = self._indexes[name], indexer(row)
            if old is not None and (before := indexer(old)) != values:
                self._remove_from_index(index, key, before)
            for value in values:
                bucket = index.get(value)
                if bucket is None:
                    bucket = index[value] = {}
                bucket[key] = row
                buckets.append(bucket)
        if self._has_same_index_values is not None:
            self._buckets[key] = tuple(buckets)
        return old

    def drop(self, key: str) -> R | None:
        """Remove the row with this key, and return it."""
        old = self._rows.pop(key, None)
        if old is not None:
            if self._size is not None:
                self.size -= self._size(old)
            self._buckets.pop(key, None)
            self._unindex(key, old)
        return old

    def _unindex(self, key: str, row: R) -> None:
        for name, indexer in self._index_funcs.items():
            self._remove_from_index(self._indexes[name], key, indexer(row))

    def _remove_from_index(self, index: dict[str, dict[str, R]], key: str, values: Iterable[str]) -> None:
        for value in values:
            if (bucket := index.get(value)) is None:
                continue
            bucket.pop(key, None)
            # A cluster that replaces its nodes would otherwise leave one empty bucket for each node that ever existed.
            if not bucket:
                del index[value]
