"""Immutable stored objects, whose JSON is encoded once for all readers.

To change an object, change a copy. `copy.deepcopy` of a stored object returns a plain object and is several times
faster than usual, because it decodes the JSON.
"""

from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject


class StoredObject(dict[str, Any]):
    """An object in the store; it caches its JSON, its copies do not."""

    __slots__ = ("_json",)

    _json: bytes

    @property
    def json(self) -> bytes:
        try:
            return self._json
        except AttributeError:
            self._json = msgspec.json.encode(self)
            return self._json

    def drop_json(self) -> None:
        """Drop the cached JSON of an object that is no longer the latest state, which most readers want."""
        if hasattr(self, "_json"):
            del self._json

    def __deepcopy__(self, _: object) -> JsonObject:
        copied: JsonObject = msgspec.json.decode(self.json)
        return copied

    def __reduce__(self) -> tuple[type[JsonObject], tuple[JsonObject]]:
        return dict, (dict(self),)


class PartPool:
    """Lets similar objects share equal parts, as the replicas of a workload do."""

    def __init__(self, *, limit: int = 20_000) -> None:
        self._limit = limit
        self._parts: dict[bytes, Any] = {}

    def share_parts(self, obj: JsonObject) -> JsonObject:
        """Return an equal object whose sections may be shared with other objects."""
        return {
            name: {inner: self._share(part) for inner, part in section.items()}
            if isinstance(section, dict)
            else section
            for name, section in obj.items()
        }

    def _share(self, part: Any) -> Any:
        if not isinstance(part, dict | list):
            return part
        if len(self._parts) >= self._limit:
            self._parts.clear()
        return self._parts.setdefault(msgspec.json.encode(part), part)


def encode_json(obj: Any) -> bytes:
    return obj.json if isinstance(obj, StoredObject) else msgspec.json.encode(obj)
